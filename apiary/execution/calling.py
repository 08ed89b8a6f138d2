"""Functions and steps of a run: run on the executor's loop, recorded, tried again.

A function's record is written by the database in the function's own transaction; a step's after it
has ended, with the values that it wrote to streams. Either way what comes back is a record, and an
error that is no outcome (the database is away, the lease is lost) is raised.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..authoring.decorators import Function, Step
from ..authoring.failures import encode_exception
from ..authoring.loader import DeploymentCode
from ..authoring.values import dumps
from ..engine.base import Invocation
from ..errors import (
    ApiaryError,
    Cancelled,
    ConfigurationError,
    IdempotencyMismatch,
    LeaseLost,
    PayloadTooLarge,
    TransactionConflict,
    UnavailableError,
    UniqueViolation,
)
from .crashpoints import crash_point
from .ids import derived_id
from .operations import Pending, operation_row
from .processes import StepTask
from .recording import Recorder, as_record
from .replay import OperationRecord
from .steps import StepContext

if TYPE_CHECKING:
    from .running import RunContext

__all__ = ["INFRASTRUCTURE", "MAX_PAYLOAD_BYTES", "Calls", "require_storable"]

MAX_PAYLOAD_BYTES = 4 * 1024 * 1024

# What is no outcome of an operation, so that user code must not see it.
INFRASTRUCTURE = (
    Cancelled, ConfigurationError, LeaseLost, TransactionConflict, UnavailableError
)  # fmt: skip


class Calls:
    """Runs the functions and steps of one run."""

    def __init__(
        self,
        context: RunContext,
        code: DeploymentCode,
        step_attempts: dict[int, int],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self._context = context
        self._code = code
        self._step_attempts = step_attempts  # that failed before, by seq
        self._report = report

    @property
    def _recorder(self) -> Recorder:
        return self._context.recorder

    # Functions.

    async def function(
        self, pending: Pending, target: Function[..., Any], document: dict[str, Any], alone: bool
    ) -> OperationRecord:
        """Run a function; ``alone`` says that nothing else of the run is under way."""
        if not alone:
            await self._recorder.flush()
        deferred = self._recorder.take() if alone else []
        started_at = time.time()
        crash_point("function-before")
        try:
            outcome = await self._invoke(pending, target, dumps(document), deferred)
        except (*INFRASTRUCTURE, asyncio.CancelledError):
            self._recorder.put_back(deferred)
            raise
        except (IdempotencyMismatch, UniqueViolation) as error:
            # Whoever held the run before recorded this meanwhile: go on from that record.
            self._recorder.put_back([])
            raise LeaseLost(
                f"operation {pending.seq} of run {self._context.run.run_id} was recorded by another"
                " executor",
                run_id=self._context.run.run_id,
            ) from error
        except ApiaryError as error:  # a timeout, or code that cannot be loaded: the outcome
            row = operation_row(
                pending.seq, "function", target.name, error=encode_exception(error),
                document=document, input_digest=pending.input_digest, started_at=started_at,
            )  # fmt: skip
            await self._recorder.record([*deferred, row])
            return as_record(row)
        crash_point("function-after")
        if outcome.unrecorded is not None:
            self._recorder.put_back([*deferred, outcome.unrecorded])
        return OperationRecord(
            seq=pending.seq,
            kind="function",
            name=target.name,
            input_digest=pending.input_digest,
            output=outcome.output,
            error=outcome.error,
        )

    async def _invoke(
        self,
        pending: Pending,
        target: Function[..., Any],
        text: str,
        deferred: list[dict[str, Any]],
    ) -> Any:
        """Invoke, and once more with a longer lease when the function outlasts the usual one."""
        context = self._context
        lease_until = context.lease_until
        for is_last in (False, True):
            invocation = Invocation(
                run_id=context.run.run_id,
                seq=pending.seq,
                application=context.run.application,
                deployment=context.run.deployment,
                function=target.name,
                input=text,
                principal=context.run.principal,
                trace=context.run.trace,
                keep=False,
                lease_until=lease_until,
                deferred=json.dumps(deferred) if deferred else None,
            )
            try:
                outcome = await context.services.invoker.invoke(invocation, fresh=True)
            except LeaseLost:
                # The lease that the function began with is over; it may have been renewed since.
                if is_last or context.gone is not None or context.lease_until <= lease_until:
                    raise
                lease_until = await self._extend_lease(target)
                continue
            if outcome.replayed and deferred:
                # The previous owner's record stands, and perhaps its reads: take over all of it.
                raise LeaseLost(
                    "another executor recorded this operation", run_id=context.run.run_id
                )
            return outcome
        raise AssertionError("the last round returns or raises")

    async def _extend_lease(self, target: Function[..., Any]) -> datetime:
        services = self._context.services
        longest_s = target.timeout_s or services.function_timeout_s
        run = self._context.run
        held = await services.store.renew(
            services.executor, [(run.run_id, run.epoch)], timedelta(seconds=longest_s + 30)
        )
        if run.run_id not in held:
            raise LeaseLost(f"the lease on run {run.run_id} is lost", run_id=run.run_id)
        return held[run.run_id]

    # Steps.

    async def step(
        self, pending: Pending, step: Step[..., Any], document: dict[str, Any]
    ) -> OperationRecord:
        """Run a step until an attempt succeeds or no other may follow."""
        await self._recorder.flush()  # what the step does outside may depend on it
        attempt = self._step_attempts.get(pending.seq, 0) + 1
        while True:
            crash_point("step-before")
            row, streams, again = await self._attempt(pending, step, document, attempt)
            crash_point("step-after")
            if not again:
                await self._recorder.record([row], streams)
                crash_point("step-recorded")
                return as_record(row)
            await self._context.services.store.log_step_attempt(self._context.run, row)
            await asyncio.sleep(_backoff_s(step, attempt))
            attempt += 1

    async def _attempt(
        self, pending: Pending, step: Step[..., Any], document: dict[str, Any], attempt: int
    ) -> tuple[dict[str, Any], list[dict[str, Any]] | None, bool]:
        """One attempt: its row, what it wrote to streams, and whether another one follows."""
        started_at = time.time()
        run_id, seq = self._context.run.run_id, pending.seq
        context = StepContext(
            run_id=run_id,
            seq=seq,
            report=self._report,
            # A killed executor leaves no attempt behind: the next one's is told by its claim.
            invoke=self._invoke_from_step(f"{seq}@{self._context.run.epoch}.{attempt}"),
            code=self._code,
        )
        output: Any = None
        error: BaseException | None = None
        again = False
        try:
            result = await self._context.services.steps.run(
                step,
                step.signature.decode_arguments(document),
                context,
                self._task(step, seq, document),
            )
        except asyncio.CancelledError:
            raise
        # Whatever the step raises is the attempt's outcome.
        except BaseException as raised:  # noqa: BLE001
            error = raised
            again, error = _may_retry(step, raised, attempt)
        else:
            try:
                output = step.signature.encode_result(result)
                require_storable(output, f"the result of step {step.name}")
            except ApiaryError as unstorable:  # trying again cannot help
                output, error = None, unstorable
        row = operation_row(
            seq, "step", step.name, output=output,
            error=None if error is None else encode_exception(error), document=document,
            input_digest=pending.input_digest, attempt=attempt, started_at=started_at,
        )  # fmt: skip
        return row, context.streams if error is None else None, again

    def _invoke_from_step(self, call_prefix: str) -> Callable[[str, str], dict[str, Any]]:
        """What a step's thread calls functions with: direct invocations, numbered per attempt."""
        run, services = self._context.run, self._context.services
        numbers = itertools.count(1)

        def invoke(function: str, text: str) -> dict[str, Any]:
            invocation = Invocation(
                run_id=derived_id(run.run_id, f"{call_prefix}.{next(numbers)}"),
                application=run.application,
                deployment=run.deployment,
                function=function,
                input=text,
                principal=run.principal,
                trace=run.trace,
            )
            work = services.invoker.invoke(invocation, fresh=True)
            outcome = asyncio.run_coroutine_threadsafe(work, services.loop).result()
            return {"output": outcome.output, "error": outcome.error}

        return invoke

    def _task(self, step: Step[..., Any], seq: int, document: dict[str, Any]) -> StepTask:
        return StepTask(
            code=self._code,
            module=self._code.local_name(step.module),
            qualname=step.qualname,
            document=document,
            run_id=self._context.run.run_id,
            seq=seq,
        )


def require_storable(document: Any, what: str) -> str:
    """The document as JSON text; PayloadTooLarge beyond the limit."""
    text = dumps(document)
    size_bytes = len(text.encode())
    if size_bytes > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"{what} takes {size_bytes} bytes, the limit is {MAX_PAYLOAD_BYTES}",
            hint="store large data in a table or outside and pass its key",
            path="result",
            size_bytes=size_bytes,
            limit_bytes=MAX_PAYLOAD_BYTES,
        )
    return text


def _may_retry(
    step: Step[..., Any], error: BaseException, attempt: int
) -> tuple[bool, BaseException]:
    """Whether another attempt follows, and the error that counts: that of a broken predicate."""
    options = step.options
    if attempt > options.retries or not isinstance(error, Exception):
        return False, error
    if options.retry_if is None:
        return True, error
    try:
        return bool(options.retry_if(error)), error
    except Exception as broken:  # noqa: BLE001  (user code; it is the outcome)
        return False, broken


def _backoff_s(step: Step[..., Any], attempt: int) -> float:
    options = step.options
    delay_s = min(options.max_backoff_s, options.backoff_s * 2 ** (attempt - 1))
    return float(delay_s * (1 + options.jitter * (2 * random.random() - 1)))
