"""Requests about workflows: what the sync and the async client have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from uuid6 import uuid7

from ..authoring.codec import ValueProblem
from ..authoring.dynamic import ANY
from ..authoring.failures import rebuild_exception
from ..authoring.values import dumps, loads
from ..errors import BadArgument, WrongState
from ..proto.apiary.v1 import apiary_pb2 as pb
from .records import (
    Deployment,
    Operation,
    Progress,
    Queue,
    Run,
    RunEvent,
    Schedule,
    StartOptions,
    WorkflowInfo,
)
from .requests import (
    Request,
    document_of,
    duration_of,
    moment_of,
    operation_of,
    progress_of,
    run_of,
    timestamp_of,
)

__all__ = ["FINISHED", "Feed", "Started", "is_settled", "outcome_of"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
FINISHED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a start came to."""

    run_id: str
    created: bool  # false: the id, or the deduplication key, had a run already
    run: Run  # its status, and its outcome if it has ended; not its times


def _nothing(answer: Any) -> None:
    """An answer that says no more than that it was done."""


def is_settled(run: Run) -> bool:
    """Whether a run will not go on by itself: it has ended, or is stuck."""
    return run.status in FINISHED or run.status == "STUCK"


def outcome_of(run: Run, decode: Callable[[Any], Any]) -> Any:
    """The result of a settled run, or its error raised."""
    if run.status == "SUCCEEDED":
        return decode(run.output)
    if run.error is not None:
        raise rebuild_exception(run.error, lambda _module, _name: None)
    raise WrongState(
        f"run {run.run_id} is {run.status}: it was adopted too often",
        hint=f"apiary workflow why {run.run_id}; apiary workflow resume {run.run_id}",
        run_id=run.run_id,
    )


# Runs


def start(
    workflow: str,
    document: Mapping[str, Any],
    *,
    run_id: str | None,
    application: str | None,
    options: StartOptions,
) -> Request[Started]:
    """Start a run; the same id again finds it."""
    chosen = run_id if run_id is not None else str(uuid7())
    if not chosen:
        raise BadArgument("a run id has 1 to 255 characters, this one has 0", path="run_id")
    message = pb.StartRunRequest(
        application=application or "",
        workflow=workflow,
        input=dumps(document),
        run_id=chosen,
        queue=options.queue or "",
        priority=options.priority,
        queue_key=options.queue_key or "",
        deduplication=options.deduplication or "",
        start_at=timestamp_of(options.start_at, "start_at"),
        timeout=duration_of(options.timeout_s),
        deployment=options.deployment or "",
        executor_only=options.executor_only,
    )
    return Request("StartRun", message, _started, run_id=chosen, subject=workflow)


def restart(run_id: str, new_run_id: str | None, deployment: str | None) -> Request[Started]:
    """A new run with the same input."""
    message = pb.RestartRunRequest(
        run_id=run_id, new_run_id=new_run_id or str(uuid7()), deployment=deployment or ""
    )
    return Request("RestartRun", message, _started)


def fork(
    run_id: str,
    from_seq: int,
    new_run_id: str | None,
    deployment: str | None,
    replaced_output: Any,
    *,
    replace_output: bool,
) -> Request[Started]:
    """A new run that takes over the operations before ``from_seq``; an output is a document."""
    message = pb.ForkRunRequest(
        run_id=run_id,
        from_seq=from_seq,
        new_run_id=new_run_id or str(uuid7()),
        deployment=deployment or "",
        replaced_output=dumps(replaced_output) if replace_output else None,
    )
    return Request("ForkRun", message, _started)


def _started(answer: pb.StartRunResponse) -> Started:
    return Started(run_id=answer.run.run_id, created=answer.created, run=run_of(answer.run))


def cancel(run_id: str, reason: str | None, *, cascade: bool) -> Request[list[str]]:
    """Cancel a run; answers the ids that were cancelled."""
    message = pb.CancelRunRequest(run_id=run_id, reason=reason or "", cascade=cascade)
    return Request("CancelRun", message, lambda answer: list(answer.cancelled))


def resume(run_id: str, timeout_s: float | None) -> Request[Run]:
    """Let a run go on. Repeating it might resume what has failed again meanwhile."""
    message = pb.ResumeRunRequest(run_id=run_id, timeout=duration_of(timeout_s))
    return Request("ResumeRun", message, run_of, repeatable=False)


def delete(run_ids: Sequence[str], ended_before: datetime | None) -> Request[int]:
    """Delete ended runs."""
    message = pb.DeleteRunsRequest(
        run_ids=run_ids, ended_before=timestamp_of(ended_before, "ended_before")
    )
    return Request("DeleteRuns", message, lambda answer: int(answer.deleted))


def explain(run_id: str) -> Request[str]:
    """Why a run does not move."""
    return Request("ExplainRun", pb.GetRunRequest(run_id=run_id), lambda answer: str(answer.text))


def send(run_id: str, message: Any, topic: str, key: str | None) -> Request[None]:
    """Send a message, once."""
    try:
        document = ANY.encode(message, "message")
    except ValueProblem as problem:
        raise BadArgument(f"the message cannot travel: {problem}", path=problem.path) from None
    request = pb.SendRequest(
        run_id=run_id,
        topic=topic,
        message=dumps(document),
        idempotency_key=key or uuid4().hex,
    )
    return Request("Send", request, _nothing)


def get_event(run_id: str, key: str, timeout_s: float | None) -> Request[Any]:
    """The value of an event."""
    message = pb.GetEventRequest(run_id=run_id, key=key, timeout=duration_of(timeout_s))
    return Request(
        "GetEvent",
        message,
        lambda answer: ANY.decode(loads(answer.value), "event"),
        timeout_s=timeout_s,
    )


# Streams of answers, which may be cut and taken up again


class Feed(Protocol[T_co]):
    """A stream of answers: what to send, also to go on after a cut, and what each answer brings."""

    request: Request[Any]

    def take(self, answer: Any) -> T_co | None:
        """What an answer brings; None when that was seen before a cut."""


@dataclass(slots=True)
class EventFeed:
    """The changes of a run."""

    request: Request[Any]
    _seen: set[int] = field(default_factory=set)
    _status: str | None = None
    _progress: Progress | None = None

    def take(self, answer: pb.RunEvent) -> RunEvent | None:
        """One change, once."""
        change = answer.WhichOneof("change")
        if change == "run":
            if answer.run.status == self._status:
                return None
            self._status = answer.run.status
            return RunEvent(run=run_of(answer.run))
        if change == "operation":
            operation: Operation = operation_of(answer.operation)
            if operation.seq in self._seen:
                return None
            self._seen.add(operation.seq)
            return RunEvent(operation=operation)
        progress = progress_of(answer.progress)
        if progress == self._progress:
            return None
        self._progress = progress
        return RunEvent(progress=progress)


def watch(run_id: str, timeout_s: float | None, *, settled_only: bool = False) -> EventFeed:
    """The changes of a run until it ends; or only the run as it is, and as it settles."""
    message = pb.WatchRunRequest(run_id=run_id, settled_only=settled_only)
    return EventFeed(
        Request("WatchRun", message, lambda answer: answer, timeout_s=timeout_s, cut_in_time=True)
    )


@dataclass(slots=True)
class ValueFeed(Generic[T]):
    """The values of a stream."""

    request: Request[Any]

    def take(self, answer: pb.StreamValue) -> Any:
        """(offset, value)."""
        self.request.message.from_offset = answer.offset + 1
        return answer.offset, ANY.decode(loads(answer.value), "value")


def read_stream(run_id: str, key: str, from_offset: int, *, follow: bool) -> ValueFeed[Any]:
    """The values of a stream from an offset on."""
    message = pb.ReadStreamRequest(run_id=run_id, key=key, from_offset=from_offset, follow=follow)
    return ValueFeed(Request("ReadStream", message, lambda answer: answer))


# Workflows and deployments


def workflows(application: str | None) -> Request[list[WorkflowInfo]]:
    """The workflows that runs can be started of."""
    message = pb.ListWorkflowsRequest(application=application or "")
    return Request(
        "ListWorkflows", message, lambda answer: [_workflow(item) for item in answer.workflows]
    )


def explain_workflow(name: str, application: str | None) -> Request[WorkflowInfo]:
    """Where a workflow's runs take place, and why."""
    message = pb.ExplainWorkflowRequest(name=name, application=application or "")
    return Request("ExplainWorkflow", message, _workflow)


def _workflow(item: pb.WorkflowDescription) -> WorkflowInfo:
    return WorkflowInfo(
        application=item.application,
        name=item.name,
        deployment=item.deployment,
        doc=item.doc,
        signature=document_of(item.signature),
        in_database=item.in_database,
        reasons=tuple(item.reasons),
        file=item.file,
        line=item.line,
    )


def deployments(application: str | None) -> Request[list[Deployment]]:
    """Stored deployments, newest first."""
    message = pb.ListDeploymentsRequest(application=application or "")
    return Request(
        "ListDeployments",
        message,
        lambda answer: [_deployment(item) for item in answer.deployments],
    )


def _deployment(item: pb.Deployment) -> Deployment:
    return Deployment(
        id=item.id,
        application=item.application,
        current=item.current,
        created_at=moment_of(item.created_at),
        created_by=item.created_by,
        live_runs=item.live_runs,
    )


def remove_deployment(application: str, deployment: str) -> Request[None]:
    """Remove a deployment; repeated after a lost answer it would not find it."""
    message = pb.RemoveDeploymentRequest(application=application, deployment=deployment)
    return Request("RemoveDeployment", message, _nothing, repeatable=False)


# Queues


def put_queue(queue: Queue) -> Request[Queue]:
    """Make a queue, or replace its limits."""
    message = pb.Queue(
        name=queue.name,
        concurrency=queue.concurrency,
        executor_concurrency=queue.executor_concurrency,
        key_concurrency=queue.key_concurrency,
        rate_limit=queue.rate_limit,
        rate_period=duration_of(queue.rate_period_s),
        paused=queue.paused,
    )
    return Request("PutQueue", message, _queue)


def pause_queue(name: str, *, paused: bool) -> Request[Queue]:
    """Let a queue start no more runs, or go on."""
    return Request("PauseQueue", pb.PauseQueueRequest(name=name, paused=paused), _queue)


def queues() -> Request[list[Queue]]:
    """Every queue, with how full it is."""
    return Request(
        "ListQueues",
        pb.ListQueuesRequest(),
        lambda answer: [_queue(item) for item in answer.queues],
    )


def delete_queue(name: str) -> Request[None]:
    """Delete a queue that nothing is in."""
    message = pb.DeleteQueueRequest(name=name)
    return Request("DeleteQueue", message, _nothing, repeatable=False)


def _queue(item: pb.Queue) -> Queue:
    def limit(name: str) -> int | None:
        return getattr(item, name) if item.HasField(name) else None

    return Queue(
        name=item.name,
        concurrency=limit("concurrency"),
        executor_concurrency=limit("executor_concurrency"),
        key_concurrency=limit("key_concurrency"),
        rate_limit=limit("rate_limit"),
        rate_period_s=_seconds(item.rate_period) if item.HasField("rate_period") else None,
        paused=item.paused,
        waiting=item.waiting,
        active=item.active,
    )


# Schedules


def put_schedule(schedule: Schedule) -> Request[Schedule]:
    """Store a schedule, or replace the one of that name."""
    message = pb.Schedule(
        name=schedule.name,
        application=schedule.application or "",
        workflow=schedule.workflow,
        input=dumps(schedule.input),
        cron=schedule.cron or "",
        zone=schedule.zone,
        dst_policy=schedule.dst_policy,
        every=duration_of(schedule.every_s),
        anchor=timestamp_of(schedule.anchor, "anchor"),
        missed=schedule.missed,
        queue=schedule.queue or "",
        paused=schedule.paused,
    )
    return Request("PutSchedule", message, _schedule)


def pause_schedule(name: str, *, paused: bool) -> Request[Schedule]:
    """Let a schedule fire no more, or go on."""
    message = pb.PauseScheduleRequest(name=name, paused=paused)
    return Request("PauseSchedule", message, _schedule)


def schedules(fires: int) -> Request[list[Schedule]]:
    """Every schedule, with its next fires."""
    return Request(
        "ListSchedules",
        pb.ListSchedulesRequest(fires=fires),
        lambda answer: [_schedule(item) for item in answer.schedules],
    )


def delete_schedule(name: str) -> Request[None]:
    """Delete a schedule."""
    message = pb.DeleteScheduleRequest(name=name)
    return Request("DeleteSchedule", message, _nothing, repeatable=False)


def backfill(name: str, since: datetime, until: datetime) -> Request[list[str]]:
    """Start the runs of a past window's slots that have not fired; answers their ids."""
    message = pb.BackfillScheduleRequest(
        name=name, since=timestamp_of(since, "since"), until=timestamp_of(until, "until")
    )
    return Request("BackfillSchedule", message, lambda answer: list(answer.run_ids))


def _schedule(item: pb.Schedule) -> Schedule:
    return Schedule(
        name=item.name,
        workflow=item.workflow,
        input=document_of(item.input),
        application=item.application,
        cron=item.cron or None,
        zone=item.zone,
        dst_policy=item.dst_policy,
        every_s=_seconds(item.every) if item.HasField("every") else None,
        anchor=moment_of(item.anchor),
        missed=item.missed,
        queue=item.queue or None,
        paused=item.paused,
        next=tuple(moment_of(slot) for slot in item.next),
    )


def _seconds(duration: Duration) -> float:
    return float(duration.seconds + duration.nanos / 1e9)
