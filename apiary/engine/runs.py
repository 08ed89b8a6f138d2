"""The statements by which the server and the executors move runs; see code/1*.sql for each.

Every method is one statement in a transaction of its own at READ COMMITTED. One that acts for an
executor names the epoch that it holds, and raises LeaseLost when the run is no longer its own.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import class_row

from ..errors import ApiaryError, NotFound, TransactionConflict
from .postgres import PostgresEngine

__all__ = ["ClaimedRun", "Look", "RunOutcome", "RunStore", "StartRequest", "Superseded"]


class Superseded(Exception):
    """The deployment that a start took for the current one is not that: nothing was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A run to be started."""

    run_id: str
    application: str
    deployment: str
    workflow: str
    in_database: bool
    input: dict[str, Any]  # JSON document: the arguments by name
    input_digest: str
    principal: str
    trace: str | None = None
    queue: str | None = None
    priority: int = 0  # lower goes first
    queue_key: str | None = None
    deduplication: str | None = None
    start_at: datetime | None = None
    deadline: datetime | None = None
    max_adoptions: int | None = None
    parent_run_id: str | None = None
    parent_seq: int | None = None
    parent_epoch: int | None = None  # which the starter holds
    if_current: bool = False  # only if the deployment is its application's current one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Where a run stands."""

    run_id: str
    created: bool  # false: the run was there before
    status: str
    output: Any = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that an executor holds."""

    run_id: str
    application: str
    workflow: str
    deployment: str
    principal: str
    in_database: bool
    input: dict[str, Any]
    waiting_for: dict[str, Any] | None  # what it was parked for
    epoch: int
    adoptions: int
    deadline: datetime | None
    queue: str | None
    trace: str | None
    forked: bool  # it began with operations of another run
    started_at: datetime
    seed: str  # of its random numbers
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class Look:
    """What an executor sees when it looks; all times are the database's."""

    now: datetime
    ready_at: datetime | None  # since when a run waits to be claimed
    next_ready_at: datetime | None  # when the next run may move by time alone
    deadline: datetime | None  # when the next deadline passes
    schedule_at: datetime | None  # when the next schedule is due

    def is_due(self, time: datetime | None) -> bool:
        """Whether that time has come."""
        return time is not None and time <= self.now

    def wait_s(self, at_most_s: float) -> float:
        """How long nothing will be due, as far as time alone can tell."""
        times = [t for t in (self.next_ready_at, self.deadline, self.schedule_at) if t is not None]
        waits = [(t - self.now).total_seconds() for t in times if t > self.now]
        return min([at_most_s, *waits])


_CONFLICT_ATTEMPTS = 20

_CLAIMED = (
    "run_id, application, workflow, deployment, principal, in_database, input, waiting_for, epoch,"
    " adoptions, deadline, queue, trace, forked_from IS NOT NULL AS forked, started_at,"
    " coalesce(seed, run_id) AS seed, ready_at AS lease_until"
)
_START = (
    "SELECT started.run_id, created, status, output, error FROM apiary.start_run("
    "%(run_id)s, %(application)s, %(deployment)s, %(workflow)s, %(in_database)s, %(input)s::json,"
    " %(input_digest)s, %(principal)s, %(trace)s, %(queue)s, %(priority)s, %(queue_key)s,"
    " %(deduplication)s, %(start_at)s, %(deadline)s, %(max_adoptions)s, %(parent_run_id)s,"
    " %(parent_seq)s, %(parent_epoch)s, NULL, NULL) AS started"
)
_START_IF_CURRENT = (
    _START.replace(" FROM ", " FROM apiary.application a CROSS JOIN LATERAL ", 1)
    + " WHERE a.name = %(application)s AND a.current = %(deployment)s"
)


class RunStore:
    """Moves runs; stateless, like the statements that it issues."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    async def start(self, request: StartRequest) -> RunOutcome:
        """Queue a run, or find the one that has its id; IdempotencyMismatch for another input.

        Superseded if it was to be started ``if_current``, and another deployment is.
        """
        values = _fields(request)
        values["input"] = json.dumps(request.input)
        statement = _START_IF_CURRENT if request.if_current else _START
        rows = await self._rows(statement, values)
        if not rows:
            raise Superseded(request.deployment)
        run_id, created, status, output, error = rows[0]
        return RunOutcome(run_id=run_id, created=created, status=status, output=output, error=error)

    async def run_in_database(
        self, request: StartRequest | ClaimedRun, lease: timedelta
    ) -> RunOutcome:
        """Run a workflow in a backend to its end; QUEUED when it had to leave the database.

        Superseded as for `start`.
        """
        if isinstance(request, ClaimedRun):
            document: dict[str, Any] = {"run_id": request.run_id, "epoch": request.epoch}
        else:
            document = {
                **_fields(request),
                "executor": "database",
                "lease": f"{lease.total_seconds()} seconds",
            }
        text = await self._engine.call_in_database(json.dumps(document, default=str))
        outcome = json.loads(text)
        if "refused" in outcome:
            raise ApiaryError.from_json(outcome["refused"])
        if "superseded" in outcome:
            raise Superseded(outcome["superseded"])
        return RunOutcome(**outcome)

    async def claim(
        self,
        executor: str,
        limit: int,
        lease: timedelta,
        applications: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
    ) -> list[ClaimedRun]:
        """Take up to ``limit`` runs that may move."""
        return await self._engine.rows(
            f"SELECT {_CLAIMED} FROM apiary.claim_runs(%s, %s, %s, %s, %s)",
            [executor, limit, lease, _array(applications), _array(queues)],
            class_row(ClaimedRun),
        )

    async def operations(self, run_id: str) -> list[tuple[Any, ...]]:
        """The recorded operations of a run: (seq, kind, name, input_digest, output, error)."""
        return await self._rows(
            "SELECT seq, kind, name, input_digest, output, error FROM apiary.operation"
            " WHERE run_id = %s AND seq > 0 ORDER BY seq",
            [run_id],
        )

    async def record(
        self,
        run_id: str,
        epoch: int,
        operations: Sequence[dict[str, Any]],
        streams: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Record operations, and what they wrote to streams."""
        await self._rows(
            "SELECT apiary.record_operations(%s, %s, %s::json, %s::json)",
            [run_id, epoch, json.dumps(operations), json.dumps(streams) if streams else None],
        )

    async def park(
        self,
        run_id: str,
        epoch: int,
        waiting_for: dict[str, Any],
        wake_at: datetime | None,
        operations: Sequence[dict[str, Any]],
    ) -> str:
        """Put a run aside; returns QUEUED when what it waits for came meanwhile, else WAITING."""
        rows = await self._rows(
            "SELECT apiary.park_run(%s, %s, %s::json, %s, %s::json)",
            [run_id, epoch, json.dumps(waiting_for), wake_at, _json_or_none(operations)],
        )
        return str(rows[0][0])

    async def release(self, run_id: str, epoch: int, operations: Sequence[dict[str, Any]]) -> None:
        """Give a run back to be claimed by any executor."""
        await self._rows(
            "SELECT apiary.release_run(%s, %s, false, %s::json)",
            [run_id, epoch, _json_or_none(operations)],
        )

    async def finish(
        self,
        run_id: str,
        epoch: int,
        status: str,
        output: str | None,
        error: dict[str, Any] | None,
        calls: int | None,  # None: unknown
        unrecorded: Sequence[dict[str, Any]],
    ) -> None:
        """End a run: result and status in one commit."""
        await self._rows(
            "SELECT apiary.finish_run(%s, %s, %s, %s::json, %s::json, %s, %s::json)",
            [
                run_id,
                epoch,
                status,
                output,
                None if error is None else json.dumps(error),
                calls,
                _json_or_none(unrecorded),
            ],
        )

    async def renew(
        self, executor: str, held: Sequence[tuple[str, int]], lease: timedelta
    ) -> dict[str, datetime]:
        """Extend leases; returns the runs that are still held, with the end of their leases."""
        rows = await self._rows(
            "SELECT run_id, lease_until FROM apiary.renew_leases(%s, %s, %s, %s)",
            [executor, [run_id for run_id, _ in held], [epoch for _, epoch in held], lease],
        )
        return dict(rows)

    async def look(self) -> Look:
        """What there is to do now, and when there will be something."""
        rows = await self._rows("SELECT * FROM apiary.look()", [])
        return Look(*rows[0])

    async def time_out(self, limit: int = 100) -> int:
        """End runs whose deadline has passed; returns how many."""
        rows = await self._rows("SELECT apiary.time_out_runs(%s)", [limit])
        return int(rows[0][0])

    async def take_message(
        self,
        run_id: str,
        epoch: int,
        topic: str,
        operation: dict[str, Any],
        deferred: Sequence[dict[str, Any]],
    ) -> dict[str, Any] | None:
        """Take the oldest message of a topic and record the operation; None when there is none."""
        rows = await self._rows(
            "SELECT apiary.take_message(%s, %s, %s, %s, %s::json, %s::json)",
            [
                run_id,
                epoch,
                topic,
                operation["seq"],
                json.dumps(operation),
                _json_or_none(deferred),
            ],
        )
        message: dict[str, Any] | None = rows[0][0]
        return message

    async def send_from_run(
        self,
        run_id: str,
        epoch: int,
        operations: Sequence[dict[str, Any]],
        to_run_id: str,
        topic: str,
        message: Any,
    ) -> None:
        """Send a message to another run and record the operation."""
        await self._rows(
            "SELECT apiary.send_from_run(%s, %s, %s::json, %s, %s, %s::json, %s)",
            [
                run_id,
                epoch,
                json.dumps(operations),
                to_run_id,
                topic,
                json.dumps(message),
                f"{run_id}/{operations[-1]['seq']}",
            ],
        )

    async def set_event(
        self, run_id: str, epoch: int, key: str, value: Any, operations: Sequence[dict[str, Any]]
    ) -> None:
        """Publish a value under a key, record the operation, wake who waits for it."""
        await self._rows(
            "SELECT apiary.set_event(%s, %s, %s, %s::json, %s::json)",
            [run_id, epoch, key, json.dumps(value), json.dumps(operations)],
        )

    async def event(self, run_id: str, key: str) -> list[Any]:
        """The value of an event in a list, or an empty list."""
        rows = await self._rows(
            "SELECT value FROM apiary.event WHERE run_id = %s AND key = %s", [run_id, key]
        )
        return [row[0] for row in rows]

    async def status(self, run_ids: Sequence[str]) -> dict[str, RunOutcome]:
        """Where runs stand; ids that are unknown are left out."""
        rows = await self._rows(
            "SELECT run_id, status, output, error FROM apiary.run WHERE run_id = ANY (%s)",
            [list(run_ids)],
        )
        return {
            row[0]: RunOutcome(
                run_id=row[0], created=False, status=row[1], output=row[2], error=row[3]
            )
            for row in rows
        }

    async def started_as(self, run_id: str) -> StartRequest:
        """As what a run was started, to start another like it; NotFound when there is none."""
        rows = await self._rows(
            "SELECT application, workflow, deployment, in_database, input, input_digest, principal,"
            " queue, priority, queue_key FROM apiary.run WHERE run_id = %s",
            [run_id],
        )
        if not rows:
            raise NotFound(f"no run {run_id!r} of a workflow", kind="run", name=run_id)
        names = "application workflow deployment in_database input input_digest principal queue"
        fields = [*names.split(), "priority", "queue_key"]
        return StartRequest(run_id=run_id, **dict(zip(fields, rows[0], strict=True)))

    async def log_step_attempt(self, run: ClaimedRun, row: dict[str, Any]) -> None:
        """Log an attempt of a step that failed and will be tried again."""
        await self._rows(
            "SELECT apiary.log_attempt(%s, %s, %s, 'step', %s, %s, %s, %s, 'RETRIED', %s::json,"
            " to_timestamp(%s), %s)",
            [
                run.run_id,
                row["seq"],
                row["attempt"],
                row["name"],
                run.application,
                run.deployment,
                run.principal,
                json.dumps(row["error"]),
                row["started_at"],
                run.trace,
            ],
        )

    async def step_attempts(self, run_id: str, since: datetime) -> dict[int, int]:
        """How many attempts of each step have failed since the run was started or resumed."""
        rows = await self._rows(
            "SELECT seq, count(*) FROM apiary.attempt WHERE run_id = %s AND kind = 'step'"
            " AND finished_at >= %s GROUP BY 1",
            [run_id, since],
        )
        return {int(seq): int(count) for seq, count in rows}

    async def children(self, run_id: str) -> dict[str, RunOutcome]:
        """The runs that a run has started, by id."""
        rows = await self._rows(
            "SELECT run_id, status FROM apiary.run WHERE parent_run_id = %s", [run_id]
        )
        return {row[0]: RunOutcome(run_id=row[0], created=False, status=row[1]) for row in rows}

    async def register_executor(
        self,
        name: str,
        host: str,
        pid: int,
        version: str,
        *,
        applications: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
    ) -> None:
        """Show an executor in apiary.executor, with what it takes; None: everything.

        Executors that were killed have left their rows: those not seen for a day go.
        """
        await self._rows(
            "WITH gone AS (DELETE FROM apiary.executor WHERE name <> %s"
            " AND seen_at < apiary.clock() - interval '1 day')"
            " INSERT INTO apiary.executor (name, host, pid, version, applications, queues,"
            " started_at, seen_at) VALUES (%s, %s, %s, %s, %s, %s, apiary.clock(), apiary.clock())"
            " ON CONFLICT (name) DO UPDATE SET host = excluded.host, pid = excluded.pid,"
            " version = excluded.version, applications = excluded.applications,"
            " queues = excluded.queues, started_at = excluded.started_at,"
            " seen_at = excluded.seen_at RETURNING name",
            [name, name, host, pid, version, _array(applications), _array(queues)],
        )

    async def unregister_executor(self, name: str) -> None:
        """Remove an executor that has drained."""
        await self._rows("DELETE FROM apiary.executor WHERE name = %s RETURNING name", [name])

    async def set_progress(self, run_id: str, epoch: int, progress: dict[str, Any]) -> None:
        """Show how far a run is."""
        await self._rows(
            "SELECT apiary.set_progress(%s, %s, %s::json)", [run_id, epoch, json.dumps(progress)]
        )

    async def send(self, run_id: str, topic: str, message: Any, key: str | None) -> None:
        """Send a message to a run; a repeated key changes nothing."""
        await self._rows(
            "SELECT apiary.send(%s, %s, %s::json, %s)", [run_id, topic, json.dumps(message), key]
        )

    async def cancel(self, run_id: str, reason: str | None, *, cascade: bool) -> list[str]:
        """Cancel a run, with ``cascade`` its descendants, too; returns what was cancelled."""
        cancelled = []
        family = [run_id]
        while family:
            for member in family:  # each in a transaction of its own: see the lock order
                rows = await self._rows("SELECT apiary.cancel_run(%s, %s)", [member, reason])
                if rows[0][0]:
                    cancelled.append(member)
            # A cancelled run starts no children any more, so that looking again comes to an end.
            rows = await self._rows("SELECT apiary.unfinished_family(%s)", [run_id])
            family = [str(row[0]) for row in rows] if cascade else []
        return cancelled

    async def resume(self, run_id: str, deadline: datetime | None) -> bool:
        """Let an ended or stuck run go on; false when it is in no state for that."""
        rows = await self._rows("SELECT apiary.resume_run(%s, %s)", [run_id, deadline])
        return bool(rows[0][0])

    async def fork(
        self,
        run_id: str,
        from_seq: int,
        new_run_id: str,
        principal: str,
        *,
        deployment: str | None = None,
        replaced_output: Any = None,
        replace_output: bool = False,
    ) -> str:
        """A new run that takes over another's operations before ``from_seq``."""
        rows = await self._rows(
            "SELECT apiary.fork_run(%s, %s, %s, %s, %s::json, %s)",
            [
                run_id,
                from_seq,
                new_run_id,
                deployment,
                json.dumps(replaced_output) if replace_output else None,
                principal,
            ],
        )
        return str(rows[0][0])

    async def delete(self, run_id: str, batch: int = 1000) -> None:
        """Delete an ended run and all that belongs to it, in batches."""
        while not (await self._rows("SELECT apiary.delete_run(%s, %s)", [run_id, batch]))[0][0]:
            continue

    async def expired(self, before: datetime, limit: int) -> list[str]:
        """Runs that ended before a time."""
        rows = await self._rows("SELECT apiary.expired_runs(%s, %s)", [before, limit])
        return [str(row[0]) for row in rows]

    async def _rows(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        for attempt in range(1, _CONFLICT_ATTEMPTS + 1):
            try:
                return await self._engine.rows(statement, values)
            except TransactionConflict:
                # Two runs that wait for each other may lock their rows in opposite order.
                if attempt == _CONFLICT_ATTEMPTS:
                    raise
                await asyncio.sleep(random.random() * 0.01 * attempt)
        raise AssertionError("the last attempt returns or raises")


def _fields(request: StartRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in StartRequest.__dataclass_fields__}


def _array(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def _json_or_none(documents: Sequence[dict[str, Any]]) -> str | None:
    return json.dumps(documents) if documents else None
