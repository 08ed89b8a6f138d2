"""The repository's own application with an executor: what the tests of its services run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from apiary.authoring.bundle import Bundle
from apiary.testing import TestServer

from .running import Service


@pytest.fixture(scope="module")
def deployed(apiary_server: TestServer, apiary_bundle: Bundle) -> Iterator[Service]:
    """A database for the tests of one module, without an executor."""
    with (
        apiary_server.database(apiary_bundle) as url,
        closing(Service(url, apiary_bundle.application)) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def service(deployed: Service) -> Service:
    """The same with an executor."""
    deployed.execute_runs()
    return deployed
