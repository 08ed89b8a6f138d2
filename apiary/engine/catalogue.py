"""Reading what is deployed and what ran."""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row
from sqlalchemy import (
    CompoundSelect,
    Dialect,
    Select,
    Text,
    and_,
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
from .sqlstates import translate

__all__ = ["Catalogue", "FunctionRow", "OperationRow", "Page", "RunFilter", "RunRow"]

_DIALECT: Dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]
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
    started_at: datetime
    finished_at: datetime | None
    trace: str | None
    input: str | None = None
    output: str | None = None
    error: str | None = None
    operations: Sequence[OperationRow] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are listed; what is empty or None excludes nothing."""

    application: str = ""
    name: str = ""
    statuses: Sequence[str] = ()
    since: datetime | None = None  # started at this time or later
    until: datetime | None = None  # started before it
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
        runs = _runs(detailed=True).subquery()
        rows = await self._rows(select(runs).where(runs.c.run_id == run_id))
        if not rows:
            raise NotFound(
                f"no run {run_id!r}",
                hint="a call that was refused leaves no run; apiary sql searches the log",
                kind="run",
                name=run_id,
            )
        operations = await self._rows(_operations(run_id))
        return RunRow(**rows[0], operations=[OperationRow(**row) for row in operations])

    async def runs(self, wanted: RunFilter, *, size: int, token: str = "") -> Page:
        """A page of at most ``size`` runs, newest first; BadArgument for a wrong filter."""
        runs = _runs(detailed=False).subquery()
        statement = (
            select(runs)
            .where(and_(true(), *_conditions(runs, wanted)))
            .order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
            .limit(size + 1)
        )
        if token:
            started_at, run_id = _decode_token(token)
            key = tuple_(runs.c.started_at, runs.c.run_id)
            statement = statement.where(key < tuple_(literal(started_at), literal(run_id)))
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
        compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
        try:
            async with self._engine.connection() as connection:
                cursor = connection.cursor(row_factory=dict_row)
                await cursor.execute(str(compiled).encode(), compiled.params)
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise translate(error) from error


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
    """What a run is, in one place: a workflow's, a recorded direct invocation, or one of which
    there are attempts only. ``detailed`` adds input, output and error.

    A workflow's run that waits to be started counts from its creation.
    """
    operation, attempt, run = tables.operation, tables.attempt, tables.run
    of_workflows = select(
        run.c.run_id,
        literal("workflow", Text).label("kind"),
        run.c.workflow.label("name"),
        run.c.application,
        run.c.deployment,
        run.c.principal,
        run.c.status,
        func.coalesce(run.c.started_at, run.c.created_at).label("started_at"),
        run.c.finished_at,
        run.c.trace,
    )
    recorded = select(
        operation.c.run_id,
        operation.c.kind,
        operation.c.name,
        operation.c.application,
        operation.c.deployment,
        operation.c.principal,
        operation.c.status,
        operation.c.started_at,
        operation.c.finished_at,
        operation.c.trace,
    ).where(operation.c.seq == 0, operation.c.kind == "function")
    # The last attempt tells how it ended; after a conflict, another one is on its way.
    later = attempt.alias("later")
    attempted = select(
        attempt.c.run_id,
        attempt.c.kind,
        attempt.c.name,
        attempt.c.application,
        attempt.c.deployment,
        attempt.c.principal,
        func.replace(attempt.c.status, "RETRIED", "RUNNING").label("status"),
        attempt.c.started_at,
        attempt.c.finished_at,
        attempt.c.trace,
    ).where(
        attempt.c.seq == 0,
        ~exists().where(operation.c.run_id == attempt.c.run_id, operation.c.seq == 0),
        ~exists().where(
            later.c.run_id == attempt.c.run_id, later.c.seq == 0, later.c.id > attempt.c.id
        ),
    )
    if detailed:
        of_workflows = of_workflows.add_columns(
            cast(run.c.input, Text).label("input"),
            cast(run.c.output, Text).label("output"),
            cast(run.c.error, Text).label("error"),
        )
        recorded = recorded.add_columns(
            cast(operation.c.input, Text).label("input"),
            cast(operation.c.output, Text).label("output"),
            cast(operation.c.error, Text).label("error"),
        )
        attempted = attempted.add_columns(
            null().label("input"),
            null().label("output"),
            cast(attempt.c.error, Text).label("error"),
        )
    return union_all(of_workflows, recorded, attempted)


def _operations(run_id: str) -> Select[Any]:
    operation, attempt = tables.operation, tables.attempt
    recorded = select(
        operation.c.seq,
        operation.c.kind,
        operation.c.name,
        operation.c.status,
        operation.c.attempt,
        cast(operation.c.output, Text).label("output"),
        cast(operation.c.error, Text).label("error"),
        operation.c.started_at,
        operation.c.finished_at,
        cast(operation.c.xid, Text).label("xid"),
        operation.c.log,
    ).where(operation.c.run_id == run_id, operation.c.kind != "start")
    attempted = select(
        attempt.c.seq,
        attempt.c.kind,
        attempt.c.name,
        attempt.c.status,
        attempt.c.attempt,
        null().label("output"),
        cast(attempt.c.error, Text).label("error"),
        attempt.c.started_at,
        attempt.c.finished_at,
        null().label("xid"),
        attempt.c.log,
    ).where(attempt.c.run_id == run_id)
    both = union_all(recorded, attempted).subquery()
    return select(both).order_by(both.c.seq, both.c.attempt, both.c.started_at)


def _conditions(runs: Any, wanted: RunFilter) -> list[Any]:
    found: list[Any] = []
    if wanted.application:
        found.append(runs.c.application == wanted.application)
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
        found.append(runs.c.started_at >= wanted.since)
    if wanted.until is not None:
        found.append(runs.c.started_at < wanted.until)
    if wanted.run_id_prefix:
        found.append(func.starts_with(runs.c.run_id, wanted.run_id_prefix))
    return found


def _encode_token(run: RunRow) -> str:
    text = json.dumps([run.started_at.isoformat(), run.run_id])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode_token(token: str) -> tuple[datetime, str]:
    try:
        started_at, run_id = json.loads(base64.urlsafe_b64decode(token.encode()))
        return datetime.fromisoformat(started_at), str(run_id)
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadArgument(
            "page_token is none of this server's",
            hint="pass next_page_token of the page before as it was, with the same filters",
            path="page_token",
        ) from error


def _nearest(name: str, known: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else None
