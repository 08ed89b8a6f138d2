"""What a client gets back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

__all__ = [
    "Column",
    "Deployed",
    "Deployment",
    "FunctionInfo",
    "InvocationResult",
    "Operation",
    "Progress",
    "Queue",
    "ReplayProblem",
    "ReplayReport",
    "Run",
    "RunEvent",
    "Schedule",
    "StartOptions",
    "TrimmedLog",
    "WorkflowInfo",
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
    replay: ReplayReport | None = None  # of a check


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """How an application's unfinished runs would fare with new code."""

    live_runs: int
    checked: int  # fewer, when the time for it was over
    problems: Sequence[ReplayProblem]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProblem:
    """A run that could not go on with the new code. It keeps its own; a fork to it would break."""

    run_id: str
    workflow: str
    reason: str
    recorded: str | None  # the operation in the record ...
    now: str | None  # ... and what the new code does in its place


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
    created_at: datetime
    started_at: datetime | None  # None: it has not started
    finished_at: datetime | None
    trace: str | None
    # Of workflows only.
    queue: str | None = None
    executor: str | None = None  # who holds it or held it last; "database" in a backend
    parent_run_id: str | None = None
    forked_from: str | None = None
    deadline: datetime | None = None
    progress: Progress | None = None
    operations: Sequence[Operation] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run says that it is."""

    done: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One change of a run; exactly one field is set."""

    run: Run | None = None  # its status has changed; without operations
    operation: Operation | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """How a run of a workflow is started; everything may be left out."""

    queue: str | None = None
    priority: int = 0  # lower goes first
    queue_key: str | None = None  # for the queue's key_concurrency
    deduplication: str | None = None  # at most one unfinished run of the queue has it
    start_at: datetime | None = None  # aware
    timeout_s: float | None = None  # of the whole run, from its start
    deployment: str | None = None  # None: the current one
    executor_only: bool = False  # never in the database


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInfo:
    """A workflow that runs can be started of."""

    application: str
    name: str
    deployment: str
    doc: str
    signature: dict[str, Any]
    in_database: bool  # its runs take place in the database
    reasons: Sequence[str]  # why not: file:line: reason
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue; a limit that is None does not exist."""

    name: str
    concurrency: int | None = None  # runs at once
    executor_concurrency: int | None = None  # of them in one executor
    key_concurrency: int | None = None  # of them with the same key
    rate_limit: int | None = None  # starts per rate_period_s
    rate_period_s: float | None = None
    paused: bool = False
    waiting: int = 0  # runs that have not started; set in answers
    active: int = 0  # started and not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When runs of a workflow start: by a cron expression in a zone, or at a fixed interval."""

    name: str
    workflow: str
    input: dict[str, Any] = field(default_factory=dict)  # JSON document: the arguments by name
    application: str | None = None  # None: the one that has the workflow
    cron: str | None = None
    zone: str = "UTC"
    dst_policy: str = "once"  # once, skip, all
    every_s: float | None = None
    anchor: datetime | None = None  # of an interval; None: now
    missed: str = "one"  # skip, one, all
    queue: str | None = None
    paused: bool = False
    next: Sequence[datetime] = ()  # in answers: the next fires


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One stored version of an application."""

    id: str
    application: str
    current: bool
    created_at: datetime
    created_by: str
    live_runs: int  # runs that have not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimmedLog:
    """How many rows have gone from the log, or would go."""

    before: datetime  # what is from before this time
    invocations: int  # direct ones
    attempts: int  # of direct invocations
    row_changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a query's result."""

    name: str
    type: str  # PostgreSQL's name
