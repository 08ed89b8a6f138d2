"""Waiting for the ends of runs, for callers in this process: many waiters, one listener, one query.

A notification names the run that changed; only runs that somebody waits for are looked at, all of
them in one query. Once a second everything that is waited for is looked at anyway, as the net for
notifications that were lost (or were never sent: a run that lives in the database sends none).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import defaultdict
from contextlib import suppress

from ..engine.runs import RunOutcome, RunStore
from ..errors import ApiaryError, DeadlineExceeded, NotFound
from .listening import CHANGED, Listener

__all__ = ["Waiters"]

log = logging.getLogger(__name__)

_POLL_S = 1.0
_AT_ONCE = 5000  # run ids in one query


class Waiters:
    """Everybody in this process who waits for a run."""

    def __init__(self, store: RunStore, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._waiting: defaultdict[str, set[asyncio.Future[RunOutcome]]] = defaultdict(set)
        self._by_hash: dict[str, str] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look."""
        await self._listener.start()
        self._unsubscribe = self._listener.subscribe(CHANGED, self._on_change)
        self._task = asyncio.create_task(self._look_for_ever())

    async def close(self) -> None:
        """Stop; whoever still waits is cancelled."""
        if self._task is not None:
            self._unsubscribe()
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for futures in self._waiting.values():
            for future in futures:
                future.cancel()

    async def wait(self, run_id: str, timeout_s: float | None = None) -> RunOutcome:
        """The outcome of a run when it has ended or is stuck.

        NotFound when there is no such run, DeadlineExceeded after ``timeout_s``.
        """
        future: asyncio.Future[RunOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[run_id].add(future)
        self._by_hash[_hash(run_id)] = run_id
        self._changed.add(run_id)
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise DeadlineExceeded(
                f"run {run_id} did not end within {timeout_s:g} s; it goes on",
                hint="wait for it again with the same id",
                run_id=run_id,
            ) from None
        finally:
            self._forget(run_id, future)

    def _forget(self, run_id: str, future: asyncio.Future[RunOutcome]) -> None:
        futures = self._waiting[run_id]
        futures.discard(future)
        if not futures:
            del self._waiting[run_id]
            self._by_hash.pop(_hash(run_id), None)

    def _on_change(self, payload: str) -> None:
        if payload in self._by_hash:
            self._changed.add(self._by_hash[payload])
            self._wake.set()
        elif not payload:  # something may have been missed
            self._changed.update(self._waiting)
            self._wake.set()

    async def _look_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_POLL_S):
                    await self._wake.wait()
            except TimeoutError:
                self._changed.update(self._waiting)
            self._wake.clear()
            changed, self._changed = list(self._changed & self._waiting.keys()), set()
            try:
                for first in range(0, len(changed), _AT_ONCE):
                    await self._look(changed[first : first + _AT_ONCE])
            except ApiaryError as error:  # they are looked at again in a second
                log.warning("waiters_cannot_look: %s", error.message)

    async def _look(self, run_ids: list[str]) -> None:
        ended = await self._store.ended(run_ids)
        for run_id in run_ids:
            if run_id in ended:
                self._settle(run_id, ended[run_id])

    def _settle(self, run_id: str, outcome: RunOutcome | None) -> None:
        for future in self._waiting.get(run_id, ()):
            if future.done():
                continue
            if outcome is None:
                future.set_exception(NotFound(f"no run {run_id}", kind="run", name=run_id))
            else:
                future.set_result(outcome)


def _hash(run_id: str) -> str:
    return hashlib.md5(run_id.encode(), usedforsecurity=False).hexdigest()
