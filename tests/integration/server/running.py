"""Servers in threads of the test's own, in front of one database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from apiary.server import Server, ServerSettings
from apiary.telemetry import Telemetry
from apiary.testing import LoopThread


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
