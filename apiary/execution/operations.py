"""What a run's code waits on: operations that were begun, and how they end.

A workflow's code runs in a thread of its own; operations run on the executor's event loop. The
exceptions here unwind the code when its run is put aside or taken away. They are not Exceptions:
user code must not catch them by accident.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..authoring.decorators import Registered
from .replay import OperationRecord

__all__ = ["Abandoned", "Pending", "Suspended", "operation_row"]


class Suspended(BaseException):
    """The run waits for something: its code is unwound, and run again when that is there."""

    def __init__(
        self,
        waiting_for: dict[str, Any],
        wake_at: datetime | None = None,
        operations: tuple[dict[str, Any], ...] = (),
    ) -> None:
        super().__init__()
        self.waiting_for = waiting_for
        self.wake_at = wake_at
        self.operations = operations  # to be recorded with the wait


class Abandoned(BaseException):
    """The executor gives the run up: it lost the lease, drains, or was cancelled."""


@dataclass(slots=True, kw_only=True)
class Pending:
    """An operation that was begun, and is recorded, running here, or a child run elsewhere."""

    seq: int
    target: Registered
    decode: Callable[[Any], Any]
    record: OperationRecord | None = None
    running: ThreadFuture[OperationRecord] | None = None
    child_id: str | None = None
    input_digest: str | None = None
    ended_at: float = field(default=0.0)  # monotonic; orders completions of what ran here

    def settle(self, record: OperationRecord) -> None:
        """The operation has ended with this record."""
        self.record = record
        self.ended_at = time.monotonic()


def operation_row(
    seq: int,
    kind: str,
    name: str,
    *,
    output: Any = None,
    error: dict[str, Any] | None = None,
    document: dict[str, Any] | None = None,
    input_digest: str | None = None,
    attempt: int = 1,
    started_at: float | None = None,
    read_only: bool = False,
    log: str | None = None,
) -> dict[str, Any]:
    """An operation as apiary.insert_operations takes it; times are Unix times in seconds."""
    now = time.time()
    return {
        "seq": seq,
        "kind": kind,
        "name": name,
        "input": document,
        "input_digest": input_digest,
        "output": output,
        "error": error,
        "attempt": attempt,
        "started_at": now if started_at is None else started_at,
        "finished_at": now,
        "read_only": read_only,
        "log": log,
    }
