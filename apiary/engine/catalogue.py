"""Reading what is deployed and what ran."""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from psycopg.rows import DictRow, dict_row
from sqlalchemy import (
    ARRAY,
    Compiled,
    CompoundSelect,
    DateTime,
    Dialect,
    Integer,
    Select,
    Text,
    all_,
    and_,
    bindparam,
    cast,
    exists,
    func,
    literal,
    null,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from ..errors import BadArgument, NotFound
from ..provenance import tables
from .postgres import PostgresEngine

__all__ = [
    "Catalogue",
    "FunctionRow",
    "OperationRow",
    "Page",
    "RunFilter",
    "RunRow",
    "unrecorded_operations",
]

_DIALECT: Dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]
_KINDS = ("function", "workflow")
_STATUSES = (
    "QUEUED",
    "SCHEDULED",
    "RUNNING",
    "WAITING",
    "SUCCEEDED",
    "FAILED",
    "CANCELLED",
    "TIMED_OUT",
    "STUCK",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRow:
    """A function as its application's current deployment has it."""

    application: str
    name: str
    deployment: str
    doc: str
    signature: str  # JSON text
    isolation: str
    timeout_ms: int | None
    read_only: bool
    dynamic: bool
    reads: Sequence[str]
    writes: Sequence[str]
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """One recorded call of a run, or one attempt that left no record; JSON as text."""

    seq: int
    kind: str
    name: str
    status: str
    attempt: int
    output: str | None
    error: str | None
    started_at: datetime
    finished_at: datetime | None
    xid: str | None
    log: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run; lists leave out its input, output, error and operations."""

    run_id: str
    kind: str
    name: str
    application: str
    deployment: str | None
    principal: str
    status: str
    created_at: datetime
    started_at: datetime | None  # None: it has not started
    finished_at: datetime | None
    trace: str | None
    # Of workflows only.
    queue: str | None = None
    executor: str | None = None
    parent_run_id: str | None = None
    forked_from: str | None = None
    deadline: datetime | None = None
    progress: str | None = None  # JSON text, as output
    # Not in lists.
    input: str | None = None
    output: str | None = None
    error: str | None = None
    unrecorded: str | None = None  # read-only calls at its end, which left no operations
    operations: Sequence[OperationRow] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are listed; what is empty or None excludes nothing."""

    application: str = ""
    kind: str = ""  # function, workflow
    name: str = ""
    statuses: Sequence[str] = ()
    since: datetime | None = None  # created at this time or later
    until: datetime | None = None  # created before it
    run_id_prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of runs, newest first, and the token of the next; None after the last."""

    runs: Sequence[RunRow]
    next_token: str | None


class Catalogue:
    """Read queries on the platform's tables."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    async def application_of(self, name: str) -> str:
        """The application that has the function ``name``: the one that has its domain."""
        domain = tables.domain
        rows = await self._rows(
            select(domain.c.application).where(domain.c.name == name.partition(".")[0])
        )
        if rows:
            return str(rows[0]["application"])
        raise self._unknown(name, await self.functions())

    async def functions(self, application: str = "") -> list[FunctionRow]:
        """The functions that serve now, by application and name.

        NotFound for an application that is named and does not exist.
        """
        application_table, function = tables.application, tables.function
        statement = _functions().order_by(application_table.c.name, function.c.name)
        if application:
            statement = statement.where(application_table.c.name == application)
        rows = await self._rows(statement)
        if not rows and application:
            await self._require_application(application)
        return [FunctionRow(**row) for row in rows]

    async def function(self, name: str, application: str = "") -> FunctionRow:
        """One function that serves now; NotFound with the nearest name."""
        statement = _functions().where(tables.function.c.name == name)
        if application:
            statement = statement.where(tables.application.c.name == application)
        rows = await self._rows(statement)
        if not rows:
            raise self._unknown(name, await self.functions(application))
        return FunctionRow(**rows[0])

    async def run(self, run_id: str) -> RunRow:
        """One run with its operations and their attempts; NotFound when there is none."""
        run = await self.run_alone(run_id)
        rows = await self._rows(_operations(run_id))
        operations = [OperationRow(**row) for row in rows]
        recorded = {operation.seq for operation in operations}
        late = [row for row in unrecorded_operations(run) if row.seq not in recorded]
        return replace(run, operations=operations + late)

    async def run_alone(self, run_id: str) -> RunRow:
        """One run without its operations; NotFound when there is none."""
        rows = await self._send(_run_by_id(), {"run_id": run_id})
        if not rows:
            raise NotFound(
                f"no run {run_id!r}",
                hint="a call that was refused leaves no run; apiary sql searches the log",
                kind="run",
                name=run_id,
            )
        return RunRow(**rows[0])

    async def new_operations(self, run_id: str, after: int, seen: set[int]) -> list[OperationRow]:
        """The recorded operations beyond number ``after``, but for those in ``seen``."""
        values = {"run_id": run_id, "after": after, "seen": sorted(seen)}
        return [OperationRow(**row) for row in await self._send(_operations_after(), values)]

    async def runs(self, wanted: RunFilter, *, size: int, token: str = "") -> Page:
        """A page of at most ``size`` runs, newest first; BadArgument for a wrong filter."""
        runs = _runs(detailed=False).subquery()
        statement = (
            select(runs)
            .where(and_(true(), *_conditions(runs, wanted)))
            .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
            .limit(size + 1)
        )
        if token:
            created_at, run_id = _decode_token(token)
            key = tuple_(runs.c.created_at, runs.c.run_id)
            statement = statement.where(key < tuple_(literal(created_at), literal(run_id)))
        rows = [RunRow(**row) for row in await self._rows(statement)]
        more = len(rows) > size
        return Page(runs=rows[:size], next_token=_encode_token(rows[size - 1]) if more else None)

    async def _require_application(self, name: str) -> None:
        application = tables.application
        rows = await self._rows(select(application.c.name))
        known = [str(row["name"]) for row in rows]
        if name not in known:
            raise NotFound(
                f"no application {name!r}",
                hint=_nearest(name, known) or "apiary deploy PATH puts one into the database",
                kind="application",
                name=name,
            )

    def _unknown(self, name: str, known: Sequence[FunctionRow]) -> NotFound:
        return NotFound(
            f"no function {name!r}",
            hint=_nearest(name, [row.name for row in known])
            or "apiary function list shows what there is",
            kind="function",
            name=name,
        )

    async def _rows(self, statement: Select[Any] | CompoundSelect[Any]) -> list[DictRow]:
        return await self._send(_compiled(statement), {})

    async def _send(self, statement: Compiled, values: Mapping[str, Any]) -> list[DictRow]:
        parameters = statement.construct_params(values)
        return await self._engine.rows(statement.string, parameters, dict_row)


def _functions() -> Select[Any]:
    application, function = tables.application, tables.function
    return select(
        application.c.name.label("application"),
        function.c.name,
        function.c.deployment,
        function.c.doc,
        cast(function.c.signature, Text).label("signature"),
        function.c.isolation,
        function.c.timeout_ms,
        function.c.read_only,
        function.c.dynamic,
        function.c.reads,
        function.c.writes,
        function.c.file,
        function.c.line,
    ).join(function, function.c.deployment == application.c.current)


def _runs(*, detailed: bool) -> CompoundSelect[Any]:
    """What a run is, in one place: workflows' runs, recorded direct invocations, and those of the
    latter that left attempts only.

    ``detailed`` adds input, output, error and what was not recorded.
    """
    operation, attempt, run = tables.operation, tables.attempt, tables.run
    # Operation 0 of a workflow's run only holds its id.
    recorded = select(*_invocation_columns(operation, operation.c.status)).where(
        operation.c.seq == 0, operation.c.kind != "start"
    )
    # The last attempt tells how it ended; after a conflict, another one is on its way.
    later = attempt.alias("later")
    status = func.replace(attempt.c.status, "RETRIED", "RUNNING").label("status")
    attempted = select(*_invocation_columns(attempt, status)).where(
        attempt.c.seq == 0,
        ~exists().where(operation.c.run_id == attempt.c.run_id, operation.c.seq == 0),
        ~exists().where(
            later.c.run_id == attempt.c.run_id, later.c.seq == 0, later.c.id > attempt.c.id
        ),
    )
    workflows = select(
        run.c.run_id,
        literal("workflow").label("kind"),
        run.c.workflow.label("name"),
        run.c.application,
        run.c.deployment,
        run.c.principal,
        run.c.status,
        run.c.created_at,
        run.c.started_at,
        run.c.finished_at,
        run.c.trace,
        run.c.queue,
        run.c.executor,
        run.c.parent_run_id,
        run.c.forked_from,
        run.c.deadline,
        cast(run.c.progress, Text).label("progress"),
    )
    if detailed:
        nothing = cast(null(), Text)
        recorded = recorded.add_columns(
            *_texts(operation, "input", "output", "error"), nothing.label("unrecorded")
        )
        attempted = attempted.add_columns(
            nothing.label("input"),
            nothing.label("output"),
            *_texts(attempt, "error"),
            nothing.label("unrecorded"),
        )
        workflows = workflows.add_columns(*_texts(run, "input", "output", "error", "unrecorded"))
    return union_all(recorded, attempted, workflows)


def _invocation_columns(table: Any, status: Any) -> list[Any]:
    """The columns of a function's run; those that only workflows have are NULL."""
    nothing = cast(null(), Text)
    return [
        table.c.run_id,
        table.c.kind,
        table.c.name,
        table.c.application,
        table.c.deployment,
        table.c.principal,
        status,
        table.c.started_at.label("created_at"),
        table.c.started_at,
        table.c.finished_at,
        table.c.trace,
        nothing.label("queue"),
        nothing.label("executor"),
        nothing.label("parent_run_id"),
        nothing.label("forked_from"),
        cast(null(), DateTime(timezone=True)).label("deadline"),
        nothing.label("progress"),
    ]


def _texts(table: Any, *names: str) -> list[Any]:
    return [cast(table.c[name], Text).label(name) for name in names]


# What everybody who waits for a run asks: compiled once, as composing it costs more than asking.


@cache
def _run_by_id() -> Compiled:
    runs = _runs(detailed=True).subquery()
    return _compiled(select(runs).where(runs.c.run_id == bindparam("run_id", type_=Text)))


@cache
def _operations_after() -> Compiled:
    operation = tables.operation
    statement = _recorded_operations(bindparam("run_id", type_=Text)).where(
        operation.c.seq > bindparam("after", type_=Integer),
        operation.c.seq != all_(bindparam("seen", type_=ARRAY(Integer))),
    )
    return _compiled(statement.order_by(operation.c.seq))


def _compiled(statement: Select[Any] | CompoundSelect[Any]) -> Compiled:
    return statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})


def _recorded_operations(run_id: Any) -> Select[Any]:
    operation = tables.operation
    return select(
        operation.c.seq,
        operation.c.kind,
        operation.c.name,
        operation.c.status,
        operation.c.attempt,
        *_texts(operation, "output", "error"),
        operation.c.started_at,
        operation.c.finished_at,
        *_texts(operation, "xid"),
        operation.c.log,
    ).where(operation.c.run_id == run_id, operation.c.kind != "start")


def _operations(run_id: str) -> Select[Any]:
    attempt = tables.attempt
    attempted = select(
        attempt.c.seq,
        attempt.c.kind,
        attempt.c.name,
        attempt.c.status,
        attempt.c.attempt,
        null().label("output"),
        *_texts(attempt, "error"),
        attempt.c.started_at,
        attempt.c.finished_at,
        null().label("xid"),
        attempt.c.log,
    ).where(attempt.c.run_id == run_id)
    both = union_all(_recorded_operations(run_id), attempted).subquery()
    return select(both).order_by(both.c.seq, both.c.attempt, both.c.started_at)


def unrecorded_operations(run: RunRow) -> list[OperationRow]:
    """The read-only calls at a run's end, which nothing depended on; its own row keeps them."""
    return [
        OperationRow(
            seq=each["seq"],
            kind=each["kind"],
            name=each["name"],
            status="SUCCEEDED" if each.get("error") is None else "FAILED",
            attempt=each.get("attempt") or 1,
            output=_json_text(each.get("output")),
            error=_json_text(each.get("error")),
            started_at=datetime.fromtimestamp(each["started_at"], UTC),
            finished_at=datetime.fromtimestamp(each["finished_at"], UTC),
            xid=None,
            log=each.get("log"),
        )
        for each in json.loads(run.unrecorded or "null") or []
    ]


def _json_text(document: Any) -> str | None:
    return None if document is None else json.dumps(document, ensure_ascii=False)


def _conditions(runs: Any, wanted: RunFilter) -> list[Any]:
    found: list[Any] = []
    if wanted.application:
        found.append(runs.c.application == wanted.application)
    if wanted.kind:
        if wanted.kind not in _KINDS:
            raise BadArgument(
                f"kind is {wanted.kind!r}; expected function or workflow", path="kind"
            )
        found.append(runs.c.kind == wanted.kind)
    if wanted.name:
        found.append(runs.c.name == wanted.name)
    if wanted.statuses:
        for status in wanted.statuses:
            if status not in _STATUSES:
                raise BadArgument(
                    f"statuses: no run has the status {status!r}",
                    hint=f"statuses are {', '.join(_STATUSES)}",
                    path="statuses",
                )
        found.append(runs.c.status.in_(list(wanted.statuses)))
    if wanted.since is not None:
        found.append(runs.c.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(runs.c.created_at < wanted.until)
    if wanted.run_id_prefix:
        found.append(func.starts_with(runs.c.run_id, wanted.run_id_prefix))
    return found


def _encode_token(run: RunRow) -> str:
    text = json.dumps([run.created_at.isoformat(), run.run_id])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode_token(token: str) -> tuple[datetime, str]:
    try:
        created_at, run_id = json.loads(base64.urlsafe_b64decode(token.encode()))
        return datetime.fromisoformat(created_at), str(run_id)
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadArgument(
            "page_token is none of this server's",
            hint="pass next_page_token of the page before as it was, with the same filters",
            path="page_token",
        ) from error


def _nearest(name: str, known: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else None
