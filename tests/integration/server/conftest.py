"""A real server on a free port, in front of a real database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from apiary.authoring.bundle import Bundle
from apiary.client import Client
from apiary.server import Server, ServerSettings
from apiary.telemetry import Telemetry
from apiary.testing import LoopThread, TestServer
from tests.integration.server.applications import odd_application


class RunningServer:
    """A server in a thread of its own."""

    def __init__(self, settings: ServerSettings, telemetry: Telemetry | None = None) -> None:
        self.server = Server(settings, telemetry)
        self.loop = LoopThread()
        try:
            self.loop.run(self.server.start())
        except BaseException:
            self.loop.close()
            raise
        self.address = self.server.address

    def close(self, grace_s: float = 5.0) -> None:
        self.loop.run(self.server.drain(grace_s))
        self.loop.close()


def rows(url: str, statement: str, *parameters: Any) -> list[dict[str, Any]]:
    """Rows of a statement, as the superuser."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        cursor = connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


class Servers:
    """Starts servers in front of one database."""

    def __init__(self, database_url: str) -> None:
        self.settings = ServerSettings(
            address="127.0.0.1:0", database_url=database_url, deploy_url=database_url
        )
        self._running: list[RunningServer] = []

    def start(self, **changes: Any) -> RunningServer:
        running = RunningServer(replace(self.settings, **changes))
        self._running.append(running)
        return running

    def close(self) -> None:
        for running in self._running:
            if running.server.running:
                running.close()


@pytest.fixture
def database(apiary_server: TestServer, apiary_bundle: Bundle) -> Iterator[str]:
    """The superuser's URL of a database with the repository's application."""
    name = apiary_server.create_database(apiary_bundle)
    yield apiary_server.url(name)
    apiary_server.drop_database(name)


@pytest.fixture(scope="session")
def odd_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The application of odd functions, built."""
    return odd_application(tmp_path_factory.mktemp("oddities"))


@pytest.fixture
def odd_database(apiary_server: TestServer, odd_bundle: Bundle) -> Iterator[str]:
    """The superuser's URL of a database with the odd application."""
    name = apiary_server.create_database(odd_bundle)
    yield apiary_server.url(name)
    apiary_server.drop_database(name)


@pytest.fixture
def odd_servers(odd_database: str) -> Iterator[Servers]:
    servers = Servers(odd_database)
    yield servers
    servers.close()


@pytest.fixture
def odd(odd_servers: Servers) -> Iterator[Client]:
    """A client of a server with the odd application."""
    with Client(odd_servers.start().address) as client:
        yield client


@pytest.fixture(scope="module")
def shared_odd(apiary_server: TestServer, odd_bundle: Bundle) -> Iterator[Client]:
    """The same, shared by tests that leave no trace."""
    name = apiary_server.create_database(odd_bundle)
    servers = Servers(apiary_server.url(name))
    with Client(servers.start().address) as client:
        yield client
    servers.close()
    apiary_server.drop_database(name)


@pytest.fixture
def servers(database: str) -> Iterator[Servers]:
    servers = Servers(database)
    yield servers
    servers.close()


@pytest.fixture
def client(servers: Servers) -> Iterator[Client]:
    """A client of a server with default settings."""
    with Client(servers.start().address) as client:
        yield client


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait until a condition holds; fails after ten seconds.

    ``eventually(condition, (NotFound,))`` takes these errors for "not yet".
    """

    def wait(condition: Callable[[], bool], not_yet: tuple[type[Exception], ...] = ()) -> None:
        ends = time.monotonic() + 10.0
        while True:
            try:
                if condition():
                    return
            except not_yet:
                pass
            assert time.monotonic() < ends, "the condition did not come true within 10 s"
            time.sleep(0.02)

    return wait
