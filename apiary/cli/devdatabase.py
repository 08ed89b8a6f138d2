"""The database of `apiary dev`: a private server, or one that exists."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..engine import migrating
from ..errors import ConflictError
from ..local import PrivateCluster
from .database import connect
from .logins import DATABASE, ensure_logins, login_url
from .output import note
from .settings import Setting, masked

__all__ = ["DevDatabase", "existing_database", "private_database"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevDatabase:
    """A database with the platform installed, and URLs by what they may do."""

    runtime_url: str
    deployer_url: str
    reader_url: str
    description: str
    cluster: PrivateCluster | None  # None: the server is not ours


@contextmanager
def private_database(state: Path) -> Iterator[DevDatabase]:
    """A private PostgreSQL under ``state``; it stops when the block ends."""
    cluster = PrivateCluster(state / "postgres")
    with cluster:
        with suppress(ConflictError):  # a later start has it
            cluster.create_database(DATABASE)
        url = Setting(name="database_url", value=cluster.url(DATABASE), origin="apiary dev")
        password_file = state / "pgpass"
        with connect(url) as connection:
            _tell(migrating.apply(connection))
            ensure_logins(connection, password_file)
        yield DevDatabase(
            runtime_url=login_url("runtime", cluster.port, password_file),
            deployer_url=login_url("deployer", cluster.port, password_file),
            reader_url=login_url("reader", cluster.port, password_file),
            description=f"PostgreSQL {cluster.version_major} on 127.0.0.1:{cluster.port}",
            cluster=cluster,
        )


@contextmanager
def existing_database(url: Setting) -> Iterator[DevDatabase]:
    """A database of somebody else's server, brought up to date; one URL does everything."""
    with connect(url) as connection:
        plan = migrating.plan(connection)
        if not plan.empty:
            plan = migrating.apply(connection)
        _tell(plan)
        row = connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if row.fetchone() == (True,):
            note(
                "note: this URL is a superuser's, which is more than the server needs;"
                " production logs in as a member of apiary_runtime"
            )
    text = str(url.value)
    yield DevDatabase(
        runtime_url=text,
        deployer_url=text,
        reader_url=text,
        description=masked(text),
        cluster=None,
    )


def _tell(done: migrating.MigrationPlan) -> None:
    if not done.empty:
        names = [file.name for file in done.migrations]
        note(f"installed the platform ({', '.join(names) or 'functions and runtime'})")
