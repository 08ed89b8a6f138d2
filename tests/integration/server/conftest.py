"""A real server on a free port, in front of a real database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from apiary.authoring.bundle import Bundle
from apiary.client import Client
from apiary.testing import TestServer
from tests.integration.server.applications import odd_application
from tests.integration.server.running import Servers
from tests.integration.server.workflow_application import ledger_bundle
from tests.integration.server.workflow_world import World


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


@pytest.fixture(scope="session")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The application with workflows, built."""
    return ledger_bundle(tmp_path_factory.mktemp("ledger"))


@pytest.fixture
def world(apiary_server: TestServer, ledger: Bundle) -> Iterator[World]:
    """A database of the test's own; nothing runs yet."""
    name = apiary_server.create_database(ledger)
    made = World(apiary_server.url(name))
    yield made
    made.close()
    apiary_server.drop_database(name)


@pytest.fixture
def ledgers(world: World) -> Iterator[Client]:
    """A client of a server; no executor runs."""
    with Client(world.servers.start().address) as client:
        yield client


@pytest.fixture(scope="module")
def running_world(apiary_server: TestServer, ledger: Bundle) -> Iterator[World]:
    """A server and an executor, for the tests of a module."""
    name = apiary_server.create_database(ledger)
    made = World(apiary_server.url(name))
    made.start_executor()
    yield made
    made.close()
    apiary_server.drop_database(name)


@pytest.fixture(scope="module")
def running(running_world: World) -> Iterator[Client]:
    """A client of it."""
    with Client(running_world.servers.start().address) as client:
        yield client
