"""Running one run in an executor: the context that answers its workflow's calls.

The code runs in a thread and calls in here; what has to be done is done on the executor's loop. A
number is taken when a call is made, never when it ends: so a replay numbers the same calls alike.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError as ThreadCancelledError
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from ..authoring.context import Context
from ..authoring.decorators import Function, Future, Registered, Step, Workflow
from ..authoring.loader import DeploymentCode
from ..authoring.values import canonical, digest
from ..engine.runs import ClaimedRun, RunOutcome, RunStore
from ..errors import BadArgument, PayloadTooLarge
from .calling import INFRASTRUCTURE, MAX_PAYLOAD_BYTES, Calls
from .children import Children
from .invoking import Invoker
from .operations import Abandoned, Pending, Suspended
from .primitives import Primitives
from .progress import ProgressReporter
from .recording import Recorder
from .replay import OperationRecord, Replay
from .starting import Starter
from .steps import StepRunner
from .turns import Turns
from .workers import Workers

__all__ = ["RunContext", "Services"]

T = TypeVar("T")
_LEFT_BEHIND_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What runs need of their executor."""

    loop: asyncio.AbstractEventLoop
    store: RunStore
    invoker: Invoker
    starter: Starter
    steps: StepRunner
    workers: Workers
    executor: str  # under which name it holds runs
    function_timeout_s: float  # of a function that states none


class RunContext(Context):
    """One claimed run in this executor, from its claim until it ends, waits, or is lost."""

    def __init__(
        self,
        services: Services,
        run: ClaimedRun,
        code: DeploymentCode,
        records: Sequence[OperationRecord],
        children: dict[str, RunOutcome],
        step_attempts: dict[int, int],
        lease: timedelta,
    ) -> None:
        self.services = services
        self.run = run
        self.replay = Replay(run.seed, run.run_id, run.deployment, records, code.find_class)
        self.recorder = Recorder(services.store, run)
        self.lease_until = run.lease_until
        self.draining = False
        self._reporter = reporter = ProgressReporter(services.loop, services.store, run)
        self._calls = Calls(self, code, step_attempts, reporter.report)
        self._children = Children(self, children)
        self._primitives = Primitives(self, reporter.report)
        self._turns = Turns()
        self._tasks: set[asyncio.Task[Any]] = set()  # operations that run on the loop
        self._under_way = 0  # operations begun and not ended
        self._lock = threading.Lock()  # over _under_way: the code's thread and the loop count
        self._gone: BaseException | None = None  # why nothing more may be done
        # The code is to end; set on the loop.
        self.stopped: asyncio.Future[Any] = services.loop.create_future()
        self._suspended: Suspended | None = None
        self._left_behind = False
        # The database's clock, as the claim told it; executors' own clocks are not trusted.
        self._claimed_at = run.lease_until - lease
        self._claimed_monotonic = time.monotonic()

    # What the executor does with the run.

    def abandon(self, reason: BaseException) -> None:
        """Stop the run here (on the loop): operations are interrupted, its code is unwound."""
        if self._gone is None:
            self._gone = reason
        self._stop_now()
        for task in list(self._tasks):
            task.cancel()

    def leave_behind(self) -> None:
        """Its code does not stop: from now on each of its calls takes a while before it fails.

        Code that swallows everything in a loop would otherwise take a core from the executor.
        """
        self._left_behind = True

    @property
    def gone(self) -> BaseException | None:
        """Why the run was stopped here, if it was."""
        return self._gone

    @property
    def suspended(self) -> Suspended | None:
        """What the run waits for, when its code was unwound for that."""
        return self._suspended

    async def settle_tasks(self) -> None:
        """Wait until no operation of the run is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._reporter.settle()

    # Context: the calls of the workflow's code, in its thread.

    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        pending = self._begin(target, args, kwargs, alone=not target.is_async)
        if target.is_async:
            return self.awaited(pending)
        return self.result(pending)

    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        pending = self._begin(target, args, kwargs, alone=False)
        return _RunFuture(self, pending)

    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        self._check()
        return self._primitives.perform(name, args, options)

    def _check(self) -> None:
        """Nothing more is done once the run is unwinding, also in a ``finally`` of its code."""
        if self._left_behind:
            time.sleep(_LEFT_BEHIND_PAUSE_S)
        if self._suspended is not None:
            # Without where it was raised before: each time would add to that, and code that
            # swallows it in a loop would fill the memory.
            raise self._suspended.with_traceback(None)
        if self.replay.broken is not None:
            self._stop()  # it was told, and makes calls all the same: it might for ever
        if self._gone is None and self.draining:
            self._gone = Abandoned("the executor drains")
            self._stop()
        if self._gone is not None:
            raise Abandoned from self._gone

    def _begin(
        self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any], *, alone: bool
    ) -> Pending:
        self._check()
        seq = self.replay.next_seq()
        document = target.signature.encode_arguments(args, kwargs)
        text = canonical(document)
        pending = Pending(
            seq=seq,
            target=target,
            decode=target.signature.decode_result,
            input_digest=digest(text),
        )
        pending.record = self.replay.match(seq, target.kind, target.name, pending.input_digest)
        if pending.record is not None:
            return pending
        if len(text) > MAX_PAYLOAD_BYTES:
            raise PayloadTooLarge(
                f"{target.name}: the arguments take {len(text)} bytes, the limit is "
                f"{MAX_PAYLOAD_BYTES}",
                path="args",
                size_bytes=len(text),
                limit_bytes=MAX_PAYLOAD_BYTES,
            )
        if isinstance(target, Workflow):
            pending.child_id = self._children.child_id(seq)
            self.wait(self._children.start(pending, document))
        elif isinstance(target, Step):
            pending.running = self._launch(self._calls.step(pending, target, document))
        elif isinstance(target, Function):
            alone = alone and self._under_way == 0
            pending.running = self._launch(self._calls.function(pending, target, document, alone))
        return pending

    # Work on the loop, and waiting for it.

    def _launch(self, work: Coroutine[Any, Any, T]) -> ThreadFuture[T]:
        """Run on the loop, side by side with the code; `abandon` cancels it."""
        result: ThreadFuture[T] = ThreadFuture()
        with self._lock:
            self._under_way += 1

        def begin() -> None:
            if self._gone is not None:
                work.close()
                with self._lock:
                    self._under_way -= 1
                result.cancel()
                return
            task = self.services.loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(finished)

        def finished(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            with self._lock:
                self._under_way -= 1
            if task.cancelled():
                result.cancel()
            elif (error := task.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(task.result())

        self.services.loop.call_soon_threadsafe(begin)
        return result

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait for it in the code's thread."""
        return self.wait_for(self._launch(work))

    def wait_for(self, running: ThreadFuture[T]) -> T:
        """The result of what runs on the loop; Abandoned when the platform failed, not the work."""
        try:
            return running.result()
        except ThreadCancelledError:
            raise self._lost(Abandoned("an operation was cancelled")) from None
        except INFRASTRUCTURE as error:
            raise self._lost(error) from error

    def _lost(self, error: BaseException) -> Abandoned:
        """The platform failed, not the operation: the code is unwound, and run again later."""
        if self._gone is None:
            self._gone = error
        self._stop()
        return Abandoned(str(error))

    def record(
        self,
        operations: Sequence[dict[str, Any]],
        streams: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Record operations after what is deferred, and wait for that."""
        deferred = self.recorder.take()
        try:
            self.wait(self.recorder.record([*deferred, *operations], streams))
        except BaseException:
            self.recorder.put_back(deferred)
            raise

    def record_with(
        self,
        statement: Callable[[list[dict[str, Any]]], Coroutine[Any, Any, None]],
        row: dict[str, Any],
    ) -> None:
        """Record what is deferred and ``row`` by a statement that has an effect of its own."""
        deferred = self.recorder.take()
        try:
            self.wait(statement([*deferred, row]))
        except BaseException:
            self.recorder.put_back(deferred)
            raise

    def suspend(self, suspended: Suspended) -> Suspended:
        """What to raise so that the run is put aside."""
        self._suspended = suspended
        self._stop()
        return suspended

    def _stop(self) -> None:
        """Tell the loop that the code is to end now."""
        self.services.loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        if not self.stopped.done():
            self.stopped.set_result(None)

    def database_now(self) -> datetime:
        """The database's clock."""
        return self._claimed_at + timedelta(seconds=time.monotonic() - self._claimed_monotonic)

    # Results.

    def result(self, pending: Pending) -> Any:
        """The result of a call, or its error raised; waits for it."""
        if pending.record is None and pending.running is not None:
            pending.settle(self.wait_for(pending.running))
        if pending.record is None:
            self._check()
            self._children.join([pending], need=1)
        assert pending.record is not None  # joined, or the code was unwound
        return self.replay.value(pending.record, pending.decode)

    async def awaited(self, pending: Pending) -> Any:
        """The result for an ``async def`` workflow, which runs on a loop of its own."""
        await self._turns.wait(pending.seq, pending.running)
        return self.result(pending)

    def gather(self, futures: Sequence[Any], need: int | None) -> Any:
        """The results of several futures."""
        return self._children.gather([_pending(future) for future in futures], need)


class _RunFuture(Future[Any]):
    """A future of this run's code."""

    def __init__(self, context: RunContext, pending: Pending) -> None:
        super().__init__(lambda: context.result(pending), pending.seq)
        self.pending = pending
        self._context = context

    def __await__(self) -> Any:
        return cast(Awaitable[Any], self._context.awaited(self.pending)).__await__()


def _pending(future: Any) -> Pending:
    if not isinstance(future, _RunFuture):
        raise BadArgument(
            f"gather takes futures, as f.start(...) returns them, not {type(future).__name__}",
            path="futures",
        )
    return future.pending
