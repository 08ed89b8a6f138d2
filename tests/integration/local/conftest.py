"""Places and makers for real private clusters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiary.errors import ConfigurationError
from apiary.local import Installation, PrivateCluster, find_installation

THROWAWAY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "20",
}


@pytest.fixture(scope="session")
def throwaway() -> dict[str, str]:
    """Settings for data that may be lost."""
    return dict(THROWAWAY)


@pytest.fixture(scope="session")
def installation() -> Installation:
    try:
        return find_installation()
    except ConfigurationError as error:
        pytest.skip(f"no PostgreSQL with PL/Python on this machine: {error.message}")


def _base() -> str | None:
    """Memory, where there is much of it: a cluster is a thousand files, soon deleted."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 1024**3
    return str(memory) if roomy and os.access(memory, os.W_OK) else None


def _open_directory() -> Iterator[Path]:
    # pytest's own temporary directories are closed to other accounts, also to the server's.
    directory = Path(tempfile.mkdtemp(prefix="apiary-test-", dir=_base())).resolve()
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every account can enter."""
    yield from _open_directory()


@pytest.fixture(scope="session")
def prepared(installation: Installation) -> Iterator[Path]:
    """The directory of a stopped cluster, for copying: initdb is what takes the time."""
    for directory in _open_directory():
        with PrivateCluster(directory / "pg", installation=installation, settings=THROWAWAY):
            pass
        yield directory / "pg"


def _copy(prepared: Path, directory: Path) -> None:
    subprocess.run(["cp", "-a", prepared, directory], check=True)
    (directory / "state.json").unlink()  # with the port of the original
    credentials = directory / "credentials.json"
    record = json.loads(credentials.read_text())
    credentials.write_text(json.dumps({**record, "place": str(directory)}))


@pytest.fixture
def make_cluster(
    place: Path, installation: Installation, prepared: Path
) -> Iterator[Callable[..., PrivateCluster]]:
    """Makes clusters (by default in the same directory) that are gone after the test.

    They begin with a copy of a prepared one's data, or with nothing (``prepared=False``).
    """
    made: list[PrivateCluster] = []

    def make(directory: Path = place / "pg", **options: Any) -> PrivateCluster:
        if options.pop("prepared", True) and not (directory / "credentials.json").exists():
            directory.parent.mkdir(parents=True, exist_ok=True)
            _copy(prepared, directory)
        cluster = PrivateCluster(
            directory, **{"installation": installation, "settings": THROWAWAY, **options}
        )
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.stop("immediate")
    for cluster in made:
        cluster.destroy()


@pytest.fixture(scope="module")
def shared(installation: Installation) -> Iterator[PrivateCluster]:
    """One running cluster for the tests that leave it running and unchanged."""
    for directory in _open_directory():
        cluster = PrivateCluster(directory / "pg", installation=installation, settings=THROWAWAY)
        cluster.start()
        yield cluster
        cluster.destroy()
