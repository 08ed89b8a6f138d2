"""The calls about workflows that `AsyncClient` has, and the handle of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

from ..authoring.decorators import Workflow
from ..authoring.dynamic import ANY
from ..errors import DeadlineExceeded
from . import workflow_requests as wanted
from .records import (
    Deployment,
    Operation,
    Queue,
    Run,
    RunEvent,
    Schedule,
    StartOptions,
    WorkflowInfo,
)
from .requests import Request, encoded, get_run
from .workflow_requests import Feed, Started, is_settled, outcome_of

__all__ = ["AsyncRunHandle", "AsyncWorkflowCalls"]

T = TypeVar("T")
R = TypeVar("R")
_NO_OPTIONS = StartOptions()


class AsyncWorkflowCalls(ABC):
    """Starting and controlling runs; queues, schedules, deployments."""

    @abstractmethod
    async def _send(self, request: Request[T]) -> T:
        """Make a call."""

    @abstractmethod
    def _follow(self, feed: Feed[T]) -> AsyncGenerator[T, None]:
        """What a stream of answers brings, also across cuts."""

    # Starting.

    @overload
    async def start(
        self,
        target: Workflow[..., R],
        /,
        *args: Any,
        run_id: str | None = ...,
        application: str | None = ...,
        options: StartOptions = ...,
        **kwargs: Any,
    ) -> AsyncRunHandle[R]: ...
    @overload
    async def start(
        self,
        target: str,
        /,
        *args: Any,
        run_id: str | None = ...,
        application: str | None = ...,
        options: StartOptions = ...,
        **kwargs: Any,
    ) -> AsyncRunHandle[Any]: ...
    async def start(
        self,
        target: str | Workflow[..., Any],
        /,
        *args: Any,
        run_id: str | None = None,
        application: str | None = None,
        options: StartOptions = _NO_OPTIONS,
        **kwargs: Any,
    ) -> AsyncRunHandle[Any]:
        """Start a run of a workflow, or find the one that has the id already.

        IdempotencyMismatch when that is of another workflow or input.
        """
        name, document, decode = encoded(target, args, kwargs)
        started = await self._send(
            wanted.start(name, document, run_id=run_id, application=application, options=options)
        )
        return AsyncRunHandle(self, started.run_id, decode, started)

    async def start_document(
        self,
        workflow: str,
        document: Mapping[str, Any],
        *,
        run_id: str | None = None,
        application: str | None = None,
        options: StartOptions = _NO_OPTIONS,
    ) -> AsyncRunHandle[Any]:
        """As `start`, with a JSON document of the arguments; the result is one as well."""
        started = await self._send(
            wanted.start(
                workflow, document, run_id=run_id, application=application, options=options
            )
        )
        return AsyncRunHandle(self, started.run_id, lambda output: output, started)

    def handle(
        self, run_id: str, workflow: Workflow[..., Any] | None = None
    ) -> AsyncRunHandle[Any]:
        """The handle of a run that was started before; ``workflow`` decodes its result."""
        if workflow is not None:
            return AsyncRunHandle(self, run_id, workflow.signature.decode_result)
        return AsyncRunHandle(self, run_id, lambda output: ANY.decode(output, "result"))

    def watch(self, run_id: str, timeout_s: float | None = None) -> AsyncGenerator[RunEvent, None]:
        """The run as it is, then its changes until it ends.

        DeadlineExceeded after ``timeout_s``; the run goes on then.
        """
        return self._follow(wanted.watch(run_id, timeout_s))

    # Control.

    async def cancel(
        self, run_id: str, reason: str | None = None, *, cascade: bool = False
    ) -> list[str]:
        """Cancel a run, and with ``cascade`` its descendants; returns what was cancelled."""
        return await self._send(wanted.cancel(run_id, reason, cascade=cascade))

    async def resume(self, run_id: str, timeout_s: float | None = None) -> Run:
        """Let a run go on that ended without success, or is stuck; what is recorded stays."""
        return await self._send(wanted.resume(run_id, timeout_s))

    async def restart(
        self, run_id: str, new_run_id: str | None = None, *, deployment: str | None = None
    ) -> AsyncRunHandle[Any]:
        """A new run with the same input, from the beginning."""
        return self._started(await self._send(wanted.restart(run_id, new_run_id, deployment)))

    async def fork(
        self,
        run_id: str,
        from_seq: int,
        new_run_id: str | None = None,
        *,
        deployment: str | None = None,
    ) -> AsyncRunHandle[Any]:
        """A new run that takes over the operations before ``from_seq`` and goes on from there."""
        request = wanted.fork(run_id, from_seq, new_run_id, deployment, None, replace_output=False)
        return self._started(await self._send(request))

    async def fork_replacing(
        self,
        run_id: str,
        from_seq: int,
        output: Any,
        new_run_id: str | None = None,
        *,
        deployment: str | None = None,
    ) -> AsyncRunHandle[Any]:
        """As `fork`, taking over ``from_seq`` as well, with this output: a JSON document."""
        request = wanted.fork(run_id, from_seq, new_run_id, deployment, output, replace_output=True)
        return self._started(await self._send(request))

    async def delete_runs(
        self, run_ids: Sequence[str] = (), *, ended_before: datetime | None = None
    ) -> int:
        """Delete ended runs and what belongs to them: these, or all that ended before a time."""
        return await self._send(wanted.delete(run_ids, ended_before))

    async def explain(self, run_id: str) -> str:
        """One sentence on why a run does not move."""
        return await self._send(wanted.explain(run_id))

    # Talking with runs.

    async def send(
        self, run_id: str, message: Any, topic: str = "", *, idempotency_key: str | None = None
    ) -> None:
        """Send a message to a run; the same key again changes nothing."""
        await self._send(wanted.send(run_id, message, topic, idempotency_key))

    async def get_event(self, run_id: str, key: str, timeout_s: float | None = None) -> Any:
        """The value that a run has published under a key; waits for it up to ``timeout_s``."""
        return await self._send(wanted.get_event(run_id, key, timeout_s))

    def read_stream(
        self, run_id: str, key: str, from_offset: int = 0, *, follow: bool = False
    ) -> AsyncGenerator[tuple[int, Any], None]:
        """The values of a stream as (offset, value); with ``follow`` until the run ends."""
        return self._follow(wanted.read_stream(run_id, key, from_offset, follow=follow))

    # Workflows and deployments.

    async def workflows(self, application: str | None = None) -> list[WorkflowInfo]:
        """The workflows that runs can be started of."""
        return await self._send(wanted.workflows(application))

    async def explain_workflow(self, name: str, application: str | None = None) -> WorkflowInfo:
        """One workflow: where its runs take place, and why."""
        return await self._send(wanted.explain_workflow(name, application))

    async def deployments(self, application: str | None = None) -> list[Deployment]:
        """Stored deployments with the runs that still need them, newest first."""
        return await self._send(wanted.deployments(application))

    async def remove_deployment(self, application: str, deployment: str) -> None:
        """Remove a deployment; WrongState when it is current, or runs need it."""
        await self._send(wanted.remove_deployment(application, deployment))

    # Queues.

    async def put_queue(self, queue: Queue) -> Queue:
        """Make a queue, or replace the limits of the one of that name."""
        return await self._send(wanted.put_queue(queue))

    async def pause_queue(self, name: str, *, paused: bool = True) -> Queue:
        """Let a queue start no more runs, or go on; what runs goes on in any case."""
        return await self._send(wanted.pause_queue(name, paused=paused))

    async def queues(self) -> list[Queue]:
        """Every queue, with how full it is."""
        return await self._send(wanted.queues())

    async def delete_queue(self, name: str) -> None:
        """Delete a queue; WrongState while unfinished runs or schedules are in it."""
        await self._send(wanted.delete_queue(name))

    # Schedules.

    async def put_schedule(self, schedule: Schedule) -> Schedule:
        """Store a schedule, or replace the one of that name."""
        return await self._send(wanted.put_schedule(schedule))

    async def pause_schedule(self, name: str, *, paused: bool = True) -> Schedule:
        """Let a schedule fire no more, or go on with its next slot from now."""
        return await self._send(wanted.pause_schedule(name, paused=paused))

    async def schedules(self, fires: int = 1) -> list[Schedule]:
        """Every schedule, with its next fires."""
        return await self._send(wanted.schedules(fires))

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule; the runs that it has started stay."""
        await self._send(wanted.delete_schedule(name))

    async def backfill_schedule(self, name: str, since: datetime, until: datetime) -> list[str]:
        """Start the runs of the slots in (since, until] that have not fired; returns their ids."""
        return await self._send(wanted.backfill(name, since, until))

    def _settling(self, run_id: str, timeout_s: float | None) -> AsyncGenerator[RunEvent, None]:
        return self._follow(wanted.watch(run_id, timeout_s, settled_only=True))

    async def _run(self, run_id: str) -> Run:
        return await self._send(get_run(run_id))

    def _started(self, started: Started) -> AsyncRunHandle[Any]:
        return AsyncRunHandle(
            self, started.run_id, lambda output: ANY.decode(output, "result"), started
        )


class AsyncRunHandle(Generic[R]):
    """A run: to be waited for, and asked about."""

    def __init__(
        self,
        client: AsyncWorkflowCalls,
        run_id: str,
        decode: Callable[[Any], R],
        started: Started | None = None,
    ) -> None:
        self.run_id = run_id
        self.created = started is not None and started.created  # by this start, not found
        self._client = client
        self._decode = decode
        self._started = started

    async def wait(self, timeout_s: float | None = None) -> Run:
        """Wait until the run ends, or is stuck; returns it without its operations.

        DeadlineExceeded after ``timeout_s``; the run goes on then.
        """
        last: Run | None = None
        try:
            async with aclosing(self._client._settling(self.run_id, timeout_s)) as events:
                async for event in events:
                    last = event.run or last
                    if last is not None and last.status == "STUCK":
                        break
        except DeadlineExceeded as error:
            raise DeadlineExceeded(
                f"run {self.run_id} has not ended within {timeout_s:g} s; it goes on",
                hint=f"apiary workflow why {self.run_id}",
                run_id=self.run_id,
            ) from error
        assert last is not None  # the first event is the run
        return last

    async def result(self, timeout_s: float | None = None) -> R:
        """The run's result, or its error raised; waits for its end."""
        if self._started is not None and is_settled(self._started.run):
            run = self._started.run
        else:
            run = await self.wait(timeout_s)
        result: R = outcome_of(run, self._decode)
        return result

    async def status(self) -> str:
        """The run's status now."""
        return (await self._client._run(self.run_id)).status

    async def operations(self) -> Sequence[Operation]:
        """What is recorded of it so far."""
        return (await self._client._run(self.run_id)).operations

    def events(self, timeout_s: float | None = None) -> AsyncGenerator[RunEvent, None]:
        """The run as it is, then its changes until it ends."""
        return self._client.watch(self.run_id, timeout_s)

    async def cancel(self, reason: str | None = None, *, cascade: bool = False) -> list[str]:
        """Cancel it, and with ``cascade`` its descendants."""
        return await self._client.cancel(self.run_id, reason, cascade=cascade)
