"""Workflows, queues, schedules and deployments as messages of the interface."""

from __future__ import annotations

from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from ..authoring.values import dumps
from ..engine.queues import QueueRow
from ..engine.runs import RunOutcome, StartRequest
from ..engine.workflows import DeploymentRow, WorkflowRow
from ..errors import BadArgument
from ..execution.checking_replay import ReplayReport
from ..execution.scheduling import ScheduleRow
from ..execution.watching import RunChange
from ..proto.apiary.v1 import apiary_pb2 as pb
from .messages import operation_message, progress_message, run_message, timestamp

__all__ = [
    "change_message",
    "deployment_message",
    "interval",
    "queue_message",
    "queue_of",
    "replay_message",
    "schedule_message",
    "started_message",
    "workflow_message",
]


def started_message(request: StartRequest, outcome: RunOutcome) -> pb.StartRunResponse:
    """The answer to a start: what is known without asking for the run again."""
    run = pb.Run(
        run_id=outcome.run_id,
        kind="workflow",
        status=outcome.status,
        output=dumps(outcome.output) if outcome.status == "SUCCEEDED" else "",
        error="" if outcome.error is None else dumps(outcome.error),
    )
    if outcome.run_id == request.run_id:  # not another one that does the same work
        run.name, run.application = request.workflow, request.application
        run.queue = request.queue or ""
    if outcome.created:
        run.deployment, run.principal = request.deployment, request.principal
        if request.deadline is not None:
            run.deadline.FromDatetime(request.deadline)
    return pb.StartRunResponse(run=run, created=outcome.created)


def change_message(change: RunChange) -> pb.RunEvent:
    """One change of a watched run."""
    if change.run is not None:
        run = run_message(change.run)
        run.ClearField("input")
        return pb.RunEvent(run=run)
    if change.operation is not None:
        return pb.RunEvent(operation=operation_message(change.operation))
    return pb.RunEvent(progress=progress_message(change.progress))


def workflow_message(row: WorkflowRow) -> pb.WorkflowDescription:
    """A workflow."""
    return pb.WorkflowDescription(
        application=row.application,
        name=row.name,
        deployment=row.deployment,
        doc=row.doc,
        signature=row.signature,
        in_database=row.in_database,
        reasons=row.reasons,
        file=row.file,
        line=row.line,
    )


def queue_of(message: pb.Queue) -> QueueRow:
    """The queue that a request describes."""

    def limit(name: str) -> int | None:
        return getattr(message, name) if message.HasField(name) else None

    return QueueRow(
        name=message.name,
        concurrency=limit("concurrency"),
        executor_concurrency=limit("executor_concurrency"),
        key_concurrency=limit("key_concurrency"),
        rate_limit=limit("rate_limit"),
        rate_period=interval(message.rate_period) if message.HasField("rate_period") else None,
        paused=message.paused,
    )


def queue_message(row: QueueRow) -> pb.Queue:
    """A queue, with how full it is."""
    return pb.Queue(
        name=row.name,
        concurrency=row.concurrency,
        executor_concurrency=row.executor_concurrency,
        key_concurrency=row.key_concurrency,
        rate_limit=row.rate_limit,
        rate_period=_duration(row.rate_period),
        paused=row.paused,
        waiting=row.waiting,
        active=row.active,
    )


def schedule_message(row: ScheduleRow, fires: int) -> pb.Schedule:
    """A schedule with its next ``fires`` slots; a paused one has none."""
    message = pb.Schedule(
        name=row.name,
        application=row.application,
        workflow=row.workflow,
        input=dumps(row.input),
        cron=row.cron or "",
        zone=row.zone,
        dst_policy=row.dst_policy,
        every=_duration(row.every),
        anchor=timestamp(row.anchor),
        missed=row.missed,
        queue=row.queue or "",
        paused=row.paused,
    )
    if not row.paused:
        for slot in row.next_fires(fires):
            message.next.add().FromDatetime(slot)
    return message


def deployment_message(row: DeploymentRow) -> pb.Deployment:
    """A deployment."""
    return pb.Deployment(
        id=row.id,
        application=row.application,
        current=row.current,
        created_at=timestamp(row.created_at),
        created_by=row.created_by,
        live_runs=row.live_runs,
    )


def replay_message(report: ReplayReport) -> pb.ReplayReport:
    """How unfinished runs would fare with new code."""
    return pb.ReplayReport(
        live_runs=report.live_runs,
        checked=report.checked,
        problems=[
            pb.ReplayProblem(
                run_id=problem.run_id,
                workflow=problem.workflow,
                reason=problem.reason,
                recorded=problem.recorded or "",
                now=problem.now or "",
            )
            for problem in report.problems
        ],
    )


def interval(duration: Duration) -> timedelta:
    """A length of time; BadArgument for one that is longer than any calendar."""
    try:
        return duration.ToTimedelta()
    except OverflowError as error:
        raise BadArgument(f"{duration.seconds} s is too long: {error}") from None


def _duration(length: timedelta | None) -> Duration | None:
    if length is None:
        return None
    duration = Duration()
    duration.FromTimedelta(length)
    return duration
