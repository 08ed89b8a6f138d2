"""The PostgreSQL engine: pools of connections, and the statements that run operations.

A function's isolation level is a property of the session that calls it (it cannot be changed inside
the one statement), so there is a pool per level. Which level a function wants is learnt from the
backend: a call on the wrong pool is refused before anything runs, and remembered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from ..errors import ApiaryError, DeadlineExceeded, UnavailableError
from .base import DuplicateOperation, Invocation, Outcome
from .sqlstates import DUPLICATE, ISOLATION, translate

__all__ = ["PostgresEngine", "PostgresSettings"]

_INVOKE = "SELECT apiary.invoke(%s, %s, %s, %s, %s, %s::json, %s, %s, %s, %s, %s)"
_RECORDED = "SELECT apiary.recorded(%s, %s, %s, %s, %s::json)"
_LOG_ATTEMPT = "SELECT apiary.log_attempt(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::json, %s, %s)"

Connection = AsyncConnection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    """How the engine uses its server."""

    pool_size: int = 16  # connections per isolation level
    acquire_timeout_s: float = 10.0  # waiting for a connection
    statement_timeout_s: float = 60.0  # of a function that states none
    application_name: str = "apiary"


class PostgresEngine:
    """An open engine; use it as an async context manager."""

    def __init__(self, url: str, settings: PostgresSettings | None = None) -> None:
        self.url = url
        self.settings = settings or PostgresSettings()
        self._pools: dict[str, AsyncConnectionPool[Connection]] = {}
        self._isolation: dict[tuple[str, str | None, str], str] = {}
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> PostgresEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()

    async def invoke(self, invocation: Invocation, timeout_s: float | None) -> Outcome:
        """Run and record one function as one transaction; see `Engine.invoke`."""
        key = (invocation.application, invocation.deployment, invocation.function)
        isolation = self._isolation.get(key, "serializable")
        parameters = (
            invocation.run_id,
            invocation.seq,
            invocation.application,
            invocation.deployment,
            invocation.function,
            invocation.input,
            invocation.principal,
            invocation.trace,
            invocation.attempt,
            invocation.keep,
            invocation.lease_until,
        )
        try:
            text = await self._value(isolation, _INVOKE, parameters, timeout_s)
        except psycopg.Error as error:
            if error.sqlstate == DUPLICATE:
                raise DuplicateOperation(
                    f"operation {invocation.run_id}/{invocation.seq} is recorded already"
                ) from error
            if error.sqlstate == ISOLATION and error.diag.message_detail:
                self._isolation[key] = error.diag.message_detail
                return await self.invoke(invocation, timeout_s)
            raise translate(error) from error
        return _outcome(text)

    async def recorded(self, invocation: Invocation) -> Outcome | None:
        """The recorded outcome of this operation, or None; see `Engine.recorded`."""
        parameters = (
            invocation.run_id,
            invocation.seq,
            invocation.application,
            invocation.function,
            invocation.input,
        )
        try:
            text = await self._value("read committed", _RECORDED, parameters, None)
        except psycopg.Error as error:
            raise translate(error) from error
        return None if text is None else _outcome(text)

    async def log_attempt(
        self, invocation: Invocation, status: str, error: ApiaryError, started_at: datetime
    ) -> None:
        """Log an attempt that left no record."""
        document = {
            "type": type(error).__name__,
            "message": error.message,
            "code": error.reason,
            "details": error.metadata,
        }
        parameters = (
            invocation.run_id,
            invocation.seq,
            invocation.attempt,
            "function",
            invocation.function,
            invocation.application,
            invocation.deployment,
            invocation.principal,
            status,
            json.dumps(document, default=str),
            started_at,
            invocation.trace,
        )
        try:
            await self._value("read committed", _LOG_ATTEMPT, parameters, None)
        except psycopg.Error as failed:
            raise translate(failed) from failed

    @asynccontextmanager
    async def connection(self, isolation: str = "read committed") -> AsyncIterator[Connection]:
        """A pooled connection in autocommit mode, whose sessions run at ``isolation``."""
        pool = self._pools.get(isolation) or await self._open_pool(isolation)
        try:
            async with pool.connection(self.settings.acquire_timeout_s) as connection:
                yield connection
        except PoolTimeout as error:
            raise UnavailableError(
                f"no database connection within {self.settings.acquire_timeout_s:g} s",
                hint="the database is away, or every connection of the pool is busy",
            ) from error

    async def _value(
        self, isolation: str, statement: str, parameters: tuple[Any, ...], timeout_s: float | None
    ) -> Any:
        async with self.connection(isolation) as connection:
            await self._set_timeout(connection, timeout_s)
            cursor = await connection.execute(statement, parameters)
            row = await cursor.fetchone()
            return row[0] if row else None

    async def _set_timeout(self, connection: Connection, timeout_s: float | None) -> None:
        """Give the session another statement timeout, only where it differs from what it has."""
        wanted = timeout_s if timeout_s is not None else self.settings.statement_timeout_s
        if wanted <= 0:
            raise DeadlineExceeded("the deadline passed before the function could run")
        wanted_ms = max(1, round(wanted * 1000))
        have_ms = getattr(connection, "apiary_timeout_ms", None)
        if have_ms != wanted_ms:
            await connection.execute(
                sql.SQL("SET statement_timeout = {}").format(sql.Literal(wanted_ms))
            )
            connection.apiary_timeout_ms = wanted_ms  # type: ignore[attr-defined]

    async def _open_pool(self, isolation: str) -> AsyncConnectionPool[Connection]:
        async with self._lock:
            if isolation not in self._pools:
                options = (
                    f"-c default_transaction_isolation={isolation.replace(' ', '\\ ')}"
                    f" -c statement_timeout={round(self.settings.statement_timeout_s * 1000)}"
                    " -c idle_in_transaction_session_timeout=60000"
                )
                pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
                    self.url,
                    kwargs={
                        "autocommit": True,
                        "options": options,
                        "application_name": self.settings.application_name,
                    },
                    min_size=1,
                    max_size=self.settings.pool_size,
                    open=False,
                    check=None,
                    configure=self._configure,
                )
                await pool.open()
                self._pools[isolation] = pool
            return self._pools[isolation]

    async def _configure(self, connection: Connection) -> None:
        connection.apiary_timeout_ms = (  # type: ignore[attr-defined]
            round(self.settings.statement_timeout_s * 1000)
        )


def _outcome(text: str) -> Outcome:
    return Outcome(**json.loads(text))
