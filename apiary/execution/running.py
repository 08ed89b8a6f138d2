"""Running one run in an executor: the context that answers its workflow's calls.

The code runs in a thread and calls in here; what has to be done is done on the executor's loop. Two
rules keep replays right. A number is taken when a call is made, never when it ends. And a read-only
result that is still only in memory is recorded before anything durable can depend on it: with the
next recorded operation when that runs alone, else before it begins.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError as ThreadCancelledError
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from ..authoring.context import Context
from ..authoring.decorators import Function, Future, Registered, Step, Workflow
from ..authoring.failures import encode_exception
from ..authoring.loader import DeploymentCode
from ..authoring.values import canonical, codec_for, digest, dumps
from ..engine.base import Invocation
from ..engine.runs import ClaimedRun, RunOutcome, RunStore
from ..errors import (
    ApiaryError,
    BadArgument,
    Cancelled,
    DeadlineExceeded,
    IdempotencyMismatch,
    LeaseLost,
    NonDeterminismError,
    PayloadTooLarge,
    TransactionConflict,
    UnavailableError,
    UsageError,
    WaitTimedOut,
)
from .ids import MAX_CHARACTERS
from .invoking import Invoker
from .operations import Abandoned, Pending, Suspended, operation_row
from .processes import StepTask
from .replay import OperationRecord, Replay
from .starting import RunOptions, Starter
from .steps import StepContext, StepRunner

__all__ = ["RunContext", "Services"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_any = codec_for(Any)
_MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
_PROGRESS_EVERY_S = 0.5
# What is no outcome of an operation, so that user code must not see it.
_INFRASTRUCTURE = (Cancelled, LeaseLost, TransactionConflict, UnavailableError)
_FINISHED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What runs need of their executor."""

    loop: asyncio.AbstractEventLoop
    store: RunStore
    invoker: Invoker
    starter: Starter
    steps: StepRunner


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
        self.run = run
        self.replay = Replay(run.run_id, run.deployment, records, code.find_class)
        self.lease_until = run.lease_until
        self.draining = False
        self._services = services
        self._code = code
        self._children = children  # started before, by id
        self._step_attempts = step_attempts  # that failed before, by seq
        self._deferred: list[dict[str, Any]] = []
        self._tasks: set[asyncio.Task[Any]] = set()  # operations that run on the loop
        self._lock = threading.Lock()  # over _deferred: the code's thread and the loop use it
        self._gone: BaseException | None = None  # why nothing more may be done
        self._suspended: Suspended | None = None
        self._progress_at = 0.0
        self._unreported: dict[str, Any] | None = None
        self._reporting: asyncio.Task[None] | None = None
        # The database's clock, as the claim told it; executors' own clocks are not trusted.
        self._claimed_at = run.lease_until - lease
        self._claimed_monotonic = time.monotonic()

    # What the executor does with the run.

    def abandon(self, reason: BaseException) -> None:
        """Stop the run here (on the loop): operations are interrupted, its code is unwound."""
        if self._gone is None:
            self._gone = reason
        for task in list(self._tasks):
            task.cancel()

    @property
    def gone(self) -> BaseException | None:
        """Why the run was stopped here, if it was."""
        return self._gone

    @property
    def suspended(self) -> Suspended | None:
        """What the run waits for, when its code was unwound for that."""
        return self._suspended

    def take_deferred(self) -> list[dict[str, Any]]:
        """The read-only calls that are not recorded yet."""
        with self._lock:
            taken, self._deferred = self._deferred, []
        return taken

    async def settle_tasks(self) -> None:
        """Wait until no operation of the run is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        if self._reporting is not None:
            await self._reporting  # the last progress is the one that is seen for good

    # Context: the calls of the workflow's code, in its thread.

    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        pending = self._begin(target, args, kwargs, alone=not target.is_async)
        if target.is_async:
            return self._awaitable(pending)
        return self._result(pending)

    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        pending = self._begin(target, args, kwargs, alone=False)
        return _RunFuture(self, pending)

    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        method: Callable[..., Any] | None = getattr(self, f"_do_{name}", None)
        if method is None:
            raise UsageError(f"{name}() is not for a workflow's body")
        self._check()
        return method(*args, **options)

    def _check(self) -> None:
        """Nothing more is done once the run is unwinding, also in a ``finally`` of its code."""
        if self._suspended is not None:
            raise self._suspended
        if self._gone is not None:
            raise Abandoned from self._gone
        if self.draining:
            raise Abandoned("the executor drains")

    def _suspend(self, suspended: Suspended) -> Suspended:
        self._suspended = suspended
        return suspended

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
        if len(text) > _MAX_PAYLOAD_BYTES:
            raise PayloadTooLarge(
                f"{target.name}: the arguments take {len(text)} bytes, the limit is "
                f"{_MAX_PAYLOAD_BYTES}",
                path="args",
                size_bytes=len(text),
                limit_bytes=_MAX_PAYLOAD_BYTES,
            )
        alone = alone and not self._tasks
        if isinstance(target, Workflow):
            pending.child_id = self._child_id(seq)
            self._wait_for(self._start_child(pending, document))
        elif isinstance(target, Step):
            pending.running = self._launch(self._run_step(pending, target, document))
        elif isinstance(target, Function):
            pending.running = self._launch(self._run_function(pending, document, alone))
        return pending

    def _launch(self, work: Coroutine[Any, Any, T]) -> ThreadFuture[T]:
        """Run on the loop, side by side with the code; `abandon` cancels it."""
        result: ThreadFuture[T] = ThreadFuture()

        def begin() -> None:
            if self._gone is not None:
                work.close()
                result.cancel()
                return
            task = self._services.loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(finished)

        def finished(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                result.cancel()
            elif (error := task.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(task.result())

        self._services.loop.call_soon_threadsafe(begin)
        return result

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait for it in the code's thread."""
        return self._wait(self._launch(work))

    def _wait(self, running: ThreadFuture[T]) -> T:
        try:
            return running.result()
        except ThreadCancelledError:
            raise Abandoned from self._gone
        except _INFRASTRUCTURE as error:
            raise self._lost(error) from error

    def _lost(self, error: BaseException) -> Abandoned:
        """The platform failed, not the operation: the code is unwound, and run again later."""
        if self._gone is None:
            self._gone = error
        return Abandoned(str(error))

    def _result(self, pending: Pending) -> Any:
        if pending.record is None and pending.running is not None:
            pending.settle(self._wait(pending.running))
        if pending.record is None:
            self._join([pending], need=1)
        assert pending.record is not None  # joined, or the code was unwound
        return self.replay.value(pending.record, pending.decode)

    async def _awaitable(self, pending: Pending) -> Any:
        """The result for an ``async def`` workflow, which runs on a loop of its own."""
        if pending.record is None and pending.running is not None:
            try:
                pending.settle(await asyncio.wrap_future(pending.running))
            except asyncio.CancelledError:
                if self._gone is not None:
                    raise Abandoned from self._gone
                raise
            except _INFRASTRUCTURE as error:
                raise self._lost(error) from error
        return self._result(pending)

    # Functions.

    async def _run_function(
        self, pending: Pending, document: dict[str, Any], alone: bool
    ) -> OperationRecord:
        if not alone:
            await self._flush()
        run, seq, name = self.run, pending.seq, pending.target.name
        deferred = self.take_deferred()
        started_at = time.time()
        invocation = Invocation(
            run_id=run.run_id,
            seq=seq,
            application=run.application,
            deployment=run.deployment,
            function=name,
            input=dumps(document),
            principal=run.principal,
            trace=run.trace,
            keep=False,
            lease_until=self.lease_until,
            deferred=json.dumps(deferred) if deferred else None,
        )
        try:
            outcome = await self._services.invoker.invoke(invocation, fresh=True)
        except DeadlineExceeded as error:
            row = operation_row(
                seq, "function", name, error=encode_exception(error), document=document,
                input_digest=pending.input_digest, started_at=started_at,
            )  # fmt: skip
            await self._record([*deferred, row])
            return self._as_record(row)
        except BaseException:
            self._put_back(deferred)
            raise
        if outcome.unrecorded is not None:
            self._put_back([*deferred, outcome.unrecorded])
        return OperationRecord(
            seq=seq,
            kind="function",
            name=name,
            input_digest=pending.input_digest,
            output=outcome.output,
            error=outcome.error,
        )

    def _put_back(self, operations: list[dict[str, Any]]) -> None:
        with self._lock:
            self._deferred = [*operations, *self._deferred]

    async def _flush(self) -> None:
        deferred = self.take_deferred()
        if deferred:
            await self._record(deferred)

    async def _record(
        self, operations: list[dict[str, Any]], streams: Sequence[dict[str, Any]] | None = None
    ) -> None:
        await self._services.store.record(self.run.run_id, self.run.epoch, operations, streams)

    @staticmethod
    def _as_record(row: dict[str, Any]) -> OperationRecord:
        return OperationRecord(
            seq=row["seq"],
            kind=row["kind"],
            name=row["name"],
            input_digest=row["input_digest"],
            output=row["output"],
            error=row["error"],
        )

    # Steps.

    async def _run_step(
        self, pending: Pending, step: Step[..., Any], document: dict[str, Any]
    ) -> OperationRecord:
        await self._flush()  # what the step does outside may depend on it
        attempt = self._step_attempts.get(pending.seq, 0) + 1
        while True:
            started_at = time.time()
            context = StepContext(
                run_id=self.run.run_id, seq=pending.seq, report=self._report_from_thread
            )
            output: Any = None
            error: BaseException | None = None
            permanent = False
            try:
                result = await self._services.steps.run(
                    step,
                    step.signature.decode_arguments(document),
                    context,
                    self._step_task(step, pending.seq, document),
                )
                output, permanent = self._encoded(step, result), True
            except asyncio.CancelledError:
                raise
            except _UnstorableResult as unstorable:  # trying again cannot help
                error, permanent = unstorable.error, True
            # Whatever the step raises is the attempt's outcome.
            except BaseException as raised:  # noqa: BLE001
                error = raised
            row = operation_row(
                pending.seq, "step", step.name, output=output,
                error=None if error is None else encode_exception(error), document=document,
                input_digest=pending.input_digest, attempt=attempt, started_at=started_at,
            )  # fmt: skip
            if permanent or error is None or not _may_retry(step, error, attempt):
                await self._record([row], context.streams if error is None else None)
                return self._as_record(row)
            await self._services.store.log_step_attempt(self.run, row)
            await asyncio.sleep(_backoff_s(step, attempt))
            attempt += 1

    def _step_task(self, step: Step[..., Any], seq: int, document: dict[str, Any]) -> StepTask:
        return StepTask(
            code=self._code,
            module=self._code.local_name(step.module),
            qualname=step.qualname,
            document=document,
            run_id=self.run.run_id,
            seq=seq,
        )

    @staticmethod
    def _encoded(step: Step[..., Any], result: Any) -> Any:
        try:
            output = step.signature.encode_result(result)
            size_bytes = len(dumps(output).encode())
            if size_bytes > _MAX_PAYLOAD_BYTES:
                raise PayloadTooLarge(
                    f"the result of step {step.name} takes {size_bytes} bytes, the limit is "
                    f"{_MAX_PAYLOAD_BYTES}",
                    hint="store large data outside and return its key",
                    path="result",
                    size_bytes=size_bytes,
                    limit_bytes=_MAX_PAYLOAD_BYTES,
                )
        except ApiaryError as error:
            raise _UnstorableResult(error) from error
        return output

    def _report_from_thread(self, progress: dict[str, Any]) -> None:
        now = time.monotonic()
        ended = progress["total"] is not None and progress["done"] >= progress["total"]
        if ended or now - self._progress_at >= _PROGRESS_EVERY_S:
            self._progress_at = now
            self._services.loop.call_soon_threadsafe(self._queue_report, progress)

    def _queue_report(self, progress: dict[str, Any]) -> None:
        """One report at a time, so that a later one is not overtaken by an earlier one."""
        self._unreported = progress
        if self._reporting is None or self._reporting.done():
            self._reporting = self._services.loop.create_task(self._report_latest())

    async def _report_latest(self) -> None:
        while self._unreported is not None:
            progress, self._unreported = self._unreported, None
            await self._report(progress)

    async def _report(self, progress: dict[str, Any]) -> None:
        try:
            await self._services.store.set_progress(
                self.run.run_id, self.run.epoch, {**progress, "at": datetime.now(UTC).isoformat()}
            )
        except ApiaryError as error:
            # Only the bar of a client is affected, not the run.
            log.warning("progress_not_shown run_id=%s: %s", self.run.run_id, error)

    # Child runs.

    def _child_id(self, seq: int) -> str:
        derived = f"{self.run.run_id}/{seq}"
        if len(derived) <= MAX_CHARACTERS:
            return derived
        return f"{digest(self.run.run_id)}/{seq}"

    async def _start_child(self, pending: Pending, document: dict[str, Any]) -> None:
        child_id = cast(str, pending.child_id)
        if child_id in self._children:
            return
        await self._flush()
        request = await self._services.starter.prepare(
            self.run.application,
            pending.target.name,
            document,
            self.run.principal,
            RunOptions(
                run_id=child_id,
                deployment=self.run.deployment,
                trace=self.run.trace,
                deadline=self.run.deadline,
            ),
        )
        try:
            await self._services.starter.start_child(request, self.run.run_id, pending.seq)
        except IdempotencyMismatch as error:
            raise NonDeterminismError(
                f"run {self.run.run_id} does not replay: child {child_id} was "
                f"{error.metadata.get('recorded')} with input {error.metadata.get('recorded_digest')}",
                run_id=self.run.run_id,
                recorded=error.metadata.get("recorded"),
                now=error.metadata.get("requested"),
            ) from error

    def _join(self, children: Sequence[Pending], *, need: int) -> None:
        """Record the outcomes of ended children; suspend the run until ``need`` of them have."""
        ids = [cast(str, child.child_id) for child in children]
        found = self._wait_for(self._services.store.status(ids))
        ended = [c for c in children if found[cast(str, c.child_id)].status in _FINISHED]
        rows = []
        for child in ended:
            outcome = found[cast(str, child.child_id)]
            row = operation_row(
                child.seq, "workflow", child.target.name, output=outcome.output,
                error=outcome.error, input_digest=child.input_digest,
            )  # fmt: skip
            rows.append(row)
            child.settle(self._as_record(row))
        if rows:
            self._wait_for(self._record([*self.take_deferred(), *rows]))
        if len(ended) < need:
            waiting = [i for c, i in zip(children, ids, strict=True) if c.record is None]
            raise self._suspend(
                Suspended({"kind": "run", "runs": waiting, "need": need - len(ended)})
            )

    # Primitives.

    def _database_now(self) -> datetime:
        return self._claimed_at + timedelta(seconds=time.monotonic() - self._claimed_monotonic)

    def _value(self, kind: str, name: str, make: Callable[[], Any]) -> Any:
        """A value that is made once, recorded when something depends on it, and given back."""
        seq = self.replay.next_seq()
        record = self.replay.match(seq, kind, name, None)
        if record is None:
            row = operation_row(seq, kind, name, output=_any.encode(make(), name), read_only=True)
            with self._lock:
                self._deferred.append(row)
            record = self._as_record(row)
        return self.replay.value(record, _any.decode)

    def _do_now(self) -> datetime:
        return cast(datetime, self._value("now", "now", self._database_now))

    def _do_random(self) -> float:
        return self.replay.random()

    def _do_uuid4(self) -> Any:
        return self.replay.uuid4()

    def _do_run_id(self) -> str:
        return self.run.run_id

    def _do_sleep(self, seconds: float) -> None:
        if not seconds >= 0:
            raise BadArgument(f"sleep takes seconds from 0 on, not {seconds!r}", path="seconds")
        self._sleep("sleep", lambda: self._database_now() + timedelta(seconds=seconds))

    def _do_sleep_until(self, when: datetime) -> None:
        if when.tzinfo is None:
            raise BadArgument("sleep_until takes an aware datetime", path="when")
        self._sleep("sleep_until", lambda: when)

    def _sleep(self, name: str, until: Callable[[], datetime]) -> None:
        seq = self.replay.next_seq()
        record = self.replay.match(seq, "sleep", name, None)
        if record is not None:
            wake_at = _any.decode(record.output)
            operations: tuple[dict[str, Any], ...] = ()
        else:
            wake_at = until()
            operations = (operation_row(seq, "sleep", name, output=_any.encode(wake_at, name)),)
        if self._database_now() < wake_at:
            raise self._suspend(Suspended({"kind": "time", "seq": seq}, wake_at, operations))
        if operations:
            self._wait_for(self._record([*self.take_deferred(), *operations]))

    def _do_send(self, run_id: str, message: Any, topic: str) -> None:
        seq = self.replay.next_seq()
        document = {"run_id": run_id, "topic": topic, "message": _any.encode(message, "message")}
        input_digest = digest(canonical(document))
        record = self.replay.match(seq, "send", topic, input_digest)
        if record is not None:
            return
        row = operation_row(seq, "send", topic, document=document, input_digest=input_digest)
        self._wait_for(
            self._services.store.send_from_run(
                self.run.run_id, self.run.epoch, [*self.take_deferred(), row], run_id, topic,
                document["message"],
            )
        )  # fmt: skip

    def _do_recv(self, topic: str, timeout_s: float | None) -> Any:
        seq = self.replay.next_seq()
        record = self.replay.match(seq, "recv", topic, None)
        if record is None:
            row = operation_row(seq, "recv", topic)
            deferred = self.take_deferred()
            taken = self._wait_for(
                self._services.store.take_message(
                    self.run.run_id, self.run.epoch, topic, row, deferred
                )
            )
            if taken is None:
                self._put_back(deferred)
                self._wait_or_time_out(row, {"kind": "message", "topic": topic}, timeout_s)
            record = self._as_record({**row, "output": taken})
        return self.replay.value(record, lambda output: _any.decode(output["message"]))

    def _do_get_event(self, run_id: str, key: str, timeout_s: float | None) -> Any:
        seq = self.replay.next_seq()
        document = {"run_id": run_id, "key": key}
        input_digest = digest(canonical(document))
        record = self.replay.match(seq, "get_event", key, input_digest)
        if record is None:
            row = operation_row(seq, "get_event", key, document=document, input_digest=input_digest)
            found = self._wait_for(self._services.store.event(run_id, key))
            if not found:
                self._wait_or_time_out(row, {"kind": "event", **document}, timeout_s)
            row["output"] = {"value": found[0]}
            self._wait_for(self._record([*self.take_deferred(), row]))
            record = self._as_record(row)
        return self.replay.value(record, lambda output: _any.decode(output["value"]))

    def _wait_or_time_out(
        self, row: dict[str, Any], waiting_for: dict[str, Any], timeout_s: float | None
    ) -> None:
        """Suspend the run until what it waits for is there; record and raise when it is too late.

        The time runs from the first wait, which the run's row keeps.
        """
        before = self.run.waiting_for or {}
        until: datetime | None
        if before.get("seq") == row["seq"]:
            until = None if before["until"] is None else datetime.fromisoformat(before["until"])
        else:
            until = (
                None if timeout_s is None else self._database_now() + timedelta(seconds=timeout_s)
            )
        if until is not None and self._database_now() >= until:
            error = WaitTimedOut(
                f"{row['kind']} {row['name']!r} waited for {timeout_s:g} s in vain",
                run_id=self.run.run_id,
            )
            row["error"] = encode_exception(error)
            self._wait_for(self._record([*self.take_deferred(), row]))
            raise error
        kept = {"seq": row["seq"], "until": None if until is None else until.isoformat()}
        raise self._suspend(Suspended({**waiting_for, **kept}, until))

    def _do_set_event(self, key: str, value: Any) -> None:
        seq = self.replay.next_seq()
        document = {"key": key, "value": _any.encode(value, "value")}
        input_digest = digest(canonical(document))
        if self.replay.match(seq, "set_event", key, input_digest) is None:
            row = operation_row(seq, "set_event", key, document=document, input_digest=input_digest)
            self._wait_for(
                self._services.store.set_event(
                    self.run.run_id, self.run.epoch, key, document["value"],
                    [*self.take_deferred(), row],
                )
            )  # fmt: skip

    def _do_write_stream(self, key: str, value: Any) -> None:
        seq = self.replay.next_seq()
        document = _any.encode(value, f"stream {key}")
        input_digest = digest(canonical(document))
        if self.replay.match(seq, "write_stream", key, input_digest) is None:
            row = operation_row(seq, "write_stream", key, input_digest=input_digest)
            streams = [{"key": key, "seq": seq, "values": [document]}]
            self._wait_for(self._record([*self.take_deferred(), row], streams))

    def _do_progress(self, done: float, total: float | None, message: str | None) -> None:
        self._report_from_thread({"done": done, "total": total, "message": message})

    def _do_gather(self, futures: Sequence[Any], need: int | None) -> Any:
        pendings = [_pending(future) for future in futures]
        if need is None:
            return self._gather_all(pendings)
        if not 1 <= need <= len(pendings):
            raise BadArgument(f"need is between 1 and {len(pendings)}, not {need}", path="need")
        return self._gather_some(pendings, need)

    def _gather_all(self, pendings: list[Pending]) -> list[Any]:
        for pending in pendings:
            if pending.record is None and pending.running is not None:
                pending.settle(self._wait(pending.running))
        children = [pending for pending in pendings if pending.record is None]
        if children:
            self._join(children, need=len(children))
        return [self._result(pending) for pending in pendings]

    def _gather_some(self, pendings: list[Pending], need: int) -> list[tuple[int, Any]]:
        seq = self.replay.next_seq()
        record = self.replay.match(seq, "gather", str(need), None)
        if record is None:
            chosen = self._first_successes(pendings, need)
            row = operation_row(seq, "gather", str(need), output=chosen)
            self._wait_for(self._record([*self.take_deferred(), row]))
            record = self._as_record(row)
        return [(index, self._result(pendings[index])) for index in record.output]

    def _first_successes(self, pendings: list[Pending], need: int) -> list[int]:
        while True:
            for pending in pendings:
                if (
                    pending.record is None
                    and pending.running is not None
                    and pending.running.done()
                ):
                    pending.settle(self._wait(pending.running))
            settled = [i for i, p in enumerate(pendings) if p.record is not None]
            succeeded = [
                i for i in settled if cast(OperationRecord, pendings[i].record).error is None
            ]
            succeeded.sort(key=lambda i: pendings[i].ended_at)
            if len(succeeded) >= need:
                return succeeded[:need]
            if len(settled) - len(succeeded) > len(pendings) - need:
                failed = next(i for i in settled if i not in succeeded)
                self._result(pendings[failed])  # raises its error
            here = [p.running for p in pendings if p.record is None and p.running is not None]
            if here:
                self._wait_for_any(cast("list[ThreadFuture[Any]]", here))
                continue
            children = [p for p in pendings if p.record is None]
            self._join(children, need=1)

    @staticmethod
    def _wait_for_any(running: list[ThreadFuture[Any]]) -> None:
        ready = threading.Event()
        for future in running:
            future.add_done_callback(lambda _: ready.set())
        ready.wait()


class _UnstorableResult(Exception):
    """Carries the error of a step's result that can never be stored."""

    def __init__(self, error: ApiaryError) -> None:
        super().__init__(str(error))
        self.error = error


class _RunFuture(Future[Any]):
    """A future of this run's code."""

    def __init__(self, context: RunContext, pending: Pending) -> None:
        super().__init__(lambda: context._result(pending), pending.seq)
        self.pending = pending
        self._context = context

    def __await__(self) -> Any:
        return self._context._awaitable(self.pending).__await__()


def _pending(future: Any) -> Pending:
    if not isinstance(future, _RunFuture):
        raise BadArgument(
            f"gather takes futures, as f.start(...) returns them, not {type(future).__name__}",
            path="futures",
        )
    return future.pending


def _may_retry(step: Step[..., Any], error: BaseException, attempt: int) -> bool:
    options = step.options
    if attempt > options.retries or not isinstance(error, Exception):
        return False
    return options.retry_if is None or options.retry_if(error)


def _backoff_s(step: Step[..., Any], attempt: int) -> float:
    options = step.options
    delay_s = min(options.max_backoff_s, options.backoff_s * 2 ** (attempt - 1))
    return float(delay_s * (1 + options.jitter * (2 * random.random() - 1)))
