"""What a run has done and not recorded yet, and the order in which it is recorded.

A read-only result that is only in memory is recorded before anything durable can depend on it: with
the next recorded operation when that runs alone, else before it begins. Operations that run side by
side may each depend on it, so whoever finds it being recorded waits for that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from ..engine.runs import ClaimedRun, RunStore
from .replay import OperationRecord

__all__ = ["Recorder", "as_record"]


class Recorder:
    """Records operations of one run; the code's thread and the loop use it."""

    def __init__(self, store: RunStore, run: ClaimedRun) -> None:
        self._store = store
        self._run = run
        self._deferred: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._flushing = asyncio.Lock()

    def defer(self, *operations: dict[str, Any]) -> None:
        """Keep read-only operations until something depends on them."""
        with self._lock:
            self._deferred.extend(operations)

    def take(self) -> list[dict[str, Any]]:
        """The deferred operations, to be recorded by the caller."""
        with self._lock:
            taken, self._deferred = self._deferred, []
        return taken

    def put_back(self, operations: Sequence[dict[str, Any]]) -> None:
        """What was taken is not recorded: keep it, before what came since."""
        with self._lock:
            self._deferred = [*operations, *self._deferred]

    async def flush(self) -> None:
        """Record what is deferred; returns when all that was deferred before is durable."""
        async with self._flushing:
            deferred = self.take()
            if not deferred:
                return
            try:
                await self.record(deferred)
            except BaseException:
                self.put_back(deferred)
                raise

    async def record(
        self, operations: Sequence[dict[str, Any]], streams: Sequence[dict[str, Any]] | None = None
    ) -> None:
        """Record operations, and what they wrote to streams, in one transaction."""
        await self._store.record(self._run.run_id, self._run.epoch, operations, streams)


def as_record(row: dict[str, Any]) -> OperationRecord:
    """An operation's row as the record that a replay would find."""
    return OperationRecord(
        seq=row["seq"],
        kind=row["kind"],
        name=row["name"],
        input_digest=row["input_digest"],
        output=row["output"],
        error=row["error"],
    )
