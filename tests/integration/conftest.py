"""Small applications, written for one test and deployed into a database of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import psycopg
import pytest

from apiary.authoring.application import Application
from apiary.authoring.bundle import Bundle, build_bundle
from apiary.engine.deploying import deploy
from apiary.engine.postgres import PostgresSettings
from apiary.testing import Platform, TestServer

Files = dict[str, str]
MakeApp = Callable[..., Platform]


def write_application(folder: Path, files: Files, *, name: str, provenance: str = "full") -> Path:
    """Write an application's files; their texts may be indented."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = f'name = "{name}"\nprovenance = "{provenance}"\n'
    for path, text in {"apiary.toml": settings, **files}.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    return folder


@pytest.fixture
def bundle_of(tmp_path: Path) -> Callable[..., Bundle]:
    """Builds the bundle of an application given as files."""
    made: list[Path] = []

    def build(files: Files, *, name: str = "app", provenance: str = "full") -> Bundle:
        folder = tmp_path / f"application_{len(made)}"
        made.append(folder)
        write_application(folder, files, name=name, provenance=provenance)
        return build_bundle(Application.read(folder))

    return build


@pytest.fixture
def make_app(apiary_server: TestServer, bundle_of: Callable[..., Bundle]) -> Iterator[MakeApp]:
    """Deploys an application given as files into a database of its own; closes everything."""
    made: list[tuple[Platform, str]] = []

    def make(
        files: Files,
        *,
        name: str = "app",
        provenance: str = "full",
        settings: PostgresSettings | None = None,
    ) -> Platform:
        bundle = bundle_of(files, name=name, provenance=provenance)
        database = apiary_server.create_database()
        platform = Platform(apiary_server.url(database), bundle.application, settings)
        made.append((platform, database))
        with psycopg.connect(platform.url, autocommit=True) as connection:
            deploy(connection, bundle, principal="test")
        return platform

    yield make
    for platform, database in made:
        platform.close()
        apiary_server.drop_database(database)


@pytest.fixture
def empty_database(apiary_server: TestServer) -> Iterator[str]:
    """The URL of a database with the platform and no application."""
    database = apiary_server.create_database()
    yield apiary_server.url(database)
    apiary_server.drop_database(database)


_DUMPED = """
SELECT 'role', rolname FROM pg_roles WHERE rolname LIKE 'apiary_app%'
UNION ALL SELECT 'schema', nspname || ' ' || coalesce(nspacl::text, '') FROM pg_namespace
UNION ALL SELECT 'relation', c.oid::regclass || ' ' || relkind::text || coalesce(relacl::text, '')
            FROM pg_class c WHERE relnamespace > 16384
UNION ALL SELECT 'column', attrelid::regclass || '.' || attname || ' ' || atttypid::regtype
            FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE relnamespace > 16384
UNION ALL SELECT 'trigger', tgrelid::regclass || ' ' || tgname FROM pg_trigger
UNION ALL SELECT 'routine', p.oid::regprocedure || ' ' || md5(prosrc) || coalesce(proacl::text, '')
            FROM pg_proc p WHERE p.oid > 16384
ORDER BY 1, 2"""


@pytest.fixture
def dump() -> Callable[[str], list[tuple[object, ...]]]:
    """Reads everything that a deploy could change: the catalogue, and every row of its tables."""

    def read(url: str) -> list[tuple[object, ...]]:
        with psycopg.connect(url, autocommit=True) as connection:
            found = list(connection.execute(_DUMPED.encode()))
            tables = connection.execute(
                "SELECT c.oid::regclass::text FROM pg_class c"
                " JOIN pg_namespace n ON n.oid = relnamespace"
                " WHERE relkind IN ('r', 'p') AND nspname !~ '^pg_|^information_schema$' ORDER BY 1"
            ).fetchall()
            for (table,) in tables:
                rows = connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1".encode())
                found += [(table, *row) for row in rows]
        return found

    return read
