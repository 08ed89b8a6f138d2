"""Running steps: code outside the database, in a thread or in a process of its own.

One attempt is run here; retries belong to the run. An attempt that has to end early (timeout,
cancel, lost lease) is interrupted: a thread by an exception raised in it, a process by a signal. A
thread that is deep in C code cannot be stopped: it is left behind, and what it returns is dropped.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..authoring.context import Context, running_in
from ..authoring.decorators import Function, Registered, Step
from ..authoring.failures import rebuild_exception
from ..authoring.loader import DeploymentCode
from ..authoring.values import codec_for, dumps
from ..errors import DeadlineExceeded, UsageError
from .processes import AttemptLate, ProcessPool, StepTask, in_time
from .workers import Workers

__all__ = ["StepContext", "StepInterrupted", "StepRunner"]

_any = codec_for(Any)


class StepInterrupted(BaseException):
    """Raised in a step whose attempt has to end; not an Exception, so that it gets through."""


@dataclass(slots=True, kw_only=True)
class StepContext(Context):
    """Answers what a step asks of the platform while it runs."""

    run_id: str
    seq: int
    report: Callable[[dict[str, Any]], None]  # progress
    invoke: Callable[[str, str], dict[str, Any]]  # a function's name and input -> output or error
    code: DeploymentCode
    streams: list[dict[str, Any]] = field(default_factory=list)  # written by this attempt

    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function as a transaction of its own, once for this call of this attempt.

        A step that is tried again makes its calls again: functions that a step calls tell by their
        arguments whether they have been there before.
        """
        if not isinstance(target, Function):
            raise UsageError(
                f"a step cannot call the {target.kind} {target.name}",
                hint="call it from the workflow, and pass its result to the step",
            )
        document = target.signature.encode_arguments(args, kwargs)
        outcome = self.invoke(target.name, dumps(document))
        if outcome["error"] is not None:
            raise rebuild_exception(outcome["error"], self.code.find_class)
        return target.signature.decode_result(outcome["output"])

    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise UsageError(
            f"{target.name} cannot be started inside a step", hint="call it: steps do not compose"
        )

    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        if name == "progress":
            done, total, message = args
            self.report({"done": done, "total": total, "message": message})
            return None
        if name == "write_stream":
            key, value = args
            document = _any.encode(value, f"stream {key}")
            self.streams.append({"key": key, "seq": self.seq, "values": [document]})
            return None
        if name == "write_sources":
            (directory,) = args
            self.code.write(directory)
            return None
        if name == "run_id":
            return self.run_id
        if name == "step_key":
            return f"{self.run_id}/{self.seq}"
        raise UsageError(f"{name}() is for workflows, not for a step's body")


class StepRunner:
    """Runs attempts of steps, so many at once."""

    def __init__(self, workers: Workers, *, threads: int = 32, processes: int = 2) -> None:
        self._workers = workers
        self._threads = asyncio.Semaphore(threads)
        self._processes = ProcessPool(processes)

    async def run(
        self,
        step: Step[..., Any],
        kwargs: dict[str, Any],
        context: StepContext,
        task: StepTask,
    ) -> Any:
        """One attempt; returns what the step returned, or raises what it raised."""
        timeout_s = step.options.timeout_s
        # The time runs from the attempt's beginning, not while it waits for a thread or a process.
        if step.options.process:
            work = self._processes.run(task, context, timeout_s)
        else:
            work = self._in_thread(step, kwargs, context, timeout_s)
        try:
            return await work
        except AttemptLate as error:
            raise DeadlineExceeded(
                f"step {step.name} did not end within {timeout_s:g} s", run_id=context.run_id
            ) from error

    async def _in_thread(
        self,
        step: Step[..., Any],
        kwargs: dict[str, Any],
        context: StepContext,
        timeout_s: float | None,
    ) -> Any:
        async with self._threads, in_time(timeout_s):
            return await _run_in_thread(self._workers, step, kwargs, context)

    async def close(self) -> None:
        """End the worker processes."""
        await self._processes.close()


async def _run_in_thread(
    workers: Workers, step: Step[..., Any], kwargs: dict[str, Any], context: StepContext
) -> Any:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            with running_in(context):
                result = step.body(**kwargs)
                if inspect.iscoroutine(result):
                    result = asyncio.run(result)
        except StepInterrupted:
            return
        # Whatever user code raises is the outcome; StopIteration cannot be set on a future.
        except BaseException as raised:  # noqa: BLE001
            error = RuntimeError(repr(raised)) if isinstance(raised, StopIteration) else raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    job = workers.run(f"step {step.name}", work)
    try:
        return await done
    except asyncio.CancelledError:
        job.interrupt(StepInterrupted)
        raise
