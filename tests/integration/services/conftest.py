"""The repository's own application with an executor: what the tests of its services run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apiary.authoring.bundle import Bundle
from apiary.testing import TestServer

from .running import Service


@pytest.fixture(scope="module")
def deployed(apiary_server: TestServer, apiary_bundle: Bundle) -> Iterator[Service]:
    """A database for the tests of one module, without an executor."""
    name = apiary_server.create_database(apiary_bundle)
    made = Service(apiary_server.url(name), apiary_bundle.application)
    try:
        yield made
    finally:
        made.close()
        apiary_server.drop_database(name)


@pytest.fixture(scope="module")
def service(deployed: Service) -> Service:
    """The same with an executor."""
    deployed.execute_runs()
    return deployed
