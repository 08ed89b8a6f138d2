"""The contract between the platform and a database engine.

An engine runs one operation as one transaction and tells what came of it. It does not retry, and
it decides nothing: `execution` does. Another engine has to meet `Engine` and its tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from ..errors import ApiaryError

__all__ = ["DuplicateOperation", "Engine", "Invocation", "Outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One function call to be run and recorded as one transaction."""

    run_id: str
    seq: int = 0  # 0: a direct invocation; else the operation's number in its run
    application: str
    deployment: str | None = None  # None: the application's current one
    function: str
    input: str  # JSON object text: the arguments by name
    principal: str
    trace: str | None = None  # W3C traceparent
    attempt: int = 1
    keep: bool = True  # false: a read-only function need not be recorded
    lease_until: datetime | None = None  # refuse to record after this time (database clock)
    deferred: str | None = None  # JSON array: read-only calls before, to be recorded with this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an operation; exactly one of output and error is meaningful."""

    output: Any  # JSON document
    error: dict[str, Any] | None  # the recorded exception
    deployment: str
    xid: str | None  # the transaction; None when nothing was recorded
    replayed: bool  # true: read from the record, nothing ran
    unrecorded: dict[str, Any] | None = None  # the read-only operation, when it was not recorded


class DuplicateOperation(ApiaryError):
    """The operation was recorded by another transaction meanwhile; this one was rolled back."""

    reason = "DUPLICATE"


class Engine(Protocol):
    """What `execution` needs of a database engine."""

    async def invoke(self, invocation: Invocation) -> Outcome:
        """Run and record one function as one transaction: one attempt.

        Raises DuplicateOperation, TransactionConflict (may be tried again), UnavailableError
        (the outcome is unknown: look it up by the id), or the error that refused the call.
        """

    async def recorded(self, invocation: Invocation) -> Outcome | None:
        """The recorded outcome of this operation, or None.

        Raises IdempotencyMismatch when another function or input is recorded under its id.
        """

    async def log_attempt(
        self, invocation: Invocation, status: str, error: ApiaryError, started_at: datetime
    ) -> None:
        """Log an attempt that left no record."""
