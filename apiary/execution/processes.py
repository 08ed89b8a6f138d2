"""Worker processes for steps that compute in Python: one attempt at a time each, killed when late.

Arguments and results travel as JSON documents, as they are stored; the code as the deployment's
sources, so a worker needs nothing of this process's state.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from ..authoring.context import running_in
from ..authoring.failures import encode_exception, rebuild_exception
from ..authoring.loader import DeploymentCode, SourceModule
from ..errors import ApiaryError

if TYPE_CHECKING:
    from .steps import StepContext

__all__ = ["AttemptLate", "ProcessPool", "StepProcessDied", "StepTask", "in_time"]


class StepProcessDied(Exception):
    """The process in which a step ran has died; the attempt has failed."""


class AttemptLate(Exception):
    """An attempt did not end within its time; not a TimeoutError, which a step may raise itself."""


@asynccontextmanager
async def in_time(timeout_s: float | None) -> AsyncIterator[None]:
    """Cancel what this block waits for after a time, and raise AttemptLate."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise AttemptLate from error
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTask:
    """What a worker process needs to run one attempt."""

    code: DeploymentCode
    module: str
    qualname: str
    document: dict[str, Any]  # the arguments
    run_id: str
    seq: int


class _Worker:
    """A worker process and the pipe to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # A program of its own: multiprocessing would run this process's main module again.
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self.connection: Connection = Connection(ours.detach())
        try:
            self.connection.recv()  # it is ready
        except (EOFError, OSError) as error:
            self.kill()
            raise StepProcessDied("a process for steps did not start") from error
        self._deployments: set[str] = set()

    def run(self, task: StepTask, context: StepContext) -> Any:
        """Run one attempt; blocks until it ends."""
        modules: Sequence[dict[str, Any]] = ()
        if task.code.deployment not in self._deployments:
            modules = [asdict(module) for module in task.code.modules.values()]
            self._deployments.add(task.code.deployment)
        request = (
            task.code.deployment, modules, task.module, task.qualname, task.document,
            task.run_id, task.seq,
        )  # fmt: skip
        try:
            self.connection.send(request)
        except OSError as error:
            raise StepProcessDied(f"the process of step {task.qualname} died") from error
        while True:
            try:
                kind, content = self.connection.recv()
            except (EOFError, OSError) as error:
                raise StepProcessDied(f"the process of step {task.qualname} died") from error
            if kind == "progress":
                context.report(content)
            elif kind == "invoke":
                self._answer(context, content)
            elif kind == "result":
                output, streams = content
                context.streams.extend(streams)
                return output
            else:
                raise rebuild_exception(content, task.code.find_class)

    @property
    def is_alive(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    def _answer(self, context: StepContext, call: tuple[str, str]) -> None:
        try:
            outcome = context.invoke(*call)
        except ApiaryError as error:  # no outcome: the worker raises it where the call was made
            outcome = {"output": None, "error": encode_exception(error)}
        self.connection.send(outcome)

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self.connection.close()


class ProcessPool:
    """Worker processes, started when they are needed and kept."""

    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self._idle: list[_Worker] = []

    async def run(self, task: StepTask, context: StepContext, timeout_s: float | None) -> Any:
        """One attempt in a worker; its process is killed when the attempt is cancelled or late.

        Returns the result's JSON document, decoded by the step's own signature.
        """
        async with self._room:
            worker = self._living()
            if worker is None:
                worker = await asyncio.to_thread(_Worker)
            try:
                async with in_time(timeout_s):
                    output = await asyncio.to_thread(worker.run, task, context)
            except (asyncio.CancelledError, AttemptLate, StepProcessDied):
                await asyncio.to_thread(worker.kill)
                raise
            except BaseException:
                self._idle.append(worker)  # the step raised: its worker is as good as before
                raise
            self._idle.append(worker)
            step = task.code.find(task.module, task.qualname)
            return step.signature.decode_result(output)

    def _living(self) -> _Worker | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            worker.kill()  # it died while it was idle
        return None

    async def close(self) -> None:
        """End the idle workers; busy ones end with their attempts."""
        while self._idle:
            await asyncio.to_thread(self._idle.pop().kill)


def _work(connection: Connection) -> None:
    """A worker's life: attempts, one after another, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the executor
    codes: dict[str, DeploymentCode] = {}
    connection.send(("ready", None))
    with suppress(EOFError, OSError):  # the executor has gone
        while True:
            deployment, modules, module, qualname, document, run_id, seq = connection.recv()
            if deployment not in codes:
                codes[deployment] = DeploymentCode(deployment, [SourceModule(**m) for m in modules])
            try:
                reply = _attempt(
                    connection, codes[deployment], module, qualname, document, run_id, seq
                )
            # Whatever user code raises is the attempt's outcome.
            except BaseException as error:  # noqa: BLE001
                reply = ("error", encode_exception(error))
            connection.send(reply)


def _attempt(
    connection: Connection,
    code: DeploymentCode,
    module: str,
    qualname: str,
    document: dict[str, Any],
    run_id: str,
    seq: int,
) -> tuple[str, Any]:
    from .steps import StepContext  # noqa: PLC0415  (steps imports this module)

    step = code.find(module, qualname)

    def invoke(function: str, text: str) -> dict[str, Any]:
        connection.send(("invoke", (function, text)))
        outcome: dict[str, Any] = connection.recv()
        return outcome

    context = StepContext(
        run_id=run_id,
        seq=seq,
        report=lambda progress: connection.send(("progress", progress)),
        invoke=invoke,
        code=code,
    )
    with running_in(context):
        result = step.body(**step.signature.decode_arguments(document))
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
    return "result", (step.signature.encode_result(result), context.streams)


if __name__ == "__main__":
    _work(Connection(int(sys.argv[1])))
