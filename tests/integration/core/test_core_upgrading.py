"""Bringing a database that is in use up to another version of the platform's code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import psycopg

from apiary.engine import migrating
from apiary.testing import Platform

MakeApp = Callable[..., Platform]

FILES = {
    "functions/box/__init__.py": """
        from apiary import Database, function

        @function
        def put(db: Database, id: int, n: int) -> int:
            return db.execute("INSERT INTO box.item (id, n) VALUES ($1, $2)", id, n)
    """,
    "functions/box/sql/001_tables.sql": "CREATE TABLE box.item (id int PRIMARY KEY, n int);",
}


def upgrade(url: str) -> migrating.MigrationPlan:
    """Install the code again, as over an installation of another version."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE apiary.installation SET checksum = 'another'")
        return migrating.apply(connection)


def reopened(app: Platform) -> closing[Platform]:
    """The application again, by backends that load the code anew."""
    return closing(Platform(app.url, app.application))


def test_an_upgrade_keeps_what_is_deployed_and_recorded(make_app: MakeApp) -> None:
    app = make_app(FILES)
    app.call("box.put", id=1, n=1)
    done = upgrade(app.url)
    assert done.code
    assert not done.migrations
    with reopened(app) as again:
        assert again.call("box.put", id=2, n=2) == 1
        written = again.query("SELECT key FROM provenance.data_event ORDER BY event_id")
        assert written == [{"key": {"id": 1}}, {"key": {"id": 2}}]


def test_an_upgrade_makes_what_belongs_to_applications_anew(make_app: MakeApp) -> None:
    app = make_app(FILES)
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE box.item DISABLE TRIGGER ALL")
        connection.execute(
            "CREATE OR REPLACE FUNCTION apiary_app.app() RETURNS void LANGUAGE plpython3u"
            " SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'raise RuntimeError()'"
        )
    upgrade(app.url)
    with reopened(app) as again:
        again.call("box.put", id=1, n=1)
        assert len(again.query("SELECT 1 FROM provenance.data_event")) == 1


def test_an_upgrade_drops_the_functions_of_an_earlier_version(make_app: MakeApp) -> None:
    app = make_app(FILES)
    app.query(
        "CREATE FUNCTION apiary.trim_log(p_before timestamptz, p_limit integer) RETURNS bigint"
        " LANGUAGE sql AS 'SELECT 0::bigint'"
    )
    upgrade(app.url)
    assert app.query("SELECT 1 FROM pg_proc WHERE proname = 'trim_log'") == []


def test_the_upgrade_that_a_script_does_is_the_one_that_the_program_does(make_app: MakeApp) -> None:
    app = make_app(FILES)
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("UPDATE apiary.installation SET checksum = 'another'")
        connection.execute(migrating.script(migrating.plan(connection)).encode())
        assert migrating.plan(connection).empty
    with reopened(app) as again:
        assert again.call("box.put", id=1, n=1) == 1
