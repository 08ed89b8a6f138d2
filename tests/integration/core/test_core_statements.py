"""The lean way to PostgreSQL: what goes wrong on it is told as psycopg tells it, on either loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from apiary.engine.sqlstates import is_connection_failure
from apiary.engine.statements import PooledConnection, Statement
from apiary.loops import new_loop
from apiary.testing import TestServer

ECHO = Statement(b"test_echo", b"SELECT $1::text || coalesce($2::text, '')")
SLEEP = Statement(b"test_sleep", b"SELECT pg_sleep($1::float8)::text")
EXECUTE = Statement(b"test_execute", b"SELECT test_execute($1)")
_SLEEPING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"

Body = Callable[[PooledConnection, psycopg.Connection], Awaitable[None]]
Running = Callable[[Body], None]


@pytest.fixture(scope="module")
def url(apiary_server: TestServer) -> Iterator[str]:
    name = apiary_server.create_empty_database()
    with psycopg.connect(apiary_server.url(name), autocommit=True) as admin:
        admin.execute(
            "CREATE FUNCTION test_execute(text) RETURNS text LANGUAGE plpgsql AS"
            " $$BEGIN EXECUTE $1; RETURN 'done'; END$$"
        )
    yield apiary_server.url(name)
    apiary_server.drop_database(name)


@pytest.fixture(params=[asyncio.new_event_loop, new_loop], ids=["asyncio", "ours"])
def running(request: pytest.FixtureRequest, url: str) -> Running:
    """Runs a body with a connection and an administrator's, on one of the loops."""

    def run(body: Body) -> None:
        async def main() -> None:
            async with _connected(url) as connection:
                with psycopg.connect(url, autocommit=True) as admin:
                    await body(connection, admin)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[PooledConnection]:
    connection = await PooledConnection.connect(url, autocommit=True, client_encoding="UTF8")
    try:
        yield connection
    finally:
        await connection.close()


def _sleepers(admin: psycopg.Connection) -> list[int]:
    return [row[0] for row in admin.execute(_SLEEPING).fetchall()]


async def _asleep(connection: PooledConnection, admin: psycopg.Connection) -> asyncio.Task[None]:
    """A task whose statement sleeps in the server."""

    async def sleep() -> None:
        await SLEEP.value(connection, ("60",))

    task = asyncio.create_task(sleep())
    while not _sleepers(admin):
        await asyncio.sleep(0)
        assert not task.done()
    return task


def test_texts_and_null_travel(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        assert await ECHO.value(connection, ("Zoë \N{HONEYBEE}", None)) == "Zoë \N{HONEYBEE}"
        assert await ECHO.value(connection, ("", "\n'\\")) == "\n'\\"
        assert await ECHO.value(connection, (None, "x")) is None

    running(body)


def test_a_text_larger_than_every_buffer_travels(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        text = "é" * 16_000_000
        assert await ECHO.value(connection, (text, None)) == text

    running(body)


def test_a_nul_is_refused_and_not_cut_off(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        with pytest.raises(psycopg.DataError, match="NUL"):
            await ECHO.value(connection, ("a\0b", None))
        assert await ECHO.value(connection, ("a", "b")) == "ab"

    running(body)


def test_a_statement_is_prepared_once(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        for _ in range(3):
            await ECHO.value(connection, ("a", None))
        found = await connection.execute(
            "SELECT name, generic_plans + custom_plans FROM pg_prepared_statements"
        )
        assert await found.fetchall() == [("test_echo", 3)]

    running(body)


def test_an_error_has_its_state_and_diagnostics(running: Running) -> None:
    raising = "DO $$BEGIN RAISE 'odd' USING errcode = 'AP001', detail = 'Zoë', hint = 'h'; END$$"

    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        with pytest.raises(psycopg.Error, match="odd") as failed:
            await EXECUTE.value(connection, (raising,))
        assert (failed.value.sqlstate, failed.value.diag.message_detail) == ("AP001", "Zoë")
        with pytest.raises(psycopg.errors.SerializationFailure):
            await EXECUTE.value(connection, ("DO $$BEGIN RAISE sqlstate '40001'; END$$",))
        assert connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE

    running(body)


def test_notices_are_handed_on(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        heard: list[str | None] = []
        connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        await EXECUTE.value(connection, ("DO $$BEGIN RAISE NOTICE 'hear'; END$$",))
        assert heard == ["hear"]

    running(body)


def test_a_cancelled_task_ends_its_statement_and_keeps_the_connection(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        task = await _asleep(connection, admin)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert _sleepers(admin) == []
        assert await ECHO.value(connection, ("still", None)) == "still"

    running(body)


def test_a_statement_that_cannot_be_cancelled_costs_the_connection(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(self: PooledConnection, *, timeout: float = 0) -> None:
        raise psycopg.errors.CancellationTimeout("no answer")

    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        task = await _asleep(connection, admin)
        monkeypatch.setattr(PooledConnection, "cancel_safe", away)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert connection.closed
        assert "statement_not_cancelled" in caplog.text
        for pid in _sleepers(admin):
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    running(body)


def test_a_second_cancellation_closes_the_connection(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        cancelling = asyncio.Event()

        async def slow(self: PooledConnection, *, timeout: float = 0) -> None:
            cancelling.set()
            await asyncio.Event().wait()

        task = await _asleep(connection, admin)
        monkeypatch.setattr(PooledConnection, "cancel_safe", slow)
        task.cancel()
        await cancelling.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert connection.closed
        for pid in _sleepers(admin):
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    running(body)


def test_a_backend_that_is_terminated_is_a_connection_failure(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        task = await _asleep(connection, admin)
        admin.execute("SELECT pg_terminate_backend(%s)", _sleepers(admin))
        with pytest.raises(psycopg.OperationalError) as broken:
            await task
        assert is_connection_failure(broken.value)
        with pytest.raises(psycopg.OperationalError) as closed:
            await ECHO.value(connection, ("a", None))
        assert is_connection_failure(closed.value)
        assert connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.UNKNOWN

    running(body)


def test_a_statement_that_the_session_has_already_is_used(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        await ECHO.value(connection, ("a", None))
        connection.prepared.clear()  # as after a cancellation while it was prepared
        assert await ECHO.value(connection, ("a", "b")) == "ab"

    running(body)


def test_statements_that_were_deallocated_are_prepared_again(running: Running) -> None:
    async def body(connection: PooledConnection, admin: psycopg.Connection) -> None:
        await ECHO.value(connection, ("a", None))
        await EXECUTE.value(connection, ("DEALLOCATE ALL",))
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            await ECHO.value(connection, ("a", None))
        assert await ECHO.value(connection, ("a", "b")) == "ab"

    running(body)
