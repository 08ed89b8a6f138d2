"""Conditions that tests wait for, and the gate at which they hold functions up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from tests.chaos.driving import PATIENCE_S

# Backends that wait for the gate: advisory lock 4711 of effects.gated and effects.cross.
AT_THE_GATE = """
    SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
     WHERE l.locktype = 'advisory' AND l.objid = 4711 AND NOT l.granted
       AND d.datname = current_database()"""


def until(condition: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> Any:
    """What the condition returns once it is true; AssertionError when it does not come about."""
    ends = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > ends:
            raise AssertionError(f"{what}: not within {within_s:g} s")
        time.sleep(0.02)


def query(url: str, statement: str, *values: Any) -> list[Any]:
    """The first column of a query's rows, as the superuser."""
    with psycopg.connect(url, autocommit=True) as connection:
        return [row[0] for row in connection.execute(statement.encode(), values).fetchall()]


@contextmanager
def closed_gate(url: str) -> Iterator[Callable[[], None]]:
    """Functions stop at the gate until the block ends, or until what is yielded is called."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(4711)")

        def open_gate() -> None:
            connection.execute("SELECT pg_advisory_unlock_all()")

        yield open_gate
        with suppress(psycopg.OperationalError):  # the server has died, and the lock with it
            open_gate()
