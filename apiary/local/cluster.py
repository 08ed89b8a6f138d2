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
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from apiary.errors import (
    BadArgument,
    ConfigurationError,
    ConflictError,
    NotFound,
    UnavailableError,
)
from apiary.local.account import Account, server_account
from apiary.local.binaries import Installation, find_installation
from apiary.local.initialise import ADMIN_USER, check_authentication, check_version, initialise
from apiary.local.layout import (
    Layout,
    choose_place,
    prepare_directory,
    prepare_socket_directory,
    read_record,
    write_record,
)
from apiary.local.postmaster import Postmaster, command_line
from apiary.local.takeover import end_orphan, last_port, record_owner

StopMode = Literal["fast", "immediate"]

DEFAULT_SETTINGS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "max_connections": "100",
    "autovacuum": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
_OWN_SETTINGS = frozenset({"listen_addresses", "port", "unix_socket_directories", "lc_messages"})
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

_PORT_ATTEMPTS = 5
_PORT_TAKEN = "could not create any TCP/IP sockets"
_MEMORY_IN_USE = "pre-existing shared memory block"
_POLL_INTERVAL_S = 0.02
_STOP_TIMEOUT_S = 30.0
_KILL_TIMEOUT_S = 10.0
_LOG_LIMIT_BYTES = 16 * 1024 * 1024
_LOG_TAIL_BYTES = 256 * 1024

_log = logging.getLogger(__name__)


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
        self._settings = _checked(settings or {})
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
        self._account = server_account()
        prepare_directory(self.directory, self._account)
        with _exclusive(self.directory):
            layout = self._open(installation, self._account)
            end_orphan(layout)
            check_version(layout, installation)
            check_authentication(layout.data)
            _rotate(layout.log)
            self._release_socket()
            self._socket, self._socket_is_temporary = prepare_socket_directory(
                layout, self._account
            )
            self._launch(layout, installation, self._account)
        atexit.register(self._stop_at_exit, os.getpid())

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait for its end. "fast" ends sessions and writes everything to the
        data files; "immediate" is a crash that the next start recovers from. A server that does
        not obey is ended harder, with a warning in the log.
        """
        if mode not in ("fast", "immediate"):
            raise BadArgument(f"stop mode {mode!r} is neither 'fast' nor 'immediate'", path="mode")
        ladder = [(signal.SIGINT, _STOP_TIMEOUT_S)] if mode == "fast" else []
        self._end([*ladder, (signal.SIGQUIT, _KILL_TIMEOUT_S), (signal.SIGKILL, _KILL_TIMEOUT_S)])

    def kill(self) -> None:
        """SIGKILL the postmaster, as the out-of-memory killer would; its backends follow."""
        self._end([(signal.SIGKILL, _KILL_TIMEOUT_S)])

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start, on the same port if it is still free."""
        self.stop(mode)
        self.start()

    def destroy(self) -> None:
        """Stop the server and remove the cluster, wherever its parts are."""
        self.stop("immediate")
        record = read_record(self.directory / "credentials.json") or {}
        place = Path(record.get("place", self.directory))
        if place != self.directory and place.exists():
            shutil.rmtree(place)
        if self.directory.exists():
            shutil.rmtree(self.directory)
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
    def admin_user(self) -> str:
        """The superuser's name."""
        return ADMIN_USER

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
        return _last_lines(self.directory / "postgres.log", n)

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

    def _open(self, installation: Installation, account: Account) -> Layout:
        """The layout of the cluster, with its data made if there is none yet."""
        record = read_record(self.directory / "credentials.json")
        place = choose_place(self.directory, account) if record is None else Path(record["place"])
        layout = Layout(directory=self.directory, place=place)
        if not layout.data.exists():
            if record is not None and not layout.new_data.exists():
                raise ConfigurationError(
                    f"the data of {self.directory} was in {layout.data}, which is gone",
                    hint=f"Restore it, or remove {self.directory} to begin with an empty database.",
                )
            record = self._make(layout, installation, account)
        if record is None:
            raise ConfigurationError(
                f"{layout.data} exists, but {layout.credentials} does not",
                hint="Restore the file, or remove the directory to begin with an empty database.",
            )
        self._layout, self._password = layout, str(record["password"])
        return layout

    def _make(
        self, layout: Layout, installation: Installation, account: Account
    ) -> dict[str, object]:
        password = secrets.token_urlsafe(24)
        sync = self._settings.get("fsync", "on") not in {"off", "false", "no", "0"}
        try:
            initialise(layout, installation, account, password, sync=sync)
        except BaseException:
            if layout.place != layout.directory:
                shutil.rmtree(layout.place)
            raise
        record: dict[str, object] = {
            "user": ADMIN_USER,
            "password": password,
            "place": str(layout.place),
        }
        write_record(layout.credentials, record)
        layout.new_data.rename(layout.data)
        return record

    def _launch(self, layout: Layout, installation: Installation, account: Account) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        for port in self._ports(layout):
            said = self._try_port(layout, installation, account, port, deadline)
            if said is None:
                return
            if self._wanted_port is not None:
                raise ConfigurationError(
                    f"port {port} on 127.0.0.1 is in use by another program",
                    hint="Choose another port, or none to have a free one chosen.",
                    port=port,
                )
        raise UnavailableError(
            f"{_PORT_ATTEMPTS} ports that had been free were taken before PostgreSQL got them:\n"
            f"{self.log_tail()}"
        )

    def _ports(self, layout: Layout) -> Iterator[int]:
        if self._wanted_port is not None:
            yield self._wanted_port
            return
        last = self._port or last_port(layout)
        if last is not None:
            yield last
        for _ in range(_PORT_ATTEMPTS):
            yield free_port()

    def _try_port(
        self,
        layout: Layout,
        installation: Installation,
        account: Account,
        port: int,
        deadline: float,
    ) -> str | None:
        """Start on one port. None when the server answers; what it said when the port is taken."""
        if self._socket is None:  # pragma: no cover - start() has prepared it
            raise self._not_started("has no socket yet")
        command = command_line(
            postgres=installation.bin_dir / "postgres",
            data=layout.data,
            port=port,
            socket=self._socket,
            settings={**DEFAULT_SETTINGS, **_preloads(installation), **self._settings},
        )
        while True:
            offset = layout.log.stat().st_size if layout.log.exists() else 0
            self._postmaster = Postmaster(
                command, account=account, cwd=layout.place, log=layout.log
            )
            self._port = port
            try:
                record_owner(layout, postmaster_pid=self._postmaster.pid, port=port)
                if self._wait_ready(self._postmaster, deadline):
                    return None
            except BaseException:
                self.stop("immediate")
                raise
            said = _said_since(layout.log, offset)
            if _PORT_TAKEN in said:
                return said
            # Backends of a killed postmaster hold its memory until they notice; then it is free.
            if _MEMORY_IN_USE not in said or time.monotonic() >= deadline:
                raise self._died(self._postmaster, said)

    def _wait_ready(self, postmaster: Postmaster, deadline: float) -> bool:
        """True when it answers a query, False when it has ended."""
        while not postmaster.wait(_POLL_INTERVAL_S):
            try:
                with psycopg.connect(self.url(), connect_timeout=5) as connection:
                    connection.execute("SELECT 1")
                return True
            except psycopg.OperationalError as error:
                if "password authentication failed" in str(error):
                    raise ConfigurationError(
                        f"the password in {self.directory / 'credentials.json'} is not that of "
                        f"role {ADMIN_USER!r}",
                        hint="Put the right one into the file.",
                    ) from error
                if time.monotonic() >= deadline:
                    raise UnavailableError(
                        f"PostgreSQL does not answer after {self._start_timeout_s:g} s: {error}\n"
                        f"{self.log_tail()}",
                        hint="It may be recovering from a crash: allow a longer start_timeout_s.",
                    ) from error
        return False

    def _died(self, postmaster: Postmaster, said: str) -> ConfigurationError:
        last = "\n".join(said.splitlines()[-20:])
        return ConfigurationError(
            f"PostgreSQL ended while starting (exit {postmaster.exit_code}):\n{last}",
            hint=f"The whole log is in {self.directory / 'postgres.log'}.",
            exit_code=postmaster.exit_code,
        )

    def _end(self, ladder: list[tuple[signal.Signals, float]]) -> None:
        postmaster = self._postmaster
        if postmaster is None:
            return
        for number, timeout_s in ladder:
            postmaster.signal(number)
            if postmaster.wait(timeout_s):
                break
            _log.warning(
                "PostgreSQL (pid %d) did not end within %g s of %s",
                *(postmaster.pid, timeout_s, number.name),
            )
        else:
            raise UnavailableError(
                f"PostgreSQL (pid {postmaster.pid}) does not end", pid=postmaster.pid
            )
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


def free_port() -> int:
    """A TCP port on 127.0.0.1 that is free at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


def _checked(settings: Mapping[str, str]) -> dict[str, str]:
    for name in settings:
        if not _SETTING_NAME.fullmatch(name):
            raise BadArgument(f"{name!r} is not a server setting's name", path="settings")
        if name.lower() in _OWN_SETTINGS:
            raise BadArgument(
                f"the setting {name!r} is the cluster's own",
                hint="Use the port argument for a port." if name.lower() == "port" else None,
                path="settings",
            )
    return {name.lower(): str(value) for name, value in settings.items()}


def _preloads(installation: Installation) -> dict[str, str]:
    if installation.has_library("pg_stat_statements"):
        return {"shared_preload_libraries": "pg_stat_statements"}
    return {}


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_name("postgres.log.1"))


def _said_since(log: Path, offset: int) -> str:
    with log.open("rb") as file:
        file.seek(offset)
        return file.read(_LOG_TAIL_BYTES).decode("utf-8", errors="replace")


def _last_lines(log: Path, n: int) -> str:
    if not log.exists():
        return ""
    offset = max(0, log.stat().st_size - _LOG_TAIL_BYTES)
    return "\n".join(_said_since(log, offset).splitlines()[-n:])
