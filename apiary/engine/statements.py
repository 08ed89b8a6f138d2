"""Constant statements of text parameters that answer with one text: the way of every invocation.

A cursor of psycopg converts the statement, looks for an adapter of each parameter and of each
column, and arms a timer for each wait. Here a connection prepares a statement once, and then sends
texts and reads a text through libpq. What can go wrong stays psycopg's: errors with their SQL state
and diagnostics, connections that break, notices, and statements whose caller was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import AsyncConnection, generators, pq
from psycopg.errors import error_from_result
from psycopg.waiting import Ready, Wait

__all__ = ["PooledConnection", "Statement"]

_CANCEL_WITHIN_S = 5.0
# libpq takes C strings; sessions of the pools have this client encoding.
_ENCODING = "utf-8"

log = logging.getLogger(__name__)
_Exchange = Generator[int, Any, list[pq.abc.PGresult]]


class PooledConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection, and what its session has been given since it was opened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared: set[bytes] = set()
        self.timeout_ms: int | None = None  # None: that of the pool


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with parameters $1, $2, ...; its one row has one column, as text."""

    name: bytes
    text: bytes

    async def value(
        self, connection: PooledConnection, parameters: Sequence[str | None]
    ) -> str | None:
        """Run it. Raises psycopg's errors; a cancellation ends it in the server as well."""
        encoded = [_encoded(parameter) for parameter in parameters]
        if self.name not in connection.prepared:
            await self._prepare(connection)
        connection.pgconn.send_query_prepared(self.name, encoded)
        try:
            result = _checked(await _exchange(connection))
        except psycopg.errors.InvalidSqlStatementName:
            connection.prepared.clear()  # what ran on it has deallocated them
            raise
        value = result.get_value(0, 0) if result.ntuples else None
        return None if value is None else value.decode(_ENCODING)

    async def _prepare(self, connection: PooledConnection) -> None:
        connection.pgconn.send_prepare(self.name, self.text)
        # There already, when a call was cancelled before it knew.
        with suppress(psycopg.errors.DuplicatePreparedStatement):
            _checked(await _exchange(connection))
        connection.prepared.add(self.name)


def _encoded(parameter: str | None) -> bytes | None:
    if parameter is None:
        return None
    encoded = parameter.encode(_ENCODING)
    if b"\0" in encoded:  # else it would be cut there
        raise psycopg.DataError("PostgreSQL text cannot contain NUL (0x00) bytes")
    return encoded


def _checked(results: list[pq.abc.PGresult]) -> pq.abc.PGresult:
    """The last result, when none is an error."""
    for result in results:
        if result.status not in _GOOD:
            raise error_from_result(result, _ENCODING)
    if not results:
        raise psycopg.OperationalError("the connection was lost before an answer")
    return results[-1]


_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


async def _exchange(connection: PooledConnection) -> list[pq.abc.PGresult]:
    """Send what was given to libpq, and wait for all of the answer."""
    exchange = generators.execute(connection.pgconn)
    try:
        return await _completed(connection.pgconn, exchange)
    except OSError as error:
        raise psycopg.OperationalError("the connection's socket is closed") from error
    except asyncio.CancelledError:
        await _stop(connection, exchange)
        raise


async def _completed(pgconn: pq.abc.PGconn, exchange: _Exchange) -> list[pq.abc.PGresult]:
    try:
        wanted = next(exchange)
        while True:
            wanted = exchange.send(await _ready(pgconn.socket, wanted))
    except StopIteration as ended:
        results: list[pq.abc.PGresult] = ended.value
        return results


async def _ready(descriptor: int, wanted: int) -> int:
    """Wait until the socket can be read from, or written to, as is wanted."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[int] = loop.create_future()
    try:
        if wanted & Wait.R:
            loop.add_reader(descriptor, _resolve, ready, Ready.R)
        if wanted & Wait.W:
            loop.add_writer(descriptor, _resolve, ready, Ready.W)
        return await ready
    finally:
        if wanted & Wait.R:
            loop.remove_reader(descriptor)
        if wanted & Wait.W:
            loop.remove_writer(descriptor)


def _resolve(ready: asyncio.Future[int], state: int) -> None:
    if not ready.done():
        ready.set_result(state)


async def _stop(connection: PooledConnection, exchange: _Exchange) -> None:
    """Cancel the statement in the server and read how it ended; else close the connection."""
    try:
        async with asyncio.timeout(_CANCEL_WITHIN_S):
            await connection.cancel_safe(timeout=_CANCEL_WITHIN_S)
            await _completed(connection.pgconn, exchange)
    except (psycopg.Error, OSError) as error:  # TimeoutError is an OSError
        log.warning("statement_not_cancelled: %s; its connection is closed", error or "no answer")
        connection.pgconn.finish()
    except BaseException:
        connection.pgconn.finish()  # what it does is not known
        raise
