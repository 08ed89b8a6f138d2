"""Whether this server serves: grpc.health.v1, overall and for the service.

One small statement every two seconds, on a connection of its own, so that a busy pool does not
look like a database that is away. When the database is back, the pools' dead connections are
replaced at once instead of one failing call each.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg
from grpc_health.v1 import health, health_pb2
from psycopg import AsyncConnection

from ..engine.postgres import PostgresEngine

__all__ = ["Health"]

INTERVAL_S = 2.0
_ANSWER_WITHIN_S = 5.0

log = logging.getLogger(__name__)
_Status = health_pb2.HealthCheckResponse.ServingStatus


class Health:
    """Watches the database and tells the health service."""

    def __init__(self, engine: PostgresEngine, url: str, services: tuple[str, ...]) -> None:
        self.servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._engine = engine
        self._url = url
        self._services = services
        self._connection: AsyncConnection[tuple[Any, ...]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._serving: bool | None = None

    async def start(self) -> None:
        """Say that the server serves, and keep that true."""
        await self._tell(True)
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Say that the server does not serve, and leave it at that."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._tell(False)
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _watch(self) -> None:
        while True:
            alive = await self._alive()
            if alive and self._serving is False:
                await self._recover()
            await self._tell(alive)
            await asyncio.sleep(INTERVAL_S)

    async def _recover(self) -> None:
        try:
            await self._engine.recover()
        except psycopg.Error as error:
            # The calls that get a dead connection replace it themselves.
            log.warning("pool_not_recovered: %s", " ".join(str(error).split()))

    async def _alive(self) -> bool:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                if self._connection is None:
                    self._connection = await AsyncConnection.connect(
                        self._url, autocommit=True, application_name="apiary health"
                    )
                await self._connection.execute("SELECT 1")
        except (psycopg.Error, TimeoutError) as error:
            if self._serving:
                log.warning("database_away: %s", " ".join(str(error).split()) or "no answer")
            if self._connection is not None:
                await self._connection.close()
                self._connection = None
            return False
        if self._serving is False:
            log.info("database_back")
        return True

    async def _tell(self, serving: bool) -> None:
        if serving == self._serving:
            return
        self._serving = serving
        status = _Status.SERVING if serving else _Status.NOT_SERVING
        for service in ("", *self._services):
            await self.servicer.set(service, status)
