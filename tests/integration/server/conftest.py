"""A real server on a free port, in front of a real database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from apiary.authoring.bundle import Bundle
from apiary.client import Client
from apiary.server import Server, ServerSettings
from apiary.testing import LoopThread, TestServer


class RunningServer:
    """A server in a thread of its own."""

    def __init__(self, settings: ServerSettings) -> None:
        self.loop = LoopThread()
        self.server = Server(settings)
        try:
            self.loop.run(self.server.start())
        except BaseException:
            self.loop.close()
            raise
        self.address = self.server.address

    def close(self, grace_s: float = 5.0) -> None:
        self.loop.run(self.server.drain(grace_s))
        self.loop.close()


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
