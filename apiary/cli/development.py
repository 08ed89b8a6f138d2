"""What `apiary dev` runs: one process group, in one folder, until a signal.

Started in this order and stopped in the opposite one: the folder's lock, PostgreSQL, the platform
in it, the server, the executor. The first SIGINT, SIGTERM or SIGHUP stops all of it cleanly; the
second ends it at once (the database recovers at the next start).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from ..authoring.bundle import Bundle
from ..errors import ConflictError, UnavailableError
from ..execution.executor import ExecutorSettings
from ..local import PrivateCluster
from ..local.processes import ProcessMark
from ..loops import run_main
from ..server import Server, ServerSettings
from .devdatabase import DevDatabase, existing_database, private_database
from .devstate import STATE_FOLDER, DevRecord, running_dev
from .executing import executing
from .failures import INTERRUPTED
from .output import note
from .settings import DEFAULT_ADDRESS, Setting

__all__ = ["Development"]

_WATCH_INTERVAL_S = 0.5
_DRAIN_GRACE_S = 10.0


class Development:
    """One `apiary dev`."""

    def __init__(
        self, folder: Path, *, database_url: str | None, port: int | None, deploy: bool
    ) -> None:
        self._folder = folder.resolve()
        self._state = self._folder / STATE_FOLDER
        self._database_url = database_url
        self._port = port
        self._deploy = deploy
        self._signals = _Signals()

    def run(self) -> None:
        """Run until a signal. Raises what kept it from starting, or ended it."""
        with ExitStack() as stack:
            stack.enter_context(self._signals.caught())
            bundle = _bundle(self._folder) if self._deploy else None
            stack.enter_context(_only_one(self._state))
            database = stack.enter_context(self._open_database())
            self._signals.cluster = database.cluster
            if bundle is not None:
                _store(bundle, database)
            run_main(self._serve(database))
        note("stopped; the data is kept in .apiary/ for the next start")

    def _open_database(self) -> AbstractContextManager[DevDatabase]:
        if self._database_url is None:
            return private_database(self._state)
        return existing_database(
            Setting(name="database_url", value=self._database_url, origin="--database-url")
        )

    async def _serve(self, database: DevDatabase) -> None:
        settings = ServerSettings(
            database_url=database.runtime_url,
            deploy_url=database.deployer_url,
            address=f"127.0.0.1:{_port(self._port)}",
            drain_grace_s=_DRAIN_GRACE_S,
        )
        stopping = asyncio.Event()
        self._signals.on_first(asyncio.get_running_loop(), stopping.set)
        executor = executing(database.runtime_url, ExecutorSettings(name="dev"))
        async with Server(settings) as server, executor:
            record = self._record(server.address, database)
            record.write()
            try:
                _tell(record, database)
                await _until(stopping, database.cluster)
                note("stopping; a second Ctrl-C does it at once")
            finally:
                record.remove()

    def _record(self, address: str, database: DevDatabase) -> DevRecord:
        log = None
        if database.cluster is not None:
            log = str(database.cluster.describe()["log_file"])
        return DevRecord(
            file=DevRecord.path(self._folder),
            process=ProcessMark.of_self().to_json(),
            address=address,
            database_url=database.deployer_url,
            runtime_url=database.runtime_url,
            reader_url=database.reader_url,
            postgres_log=log,
        )


def _bundle(folder: Path) -> Bundle:
    from ..authoring.application import Application
    from ..authoring.bundle import build_bundle

    return build_bundle(Application.read(folder))


def _store(bundle: Bundle, database: DevDatabase) -> None:
    from ..engine.deploying import deploy
    from .database import connect

    url = Setting(name="database_url", value=database.deployer_url, origin="apiary dev")
    with connect(url) as connection:
        done = deploy(connection, bundle, principal="local")
    what = "deployed" if done.changed else "already deployed"
    note(f"{what} {done.application} {done.deployment} ({len(done.functions)} functions)")


async def _until(stopping: asyncio.Event, cluster: PrivateCluster | None) -> None:
    """Wait for the signal; UnavailableError when the private PostgreSQL ends by itself."""
    while not stopping.is_set():
        try:
            async with asyncio.timeout(_WATCH_INTERVAL_S):
                await stopping.wait()
        except TimeoutError:
            if cluster is not None and not cluster.running:
                raise UnavailableError(
                    f"the private PostgreSQL has ended by itself:\n{cluster.log_tail()}",
                    hint="start again: it recovers its data",
                ) from None


def _tell(record: DevRecord, database: DevDatabase) -> None:
    note(f"database  {database.description}")
    if database.cluster is not None:
        note(f'psql      PGPASSFILE=.apiary/pgpass psql "{record.reader_url.partition("?")[0]}"')
    note(f"server    {record.address} (gRPC; found by itself in this folder)")
    note("ready     Ctrl-C stops all of it")


def _port(wanted: int | None) -> int:
    """The wanted port; without a wish the usual one, or any when another program has it."""
    if wanted is not None:
        return wanted
    usual = int(DEFAULT_ADDRESS.rpartition(":")[2])
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", usual))
        except OSError:
            return 0
    return usual


@contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """Hold the folder's lock, which the operating system releases at any kind of death."""
    state.mkdir(mode=0o711, exist_ok=True)
    (state / ".gitignore").write_text("*\n", encoding="utf-8")
    with (state / "dev.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            running = running_dev(state.parent)
            known = f" (process {running.process['pid']})" if running else ""
            where = f", its server is {running.address}" if running else ""
            raise ConflictError(
                f"an `apiary dev` runs in {state.parent} already{known}{where}",
                hint="use that one, or stop it",
            ) from error
        yield


class _Signals:
    """SIGINT, SIGTERM and SIGHUP: the first asks to stop, the second ends the process."""

    def __init__(self) -> None:
        self.cluster: PrivateCluster | None = None
        self._count = 0
        self._first: Callable[[], None] | None = None

    @contextmanager
    def caught(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self._handle)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def on_first(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """What the first signal does from now on; before, it interrupts what is being started."""

        def ask() -> None:
            loop.call_soon_threadsafe(stop)

        self._first = ask

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._count += 1
        if self._count > 1:
            self._end_at_once()
        if self._first is None:
            raise KeyboardInterrupt
        self._first()

    def _end_at_once(self) -> None:
        cluster = self.cluster
        if cluster is not None and cluster.running:
            os.kill(cluster.pid, signal.SIGQUIT)  # an immediate shutdown
        os._exit(INTERRUPTED)
