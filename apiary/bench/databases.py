"""The server that is measured, and a database for each system in it, filled alike."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from ..engine import migrating
from ..engine.deploying import deploy
from ..local import PrivateCluster
from .catalogue import System
from .dataset import application, create_tables, effects, fill
from .systems.procedure import PROCEDURES
from .workloads import Scale, Workload

__all__ = ["Databases", "measured_server", "sync_ms"]

# Beside what a private server has anyway: durable as PostgreSQL is by default.
SETTINGS: Mapping[str, str] = {
    "max_connections": "500",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "pg_stat_statements.max": "20000",
}
_TEMPLATE = "bench_tables"


@contextmanager
def measured_server(
    folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[PrivateCluster]:
    """A server of the measurement's own; gone afterwards."""
    cluster = PrivateCluster(folder / "postgres", settings={**SETTINGS, **(settings or {})})
    with cluster:
        yield cluster
        cluster.destroy()


class Databases:
    """One database for each system."""

    def __init__(self, cluster: PrivateCluster, scale: Scale) -> None:
        self._cluster = cluster
        self._scale = scale

    def prepare(self, systems: Sequence[System]) -> None:
        """Make and fill them."""
        self._cluster.create_database(_TEMPLATE)
        with self._connect(_TEMPLATE) as connection:
            create_tables(connection)
            fill(connection, self._scale)
        for system in systems:
            if system.provenance is None:
                self._cluster.create_database(system.database, template=_TEMPLATE)
            else:
                self._with_platform(system, system.provenance)
            if system.name.startswith("procedure"):
                with self._connect(system.database) as connection:
                    connection.execute("CREATE EXTENSION plpython3u")
                    connection.execute(PROCEDURES.read_bytes())
        with self._connect("postgres") as connection:
            connection.execute("CHECKPOINT")

    def _with_platform(self, system: System, provenance: str) -> None:
        self._cluster.create_database(system.database)
        with self._connect(system.database) as connection:
            migrating.apply(connection)
            deploy(connection, application(provenance), principal="bench")
            fill(connection, self._scale)

    def effects(self, system: System, workload: Workload) -> tuple[int, ...]:
        """What a workload has left in a system's tables."""
        with self._connect(system.database) as connection:
            return effects(connection, tuple(workload.effects))

    def _connect(self, database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(self._cluster.url(database), autocommit=True)


def sync_ms(folder: Path, rounds: int = 50) -> float:
    """The median of how long the disk takes for 8 kB and fdatasync, in milliseconds."""
    path = folder / "sync"
    taken = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            os.pwrite(descriptor, bytes(8192), 0)
            os.fdatasync(descriptor)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return sorted(taken)[rounds // 2] * 1e3
