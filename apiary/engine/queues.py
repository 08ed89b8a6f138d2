"""Queues: their limits, and how full they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import class_row

from ..errors import BadArgument, NotFound
from .postgres import PostgresEngine
from .sqlstates import translate

__all__ = ["QueueRow", "QueueStore"]

_MAX_CHARACTERS = 255
_LIMITS = ("concurrency", "executor_concurrency", "key_concurrency", "rate_limit")
_COLUMNS = f"q.name, {', '.join(f'q.{name}' for name in _LIMITS)}, q.rate_period, q.paused"
_LIST = f"""
SELECT {_COLUMNS}, held.waiting, held.active
  FROM apiary.queue q CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE r.started_at IS NULL) AS waiting,
              count(*) FILTER (WHERE r.started_at IS NOT NULL) AS active
         FROM apiary.run r WHERE r.queue = q.name AND r.finished_at IS NULL) held
 WHERE %(name)s::text IS NULL OR q.name = %(name)s
 ORDER BY q.name"""
_PUT = """
INSERT INTO apiary.queue AS q (name, concurrency, executor_concurrency, key_concurrency, rate_limit,
                               rate_period, paused)
VALUES (%(name)s, %(concurrency)s, %(executor_concurrency)s, %(key_concurrency)s, %(rate_limit)s,
        %(rate_period)s, %(paused)s)
ON CONFLICT (name) DO UPDATE SET concurrency = excluded.concurrency,
    executor_concurrency = excluded.executor_concurrency,
    key_concurrency = excluded.key_concurrency, rate_limit = excluded.rate_limit,
    rate_period = excluded.rate_period, paused = excluded.paused
RETURNING pg_notify('apiary_ready', '')"""
_PAUSE = (
    "UPDATE apiary.queue SET paused = %s WHERE name = %s RETURNING pg_notify('apiary_ready', '')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue; a limit that is None does not exist."""

    name: str
    concurrency: int | None = None  # runs at once
    executor_concurrency: int | None = None  # of them in one executor
    key_concurrency: int | None = None  # of them with the same key
    rate_limit: int | None = None  # starts per rate_period
    rate_period: timedelta | None = None
    paused: bool = False
    waiting: int = 0  # runs that have not started; set when it is read
    active: int = 0  # started and not ended


class QueueStore:
    """Makes, changes, lists and deletes queues."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    async def put(self, queue: QueueRow) -> QueueRow:
        """Make a queue, or replace the limits of the one of that name."""
        _check(queue)
        values = {name: getattr(queue, name) for name in QueueRow.__dataclass_fields__}
        await self._execute(_PUT, values)
        return await self.get(queue.name)

    async def pause(self, name: str, *, paused: bool) -> QueueRow:
        """Let a queue start no more runs, or go on."""
        await self._execute(_PAUSE, [paused, name])
        return await self.get(name)

    async def get(self, name: str) -> QueueRow:
        """One queue."""
        found = await self._list(name)
        if not found:
            raise NotFound(
                f"no queue {name!r}",
                hint="apiary queue list shows what there is; apiary queue put makes one",
                kind="queue",
                name=name,
            )
        return found[0]

    async def all(self) -> list[QueueRow]:
        """Every queue, by name."""
        return await self._list(None)

    async def delete(self, name: str) -> None:
        """Delete a queue; WrongState while unfinished runs or schedules are in it."""
        await self._execute("SELECT apiary.delete_queue(%s)", [name])

    async def _list(self, name: str | None) -> list[QueueRow]:
        return await self._engine.rows(_LIST, {"name": name}, class_row(QueueRow))

    async def _execute(self, statement: str, values: Sequence[Any] | dict[str, Any]) -> None:
        try:
            async with self._engine.connection() as connection:
                await connection.execute(statement.encode(), values)
        except psycopg.Error as error:
            raise translate(error) from error


def _check(queue: QueueRow) -> None:
    if not 1 <= len(queue.name) <= _MAX_CHARACTERS or "\0" in queue.name:
        raise BadArgument(
            f"a queue's name has 1 to {_MAX_CHARACTERS} characters, not {len(queue.name)}",
            path="name",
        )
    for name in _LIMITS:
        value = getattr(queue, name)
        if value is not None and value < 1:
            raise BadArgument(
                f"{name} is {value}; expected 1 or more",
                hint="leave it out for no limit; pause the queue to let nothing start",
                path=name,
            )
    if (queue.rate_limit is None) != (queue.rate_period is None):
        raise BadArgument(
            "a rate has both a limit and a period",
            hint="as in 100 starts per 60 s",
            path="rate_limit",
        )
    if queue.rate_period is not None and queue.rate_period <= timedelta(0):
        raise BadArgument("rate_period is not more than 0 s", path="rate_period")
