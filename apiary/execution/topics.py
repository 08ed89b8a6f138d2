"""Watching runs: everybody who waits in a process shares one listener and one look a second.

A watcher holds no connection and no thread. A notification that names its run wakes it; what
notifications do not tell (an operation that was recorded, one that was lost, a pooler through which
none come) is found by a single statement for all that is watched, once a second while anything is.
Woken, a watcher reads what it wants to know by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal, NamedTuple

import psycopg

from ..engine.postgres import PostgresEngine
from ..errors import Draining, UnavailableError
from .ending import end_tasks
from .listening import CHANGED, Listener

__all__ = ["Topic", "Topics", "Watch"]

log = logging.getLogger(__name__)

_POLL_S = 1.0
_READERS = 2
# The version of each topic: a text that differs when there is something new about it.
_VERSIONS = """
SELECT CASE w.kind
    WHEN 'run' THEN coalesce(
        (SELECT concat_ws(' ', r.status, r.epoch, r.finished_at, md5(r.progress::text),
                CASE r.status WHEN 'RUNNING' THEN
                    (SELECT count(*) FROM apiary.operation o WHERE o.run_id = r.run_id) END)
           FROM apiary.run r WHERE r.run_id = w.run_id),
        (SELECT o.status FROM apiary.operation o WHERE o.run_id = w.run_id AND o.seq = 0))
    WHEN 'event' THEN concat_ws(' ',
        (SELECT e.set_at FROM apiary.event e WHERE e.run_id = w.run_id AND e.key = w.key),
        (SELECT r.finished_at FROM apiary.run r WHERE r.run_id = w.run_id))
    ELSE concat_ws(' ',
        (SELECT max(s."offset") FROM apiary.stream s WHERE s.run_id = w.run_id AND s.key = w.key),
        (SELECT r.finished_at FROM apiary.run r WHERE r.run_id = w.run_id))
    END
  FROM ROWS FROM (unnest(%s::text[]), unnest(%s::text[]), unnest(%s::text[]))
       WITH ORDINALITY AS w (kind, run_id, key, position)
 ORDER BY w.position"""


class Topic(NamedTuple):
    """What is watched: a run's state and operations, one of its events, or one of its streams."""

    kind: Literal["run", "event", "stream"]
    run_id: str
    key: str = ""


class Watch:
    """One watcher of a topic."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._draining = False

    async def changed(self, timeout_s: float | None = None) -> None:
        """Wait until there may be something new; TimeoutError after ``timeout_s``.

        Raises Draining when this process stops.
        """
        async with asyncio.timeout(timeout_s):
            await self._woken.wait()
        if self._draining:
            raise Draining(
                "this server is stopping; the run goes on",
                hint="wait for it again, here or elsewhere",
            )
        self._woken.clear()

    def wake(self, *, draining: bool = False) -> None:
        """Let it look again, or give up."""
        self._draining = self._draining or draining
        self._woken.set()


class _Watched:
    """A topic with its watchers."""

    def __init__(self) -> None:
        self.watches: set[Watch] = set()
        self.version: str | None = None
        self.looked_at = False


class Topics:
    """All that is watched in this process."""

    def __init__(
        self, engine: PostgresEngine, listener: Listener, *, poll_s: float = _POLL_S
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._poll_s = poll_s
        self._topics: dict[Topic, _Watched] = {}
        self._by_hash: dict[str, set[Topic]] = {}
        self._occupied = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._draining = False
        self._trouble = False
        # So many watchers read at once: thousands that wake together leave connections to others.
        self.reading = asyncio.Semaphore(_READERS)

    async def start(self) -> None:
        """Begin to listen; nothing is looked at before something is watched."""
        await self._listener.start()
        self._unsubscribe = self._listener.subscribe(CHANGED, self._on_change)
        self._task = asyncio.create_task(self._look_for_ever())

    def drain(self) -> None:
        """Send every watcher away with Draining, and those to come."""
        self._draining = True
        for watched in self._topics.values():
            for watch in watched.watches:
                watch.wake(draining=True)

    async def close(self) -> None:
        """Stop looking."""
        self.drain()
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._task is not None:
            await end_tasks([self._task])
            self._task = None

    @asynccontextmanager
    async def watch(self, topic: Topic) -> AsyncIterator[Watch]:
        """Watch a topic while the block runs. Read its state after this has begun, not before."""
        watch = Watch()
        if self._draining:
            watch.wake(draining=True)
        watched = self._topics.setdefault(topic, _Watched())
        watched.watches.add(watch)
        self._by_hash.setdefault(_hash(topic.run_id), set()).add(topic)
        self._occupied.set()
        try:
            yield watch
        finally:
            watched.watches.discard(watch)
            if not watched.watches:
                self._forget(topic)

    def _forget(self, topic: Topic) -> None:
        del self._topics[topic]
        name = _hash(topic.run_id)
        self._by_hash[name].discard(topic)
        if not self._by_hash[name]:
            del self._by_hash[name]
        if not self._topics:
            self._occupied.clear()

    def _on_change(self, payload: str) -> None:
        if not payload:  # something may have been missed
            self._hurry.set()
        for topic in self._by_hash.get(payload, ()):
            for watch in self._topics[topic].watches:
                watch.wake()

    async def _look_for_ever(self) -> None:
        while True:
            await self._occupied.wait()
            try:
                await self._look()
                self._trouble = False
            except (psycopg.Error, UnavailableError) as error:
                if not self._trouble:
                    log.warning("topics_cannot_look: %s", " ".join(str(error).split()))
                self._trouble = True
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._hurry.wait()
            self._hurry.clear()

    async def _look(self) -> None:
        topics = list(self._topics)
        columns = [list(column) for column in zip(*topics, strict=True)]
        async with self._engine.connection() as connection:
            cursor = await connection.execute(_VERSIONS.encode(), columns)
            versions = [row[0] for row in await cursor.fetchall()]
        for topic, version in zip(topics, versions, strict=True):
            watched = self._topics.get(topic)
            if watched is None:
                continue
            # The first look wakes too: its watcher may have read before, and missed a change.
            if not watched.looked_at or version != watched.version:
                for watch in watched.watches:
                    watch.wake()
            watched.looked_at, watched.version = True, version


def _hash(run_id: str) -> str:
    return hashlib.md5(run_id.encode(), usedforsecurity=False).hexdigest()
