"""Schedules: stored in the database, fired by whichever executor looks first.

A schedule's row holds its next nominal slot. The run of a slot has an id that names schedule and
slot, so that two executors that look at once, or one that dies half-way, start it once; apiary.fire
lists what fired when, and by which version of the time-zone database.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.rows import class_row

from ..engine.postgres import PostgresEngine
from ..engine.runs import RunStore
from ..errors import ApiaryError, BadArgument, IdempotencyMismatch, NotFound
from .calendar import Cron, Interval, MissedPolicy, Schedule, missed, slot_key, tzdata_version
from .starting import RunOptions, Starter

__all__ = ["ScheduleRow", "Scheduler"]

log = logging.getLogger(__name__)

_MISSED_AT_ONCE = 100  # slots of one schedule that are fired in one look
_COLUMNS = (
    "name, application, workflow, input, principal, cron, zone, dst_policy, every, anchor, missed,"
    " queue, paused, next_at"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A stored schedule: cron in a zone, or a fixed interval."""

    name: str
    application: str
    workflow: str
    input: dict[str, Any]
    principal: str
    cron: str | None
    zone: str
    dst_policy: str
    every: timedelta | None
    anchor: datetime
    missed: MissedPolicy
    queue: str | None
    paused: bool
    next_at: datetime

    @property
    def times(self) -> Schedule:
        """When it fires."""
        return _times(self.cron, self.zone, self.dst_policy, self.every, self.anchor)

    def next_fires(self, count: int) -> list[datetime]:
        """The next ``count`` slots."""
        fires = [self.next_at][:count]
        while len(fires) < count:
            fires.append(self.times.next(fires[-1]))
        return fires


def _times(
    cron: str | None, zone: str, dst_policy: str, every: timedelta | None, anchor: datetime
) -> Schedule:
    if cron is not None:
        return Cron.parse(cron, zone, dst_policy)  # type: ignore[arg-type]  # checked by parse
    if every is None:
        raise BadArgument("a schedule has either a cron expression or an interval", path="cron")
    return Interval(every, anchor)


class Scheduler:
    """Stores schedules and fires their slots."""

    def __init__(self, engine: PostgresEngine, store: RunStore, starter: Starter) -> None:
        self._engine = engine
        self._store = store
        self._starter = starter

    async def put(
        self,
        *,
        name: str,
        application: str,
        workflow: str,
        document: dict[str, Any],
        principal: str,
        cron: str | None = None,
        zone: str = "UTC",
        dst_policy: str = "once",
        every: timedelta | None = None,
        anchor: datetime | None = None,
        missed_policy: str = "one",
        queue: str | None = None,
        paused: bool = False,
    ) -> ScheduleRow:
        """Store a schedule, or replace the one of that name; its input is checked now."""
        if not name:
            raise BadArgument("a schedule has a name", path="name")
        if (cron is None) == (every is None):
            raise BadArgument("give either a cron expression or an interval", path="cron")
        if missed_policy not in ("skip", "one", "all"):
            raise BadArgument(
                f"missed is one of skip, one, all; not {missed_policy!r}", path="missed"
            )
        request = await self._starter.prepare(
            application, workflow, document, principal, RunOptions(queue=queue)
        )
        now = await self._now()
        anchor = anchor or now
        next_at = _times(cron, zone, dst_policy, every, anchor).next(now)
        if queue is not None:
            await self._require_queue(queue)
        rows = await self._rows(
            "INSERT INTO apiary.schedule (name, application, workflow, input, principal, cron,"
            " zone,"
            " dst_policy, every, anchor, missed, queue, paused, next_at, tzdata)"
            " VALUES (%s, %s, %s, %s::json, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (name) DO UPDATE SET application = excluded.application,"
            " workflow = excluded.workflow, input = excluded.input, principal = excluded.principal,"
            " cron = excluded.cron, zone = excluded.zone, dst_policy = excluded.dst_policy,"
            " every = excluded.every, anchor = excluded.anchor, missed = excluded.missed,"
            " queue = excluded.queue, paused = excluded.paused, next_at = excluded.next_at,"
            f" tzdata = excluded.tzdata RETURNING {_COLUMNS}",
            [
                name,
                request.application,
                workflow,
                json.dumps(request.input),
                principal,
                cron,
                zone,
                dst_policy,
                every,
                anchor,
                missed_policy,
                queue,
                paused,
                next_at,
                tzdata_version(zone),
            ],
        )
        return rows[0]

    async def _require_queue(self, name: str) -> None:
        """Say what is wrong before the foreign key does."""
        async with self._engine.connection() as connection:
            cursor = await connection.execute("SELECT FROM apiary.queue WHERE name = %s", [name])
            if await cursor.fetchone() is None:
                raise NotFound(f"no queue {name!r}", kind="queue", name=name)

    async def all(self) -> list[ScheduleRow]:
        """Every schedule, by name."""
        return await self._rows(f"SELECT {_COLUMNS} FROM apiary.schedule ORDER BY name", [])

    async def get(self, name: str) -> ScheduleRow:
        """One schedule."""
        rows = await self._rows(f"SELECT {_COLUMNS} FROM apiary.schedule WHERE name = %s", [name])
        if not rows:
            raise NotFound(f"no schedule {name!r}", kind="schedule", name=name)
        return rows[0]

    async def pause(self, name: str, *, paused: bool) -> ScheduleRow:
        """Let a schedule fire no more, or go on with its next slot from now."""
        schedule = await self.get(name)
        next_at = schedule.next_at
        if schedule.paused and not paused:
            next_at = schedule.times.next(await self._now())
        rows = await self._rows(
            "UPDATE apiary.schedule SET paused = %s, next_at = %s WHERE name = %s"
            f" RETURNING {_COLUMNS}",
            [paused, next_at, name],
        )
        if not rows:
            raise NotFound(f"no schedule {name!r}", kind="schedule", name=name)
        return rows[0]

    async def delete(self, name: str) -> None:
        """Remove a schedule; runs that it has started stay."""
        if not await self._rows(
            f"DELETE FROM apiary.schedule WHERE name = %s RETURNING {_COLUMNS}", [name]
        ):
            raise NotFound(f"no schedule {name!r}", kind="schedule", name=name)

    async def fire_due(self) -> int:
        """Fire every slot that is due; returns how many runs were started."""
        now = await self._now()
        due = await self._rows(
            f"SELECT {_COLUMNS} FROM apiary.schedule WHERE NOT paused AND next_at <= %s"
            " ORDER BY next_at LIMIT 100",
            [now],
        )
        fired = 0
        for schedule in due:
            try:
                fired += await self._fire(schedule, now)
            except ApiaryError:
                # One broken schedule must not hold up the others.
                log.exception("schedule_failed name=%s", schedule.name)
        return fired

    async def backfill(self, name: str, since: datetime, until: datetime) -> list[str]:
        """Fire the slots in (since, until] that have not fired; returns the runs' ids."""
        if until <= since:
            raise BadArgument("the window ends after it begins", path="until")
        schedule = await self.get(name)
        return [
            run_id
            for slot in schedule.times.between(since, until)
            if (run_id := await self._fire_slot(schedule, slot)) is not None
        ]

    async def _fire(self, schedule: ScheduleRow, now: datetime) -> int:
        """Fire what is due of one schedule, by its policy for slots that were missed."""
        following = schedule.times.next(schedule.next_at)
        if following > now:
            slots: Sequence[datetime] = [schedule.next_at]
        else:  # nobody looked for longer than one slot
            before = schedule.next_at - timedelta(microseconds=1)
            slots = missed(
                schedule.times,
                before,
                now,
                schedule.missed,
                _MISSED_AT_ONCE,
            )
            all_missed = schedule.missed == "all" and len(slots) == _MISSED_AT_ONCE
            following = schedule.times.next(slots[-1] if all_missed else now)
        started = [await self._fire_slot(schedule, slot) for slot in slots]
        # Only if nobody has moved it on meanwhile.
        await self._rows(
            "UPDATE apiary.schedule SET next_at = %s, tzdata = %s WHERE name = %s AND next_at = %s"
            f" RETURNING {_COLUMNS}",
            [following, tzdata_version(schedule.zone), schedule.name, schedule.next_at],
        )
        return sum(run_id is not None for run_id in started)

    async def _fire_slot(self, schedule: ScheduleRow, slot: datetime) -> str | None:
        """Start the run of one slot; None when it has been started before.

        The run comes first and its id is the slot's, so that dying between the two statements
        leaves a run that the next look finds instead of starting another.
        """
        run_id = f"{schedule.name}@{slot_key(slot)}"
        request = await self._starter.prepare(
            schedule.application,
            schedule.workflow,
            schedule.input,
            schedule.principal,
            RunOptions(run_id=run_id, queue=schedule.queue),
        )
        try:
            outcome = await self._store.start(request)
        except IdempotencyMismatch:
            return None  # the slot fired before the schedule was given another input
        async with self._engine.connection() as connection:
            await connection.execute(
                "INSERT INTO apiary.fire (schedule, slot, run_id, tzdata) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                [schedule.name, slot.astimezone(UTC), run_id, tzdata_version(schedule.zone)],
            )
        return run_id if outcome.created else None

    async def _now(self) -> datetime:
        async with self._engine.connection() as connection:
            row = await (await connection.execute("SELECT apiary.clock()")).fetchone()
        assert row is not None
        now: datetime = row[0]
        return now

    async def _rows(self, statement: str, values: Sequence[Any]) -> list[ScheduleRow]:
        return await self._engine.rows(statement, values, class_row(ScheduleRow))
