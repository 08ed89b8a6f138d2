"""Trimming the log: what is older than a time goes; see storage/postgres/code/160_trimming.sql.

Every batch is one statement in a transaction of its own, some milliseconds long: nobody waits for
it, and who stops between two of them has lost nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import psycopg

from ..errors import BadArgument
from .postgres import PostgresEngine
from .sqlstates import translate

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

    async def time(self, before: datetime | None, older_than: timedelta | None) -> datetime:
        """Up to which time to trim, by the database's clock; BadArgument for one to come."""
        ((now,),) = await self._rows("SELECT apiary.clock()", [])
        if older_than is not None:
            try:
                return now - older_than  # type: ignore[no-any-return]
            except OverflowError:
                raise BadArgument(
                    f"older_than is {older_than.days} days: that is before all time",
                    path="older_than",
                ) from None
        assert before is not None
        if before > now:
            raise BadArgument(
                f"before is {before.isoformat()}, which is still to come: the database's clock"
                f" says {now.isoformat()}",
                hint="name a time that has passed: the log is not trimmed in advance",
                path="before",
            )
        return before

    async def trim(self, before: datetime, *, delete: bool) -> AsyncGenerator[Trimmed, None]:
        """Delete what is from before a time, or only count it; tells the sums after each batch."""
        so_far = Trimmed()
        for kind, statement in _KINDS.items():
            position = None
            while True:
                values = [before, position, self._sizes[kind], delete]
                ((trimmed, position),) = await self._rows(statement, values)
                so_far = replace(so_far, **{kind: getattr(so_far, kind) + trimmed})
                yield so_far
                if position is None:
                    break

    async def _rows(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            async with self._engine.connection() as connection:
                cursor = await connection.execute(statement.encode(), values)
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise translate(error) from error
