"""How many statements the server sends: asserted by pg_stat_statements, on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest

from apiary.client import Client, StartOptions
from apiary.testing import rows
from tests.integration.server.running import Servers
from tests.integration.server.workflow_world import World


class Statements:
    """What the database has been sent, by pg_stat_statements."""

    def __init__(self, url: str) -> None:
        self._url = url

    def reset(self) -> None:
        rows(
            self._url,
            "SELECT pg_stat_statements_reset(0, (SELECT oid FROM pg_database"
            " WHERE datname = current_database()), 0)",
        )

    def sent(self) -> dict[str, int]:
        """How often each statement was sent since the reset."""
        found = rows(
            self._url,
            "SELECT query, sum(calls)::int AS calls FROM pg_stat_statements s"
            "  JOIN pg_database d ON d.oid = s.dbid"
            " WHERE datname = current_database() AND toplevel"
            "   AND query NOT LIKE '%pg_stat_statements%' GROUP BY query",
        )
        return {row["query"]: row["calls"] for row in found}


@pytest.fixture
def statements(odd_database: str) -> Statements:
    return _statements(odd_database)


def _statements(url: str) -> Statements:
    try:
        rows(url, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        rows(url, "SELECT count(*) FROM pg_stat_statements")
    except psycopg.Error as error:
        pytest.skip(f"the server has no pg_stat_statements: {error}")
    return Statements(url)


def _short(sent: dict[str, int]) -> dict[str, int]:
    """The calls of the platform's functions by their names; other statements as they are."""
    found: dict[str, int] = {}
    for query, calls in sent.items():
        name = query.split("(")[0]
        if name != "SELECT $1":  # the health check
            found[name] = found.get(name, 0) + calls
    return found


def test_a_fresh_invocation_is_one_statement(odd: Client, statements: Statements) -> None:
    odd.call("odd.put", value=0)  # the application is looked up once
    statements.reset()
    for value in range(5):
        odd.call("odd.put", value=value)
    assert _short(statements.sent()) == {"SELECT apiary.invoke": 5}


def test_a_callers_own_id_is_one_reading_statement_more(
    odd: Client, statements: Statements
) -> None:
    odd.call("odd.put", value=0)
    statements.reset()
    for value in range(5):
        odd.call("odd.put", value=value, run_id=f"own-{value}")
    assert _short(statements.sent()) == {"SELECT apiary.recorded": 5, "SELECT apiary.invoke": 5}


def test_a_repeated_invocation_runs_nothing(
    odd: Client, statements: Statements, odd_database: str
) -> None:
    odd.call("odd.put", value=1, run_id="same")
    statements.reset()
    for _ in range(5):
        assert odd.invoke("odd.put", value=1, run_id="same").replayed
    assert _short(statements.sent()) == {"SELECT apiary.recorded": 5}
    assert rows(odd_database, "SELECT count(*) AS n FROM odd.item") == [{"n": 1}]


def test_each_invocation_is_one_commit(odd: Client, odd_database: str) -> None:
    for value in range(3):
        odd.call("odd.put", value=value)
    # The record and the effects have one transaction, each invocation its own.
    together = rows(
        odd_database,
        "SELECT count(DISTINCT i.xid) AS transactions, count(*) AS events"
        "  FROM provenance.invocation i JOIN provenance.write_event w USING (xid)",
    )
    assert together == [{"transactions": 3, "events": 3}]


def test_an_idle_server_sends_at_most_two_statements_a_second(
    odd_servers: Servers, statements: Statements, eventually: Callable[..., None]
) -> None:
    with Client(odd_servers.start().address) as client:
        client.call("odd.put", value=0)
        statements.reset()
        began = time.monotonic()
        # Its health check is what it sends: seen three times, the rate is known.
        eventually(lambda: sum(statements.sent().values()) >= 3)
        assert sum(statements.sent().values()) / (time.monotonic() - began) <= 2


def test_a_run_in_an_executor_costs_five_statements_and_one_per_function(
    world: World, ledgers: Client
) -> None:
    world.start_executor(poll_s=2.0)
    statements = _statements(world.url)

    def run() -> None:
        handle = ledgers.start(
            "books.fill",
            key="k",
            amounts=[1, 2, 3],
            application="ledgers",
            options=StartOptions(executor_only=True),
        )
        handle.result(60)

    for _ in range(2):  # the deployment is looked up, and its code loaded, once
        run()
    statements.reset()
    began = time.monotonic()
    for _ in range(10):
        run()
    elapsed_s = time.monotonic() - began
    sent = statements.sent()
    named = {
        part: sum(calls for query, calls in sent.items() if part in query)
        for part in ("apiary.start_run", "apiary.invoke", "apiary.finish_run", "current FROM")
    }
    assert named == {
        "apiary.start_run": 10, "apiary.invoke": 40, "apiary.finish_run": 10, "current FROM": 0,
    }  # fmt: skip
    # Beside these: a claim, and the waiting client's two looks at the run; and by time, what the
    # server and the executor each send when they are idle, at most two a second.
    assert sum(sent.values()) <= 10 * (4 + 5) + 2 * 2 * (1 + elapsed_s)
