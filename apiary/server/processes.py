"""Several server processes on one port, and the process that keeps them running.

The kernel gives each new connection to one of them. Each is a whole server: with a pool, health and
telemetry of its own. The keeper serves nothing: it holds the port, starts a process again when one
dies, and tells all of them to drain when it is told to stop. They know of its end by the pipe
between them, so that none outlives it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ..errors import ApiaryError, UnavailableError
from ..loops import run_main
from .addresses import shared_address
from .settings import ServerSettings

__all__ = ["serve_processes"]

_FAILED_STARTS = 5  # in a row, then it is given up
_FIRST_PAUSE_S = 0.5  # before the third of them; each pause is twice the one before
_SETTLED_S = 10.0  # whoever served for so long had started well
_PROGRAM = "apiary.server.process"

log = logging.getLogger(__name__)


def serve_processes(
    settings: ServerSettings, count: int, started: Callable[[str], None] | None = None
) -> None:
    """Serve by ``count`` processes until SIGTERM or SIGINT, then let all of them drain.

    A second signal ends all of them at once. ``started`` is called with the address when all of
    them listen. Raises the error of a process that cannot start, at the beginning at once, later
    when it has failed several times in a row; the others have ended then.
    """
    settings.check()
    with shared_address(settings.address) as address:
        shared = replace(settings, address=address, shares_port=True)
        run_main(_Keeper(shared, count, started).run())


class _Keeper:
    """Keeps the processes running."""

    def __init__(
        self, settings: ServerSettings, count: int, started: Callable[[str], None] | None
    ) -> None:
        self._settings = settings
        self._count = count
        self._started = started
        self._stopping = asyncio.Event()
        self._processes: set[_ServerProcess] = set()
        self._beginning = count  # how many have not served yet

    async def run(self) -> None:
        """Run until a signal, or until a process cannot be kept running."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._count):
                    tasks.create_task(self._keep())
        except BaseExceptionGroup as failed:
            for error in failed.exceptions:
                if isinstance(error, ApiaryError):
                    raise error from None
            raise

    def _on_signal(self, number: int) -> None:
        if self._stopping.is_set():
            for process in self._processes:
                process.kill()
            os._exit(128 + number)
        self._stopping.set()
        for process in self._processes:
            process.drain()

    async def _keep(self) -> None:
        """Keep one process running; each start may fail, but not too often in a row."""
        failed = 0
        served_before = False
        while not self._stopping.is_set():
            process = await _ServerProcess.start(self._settings)
            self._processes.add(process)
            try:
                if self._stopping.is_set():
                    process.drain()
                error = await process.serves()
                served_at = time.monotonic()
                if error is None:
                    self._serves(served_before)
                    served_before = True
                elif process.has_told and not served_before and not self._stopping.is_set():
                    raise error
                code = await process.ended()
            finally:
                await process.end()
                self._processes.discard(process)
            if self._stopping.is_set():
                return
            settled = error is None and time.monotonic() - served_at > _SETTLED_S
            failed = 0 if settled else failed + 1
            why = f": {error.message}" if error else ""
            log.warning("server_process_ended pid=%d code=%d%s", process.pid, code, why)
            if failed == _FAILED_STARTS:
                raise error or _dies(code)
            await self._pause(failed)

    def _serves(self, served_before: bool) -> None:
        """A process serves; the last one of the beginning completes the start."""
        if served_before:
            return
        self._beginning -= 1
        if self._beginning == 0 and self._started is not None:
            self._started(self._settings.address)

    async def _pause(self, failed: int) -> None:
        """Wait a little, longer with each failure in a row; a signal ends it."""
        if failed < 2:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_PAUSE_S * 2 ** (failed - 2)):
                await self._stopping.wait()


def _dies(code: int) -> UnavailableError:
    return UnavailableError(
        f"a server process ended by itself {_FAILED_STARTS} times in a row, at last with {code}",
        hint="its log lines say why; a negative number is the signal that ended it",
    )


class _ServerProcess:
    """One process, seen by its keeper; it drains when the pipe to it is closed."""

    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.pid = process.pid
        self.has_told = False  # what came of its start

    @classmethod
    async def start(cls, settings: ServerSettings) -> _ServerProcess:
        """Start one. The settings travel by the pipe: they hold a password, and tokens."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", _PROGRAM, str(theirs.fileno())),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # the terminal's Ctrl-C is for the keeper
                )
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()  # by which a process that was started ends
            raise
        writer.write(pickle.dumps((settings, logging.getLogger().level)))
        return cls(process, reader, writer)

    async def serves(self) -> ApiaryError | None:
        """Wait until it serves; else the error that kept it from that."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        if not line:
            code = await self._process.wait()
            return UnavailableError(
                f"a server process ended with {code} before it served",
                hint="its log lines say why; a negative number is the signal that ended it",
            )
        self.has_told = True
        error = json.loads(line)
        return None if error is None else ApiaryError.from_json(error)

    async def ended(self) -> int:
        """Wait for its end; its exit code, or the signal that ended it as a negative number."""
        return await self._process.wait()

    def drain(self) -> None:
        """Let it finish what it does, and end."""
        if not self._writer.is_closing():
            self._writer.write_eof()

    def kill(self) -> None:
        """End it at once."""
        if self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """Drain it, and wait for its end."""
        self.drain()
        await self._process.wait()
        self._writer.close()
