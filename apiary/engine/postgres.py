"""The PostgreSQL engine: pools of connections, and the statements that run operations.

A function's isolation level and its statement timeout are properties of the session that calls it
(neither can be changed inside the one statement), so there is a pool per isolation level, and each
connection knows the timeout that it has. What a function wants is learnt from the backend: a call
in a session that does not suit is refused before anything runs, and remembered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

import psycopg
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import AsyncRowFactory, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from ..authoring.intervals import parse_interval
from ..errors import ApiaryError, ConfigurationError, UnavailableError
from .base import DuplicateOperation, Invocation, Outcome
from .sqlstates import DUPLICATE, SESSION, is_connection_failure, translate
from .statements import PooledConnection, Statement

__all__ = ["PostgresEngine", "PostgresSettings"]

_INVOKE = Statement(
    b"apiary_invoke", b"SELECT apiary.invoke($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
)
_RECORDED = Statement(b"apiary_recorded", b"SELECT apiary.recorded($1, $2, $3, $4, $5)")
_LOG_ATTEMPT = Statement(
    b"apiary_log_attempt",
    b"SELECT apiary.log_attempt($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
)
_CALL = Statement(b"apiary_run_in_database", b"CALL apiary.run_in_database($1, NULL)")

# At SERIALIZABLE a sequential scan locks its whole table, so that all who touch a small table would
# conflict: an index scan is to be preferred there, too. The URL's own options win.
_PLANNER = "-c random_page_cost=1.1 -c cpu_tuple_cost=0.03"

IN_DATABASE = "in database"  # the pool for workflows that run in a backend

Connection = PooledConnection
R = TypeVar("R")
Values = Sequence[Any] | Mapping[str, Any] | None  # of a statement's parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    """How the engine uses its server."""

    pool_size: int = 16  # connections per isolation level
    acquire_timeout_s: float = 10.0  # waiting for a connection
    statement_timeout_s: float = 60.0  # of a function that states none
    application_name: str = "apiary"


@dataclass(frozen=True, slots=True)
class _Session:
    """What a function wants of the session that calls it."""

    isolation: str = "serializable"
    timeout_ms: int | None = None  # None: the engine's default
    deployment: str | None = None  # for which version this was learnt


class PostgresEngine:
    """An open engine; use it as an async context manager."""

    def __init__(self, url: str, settings: PostgresSettings | None = None) -> None:
        self.url = url
        self.settings = settings or PostgresSettings()
        self._pools: dict[str, AsyncConnectionPool[Connection]] = {}
        self._sessions: dict[tuple[str, str | None, str], _Session] = {}
        self._default_timeout_ms = round(self.settings.statement_timeout_s * 1000)
        self._lock = asyncio.Lock()
        self._checks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> PostgresEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*self._checks)
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()

    @property
    def waiting(self) -> int:
        """How many calls wait for a connection now."""
        return sum(pool.get_stats()["requests_waiting"] for pool in self._pools.values())

    async def invoke(self, invocation: Invocation) -> Outcome:
        """Run and record one function as one transaction; see `Engine.invoke`."""
        key = (invocation.application, invocation.deployment, invocation.function)
        session = self._sessions.get(key, _Session())
        parameters = (
            invocation.run_id,
            str(invocation.seq),
            invocation.application,
            invocation.deployment,
            invocation.function,
            invocation.input,
            invocation.principal,
            invocation.trace,
            str(invocation.attempt),
            "t" if invocation.keep else "f",
            None if invocation.lease_until is None else invocation.lease_until.isoformat(),
            invocation.deferred,
        )
        try:
            text = await self._value(_INVOKE, parameters, session)
        except psycopg.Error as error:
            if error.sqlstate == DUPLICATE:
                raise DuplicateOperation(
                    f"operation {invocation.run_id}/{invocation.seq} is recorded already"
                ) from error
            if error.sqlstate == SESSION and error.diag.message_detail:
                wanted = _Session(**json.loads(error.diag.message_detail))
                if wanted != session:
                    self._sessions[key] = wanted
                    return await self.invoke(invocation)
                raise self._unsuitable_session(invocation, error) from error
            raise translate(error) from error
        assert text is not None  # apiary.invoke returns a document
        outcome = _outcome(text)
        if session.deployment not in (None, outcome.deployment):
            self._sessions.pop(key, None)  # another version serves: learn anew
        return outcome

    def _unsuitable_session(
        self, invocation: Invocation, error: psycopg.Error
    ) -> ConfigurationError:
        return ConfigurationError(
            f"{invocation.function} cannot be called: {error.diag.message_primary}, and this "
            "connection's settings do not take effect",
            hint="connect to PostgreSQL directly, or through a pooler that keeps "
            "default_transaction_isolation and statement_timeout per client",
        )

    async def recorded(self, invocation: Invocation) -> Outcome | None:
        """The recorded outcome of this operation, or None; see `Engine.recorded`."""
        parameters = (
            invocation.run_id,
            str(invocation.seq),
            invocation.application,
            invocation.function,
            invocation.input,
        )
        try:
            text = await self._value(_RECORDED, parameters, _PLATFORM)
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
            str(invocation.seq),
            str(invocation.attempt),
            "function",
            invocation.function,
            invocation.application,
            invocation.deployment,
            invocation.principal,
            status,
            json.dumps(document, default=str),
            started_at.isoformat(),
            invocation.trace,
        )
        try:
            await self._value(_LOG_ATTEMPT, parameters, _PLATFORM)
        except psycopg.Error as failed:
            raise translate(failed) from failed

    async def call_in_database(self, request: str) -> str:
        """Run a workflow in a backend, by one CALL; returns its outcome as JSON text.

        The procedure commits, and changes session settings while it runs: a connection on which
        it failed is not used again.
        """
        try:
            async with self.connection(IN_DATABASE) as connection:
                try:
                    outcome = await _CALL.value(connection, (request,))
                except BaseException:
                    await connection.close()
                    raise
        except psycopg.Error as error:
            raise translate(error) from error
        assert outcome is not None  # the procedure's output parameter
        return outcome

    @asynccontextmanager
    async def connection(self, isolation: str = "read committed") -> AsyncIterator[Connection]:
        """A pooled connection in autocommit mode, whose sessions run at ``isolation``."""
        pool = self._pools.get(isolation) or await self._open_pool(isolation)
        try:
            async with pool.connection(self.settings.acquire_timeout_s) as connection:
                yield connection
        except PoolTimeout as error:
            raise self._no_connection() from error

    @overload
    async def rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]: ...

    @overload
    async def rows(
        self, statement: str, values: Values, row_factory: AsyncRowFactory[R]
    ) -> list[R]: ...

    async def rows(
        self, statement: str, values: Values, row_factory: AsyncRowFactory[Any] = tuple_row
    ) -> list[Any]:
        """All rows of one statement of the platform's own; its error as one of ours."""
        try:
            async with (
                self.connection() as connection,
                connection.cursor(row_factory=row_factory) as cursor,
            ):
                await cursor.execute(statement.encode(), values)
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise translate(error) from error

    def _no_connection(self) -> UnavailableError:
        return UnavailableError(
            f"no database connection within {self.settings.acquire_timeout_s:g} s",
            hint="the database is away, or every connection of the pool is busy",
        )

    async def _value(
        self, statement: Statement, parameters: tuple[str | None, ...], session: _Session
    ) -> str | None:
        """Run a statement on a connection that suits; it is a transaction of its own."""
        isolation = session.isolation
        pool = self._pools.get(isolation) or await self._open_pool(isolation)
        try:
            # Not `connection`: in autocommit mode there is nothing to commit or to roll back.
            connection = await pool.getconn(self.settings.acquire_timeout_s)
            try:
                await self._set_timeout(connection, session.timeout_ms)
                return await statement.value(connection, parameters)
            finally:
                await pool.putconn(connection)
        except PoolTimeout as error:
            raise self._no_connection() from error
        except psycopg.Error as error:
            if is_connection_failure(error):
                await self.recover()
            raise

    async def recover(self) -> None:
        """Replace broken connections: after one broke, each of the others would cost an attempt."""
        for pool in list(self._pools.values()):
            # In a task of its own, because the pool swallows a cancellation that arrives meanwhile.
            check = asyncio.create_task(pool.check())
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)
            await asyncio.shield(check)

    async def _set_timeout(self, connection: Connection, timeout_ms: int | None) -> None:
        """Give the session another statement timeout, only where it differs from what it has."""
        wanted_ms = timeout_ms or self._default_timeout_ms
        if (connection.timeout_ms or self._default_timeout_ms) != wanted_ms:
            await connection.execute(
                sql.SQL("SET statement_timeout = {}").format(sql.Literal(wanted_ms))
            )
            connection.timeout_ms = wanted_ms

    async def _open_pool(self, isolation: str) -> AsyncConnectionPool[Connection]:
        async with self._lock:
            if isolation not in self._pools:
                # A CALL is one statement, whatever it runs; it sets each function's timeout itself.
                timeout_ms = 0 if isolation == IN_DATABASE else self._default_timeout_ms
                level = "read committed" if isolation == IN_DATABASE else isolation
                escaped = level.replace(" ", "\\ ")
                given = conninfo_to_dict(self.url).get("options") or ""
                options = (
                    f"{_PLANNER} {given} -c default_transaction_isolation={escaped}"
                    f" -c statement_timeout={timeout_ms}"
                    " -c idle_in_transaction_session_timeout=60000"
                    # What a process that died was running keeps its run from being taken over.
                    " -c client_connection_check_interval=2000"
                    # What the in-backend runtime wants (its environment.py); costs nothing here.
                    " -c search_path=pg_catalog,\\ pg_temp"
                    " -c datestyle=ISO,YMD -c intervalstyle=iso_8601 -c timezone=UTC"
                )
                pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
                    self.url,
                    connection_class=PooledConnection,
                    kwargs={
                        "autocommit": True,
                        "client_encoding": "UTF8",  # as `statements` writes and reads
                        "options": options,
                        "application_name": self.settings.application_name,
                        "context": _ADAPTERS,
                    },
                    min_size=1,
                    max_size=self.settings.pool_size,
                    open=False,
                    # Then the next call tries again: a long pause would outlast the outage.
                    reconnect_timeout=_RECONNECT_S,
                )
                await pool.open()
                self._pools[isolation] = pool
            return self._pools[isolation]


class _IntervalLoader(Loader):
    """Reads intervals as the sessions of the pools write them, which psycopg does not."""

    def load(self, data: Buffer) -> timedelta:
        return parse_interval(bytes(data).decode())


_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_loader("interval", _IntervalLoader)
_RECONNECT_S = 4.0
_PLATFORM = _Session(isolation="read committed")


def _outcome(text: str) -> Outcome:
    return Outcome(**json.loads(text))
