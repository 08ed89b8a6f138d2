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

    def report(self, progress: dict[str, Any]) -> None:
        """Show {done, total, message}, unless another was shown just now; the last one always."""
        now = time.monotonic()
        ended = progress["total"] is not None and progress["done"] >= progress["total"]
        if ended or now - self._reported_at >= _EVERY_S:
            self._reported_at = now
            asyncio.run_coroutine_threadsafe(self._show(progress), self._loop)

    async def _show(self, progress: dict[str, Any]) -> None:
        document = {**progress, "at": datetime.now(UTC).isoformat()}
        try:
            await self._store.set_progress(self._run.run_id, self._run.epoch, document)
        except ApiaryError as error:
            # Only the bar of a client is affected, not the run.
            log.warning("progress_not_shown run_id=%s: %s", self._run.run_id, error)
