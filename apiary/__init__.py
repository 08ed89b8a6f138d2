"""Apiary: functions inside the database, workflows that run exactly once, provenance in SQL.

    from apiary import Database, function, step, workflow

Names are imported on first use: inside the database process only the authoring half exists, and
there nothing else is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .authoring.database import Database, Row
    from .authoring.decorators import Future, function, step, workflow
    from .authoring.primitives import (
        gather,
        get_event,
        now,
        progress,
        random,
        recv,
        run_id,
        send,
        set_event,
        sleep,
        sleep_until,
        step_key,
        uuid4,
        write_sources,
        write_stream,
    )
    from .client.aio import AsyncClient
    from .client.sync import Client
    from .errors import ApiaryError, ApplicationError, FunctionError, UniqueViolation, WaitTimedOut

_HOMES = {
    "ApiaryError": "errors",
    "ApplicationError": "errors",
    "AsyncClient": "client.aio",
    "Client": "client.sync",
    "Database": "authoring.database",
    "FunctionError": "errors",
    "Future": "authoring.decorators",
    "Row": "authoring.database",
    "UniqueViolation": "errors",
    "function": "authoring.decorators",
    "WaitTimedOut": "errors",
    "gather": "authoring.primitives",
    "get_event": "authoring.primitives",
    "now": "authoring.primitives",
    "progress": "authoring.primitives",
    "random": "authoring.primitives",
    "recv": "authoring.primitives",
    "run_id": "authoring.primitives",
    "send": "authoring.primitives",
    "set_event": "authoring.primitives",
    "sleep": "authoring.primitives",
    "sleep_until": "authoring.primitives",
    "step": "authoring.decorators",
    "step_key": "authoring.primitives",
    "uuid4": "authoring.primitives",
    "write_sources": "authoring.primitives",
    "write_stream": "authoring.primitives",
    "workflow": "authoring.decorators",
}

__all__ = [
    "ApiaryError",
    "ApplicationError",
    "AsyncClient",
    "Client",
    "Database",
    "FunctionError",
    "Future",
    "Row",
    "UniqueViolation",
    "WaitTimedOut",
    "function",
    "gather",
    "get_event",
    "now",
    "progress",
    "random",
    "recv",
    "run_id",
    "send",
    "set_event",
    "sleep",
    "sleep_until",
    "step",
    "step_key",
    "uuid4",
    "workflow",
    "write_sources",
    "write_stream",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'apiary' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
