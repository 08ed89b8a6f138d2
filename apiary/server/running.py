"""Runs that take place in the database: each goes to its end, whoever still waits for it."""

from __future__ import annotations

import asyncio
import logging

from ..engine.runs import RunOutcome, StartRequest, Superseded
from ..execution.starting import Starter

__all__ = ["StartingRuns"]

log = logging.getLogger(__name__)


class StartingRuns:
    """Starts runs in tasks of their own."""

    def __init__(self, starter: Starter) -> None:
        self._starter = starter
        self._tasks: set[asyncio.Task[RunOutcome]] = set()

    async def start(self, request: StartRequest) -> RunOutcome:
        """Start a run and wait for the answer.

        A caller that goes away (this is cancelled) leaves the run running: it ends in its backend,
        and its result is there to be asked for.
        """
        task = asyncio.create_task(self._starter.start(request))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def settle(self, within_s: float) -> None:
        """Wait for the runs that take place in the database now.

        Those that take longer are left to their backends; an executor adopts what these lose.
        """
        if not self._tasks:
            return
        _, left = await asyncio.wait(list(self._tasks), timeout=within_s)
        if left:
            log.warning("runs_left_in_database runs=%d grace_s=%g", len(left), within_s)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _ended(self, task: asyncio.Task[RunOutcome]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Superseded):
            # Whoever waited has been told; this is for the run whose caller has gone.
            log.info("start_failed: %s", error)
