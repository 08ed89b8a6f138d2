"""The calls about workflows that `Client` has, and the handle of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
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

__all__ = ["RunHandle", "WorkflowCalls"]

T = TypeVar("T")
R = TypeVar("R")
_NO_OPTIONS = StartOptions()


class WorkflowCalls(ABC):
    """Starting and controlling runs; queues, schedules, deployments."""

    @abstractmethod
    def _send(self, request: Request[T]) -> T:
        """Make a call."""

    @abstractmethod
    def _follow(self, feed: Feed[T]) -> Generator[T, None, None]:
        """What a stream of answers brings, also across cuts."""

    # Starting.

    @overload
    def start(
        self,
        target: Workflow[..., R],
        /,
        *args: Any,
        run_id: str | None = ...,
        application: str | None = ...,
        options: StartOptions = ...,
        **kwargs: Any,
    ) -> RunHandle[R]: ...
    @overload
    def start(
        self,
        target: str,
        /,
        *args: Any,
        run_id: str | None = ...,
        application: str | None = ...,
        options: StartOptions = ...,
        **kwargs: Any,
    ) -> RunHandle[Any]: ...
    def start(
        self,
        target: str | Workflow[..., Any],
        /,
        *args: Any,
        run_id: str | None = None,
        application: str | None = None,
        options: StartOptions = _NO_OPTIONS,
        **kwargs: Any,
    ) -> RunHandle[Any]:
        """Start a run of a workflow, or find the one that has the id already.

        IdempotencyMismatch when that is of another workflow or input.
        """
        name, document, decode = encoded(target, args, kwargs)
        started = self._send(
            wanted.start(name, document, run_id=run_id, application=application, options=options)
        )
        return RunHandle(self, started.run_id, decode, started)

    def start_document(
        self,
        workflow: str,
        document: Mapping[str, Any],
        *,
        run_id: str | None = None,
        application: str | None = None,
        options: StartOptions = _NO_OPTIONS,
    ) -> RunHandle[Any]:
        """As `start`, with a JSON document of the arguments; the result is one as well."""
        started = self._send(
            wanted.start(
                workflow, document, run_id=run_id, application=application, options=options
            )
        )
        return RunHandle(self, started.run_id, lambda output: output, started)

    def handle(self, run_id: str, workflow: Workflow[..., Any] | None = None) -> RunHandle[Any]:
        """The handle of a run that was started before; ``workflow`` decodes its result."""
        if workflow is not None:
            return RunHandle(self, run_id, workflow.signature.decode_result)
        return RunHandle(self, run_id, lambda output: ANY.decode(output, "result"))

    def watch(self, run_id: str, timeout_s: float | None = None) -> Generator[RunEvent, None, None]:
        """The run as it is, then its changes until it ends.

        DeadlineExceeded after ``timeout_s``; the run goes on then.
        """
        return self._follow(wanted.watch(run_id, timeout_s))

    # Control.

    def cancel(self, run_id: str, reason: str | None = None, *, cascade: bool = False) -> list[str]:
        """Cancel a run, and with ``cascade`` its descendants; returns what was cancelled."""
        return self._send(wanted.cancel(run_id, reason, cascade=cascade))

    def resume(self, run_id: str, timeout_s: float | None = None) -> Run:
        """Let a run go on that ended without success, or is stuck; what is recorded stays."""
        return self._send(wanted.resume(run_id, timeout_s))

    def restart(
        self, run_id: str, new_run_id: str | None = None, *, deployment: str | None = None
    ) -> RunHandle[Any]:
        """A new run with the same input, from the beginning."""
        return self._started(self._send(wanted.restart(run_id, new_run_id, deployment)))

    def fork(
        self,
        run_id: str,
        from_seq: int,
        new_run_id: str | None = None,
        *,
        deployment: str | None = None,
    ) -> RunHandle[Any]:
        """A new run that takes over the operations before ``from_seq`` and goes on from there."""
        request = wanted.fork(run_id, from_seq, new_run_id, deployment, None, replace_output=False)
        return self._started(self._send(request))

    def fork_replacing(
        self,
        run_id: str,
        from_seq: int,
        output: Any,
        new_run_id: str | None = None,
        *,
        deployment: str | None = None,
    ) -> RunHandle[Any]:
        """As `fork`, taking over ``from_seq`` as well, with this output: a JSON document."""
        request = wanted.fork(run_id, from_seq, new_run_id, deployment, output, replace_output=True)
        return self._started(self._send(request))

    def delete_runs(
        self, run_ids: Sequence[str] = (), *, ended_before: datetime | None = None
    ) -> int:
        """Delete ended runs and what belongs to them: these, or all that ended before a time."""
        return self._send(wanted.delete(run_ids, ended_before))

    def explain(self, run_id: str) -> str:
        """One sentence on why a run does not move."""
        return self._send(wanted.explain(run_id))

    # Talking with runs.

    def send(
        self, run_id: str, message: Any, topic: str = "", *, idempotency_key: str | None = None
    ) -> None:
        """Send a message to a run; the same key again changes nothing."""
        self._send(wanted.send(run_id, message, topic, idempotency_key))

    def get_event(self, run_id: str, key: str, timeout_s: float | None = None) -> Any:
        """The value that a run has published under a key; waits for it up to ``timeout_s``."""
        return self._send(wanted.get_event(run_id, key, timeout_s))

    def read_stream(
        self, run_id: str, key: str, from_offset: int = 0, *, follow: bool = False
    ) -> Generator[tuple[int, Any], None, None]:
        """The values of a stream as (offset, value); with ``follow`` until the run ends."""
        return self._follow(wanted.read_stream(run_id, key, from_offset, follow=follow))

    # Workflows and deployments.

    def workflows(self, application: str | None = None) -> list[WorkflowInfo]:
        """The workflows that runs can be started of."""
        return self._send(wanted.workflows(application))

    def explain_workflow(self, name: str, application: str | None = None) -> WorkflowInfo:
        """One workflow: where its runs take place, and why."""
        return self._send(wanted.explain_workflow(name, application))

    def deployments(self, application: str | None = None) -> list[Deployment]:
        """Stored deployments with the runs that still need them, newest first."""
        return self._send(wanted.deployments(application))

    def remove_deployment(self, application: str, deployment: str) -> None:
        """Remove a deployment; WrongState when it is current, or runs need it."""
        self._send(wanted.remove_deployment(application, deployment))

    # Queues.

    def put_queue(self, queue: Queue) -> Queue:
        """Make a queue, or replace the limits of the one of that name."""
        return self._send(wanted.put_queue(queue))

    def pause_queue(self, name: str, *, paused: bool = True) -> Queue:
        """Let a queue start no more runs, or go on; what runs goes on in any case."""
        return self._send(wanted.pause_queue(name, paused=paused))

    def queues(self) -> list[Queue]:
        """Every queue, with how full it is."""
        return self._send(wanted.queues())

    def delete_queue(self, name: str) -> None:
        """Delete a queue; WrongState while unfinished runs or schedules are in it."""
        self._send(wanted.delete_queue(name))

    # Schedules.

    def put_schedule(self, schedule: Schedule) -> Schedule:
        """Store a schedule, or replace the one of that name."""
        return self._send(wanted.put_schedule(schedule))

    def pause_schedule(self, name: str, *, paused: bool = True) -> Schedule:
        """Let a schedule fire no more, or go on with its next slot from now."""
        return self._send(wanted.pause_schedule(name, paused=paused))

    def schedules(self, fires: int = 1) -> list[Schedule]:
        """Every schedule, with its next fires."""
        return self._send(wanted.schedules(fires))

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule; the runs that it has started stay."""
        self._send(wanted.delete_schedule(name))

    def backfill_schedule(self, name: str, since: datetime, until: datetime) -> list[str]:
        """Start the runs of the slots in (since, until] that have not fired; returns their ids."""
        return self._send(wanted.backfill(name, since, until))

    def _settling(self, run_id: str, timeout_s: float | None) -> Generator[RunEvent, None, None]:
        return self._follow(wanted.watch(run_id, timeout_s, settled_only=True))

    def _run(self, run_id: str) -> Run:
        return self._send(get_run(run_id))

    def _started(self, started: Started) -> RunHandle[Any]:
        return RunHandle(self, started.run_id, lambda output: ANY.decode(output, "result"), started)


class RunHandle(Generic[R]):
    """A run: to be waited for, and asked about."""

    def __init__(
        self,
        client: WorkflowCalls,
        run_id: str,
        decode: Callable[[Any], R],
        started: Started | None = None,
    ) -> None:
        self.run_id = run_id
        self.created = started is not None and started.created  # by this start, not found
        self._client = client
        self._decode = decode
        self._started = started

    def wait(self, timeout_s: float | None = None) -> Run:
        """Wait until the run ends, or is stuck; returns it without its operations.

        DeadlineExceeded after ``timeout_s``; the run goes on then.
        """
        last: Run | None = None
        try:
            with closing(self._client._settling(self.run_id, timeout_s)) as events:
                for event in events:
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

    def result(self, timeout_s: float | None = None) -> R:
        """The run's result, or its error raised; waits for its end."""
        if self._started is not None and is_settled(self._started.run):
            run = self._started.run
        else:
            run = self.wait(timeout_s)
        result: R = outcome_of(run, self._decode)
        return result

    def status(self) -> str:
        """The run's status now."""
        return (self._client._run(self.run_id)).status

    def operations(self) -> Sequence[Operation]:
        """What is recorded of it so far."""
        return (self._client._run(self.run_id)).operations

    def events(self, timeout_s: float | None = None) -> Generator[RunEvent, None, None]:
        """The run as it is, then its changes until it ends."""
        return self._client.watch(self.run_id, timeout_s)

    def cancel(self, reason: str | None = None, *, cascade: bool = False) -> list[str]:
        """Cancel it, and with ``cascade`` its descendants."""
        return self._client.cancel(self.run_id, reason, cascade=cascade)
