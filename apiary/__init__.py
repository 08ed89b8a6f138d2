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
    from .client.aio import AsyncClient
    from .client.sync import Client
    from .errors import ApiaryError, ApplicationError, FunctionError, UniqueViolation

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
    "step": "authoring.decorators",
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
    "function",
    "step",
    "workflow",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'apiary' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
