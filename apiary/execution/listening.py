"""One listening connection per process, shared by everything that waits for notifications.

Notifications only save time: whoever waits also looks by itself now and then. Through a pooler in
transaction mode LISTEN does not work; that is detected when the connection is made, said once, and
looking takes over. A lost connection is made again, and everybody is woken then, as something may
have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from .ending import end_tasks

__all__ = ["CHANGED", "CONTROL", "READY", "Listener"]

log = logging.getLogger(__name__)

READY = "apiary_ready"  # a run may be claimed
CHANGED = "apiary_changed"  # a run's status, events, streams or progress; payload: its hash
CONTROL = "apiary_control"  # a run was cancelled or timed out; payload: its hash
_PROBE = "apiary_probe"
_CHANNELS = (READY, CHANGED, CONTROL)
_PROBE_TIMEOUT_S = 2.0
_MAX_RECONNECT_S = 2.0
# A server that has vanished without a word is noticed within half a minute.
_KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}

Callback = Callable[[str], None]


class Listener:
    """Listens on the platform's channels until closed."""

    def __init__(self, url: str, *, application_name: str = "apiary listener") -> None:
        self._url = url
        self._application_name = application_name
        self._callbacks: dict[str, set[Callback]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._channels: set[str] | None = None  # that the connection listens to
        self.reconnects = 0
        self.works = False  # whether notifications arrive
        self._said_unusable = False
        self._connected = False  # at least once

    async def start(self) -> None:
        """Begin to listen; returns at once."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen_for_ever())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            await end_tasks([self._task])
            self._task = None

    def subscribe(self, channel: str, callback: Callback) -> Callable[[], None]:
        """Call ``callback(payload)`` for each notification; returns what ends that.

        It is called with an empty payload when notifications may have been missed.
        """
        self._callbacks[channel].add(callback)
        if self._task is not None and self._channels is not None and channel not in self._channels:
            self._task.cancel()  # what it listens to is said when it connects
            self._task = asyncio.create_task(self._listen_for_ever())
        return lambda: self._callbacks[channel].discard(callback)

    async def _listen_for_ever(self) -> None:
        delay_s = 0.05
        while True:
            try:
                await self._listen()
            except psycopg.Error as error:
                if self.works:
                    log.warning("listener_lost: %s", error)
                self.works = False
            await asyncio.sleep(delay_s)
            delay_s = min(_MAX_RECONNECT_S, delay_s * 2) if not self.works else 0.05

    async def _listen(self) -> None:
        connection = await AsyncConnection.connect(
            self._url, autocommit=True, application_name=self._application_name, **_KEEPALIVES
        )
        self.reconnects += self._connected
        self._connected = True
        async with connection:
            # A process is woken by what it waits for, not by all that goes on.
            channels = self._channels = {name for name in _CHANNELS if self._callbacks[name]}
            for channel in (*channels, _PROBE):
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            await self._probe(connection)
            for channel in channels:
                self._deliver(channel, "")
            async for notification in connection.notifies():
                self._deliver(notification.channel, notification.payload)

    async def _probe(self, connection: AsyncConnection[object]) -> None:
        await connection.execute(sql.SQL("NOTIFY {}").format(sql.Identifier(_PROBE)))
        async for notification in connection.notifies(timeout=_PROBE_TIMEOUT_S, stop_after=1):
            self.works = True
            self._deliver(notification.channel, notification.payload)
        if not self.works and not self._said_unusable:
            self._said_unusable = True
            log.warning(
                "listener_unusable: notifications do not come through this connection (a pooler in "
                "transaction mode?); looking for work by time instead"
            )

    def _deliver(self, channel: str, payload: str) -> None:
        for callback in list(self._callbacks[channel]):
            callback(payload)
