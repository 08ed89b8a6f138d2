"""What the tests of the ReCycle service run on: the services' database, and its functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from apiary.authoring.bundle import Bundle
from apiary.authoring.failures import rebuild_exception
from apiary.testing import Platform, TestServer
from tests.integration.services.running import ENDED
from tests.integration.services.running import Service as Workflows

__all__ = ["ENDED", "Service"]


class Service(Workflows):
    """The application in one database: functions by `call`, workflows by `run`."""

    def __init__(self, url: str, application: str) -> None:
        super().__init__(url, application)
        self._platform = Platform(url, application)

    def close(self) -> None:
        super().close()
        self._platform.close()

    def call(self, function: str, /, **document: Any) -> Any:
        """Run a function; its output as JSON."""
        return self._platform.call(function, **document)

    def output(self, run_id: str) -> Any:
        """The output of a run, when it has ended; raises its error."""
        row = self.wait(run_id)
        if row["error"] is not None:
            raise rebuild_exception(row["error"], lambda _module, _name: None)
        return row["output"]


@pytest.fixture(scope="module")
def bare(apiary_server: TestServer, apiary_bundle: Bundle) -> Iterator[Service]:
    """The application without an executor, in a database of the module's own."""
    yield from _service(apiary_server, apiary_bundle)


@pytest.fixture(scope="session")
def service(apiary_server: TestServer, apiary_bundle: Bundle) -> Iterator[Service]:
    """The application with an executor in this process, for all who leave others' rows alone."""
    for service in _service(apiary_server, apiary_bundle):
        service.execute_runs()
        yield service


def _service(server: TestServer, bundle: Bundle) -> Iterator[Service]:
    with server.database(bundle) as url, closing(Service(url, bundle.application)) as service:
        yield service
