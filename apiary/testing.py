"""A throw-away platform for an application's tests: a pytest plugin.

    from functions import hotel

    def test_a_room_is_reserved_once(apiary_app):
        apiary_app.call(hotel.add_hotel, 1, "Ritz", rooms=1, longitude=0.0, latitude=0.0)
        assert apiary_app.call(hotel.reserve, hotel_id=1, customer_id=7) == hotel.RESERVED

`apiary_app` is the application of the folder that pytest runs in (or of ``--apiary-application``),
deployed into a database of the test's own. The database server is private to the test session; set
APIARY_TEST_DATABASE_URL (a superuser's URL) to use an existing one.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from .authoring.application import Application
from .authoring.bundle import Bundle, build_bundle
from .authoring.decorators import Function
from .engine import migrating
from .engine.base import Invocation, Outcome
from .engine.deploying import deploy
from .engine.postgres import PostgresEngine, PostgresSettings
from .execution.ids import new_run_id
from .execution.invoking import Invoker, raise_recorded_error
from .local import PrivateCluster
from .loops import new_loop

__all__ = ["LoopThread", "Platform", "TestServer", "in_memory", "rows"]

T = TypeVar("T")

# A throw-away server need not survive a power failure. Tests of durability say fsync=on themselves.
_MEMORY_BYTES = 2 * 1024**3  # free, for a server's data to be kept in memory
FAST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "shared_preload_libraries": "pg_stat_statements",
    "max_connections": "200",
}


class LoopThread:
    """An event loop in a thread of its own, for calling asynchronous code from synchronous code."""

    def __init__(self) -> None:
        self.loop = new_loop()  # as servers and executors have it
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        """Stop the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class TestServer:
    """A PostgreSQL server in which each test gets a database of its own."""

    __test__ = False  # not a test class, whatever its name

    def __init__(self, admin_url: str) -> None:
        self.admin_url = admin_url
        self._templates: dict[str, str] = {}

    def url(self, database: str) -> str:
        """The superuser's URL of a database."""
        return psycopg.conninfo.make_conninfo(self.admin_url, dbname=database)

    def create_database(self, bundle: Bundle | None = None) -> str:
        """A new database with the platform, and ``bundle`` deployed; return its name."""
        template = self._template(bundle)
        name = f"apiary_test_{uuid4().hex[:12]}"
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        # A copy does not take the privileges on the database itself.
        self._execute(
            sql.SQL(
                "UPDATE pg_database SET datacl = (SELECT datacl FROM pg_database"
                " WHERE datname = {}) WHERE datname = {}"
            ).format(sql.Literal(template), sql.Literal(name))
        )
        return name

    @contextmanager
    def database(self, bundle: Bundle | None = None) -> Iterator[str]:
        """The superuser's URL of such a database, which is dropped when the block ends."""
        name = self.create_database(bundle)
        try:
            yield self.url(name)
        finally:
            self.drop_database(name)

    def create_empty_database(self) -> str:
        """A new database without the platform; return its name."""
        name = f"apiary_test_{uuid4().hex[:12]}"
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected."""
        self._execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )

    def close(self) -> None:
        """Drop the templates."""
        for template in self._templates.values():
            self.drop_database(template)

    def _template(self, bundle: Bundle | None) -> str:
        key = bundle.id if bundle else ""
        if key not in self._templates:
            name = f"apiary_template_{uuid4().hex[:12]}"
            base = self._template(None) if bundle else "template1"
            self._execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(base)
                )
            )
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                if bundle is None:
                    migrating.apply(connection)
                else:
                    deploy(connection, bundle, principal="test")
            self._templates[key] = name
        return self._templates[key]

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(statement)


def rows(url: str, statement: str, *parameters: Any) -> list[dict[str, Any]]:
    """Rows of any SQL statement, as the URL's user; none of one that returns no rows."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        cursor = connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


class Platform:
    """One database with an application deployed, and ways to call and ask it."""

    def __init__(
        self, url: str, application: str, settings: PostgresSettings | None = None
    ) -> None:
        self.url = url
        self.application = application
        self.loop = LoopThread()
        self.engine = PostgresEngine(url, settings or PostgresSettings(pool_size=16))
        self.invoker = Invoker(self.engine)

    def close(self) -> None:
        """Close its connections."""
        self.loop.run(self.engine.close())
        self.loop.close()

    def call(self, target: str | Function[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a function in the database; return its result, or raise its error.

        By name, the arguments are by name and plain JSON values, and so is the result.
        """
        if isinstance(target, str):
            outcome = self._invoke(target, kwargs, None)
            raise_recorded_error(outcome)
            return outcome.output
        document = target.signature.encode_arguments(args, kwargs)
        outcome = self._invoke(target.name, document, None)
        raise_recorded_error(outcome)
        return target.signature.decode_result(outcome.output)

    def invoke(self, function: str, /, *, run_id: str | None = None, **document: Any) -> Outcome:
        """Invoke a function with a JSON document as its input; return the recorded outcome."""
        return self._invoke(function, document, run_id)

    def _invoke(self, function: str, document: dict[str, Any], run_id: str | None) -> Outcome:
        # The document apart: a function may have a parameter named run_id, too.
        invocation = Invocation(
            run_id=new_run_id() if run_id is None else run_id,
            application=self.application,
            function=function,
            input=json.dumps(document),
            principal="test",
        )
        return self.loop.run(self.invoker.invoke(invocation, fresh=run_id is None))

    def query(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of any SQL statement, as the superuser."""
        return rows(self.url, statement, *parameters)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--apiary-application``."""
    parser.addoption(
        "--apiary-application", metavar="PATH", help="folder of the application under test"
    )


@pytest.fixture(scope="session")
def apiary_server() -> Iterator[TestServer]:
    """The session's PostgreSQL server."""
    existing = os.environ.get("APIARY_TEST_DATABASE_URL")
    if existing:
        server = TestServer(existing)
        yield server
        server.close()
        return
    directory = Path(tempfile.mkdtemp(prefix="apiary-test-", dir=in_memory()))
    directory.chmod(0o755)  # as root, the server runs as another account, which must get in
    cluster = PrivateCluster(directory / "postgres", settings=FAST_SETTINGS)
    try:
        cluster.start()
        yield TestServer(cluster.url())
    finally:
        cluster.destroy()
        shutil.rmtree(directory)


def in_memory() -> str | None:
    """A file system in memory that is large enough: about twice as fast as a disk."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        return str(memory) if shutil.disk_usage(memory).free > _MEMORY_BYTES else None
    return None


@pytest.fixture(scope="session")
def apiary_bundle(pytestconfig: pytest.Config) -> Bundle:
    """The application under test, checked and ready to be deployed."""
    chosen = pytestconfig.getoption("--apiary-application")
    return build_bundle(Application.read(Path(chosen) if chosen else pytestconfig.rootpath))


@pytest.fixture
def apiary_app(apiary_server: TestServer, apiary_bundle: Bundle) -> Iterator[Platform]:
    """The application under test, deployed into a database of the test's own."""
    with (
        apiary_server.database(apiary_bundle) as url,
        closing(Platform(url, apiary_bundle.application)) as platform,
    ):
        yield platform
