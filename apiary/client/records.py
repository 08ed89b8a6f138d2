"""What a client gets back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

__all__ = [
    "Column",
    "Deployed",
    "FunctionInfo",
    "InvocationResult",
    "Operation",
    "Run",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationResult:
    """What an invocation came to."""

    run_id: str
    output: Any  # decoded
    replayed: bool  # the recorded result of an earlier call: nothing ran now
    deployment: str
    xid: str | None  # the transaction; None when nothing was recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What a deploy or rollback did."""

    application: str
    deployment: str
    previous: str | None
    changed: bool  # false: this content was serving already
    functions: Sequence[str]
    workflows: Sequence[str]
    scripts: Sequence[str]  # table scripts that were applied now


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionInfo:
    """A function as it serves now."""

    application: str
    name: str
    deployment: str
    doc: str
    signature: dict[str, Any]  # parameters: name, type, sql_type, required, default; returns
    isolation: str
    timeout_s: float | None
    read_only: bool
    dynamic: bool  # some of its SQL is not constant
    reads: Sequence[str]  # tables
    writes: Sequence[str]
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One recorded call of a run, or one attempt that left no record."""

    seq: int
    kind: str
    name: str
    status: str
    attempt: int
    output: Any  # JSON document
    error: dict[str, Any] | None
    started_at: datetime
    finished_at: datetime | None
    xid: str | None
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run; those of a list have neither input, output, error nor operations."""

    run_id: str
    kind: str
    name: str
    application: str
    deployment: str
    principal: str
    status: str
    input: Any  # JSON document
    output: Any
    error: dict[str, Any] | None
    started_at: datetime
    finished_at: datetime | None
    trace: str | None
    operations: Sequence[Operation] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a query's result."""

    name: str
    type: str  # PostgreSQL's name
