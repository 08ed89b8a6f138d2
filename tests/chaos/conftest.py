"""One server for all chaos tests of a session; a database and a folder for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from apiary.local import PrivateCluster
from tests.chaos.invariants import check_invariants
from tests.chaos.processes import SETTINGS, install


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one test takes place."""

    cluster: PrivateCluster
    url: str
    side: Path  # the file that steps append to
    log: Path  # of the executors

    def check(self, *, all_succeeded: bool = True) -> None:
        """The invariants."""
        check_invariants(self.url, self.side, all_succeeded=all_succeeded)

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """As the superuser, outside of everything."""
        return psycopg.connect(self.url, autocommit=True)


@pytest.fixture(scope="session")
def chaos_cluster() -> Iterator[PrivateCluster]:
    """A server that may be killed."""
    memory = Path("/dev/shm")
    directory = Path(
        tempfile.mkdtemp(prefix="apiary-chaos-", dir=memory if memory.is_dir() else None)
    )
    directory.chmod(0o755)  # the server may run as another account
    cluster = PrivateCluster(directory / "postgres", settings=SETTINGS)
    try:
        cluster.start()
        install(cluster, "chaos_template")
        yield cluster
    finally:
        cluster.destroy()
        shutil.rmtree(directory)


@pytest.fixture
def place(chaos_cluster: PrivateCluster, tmp_path: Path) -> Iterator[Place]:
    """A database with the chaos application."""
    if not chaos_cluster.running:
        chaos_cluster.start()
    name = f"chaos_{uuid4().hex[:12]}"
    chaos_cluster.create_database(name, template="chaos_template")
    yield Place(
        cluster=chaos_cluster,
        url=chaos_cluster.url(name),
        side=tmp_path / "side",
        log=tmp_path / "executors.log",
    )
    if not chaos_cluster.running:
        chaos_cluster.start()
    chaos_cluster.drop_database(name)
