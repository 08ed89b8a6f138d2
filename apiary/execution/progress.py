"""Progress that runs report: shown to clients, at most so often, and never a run's concern."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

from ..engine.runs import ClaimedRun, RunStore
from ..errors import ApiaryError

__all__ = ["ProgressReporter"]

log = logging.getLogger(__name__)
_EVERY_S = 0.5


class ProgressReporter:
    """Shows the progress of one run; called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: RunStore, run: ClaimedRun) -> None:
        self._loop = loop
        self._store = store
        self._run = run
        self._reported_at = 0.0
        self._latest: dict[str, Any] | None = None  # not shown yet
        self._showing: asyncio.Task[None] | None = None

    def report(self, progress: dict[str, Any]) -> None:
        """Show {done, total, message}, unless another was shown just now; the last one always."""
        now = time.monotonic()
        ended = progress["total"] is not None and progress["done"] >= progress["total"]
        if ended or now - self._reported_at >= _EVERY_S:
            self._reported_at = now
            self._loop.call_soon_threadsafe(self._queue, progress)

    async def settle(self) -> None:
        """Wait until what was reported is shown: the last progress is the one that stays."""
        if self._showing is not None:
            await self._showing

    def _queue(self, progress: dict[str, Any]) -> None:
        """One at a time, so that a later one is not overtaken by an earlier one."""
        self._latest = progress
        if self._showing is None or self._showing.done():
            self._showing = self._loop.create_task(self._show_latest())

    async def _show_latest(self) -> None:
        while self._latest is not None:
            progress, self._latest = self._latest, None
            await self._show(progress)

    async def _show(self, progress: dict[str, Any]) -> None:
        document = {**progress, "at": datetime.now(UTC).isoformat()}
        try:
            await self._store.set_progress(self._run.run_id, self._run.epoch, document)
        except ApiaryError as error:
            # Only the bar of a client is affected, not the run.
            log.warning("progress_not_shown run_id=%s: %s", self._run.run_id, error)
