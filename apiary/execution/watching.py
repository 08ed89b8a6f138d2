"""Following a run: its changes until it ends, its events, its streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from ..engine.catalogue import Catalogue, OperationRow, RunRow, unrecorded_operations
from ..engine.postgres import PostgresEngine
from ..errors import NotFound, WaitTimedOut
from .topics import Topic, Topics

__all__ = ["FINISHED", "RunChange", "Watcher"]

FINISHED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")
_SETTLED = (*FINISHED, "STUCK")  # it does not go on by itself
_BATCH = 100  # values of a stream that are read at once


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """One change of a run; exactly one of its fields is set."""

    run: RunRow | None = None  # without operations
    operation: OperationRow | None = None
    progress: str | None = None  # JSON text


class Watcher:
    """Reads what a waiter woke up for."""

    def __init__(self, engine: PostgresEngine, catalogue: Catalogue, topics: Topics) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._topics = topics

    async def changes(self, run_id: str) -> AsyncGenerator[RunChange, None]:
        """The run as it is, then its changes; ends when the run has ended.

        Operations come once each, those found together in the order of seq; the change to a final
        status comes last. NotFound when there is no such run.
        """
        async with self._topics.watch(Topic("run", run_id)) as watch:
            seen = _Seen()
            run = await self._run(run_id)
            yield RunChange(run=run)
            shown = run.status
            progress: str | None = None
            while True:
                for operation in await self._operations(run, seen):
                    yield RunChange(operation=operation)
                if run.progress is not None and run.progress != progress:
                    progress = run.progress
                    yield RunChange(progress=progress)
                if run.status != shown:
                    shown = run.status
                    yield RunChange(run=run)
                if run.status in FINISHED:
                    return
                await watch.changed()
                run = await self._run(run_id)

    async def settled(self, run_id: str) -> AsyncGenerator[RunChange, None]:
        """The run as it is, and as it is when it has ended or is stuck; nothing in between.

        NotFound when there is no such run.
        """
        async with self._topics.watch(Topic("run", run_id)) as watch:
            run = await self._run(run_id)
            yield RunChange(run=run)
            if run.status in _SETTLED:
                return
            while run.status not in _SETTLED:
                await watch.changed()
                run = await self._run(run_id)
            yield RunChange(run=run)

    async def _run(self, run_id: str) -> RunRow:
        async with self._topics.reading:
            return await self._catalogue.run_alone(run_id)

    async def _operations(self, run: RunRow, seen: _Seen) -> list[OperationRow]:
        async with self._topics.reading:
            found = await self._catalogue.new_operations(run.run_id, seen.all_up_to, seen.beyond)
        if run.status in FINISHED:
            recorded = {operation.seq for operation in found}
            late = [each for each in unrecorded_operations(run) if each.seq not in recorded]
            found = sorted([*found, *late], key=lambda operation: operation.seq)
        for operation in found:
            seen.add(operation.seq)
        return found

    async def event(self, run_id: str, key: str, timeout_s: float | None) -> str:
        """The value of an event as JSON text; waits up to ``timeout_s``, None: not at all.

        WaitTimedOut when it did not come in time, NotFound when it cannot come any more (or is not
        there, without a timeout).
        """
        deadline = asyncio.get_running_loop().time() + (timeout_s or 0.0)
        async with self._topics.watch(Topic("event", run_id, key)) as watch:
            while True:
                rows = await self._rows(
                    "SELECT r.status, e.value::text FROM apiary.run r LEFT JOIN apiary.event e"
                    " ON e.run_id = r.run_id AND e.key = %s WHERE r.run_id = %s",
                    [key, run_id],
                )
                if not rows:
                    raise NotFound(f"no run {run_id!r}", kind="run", name=run_id)
                status, value = rows[0]
                if value is not None:
                    return str(value)
                if timeout_s is None or status in FINISHED:
                    raise NotFound(
                        f"run {run_id} ({status}) has set no event {key!r}", kind="event", name=key
                    )
                try:
                    await watch.changed(deadline - asyncio.get_running_loop().time())
                except TimeoutError:
                    raise WaitTimedOut(
                        f"run {run_id} has set no event {key!r} within {timeout_s:g} s",
                        run_id=run_id,
                    ) from None

    async def stream(
        self, run_id: str, key: str, from_offset: int, *, follow: bool
    ) -> AsyncGenerator[tuple[int, str], None]:
        """The values of a stream as (offset, JSON text); with ``follow`` until the run ends."""
        async with self._topics.watch(Topic("stream", run_id, key)) as watch:
            while True:
                # The status first: what a run wrote before it ended is seen by a later read.
                status = (await self._run(run_id)).status
                while rows := await self._rows(
                    'SELECT "offset", value::text FROM apiary.stream WHERE run_id = %s AND key = %s'
                    ' AND "offset" >= %s ORDER BY "offset" LIMIT %s',
                    [run_id, key, from_offset, _BATCH],
                ):
                    for offset, value in rows:
                        yield offset, value
                    from_offset = rows[-1][0] + 1
                if not follow or status in FINISHED:
                    return
                await watch.changed()

    async def _rows(self, statement: str, values: list[Any]) -> list[tuple[Any, ...]]:
        async with self._topics.reading:
            return await self._engine.rows(statement, values)


class _Seen:
    """The numbers of the operations that were told; nearly all of them lie below a mark."""

    def __init__(self) -> None:
        self.all_up_to = 0
        self.beyond: set[int] = set()

    def add(self, seq: int) -> None:
        self.beyond.add(seq)
        while self.all_up_to + 1 in self.beyond:
            self.all_up_to += 1
            self.beyond.remove(self.all_up_to)
