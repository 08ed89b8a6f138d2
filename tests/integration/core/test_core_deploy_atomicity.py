"""A deploy that fails at any statement leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from apiary.authoring.bundle import Bundle
from apiary.engine.deploying import deploy, rollback
from apiary.testing import Platform

Dump = Callable[[str], list[tuple[object, ...]]]

FIRST = {
    "functions/box/sql/001_tables.sql": "CREATE TABLE box.item (id int PRIMARY KEY, n int);",
    "functions/box/__init__.py": """
        from apiary import Database, function

        @function
        def put(db: Database, id: int) -> int:
            return db.execute("INSERT INTO box.item (id, n) VALUES ($1, 1)", id)
    """,
}
SECOND = FIRST | {
    "functions/box/sql/002_more.sql": """
        ALTER TABLE box.item ADD m text;
        INSERT INTO box.item VALUES (9);
    """,
    "functions/crate/sql/001_tables.sql": "CREATE TABLE crate.lid (id int PRIMARY KEY);",
    "functions/crate/__init__.py": """
        from apiary import Database, function

        @function
        def close(db: Database, id: int) -> int:
            return db.execute("INSERT INTO crate.lid (id) VALUES ($1)", id)
    """,
}


class InjectedError(Exception):
    """Raised in place of a statement."""


class FailingCursor(psycopg.Cursor[Any]):
    """Raises in place of the k-th statement of its connection."""

    sent = 0
    fails_at: int | None = None

    def _count(self) -> None:
        kind = type(self)
        kind.sent += 1
        if kind.sent == kind.fails_at:
            raise InjectedError(f"statement {kind.sent}")

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        self._count()
        return super().execute(*args, **kwargs)

    def executemany(self, *args: Any, **kwargs: Any) -> Any:
        self._count()
        return super().executemany(*args, **kwargs)


def attempt(url: str, fails_at: int, work: Callable[[psycopg.Connection[Any]], object]) -> bool:
    """Do ``work`` on a connection whose k-th statement fails; whether there was such a one."""

    class Cursor(FailingCursor):
        sent = 0

    Cursor.fails_at = fails_at
    with psycopg.connect(url, autocommit=True, cursor_factory=Cursor) as connection:
        try:
            work(connection)
        except InjectedError:
            return True
    return False


def check_every_statement(
    url: str, dump: Dump, work: Callable[[psycopg.Connection[Any]], object]
) -> None:
    before = dump(url)
    number = 0
    while True:
        number += 1
        failed = attempt(url, number, work)
        if not failed:
            break
        assert dump(url) == before, f"statement {number}"
    assert number > 5
    assert dump(url) != before  # the last attempt had no statement left to fail at


def test_a_first_deploy(empty_database: str, bundle_of: Callable[..., Bundle], dump: Dump) -> None:
    bundle = bundle_of(FIRST)
    check_every_statement(
        empty_database, dump, lambda connection: deploy(connection, bundle, principal="test")
    )


def test_a_second_deploy_while_the_first_serves_and_a_rollback(
    make_app: Callable[..., Platform], bundle_of: Callable[..., Bundle], dump: Dump
) -> None:
    app = make_app(FIRST)
    bundle = bundle_of(SECOND)
    app.call("box.put", id=1)
    check_every_statement(
        app.url, dump, lambda connection: deploy(connection, bundle, principal="test")
    )
    assert app.call("crate.close", id=1) == 1
    check_every_statement(
        app.url, dump, lambda connection: rollback(connection, "app", principal="test")
    )
    assert app.call("box.put", id=2) == 1
