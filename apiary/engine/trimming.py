"""Trimming the log: what is older than a time goes; see storage/postgres/code/160_trimming.sql.

Every batch is one statement in a transaction of its own, some milliseconds long: nobody waits for
it, and who stops between two of them has lost nothing.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from ..errors import BadArgument, DeadlineExceeded
from .postgres import PostgresEngine

__all__ = ["LogTrimmer", "Trimmed"]

# Of about this many rows a batch is made: in the table of operations by counting them, in the
# others by pages, of which each holds some 15.
_ROWS = 4000
_PAGES = 250
_KINDS = {
    "invocations": "SELECT trimmed, next_from FROM apiary.trim_invocations(%s, %s, %s, %s)",
    "attempts": "SELECT trimmed, next_from FROM apiary.trim_attempts(%s, %s, %s, %s)",
    "row_changes": "SELECT trimmed, next_from FROM apiary.trim_row_changes(%s, %s, %s, %s)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """How many rows have gone so far, or would go."""

    invocations: int = 0  # direct ones
    attempts: int = 0  # of direct invocations
    row_changes: int = 0


class LogTrimmer:
    """Deletes the old part of the log, or counts it."""

    def __init__(self, engine: PostgresEngine, *, rows: int = _ROWS, pages: int = _PAGES) -> None:
        self._engine = engine
        self._sizes = {"invocations": rows, "attempts": pages, "row_changes": pages}

    async def time_ago(self, age_s: float) -> datetime:
        """A time by its distance from now, by the database's clock."""
        try:
            moment: datetime = await self._now() - timedelta(seconds=age_s)
        except OverflowError:
            raise BadArgument(
                f"older_than is {age_s:g} s, which leads out of all calendars", path="older_than"
            ) from None
        return moment

    async def time_past(self, moment: datetime) -> datetime:
        """The time; BadArgument when it is still to come, by the database's clock."""
        now = await self._now()
        if moment > now:
            raise BadArgument(
                f"before is {moment.isoformat()}, and by the database's clock it is"
                f" {now.isoformat()}",
                hint="name a time that has passed",
                path="before",
            )
        return moment

    async def trim(
        self, before: datetime, *, delete: bool, timeout_s: float | None = None
    ) -> AsyncGenerator[Trimmed, None]:
        """Delete what is from before a time, or only count it; tells the sums after each batch.

        DeadlineExceeded, between two batches, when it takes longer than ``timeout_s``.
        """
        so_far = Trimmed()
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        for kind, statement in _KINDS.items():
            position = None
            while True:
                if ends is not None and time.monotonic() >= ends:
                    raise _out_of_time(so_far, delete)
                values = [before, position, self._sizes[kind], delete]
                ((trimmed, position),) = await self._engine.rows(statement, values)
                so_far = replace(so_far, **{kind: getattr(so_far, kind) + trimmed})
                yield so_far
                if position is None:
                    break

    async def _now(self) -> datetime:
        now: datetime = (await self._engine.rows("SELECT apiary.clock()", []))[0][0]
        return now


def _out_of_time(so_far: Trimmed, delete: bool) -> DeadlineExceeded:
    done = "gone" if delete else "been counted"
    return DeadlineExceeded(
        f"the time is up: {so_far.invocations} direct invocations, {so_far.attempts} attempts and"
        f" {so_far.row_changes} row changes have {done} so far",
        hint="what has gone stays gone: the same call again goes on" if delete else None,
        **asdict(so_far),
    )
