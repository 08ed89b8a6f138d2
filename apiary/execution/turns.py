"""The order in which an ``async def`` workflow gets results.

Several calls of such a workflow may be under way at once, and whichever result comes first decides
which call its code makes, and numbers, next. A replay has all results at once. So that both see one
order, results are handed out one at a time: that of the lowest number that is awaited, when the
code has come to rest.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future as ThreadFuture
from typing import Any

__all__ = ["Turns"]


class Turns:
    """Hands out the results of one workflow, on the event loop of its code."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.Future[None], ThreadFuture[Any] | None]] = {}
        self._scheduled = False

    async def wait(self, seq: int, running: ThreadFuture[Any] | None) -> None:
        """Until it is this call's turn; its operation, if it runs here, has ended then."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[seq] = turn, running
        if running is not None:
            running.add_done_callback(lambda _: self._schedule_from_thread(loop))
        self._schedule(loop)
        try:
            await turn
        finally:
            self._waiting.pop(seq, None)
            self._schedule(loop)

    def _schedule_from_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._schedule, loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._hand_out, loop)

    def _hand_out(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        if not self._waiting:
            return
        # asyncio has no public way to ask whether anything else is ready to run.
        if loop._ready:  # type: ignore[attr-defined]
            self._schedule(loop)
            return
        turn, running = self._waiting[min(self._waiting)]
        if not turn.done() and (running is None or running.done()):
            turn.set_result(None)
