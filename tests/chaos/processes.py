"""The processes that chaos is made of: a server, executors, clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psycopg

from apiary.authoring.application import Application
from apiary.authoring.bundle import build_bundle
from apiary.engine import migrating
from apiary.engine.deploying import deploy
from apiary.local import PrivateCluster
from tests.chaos.driving import Job

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# Processes die here, machines do not: what the kernel has is as good as what the disk has.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "deadlock_timeout": "200ms",
}
LEASE_S = 3.0


def install(cluster: PrivateCluster, database: str) -> str:
    """A database with the platform and the chaos application; returns its URL."""
    cluster.create_database(database)
    url = cluster.url(database)
    bundle = build_bundle(Application.read(Path(__file__).parent / "application"))
    with psycopg.connect(url, autocommit=True) as connection:
        migrating.apply(connection)
        deploy(connection, bundle, principal="chaos")
        connection.execute("INSERT INTO apiary.queue (name, concurrency) VALUES ('narrow', 2)")
    return url


class ExecutorProcess:
    """One executor in a process of its own; its log goes to a file."""

    def __init__(
        self, url: str, name: str, side: Path, log: Path, crash_point: str | None = None
    ) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "APIARY_CHAOS_SIDE": str(side),
            **({"APIARY_CRASH_POINT": crash_point} if crash_point else {}),
        }
        command = [sys.executable, "-m", "tests.chaos.executor_main", url, name, str(LEASE_S)]
        self.name = name
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=errors, cwd=REPOSITORY
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Until it claims runs."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise AssertionError(f"executor {self.name} did not start: {self.wait()}")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self.wait()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Until it has ended; returns its exit status, negative: the signal that killed it."""
        status = self._process.wait(timeout_s)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status


class ClientProcess:
    """A client in a process of its own."""

    def __init__(self, url: str, jobs: Sequence[Job]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.client_main", url],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
        )
        assert self._process.stdin is not None
        for job in jobs:
            self._process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        self._process.stdin.close()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def executors(
    url: str, side: Path, log: Path, names: Sequence[str], crash_point: str | None = None
) -> Iterator[list[ExecutorProcess]]:
    """Executors that claim runs; killed at the end."""
    started = [ExecutorProcess(url, name, side, log, crash_point) for name in names]
    try:
        for executor in started:
            executor.wait_until_ready()
        yield started
    finally:
        for executor in started:
            if executor.alive:
                executor.kill()
