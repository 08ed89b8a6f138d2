"""A private PostgreSQL: made on first use, run as a child of this process, gone with it.

    with PrivateCluster(Path(".apiary/postgres")) as cluster:
        psycopg.connect(cluster.url())

The invariants: one directory has at most one running server; the data in it is complete or absent;
nobody gets in without the generated password; the server does not outlive its owner (at once on
Linux; elsewhere the next start ends it). Not for production: the data is on one disk, unguarded.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from apiary.errors import BadArgument, ConflictError, NotFound
from apiary.local.account import Account, server_account
from apiary.local.binaries import Installation, find_installation
from apiary.local.initialise import (
    ADMIN_USER,
    check_authentication,
    check_version,
    open_data,
)
from apiary.local.layout import (
    Layout,
    prepare_directory,
    prepare_socket_directory,
    read_record,
    remove,
)
from apiary.local.logfile import ServerLog
from apiary.local.postmaster import Postmaster
from apiary.local.settings import checked, effective, is_durable
from apiary.local.starting import Launch, launch
from apiary.local.takeover import end_orphan, last_port

StopMode = Literal["fast", "immediate"]

_STOP_TIMEOUT_S = 30.0
_KILL_TIMEOUT_S = 10.0


class PrivateCluster:
    """A PostgreSQL cluster of this process's own.

    ``directory`` is created when missing and keeps everything (see `describe` for the one case
    where the data is elsewhere). ``installation`` defaults to `find_installation`. ``settings`` are
    server settings that win over the defaults, over postgresql.conf and over ALTER SYSTEM.
    ``port`` fixes the TCP port; otherwise the last one is used again if free, else any free one.
    """

    def __init__(
        self,
        directory: Path,
        *,
        installation: Installation | None = None,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        self.directory = Path(directory).resolve()
        self._settings = checked(settings or {})
        self._installation = installation
        self._wanted_port = port
        self._start_timeout_s = start_timeout_s
        self._layout: Layout | None = None
        self._password: str | None = None
        self._account: Account | None = None
        self._postmaster: Postmaster | None = None
        self._port: int | None = None
        self._socket: Path | None = None
        self._socket_is_temporary = False

    # Life

    def start(self) -> None:
        """Start the server, making its data on first use; returns when it answers.

        Raises ConflictError when a server of a living owner runs on the data already,
        ConfigurationError when it cannot be started (with the end of its log), UnavailableError
        when it does not answer in ``start_timeout_s``.
        """
        installation = self.installation
        account = self._account = server_account()
        prepare_directory(self.directory, account)
        with _exclusive(self.directory):
            layout, password = open_data(
                self.directory, installation, account, sync=is_durable(self._settings)
            )
            self._layout, self._password = layout, password
            end_orphan(layout)
            check_version(layout, installation)
            check_authentication(layout.data)
            ServerLog(layout.log).rotate()
            self._release_socket()
            self._socket, self._socket_is_temporary = prepare_socket_directory(layout, account)
            request = Launch(
                layout=layout,
                installation=installation,
                account=account,
                socket_directory=self._socket,
                password=password,
                settings=effective(installation, self._settings),
                wanted_port=self._wanted_port,
                last_port=self._port or last_port(layout),
                timeout_s=self._start_timeout_s,
            )
            try:
                self._postmaster, self._port = launch(request)
            except BaseException:
                self._release_socket()
                raise
        atexit.register(self._stop_at_exit, os.getpid())

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait for its end. "fast" ends sessions and writes everything to the
        data files; "immediate" is a crash that the next start recovers from. A server that does
        not obey is ended harder, with a warning in the log.
        """
        if mode not in ("fast", "immediate"):
            raise BadArgument(f"stop mode {mode!r} is neither 'fast' nor 'immediate'", path="mode")
        self._end(fast_s=_STOP_TIMEOUT_S if mode == "fast" else None, immediate_s=_KILL_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL the postmaster, as the out-of-memory killer would; its backends follow."""
        self._end(fast_s=None, immediate_s=None)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start, on the same port if it is still free."""
        self.stop(mode)
        self.start()

    def destroy(self) -> None:
        """Stop the server and remove the cluster, wherever its parts are.

        Raises ConflictError when another living process runs a server on it.
        """
        self.stop("immediate")
        if not self.directory.exists():
            return
        with _exclusive(self.directory):
            record = read_record(self.directory / "credentials.json") or {}
            place = Path(record.get("place", self.directory))
            layout = Layout(directory=self.directory, place=place)
            end_orphan(layout)
            remove(layout)
        self._layout = self._password = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # Access

    @property
    def installation(self) -> Installation:
        if self._installation is None:
            self._installation = find_installation()
        return self._installation

    @property
    def version_major(self) -> int:
        return self.installation.version_major

    @property
    def admin_password(self) -> str:
        """The superuser's generated password; also in ``credentials.json`` (mode 0600)."""
        if self._password is None:
            raise self._not_started("has no password yet")
        return self._password

    @property
    def running(self) -> bool:
        return self._postmaster is not None and self._postmaster.alive

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1; after a stop, the last one."""
        if self._port is None:
            raise self._not_started("has no port yet")
        return self._port

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._postmaster is None or not self._postmaster.alive:
            raise self._not_started("is not running")
        return self._postmaster.pid

    def url(
        self, database: str = "postgres", user: str | None = None, password: str | None = None
    ) -> str:
        """A libpq URL over TCP: the superuser's, or another user's (with a password if given)."""
        return (
            f"postgresql://{self._userinfo(user, password)}@127.0.0.1:{self.port}/"
            f"{quote(database, safe='')}"
        )

    def socket_url(
        self, database: str = "postgres", user: str | None = None, password: str | None = None
    ) -> str:
        """The same over the Unix socket."""
        if self._socket is None:
            raise self._not_started("has no socket yet")
        return (
            f"postgresql://{self._userinfo(user, password)}@/{quote(database, safe='')}"
            f"?host={quote(str(self._socket), safe='')}&port={self.port}"
        )

    def log_tail(self, n: int = 20) -> str:
        """The last ``n`` lines of the server's log."""
        return ServerLog(self.directory / "postgres.log").tail(n)

    def describe(self) -> dict[str, str | int | bool | None]:
        """Where everything is and what runs, for showing; holds no secret."""
        layout = self._layout
        moved = layout is not None and layout.place != self.directory
        account = self._account.name if self._account else None
        return {
            "directory": str(self.directory),
            "data_directory": str(layout.data) if layout else None,
            "data_is_elsewhere_because": (
                f"account {account!r} cannot enter {self.directory}" if moved else None
            ),
            "socket_directory": str(self._socket) if self._socket else None,
            "log_file": str(self.directory / "postgres.log"),
            "account": account,
            "version": self.installation.version_text,
            "bin_dir": str(self.installation.bin_dir),
            "running": self.running,
            "pid": self._postmaster.pid if self._postmaster and self.running else None,
            "port": self._port,
        }

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create a database, as a copy of ``template`` if given.

        Raises ConflictError when the name is taken or the template is in use, NotFound when there
        is no such template.
        """
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        try:
            self._execute(statement)
        except psycopg.errors.DuplicateDatabase as error:
            raise ConflictError(f"database {name!r} exists already", name=name) from error
        except psycopg.errors.ObjectInUse as error:
            raise ConflictError(
                f"template database {template!r} cannot be copied while sessions use it",
                hint="Close its connections first.",
                name=template,
            ) from error
        except psycopg.errors.InvalidCatalogName as error:
            raise NotFound(
                f"no template database {template!r}", kind="database", name=template
            ) from error

    def drop_database(self, name: str) -> None:
        """Drop a database, ending its sessions. Raises NotFound when there is none."""
        try:
            self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        except psycopg.errors.InvalidCatalogName as error:
            raise NotFound(f"no database {name!r}", kind="database", name=name) from error

    # Inside

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _userinfo(self, user: str | None, password: str | None) -> str:
        if user is None or user == ADMIN_USER:
            user, password = ADMIN_USER, password or self.admin_password
        name = quote(user, safe="")
        return name if password is None else f"{name}:{quote(password, safe='')}"

    def _not_started(self, what: str) -> ConflictError:
        return ConflictError(
            f"the private PostgreSQL in {self.directory} {what}", hint="Call start() first."
        )

    def _end(self, *, fast_s: float | None, immediate_s: float | None) -> None:
        if self._postmaster is None:
            return
        self._postmaster.end(fast_s=fast_s, immediate_s=immediate_s)
        self._postmaster = None
        self._release_socket()
        atexit.unregister(self._stop_at_exit)

    def _release_socket(self) -> None:
        if self._socket_is_temporary and self._socket is not None:
            shutil.rmtree(self._socket, ignore_errors=True)
        self._socket, self._socket_is_temporary = None, False

    def _stop_at_exit(self, owner_pid: int) -> None:
        if os.getpid() == owner_pid:  # not in a fork of the owner
            self.stop()


@contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """Only one process at a time makes or starts the cluster; released by any kind of death."""
    with (directory / "start.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(
                f"another process is just starting the private PostgreSQL in {directory}",
                hint="Use that one, or choose another directory.",
            ) from error
        yield
