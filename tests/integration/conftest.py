"""Small applications, written for one test and deployed into a database of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import psycopg
import pytest

from apiary.authoring.application import Application
from apiary.authoring.bundle import Bundle, build_bundle
from apiary.engine.deploying import deploy
from apiary.engine.postgres import PostgresSettings
from apiary.testing import Platform, TestServer, in_memory

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


class Workshop:
    """Builds bundles in a folder and deploys them into databases of their own."""

    def __init__(self, server: TestServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._bundles = 0
        self._made: list[tuple[Platform, str]] = []

    def bundle(self, files: Files, *, name: str = "app", provenance: str = "full") -> Bundle:
        self._bundles += 1
        folder = self._folder / f"application_{self._bundles}"
        write_application(folder, files, name=name, provenance=provenance)
        return build_bundle(Application.read(folder))

    def make(
        self, files: Files, *, settings: PostgresSettings | None = None, **options: str
    ) -> Platform:
        bundle = self.bundle(files, **options)
        database = self._server.create_database()
        platform = Platform(self._server.url(database), bundle.application, settings)
        self._made.append((platform, database))
        with psycopg.connect(platform.url, autocommit=True) as connection:
            deploy(connection, bundle, principal="test")
        return platform

    def close(self) -> None:
        """Close and drop everything."""
        for platform, database in self._made:
            platform.close()
            self._server.drop_database(database)


@pytest.fixture
def workshop(apiary_server: TestServer, tmp_path: Path) -> Iterator[Workshop]:
    """Applications of one test."""
    made = Workshop(apiary_server, tmp_path)
    yield made
    made.close()


@pytest.fixture
def bundle_of(workshop: Workshop) -> Callable[..., Bundle]:
    """Builds the bundle of an application given as files."""
    return workshop.bundle


@pytest.fixture
def make_app(workshop: Workshop) -> MakeApp:
    """Deploys an application given as files into a database of its own."""
    return workshop.make


@pytest.fixture
def make_workshop(tmp_path: Path) -> Callable[[TestServer], Workshop]:
    """A workshop on another server, which the test itself removes."""
    return lambda server: Workshop(server, tmp_path)


@pytest.fixture
def test_directory() -> Iterator[Path]:
    """A directory that every account can enter, for a server of the test's own."""
    directory = Path(tempfile.mkdtemp(prefix="apiary-test-", dir=in_memory()))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def make_shared_app(
    apiary_server: TestServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeApp]:
    """The same for an application that all tests of a module use."""
    made = Workshop(apiary_server, tmp_path_factory.mktemp("shared"))
    yield made.make
    made.close()


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
                " WHERE relkind IN ('r', 'p') AND nspname !~ '^pg_|^information_schema$'"
                " AND relname <> 'runtime_module' ORDER BY 1"
            ).fetchall()
            contents = " UNION ALL ".join(
                f"SELECT '{table}', md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {table} t"
                for (table,) in tables
            )
            found += connection.execute(contents.encode())
        return found

    return read


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    """Waits for a condition, and fails when it does not come true in time."""

    def wait(condition: Callable[[], object], within_s: float = 20.0) -> None:
        ends = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < ends, "the condition did not come true in time"
            time.sleep(0.01)

    return wait
