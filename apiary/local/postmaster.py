"""One run of the PostgreSQL server as a child of this process.

The child is in a session of its own, so that Ctrl-C in the terminal reaches only its owner, who
decides how to stop. On Linux it gets SIGINT when its parent dies, however that happens. "Parent"
means the *thread* that started it: therefore a thread is kept for each postmaster, which starts it
and then waits for its end.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from apiary.errors import ConfigurationError, UnavailableError
from apiary.local.account import Account
from apiary.local.initialise import server_environment
from apiary.local.logfile import ServerLog

_KILL_TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)

_LAUNCH = Path(__file__).with_name("launch.py")


class Postmaster:
    """A started postmaster. ``log`` receives what it and its children say."""

    def __init__(
        self, command: Sequence[str], *, account: Account, cwd: Path, log: ServerLog
    ) -> None:
        self._command = [
            *(sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()), account.identity),
            *command,
        ]
        self._cwd = cwd
        self._log = log
        self._started = threading.Event()
        self._exited = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None
        threading.Thread(target=self._keep, name="apiary-postmaster", daemon=True).start()
        self._started.wait()
        if self._process is None:
            raise ConfigurationError(
                f"the PostgreSQL server cannot be started: {self._failure}"
            ) from self._failure

    def _keep(self) -> None:
        try:
            self._process = self._spawn()
        except OSError as error:
            self._failure = error
            return
        finally:
            self._started.set()
        self._process.wait()
        self._exited.set()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log.open() as log:
            return subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=server_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._child.returncode if self._exited.is_set() else None

    @property
    def alive(self) -> bool:
        return not self._exited.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; False at the timeout."""
        return self._exited.wait(timeout_s)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        self._child.send_signal(number)

    def end(self, *, fast_s: float | None, immediate_s: float | None) -> None:
        """End it: by a fast shutdown, then an immediate one, then SIGKILL, each given its time;
        None leaves that try out. A next try is told in the log.

        Raises UnavailableError when the operating system does not end it.
        """
        tries = [
            (signal.SIGINT, fast_s),
            (signal.SIGQUIT, immediate_s),
            (signal.SIGKILL, _KILL_TIMEOUT_S),
        ]
        for number, timeout_s in tries:
            if timeout_s is None:
                continue
            self.signal(number)
            if self.wait(timeout_s):
                return
            _log.warning(
                "PostgreSQL (pid %d) has not ended %g s after %s", self.pid, timeout_s, number.name
            )
        raise UnavailableError(
            f"PostgreSQL (pid {self.pid}) does not end, not even by SIGKILL", pid=self.pid
        )

    @property
    def _child(self) -> subprocess.Popen[bytes]:
        if self._process is None:  # pragma: no cover - the constructor raised
            raise RuntimeError("the postmaster was not started")
        return self._process


def command_line(
    *, postgres: Path, data: Path, port: int, socket: Path, settings: Mapping[str, str]
) -> list[str]:
    """The server's command. Settings on the command line win over files and ALTER SYSTEM."""
    fixed = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "lc_messages": "C",  # the log is read by `apiary.local.cluster`
        # The setting is a list of names; quotes keep any path in one piece.
        "unix_socket_directories": '"{}"'.format(str(socket).replace('"', '""')),
    }
    options = [("-c", f"{name}={value}") for name, value in {**settings, **fixed}.items()]
    return [str(postgres), "-D", str(data), *chain.from_iterable(options)]
