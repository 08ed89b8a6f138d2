"""Least privilege: what each kind of role may do, and what it may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest

from apiary.authoring.bundle import Bundle
from apiary.engine.deploying import deploy, rollback
from apiary.errors import PermissionDenied
from apiary.testing import Platform

DENIED = psycopg.errors.InsufficientPrivilege


def files(domain: str) -> dict[str, str]:
    return {
        f"functions/{domain}/sql/001_tables.sql": f"CREATE TABLE {domain}.t (id int PRIMARY KEY);",
        f"functions/{domain}/__init__.py": f"""
            from apiary import Database, function

            @function
            def put(db: Database, id: int) -> int:
                return db.execute("INSERT INTO {domain}.t VALUES ($1)", id)

            @function
            def spy(db: Database, sql: str) -> int:
                return db.execute(sql)

            @function
            def who(db: Database) -> list[str]:
                return list(db.one("SELECT current_user::text, session_user::text").values())

            @function
            def path(db: Database) -> list[object]:
                sql = "SELECT current_setting('search_path'), version() = 'trapped'"
                return list(db.one(sql).values())
        """,
    }


@pytest.fixture(scope="module")
def app(make_shared_app: Callable[..., Platform]) -> Platform:
    return make_shared_app(files("one"), name="first")


@pytest.fixture
def login(app: Platform) -> Iterator[Callable[[str], str]]:
    """Makes logins in a role, by URL."""
    made: list[str] = []

    def make(role: str) -> str:
        name = f"test_{role}_{uuid4().hex[:8]}"
        app.query(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE {role}")
        made.append(name)
        return psycopg.conninfo.make_conninfo(app.url, user=name, password="secret")

    yield make
    for name in made:
        app.query(f"DROP OWNED BY {name}")
        app.query(f"DROP ROLE {name}")


def refused(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            with pytest.raises(DENIED):
                connection.execute(statement.encode())


CREATING = (
    "CREATE SCHEMA mine",
    "CREATE TABLE public.mine ()",
    "CREATE TABLE one.mine ()",
    "CREATE TABLE apiary.mine ()",
    "CREATE TEMPORARY TABLE mine ()",
    "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION apiary_app.mine() RETURNS int LANGUAGE plpython3u AS 'return 1'",
    "CREATE ROLE mine",
    "CREATE EXTENSION pg_stat_statements",
)
EDITING_THE_LOG = (
    "UPDATE apiary.operation SET principal = 'somebody'",
    "UPDATE provenance.write_event SET db_user = 'somebody'",
)
WRITING_THE_LOG = tuple(
    statement.format(table=table)
    for table in ("apiary.operation", "apiary.attempt", "provenance.write_event")
    for statement in (
        "INSERT INTO {table} DEFAULT VALUES",
        "DELETE FROM {table}",
        "TRUNCATE {table}",
    )
)


def test_the_runtime_invokes_and_creates_nothing(
    app: Platform, login: Callable[[str], str]
) -> None:
    url = login("apiary_runtime")
    refused(url, *CREATING, *WRITING_THE_LOG, *EDITING_THE_LOG)
    refused(
        url,
        "INSERT INTO one.t VALUES (1)",
        "SELECT apiary.create_application('x')",
        "SELECT apiary_app.first()",
        "UPDATE apiary.application SET current = NULL",
        "SET ROLE apiary_app_first",
    )
    runtime = Platform(url, "first")
    try:
        assert runtime.call("one.put", id=1) == 1
        current, session = runtime.call("one.who")
        assert current == "apiary_app_first"
        assert session.startswith("test_apiary_runtime")
    finally:
        runtime.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_isolation = serializable")
        assert connection.execute("SELECT one.put(2)").fetchone() == (1,)
    assert len(app.query("SELECT 1 FROM provenance.data_event WHERE relation = 'one.t'")) == 2


def test_the_reader_reads_and_writes_nothing(app: Platform, login: Callable[[str], str]) -> None:
    url = login("apiary_reader")
    refused(url, *CREATING, *WRITING_THE_LOG, *EDITING_THE_LOG)
    refused(
        url,
        "INSERT INTO one.t VALUES (9)",
        "UPDATE one.t SET id = 9",
        "DELETE FROM one.t",
        "TRUNCATE one.t",
        "SELECT apiary.invoke('r', 0, 'first', NULL, 'one.put', '{}', 'p', NULL, 1, true, NULL,"
        " NULL)",
    )
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("one.t", "provenance.invocation", "provenance.data_event", "apiary.module"):
            connection.execute(f"SELECT count(*) FROM {table}".encode())


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM two.t",
        "INSERT INTO two.t VALUES (1)",
        "SELECT * FROM apiary.operation",
        "DELETE FROM apiary.operation",
        "INSERT INTO provenance.write_event (relation, operation) VALUES ('one.t', 'I')",
        "DELETE FROM provenance.write_event",
        "SELECT apiary.invoke('r', 0, 'second', NULL, 'two.put', '{}', 'p', NULL, 1, true, NULL)",
        "SELECT two.put(1)",
        "CREATE SCHEMA mine",
        "SET ROLE apiary_owner",
        "RESET ROLE",
        "SET SESSION AUTHORIZATION postgres",
    ],
)
def test_a_function_reaches_its_own_tables_only(
    app: Platform, bundle_of: Callable[..., Bundle], statement: str
) -> None:
    if not app.query("SELECT 1 FROM apiary.application WHERE name = 'second'"):
        with psycopg.connect(app.url, autocommit=True) as connection:
            deploy(connection, bundle_of(files("two"), name="second"), principal="test")
    error = app.invoke("one.spy", sql=statement).error
    assert error is not None
    assert error["details"]["sqlstate"] in ("42501", "22023", "2F003"), error["message"]


def test_a_login_of_the_deployer_deploys_and_rolls_back(
    app: Platform, login: Callable[[str], str], bundle_of: Callable[..., Bundle]
) -> None:
    url = login("apiary_deployer")
    first = files("three")
    second = first | {
        "functions/three/sql/002_more.sql": "ALTER TABLE three.t ADD n int NOT NULL DEFAULT 5;",
    }
    with psycopg.connect(url, autocommit=True) as connection:
        for content in (first, second):
            assert deploy(connection, bundle_of(content, name="third"), principal="me").changed
        assert rollback(connection, "third", principal="me").changed
    third = Platform(app.url, "third")
    try:
        assert third.call("three.put", id=1) == 1
    finally:
        third.close()
    [event] = app.query("SELECT after FROM provenance.data_event WHERE relation = 'three.t'")
    assert event["after"] == {"id": 1, "n": 5}
    refused(url, "CREATE FUNCTION three.f() RETURNS int LANGUAGE plpython3u AS 'return 1'")
    refused(url, *WRITING_THE_LOG, *EDITING_THE_LOG)


@pytest.mark.parametrize("role", ["apiary_runtime", "apiary_reader"])
def test_others_may_not_deploy(
    login: Callable[[str], str], bundle_of: Callable[..., Bundle], role: str
) -> None:
    bundle = bundle_of(files("four"), name="fourth")
    with (
        psycopg.connect(login(role), autocommit=True) as connection,
        pytest.raises(PermissionDenied, match="may not deploy"),
    ):
        deploy(connection, bundle, principal="me")


def test_names_are_looked_up_the_same_in_every_session(app: Platform) -> None:
    app.query("CREATE SCHEMA trap; CREATE FUNCTION trap.version() RETURNS text RETURN 'trapped'")
    called = "SELECT apiary.call('first', 'one.path', '{}')"
    path = ["pg_catalog, pg_temp", False]
    with psycopg.connect(app.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.execute("SET search_path = trap, pg_catalog")
        assert connection.execute(called).fetchone() == (path,)
        assert connection.execute("SELECT version()").fetchone() == ("trapped",)  # its own again
    assert app.call("one.path") == path
