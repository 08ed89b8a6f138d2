"""Starting a postmaster on a data directory until it answers, whatever is in the way."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from apiary.errors import ConfigurationError, UnavailableError
from apiary.local.account import Account
from apiary.local.binaries import Installation
from apiary.local.initialise import ADMIN_USER
from apiary.local.layout import Layout
from apiary.local.logfile import ServerLog
from apiary.local.postmaster import Postmaster, command_line
from apiary.local.takeover import record_owner

_PORT_ATTEMPTS = 5
_POLL_INTERVAL_S = 0.02
_STOP_TIMEOUT_S = 10.0
_ERROR_LINES = 20

# What the server says (always in English, see `command_line`) when it ends for these reasons.
_PORT_TAKEN = "could not create any TCP/IP sockets"
_MEMORY_IN_USE = "pre-existing shared memory block"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All that a start needs."""

    layout: Layout
    installation: Installation
    account: Account
    socket_directory: Path
    password: str
    settings: Mapping[str, str]
    wanted_port: int | None
    """None lets one be chosen."""
    last_port: int | None
    """Tried first when one may be chosen."""
    timeout_s: float

    @property
    def log(self) -> ServerLog:
        return ServerLog(self.layout.log)


def launch(request: Launch) -> tuple[Postmaster, int]:
    """The running postmaster, answering queries, and its port.

    Raises ConfigurationError when it ends while starting or the wanted port is taken, and
    UnavailableError when it does not answer in time; nothing is left running then.
    """
    deadline = time.monotonic() + request.timeout_s
    for port in _ports(request):
        postmaster = _start_on(request, port, deadline)
        if postmaster is not None:
            return postmaster, port
        if request.wanted_port is not None:
            raise ConfigurationError(
                f"port {port} on 127.0.0.1 is in use by another program",
                hint="Choose another port, or none to have a free one chosen.",
                port=port,
            )
    raise UnavailableError(
        f"{_PORT_ATTEMPTS} ports that had been free were taken before PostgreSQL got them:\n"
        f"{request.log.tail(_ERROR_LINES)}"
    )


def free_port() -> int:
    """A TCP port on 127.0.0.1 that is free at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ports(request: Launch) -> Iterator[int]:
    if request.wanted_port is not None:
        yield request.wanted_port
        return
    if request.last_port is not None:
        yield request.last_port
    for _ in range(_PORT_ATTEMPTS):
        yield free_port()


def _start_on(request: Launch, port: int, deadline: float) -> Postmaster | None:
    """The postmaster when it answers; None when the port is taken."""
    command = command_line(
        postgres=request.installation.bin_dir / "postgres",
        data=request.layout.data,
        port=port,
        socket=request.socket_directory,
        settings=request.settings,
    )
    while True:
        offset_bytes = request.log.size_bytes
        postmaster = Postmaster(
            command, account=request.account, cwd=request.layout.place, log=request.log
        )
        try:
            record_owner(request.layout, postmaster_pid=postmaster.pid, port=port)
            if _answers(request, postmaster, port, deadline):
                return postmaster
        except BaseException:
            postmaster.end(fast_s=None, immediate_s=_STOP_TIMEOUT_S)
            raise
        said = request.log.since(offset_bytes)
        if _PORT_TAKEN in said:
            return None
        # Backends of a killed postmaster hold its memory until they notice; then it is free.
        if _MEMORY_IN_USE not in said or time.monotonic() >= deadline:
            raise _ended(request, postmaster, said)


def _answers(request: Launch, postmaster: Postmaster, port: int, deadline: float) -> bool:
    """True when it answers a query, False when it has ended.

    Asked over the socket, which nobody else can serve; on the TCP port another program may listen.
    The postmaster listens on both before it serves either.
    """
    while not postmaster.wait(_POLL_INTERVAL_S):
        try:
            with psycopg.connect(
                host=str(request.socket_directory),
                port=port,
                user=ADMIN_USER,
                password=request.password,
                dbname="postgres",
                connect_timeout=5,
            ) as connection:
                connection.execute("SELECT 1")
            return True
        except psycopg.OperationalError as error:
            _check_patience(request, error, deadline)
    return False


def _check_patience(request: Launch, error: psycopg.OperationalError, deadline: float) -> None:
    """Raise when waiting longer does not help, or has been long enough."""
    if "password authentication failed" in str(error):
        raise ConfigurationError(
            f"the password in {request.layout.credentials} is not that of role {ADMIN_USER!r}",
            hint="Put the right one into the file.",
        ) from error
    if time.monotonic() >= deadline:
        raise UnavailableError(
            f"PostgreSQL does not answer after {request.timeout_s:g} s: {error}\n"
            f"{request.log.tail(_ERROR_LINES)}",
            hint="It may be recovering from a crash: allow a longer start_timeout_s.",
        ) from error


def _ended(request: Launch, postmaster: Postmaster, said: str) -> ConfigurationError:
    last = "\n".join(said.splitlines()[-_ERROR_LINES:])
    return ConfigurationError(
        f"PostgreSQL ended while starting (exit {postmaster.exit_code}):\n{last}",
        hint=f"The whole log is in {request.layout.log}.",
        exit_code=postmaster.exit_code,
    )
