"""The service of workflows: one thin method per RPC, in the manner of `service`."""

# ruff: noqa: N802 - every method has one form, and the name of its RPC

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ..engine.catalogue import Catalogue
from ..engine.queues import QueueStore
from ..engine.runs import RunStore
from ..engine.workflows import WorkflowCatalogue
from ..errors import BadArgument, NotFound, WrongState
from ..execution.explaining import Explainer
from ..execution.ids import checked_run_id, new_run_id
from ..execution.scheduling import Scheduler
from ..execution.starting import RunOptions, Starter
from ..execution.watching import Watcher
from ..proto.apiary.v1 import apiary_pb2 as pb
from ..proto.apiary.v1 import apiary_pb2_grpc
from ..telemetry import Telemetry
from .calls import Call, Gate, Gated, stream, unary
from .deployer import Deployer
from .messages import run_message
from .requests import (
    checked_document,
    checked_name,
    optional_name,
    optional_run_id,
    seconds,
    shorter,
    time_of,
)
from .running import StartingRuns
from .workflow_messages import (
    change_message,
    deployment_message,
    interval,
    queue_message,
    queue_of,
    schedule_message,
    started_message,
    workflow_message,
)

__all__ = ["Parts", "WorkflowsService"]

_APPLICATION = "the name of an application"
_WORKFLOW = "the name of a workflow, as in trips.book"
_MAX_FIRES = 1000
_DELETED_AT_ONCE = 100  # runs that are looked up for deleting


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the service asks."""

    store: RunStore
    starter: Starter
    starting: StartingRuns
    catalogue: Catalogue
    workflows: WorkflowCatalogue
    queues: QueueStore
    scheduler: Scheduler
    watcher: Watcher
    explainer: Explainer
    deployer: Deployer


class WorkflowsService(Gated, apiary_pb2_grpc.WorkflowsServicer):
    """apiary.v1.Workflows."""

    def __init__(
        self, gate: Gate, parts: Parts, *, telemetry: Telemetry | None, max_payload_bytes: int
    ) -> None:
        self.gate = gate
        self.telemetry = telemetry
        self._parts = parts
        self._max_payload_bytes = max_payload_bytes

    # Runs.

    @unary("invoke")
    async def StartRun(self, request: pb.StartRunRequest, call: Call) -> pb.StartRunResponse:
        """Start a run; one that lives in the database has ended when this answers."""
        run_id = optional_run_id(request.run_id) or new_run_id()
        call.name_run(run_id)
        workflow = checked_name(request.workflow, "workflow", what=_WORKFLOW)
        options = RunOptions(
            run_id=run_id,
            queue=optional_name(request.queue, "queue"),
            priority=request.priority,
            queue_key=optional_name(request.queue_key, "queue_key"),
            deduplication=optional_name(request.deduplication, "deduplication"),
            start_at=time_of(request.start_at, "start_at")
            if request.HasField("start_at")
            else None,
            timeout_s=seconds(request.timeout, "timeout") if request.HasField("timeout") else None,
            deployment=optional_name(request.deployment, "deployment"),
            executor_only=request.executor_only,
            trace=call.metadata("traceparent"),
        )
        document = checked_document(request.input, self._max_payload_bytes)
        application = await self._application(request.application, workflow)
        return await self._start(application, workflow, document, call, options)

    @stream("invoke")
    async def WatchRun(
        self, request: pb.WatchRunRequest, call: Call
    ) -> AsyncGenerator[pb.RunEvent, None]:
        """The run as it is, then its changes until it ends; or only what it comes to."""
        run_id = checked_run_id(request.run_id)
        watcher = self._parts.watcher
        watched = watcher.settled(run_id) if request.settled_only else watcher.changes(run_id)
        async with aclosing(watched) as changes:
            async for change in changes:
                yield change_message(change)

    @unary("invoke")
    async def CancelRun(self, request: pb.CancelRunRequest, call: Call) -> pb.CancelRunResponse:
        """Cancel a run, and with ``cascade`` its descendants."""
        cancelled = await self._parts.store.cancel(
            checked_run_id(request.run_id),
            optional_name(request.reason, "reason"),
            cascade=request.cascade,
        )
        return pb.CancelRunResponse(cancelled=cancelled)

    @unary("invoke")
    async def ResumeRun(self, request: pb.ResumeRunRequest, call: Call) -> pb.Run:
        """Let a run that ended without success, or is stuck, go on."""
        run_id = checked_run_id(request.run_id)
        deadline = None
        if request.HasField("timeout"):
            deadline = datetime.now(UTC) + timedelta(seconds=seconds(request.timeout, "timeout"))
        resumed = await self._parts.store.resume(run_id, deadline)
        run = await self._parts.catalogue.run_alone(run_id)
        if not resumed:
            raise WrongState(
                f"run {run_id} is {run.status}: only one that is STUCK, FAILED, CANCELLED or"
                " TIMED_OUT can be resumed",
                hint=f"apiary workflow why {run_id}",
                run_id=run_id,
                status=run.status,
            )
        return run_message(run)

    @unary("invoke")
    async def RestartRun(self, request: pb.RestartRunRequest, call: Call) -> pb.StartRunResponse:
        """A new run with the same input, from the beginning."""
        before = await self._parts.store.started_as(checked_run_id(request.run_id))
        options = RunOptions(
            run_id=optional_run_id(request.new_run_id, "new_run_id"),
            queue=before.queue,
            priority=before.priority,
            queue_key=before.queue_key,
            deployment=optional_name(request.deployment, "deployment"),
            trace=call.metadata("traceparent"),
        )
        return await self._start(before.application, before.workflow, before.input, call, options)

    @unary("invoke")
    async def ForkRun(self, request: pb.ForkRunRequest, call: Call) -> pb.StartRunResponse:
        """A new run that takes over the operations before ``from_seq``."""
        if request.from_seq < 1:
            raise BadArgument(
                f"from_seq is {request.from_seq}; expected the number of an operation, from 1",
                path="from_seq",
            )
        replaced = None
        if request.HasField("replaced_output"):
            replaced = checked_document(
                request.replaced_output, self._max_payload_bytes, "replaced_output"
            )
        new_id = optional_run_id(request.new_run_id, "new_run_id") or new_run_id()
        known = await self._parts.store.status([new_id])
        await self._parts.store.fork(
            checked_run_id(request.run_id),
            request.from_seq,
            new_id,
            call.principal.name,
            deployment=await self._deployment(request.deployment),
            replaced_output=replaced,
            replace_output=request.HasField("replaced_output"),
        )
        run = await self._parts.catalogue.run_alone(new_id)
        return pb.StartRunResponse(run=run_message(run), created=new_id not in known)

    @unary("deploy")
    async def DeleteRuns(self, request: pb.DeleteRunsRequest, call: Call) -> pb.DeleteRunsResponse:
        """Delete ended runs and all that belongs to them, in batches."""
        if request.HasField("ended_before") == bool(request.run_ids):
            raise BadArgument("give either run_ids or ended_before", path="run_ids")
        store = self._parts.store
        if request.run_ids:
            ids = [checked_run_id(run_id) for run_id in request.run_ids]
            known = await store.status(ids)
            for run_id in known:
                await store.delete(run_id)
            return pb.DeleteRunsResponse(deleted=len(known))
        before = time_of(request.ended_before, "ended_before")
        deleted = 0
        while expired := await store.expired(before, _DELETED_AT_ONCE):
            for run_id in expired:
                await store.delete(run_id)
            deleted += len(expired)
        return pb.DeleteRunsResponse(deleted=deleted)

    @unary("invoke")
    async def ExplainRun(self, request: pb.GetRunRequest, call: Call) -> pb.Explanation:
        """One sentence on why a run does not move."""
        return pb.Explanation(text=await self._parts.explainer.why(checked_run_id(request.run_id)))

    # Talking with runs.

    @unary("invoke")
    async def Send(self, request: pb.SendRequest, call: Call) -> pb.SendResponse:
        """Send a message to a run; a repeated key changes nothing."""
        message = checked_document(request.message, self._max_payload_bytes, "message")
        topic = checked_name(request.topic, "topic", what="a topic", optional=True)
        key = optional_name(request.idempotency_key, "idempotency_key")
        await self._parts.store.send(checked_run_id(request.run_id), topic, message, key)
        return pb.SendResponse()

    @unary("invoke")
    async def GetEvent(self, request: pb.GetEventRequest, call: Call) -> pb.GetEventResponse:
        """The value that a run published under a key."""
        timeout_s = seconds(request.timeout, "timeout") if request.HasField("timeout") else None
        if timeout_s is not None:
            timeout_s = shorter(timeout_s, call.deadline_s())
        value = await self._parts.watcher.event(
            checked_run_id(request.run_id),
            checked_name(request.key, "key", what="the key of an event"),
            timeout_s,
        )
        return pb.GetEventResponse(value=value)

    @stream("invoke")
    async def ReadStream(
        self, request: pb.ReadStreamRequest, call: Call
    ) -> AsyncGenerator[pb.StreamValue, None]:
        """The values of a stream from an offset on."""
        if request.from_offset < 0:
            raise BadArgument(f"from_offset is {request.from_offset}", path="from_offset")
        values = self._parts.watcher.stream(
            checked_run_id(request.run_id),
            checked_name(request.key, "key", what="the key of a stream"),
            request.from_offset,
            follow=request.follow,
        )
        async with aclosing(values):
            async for offset, value in values:
                yield pb.StreamValue(offset=offset, value=value)

    # Workflows and deployments.

    @unary(None)
    async def ListWorkflows(
        self, request: pb.ListWorkflowsRequest, call: Call
    ) -> pb.ListWorkflowsResponse:
        """The workflows that runs can be started of."""
        application = optional_name(request.application, "application")
        rows = await self._parts.workflows.workflows(application)
        return pb.ListWorkflowsResponse(workflows=[workflow_message(row) for row in rows])

    @unary(None)
    async def ExplainWorkflow(
        self, request: pb.ExplainWorkflowRequest, call: Call
    ) -> pb.WorkflowDescription:
        """Where a workflow's runs take place, and why."""
        name = checked_name(request.name, "name", what=_WORKFLOW)
        application = optional_name(request.application, "application")
        return workflow_message(await self._parts.workflows.workflow(name, application))

    @unary("query")
    async def ListDeployments(
        self, request: pb.ListDeploymentsRequest, call: Call
    ) -> pb.ListDeploymentsResponse:
        """Stored deployments with the runs that still need them."""
        application = optional_name(request.application, "application")
        rows = await self._parts.workflows.deployments(application)
        return pb.ListDeploymentsResponse(deployments=[deployment_message(row) for row in rows])

    @unary("deploy")
    async def RemoveDeployment(
        self, request: pb.RemoveDeploymentRequest, call: Call
    ) -> pb.RemoveDeploymentResponse:
        """Remove a deployment that nothing needs."""
        await self._parts.deployer.remove(
            checked_name(request.application, "application", what=_APPLICATION),
            checked_name(request.deployment, "deployment", what="the id of a deployment"),
        )
        return pb.RemoveDeploymentResponse()

    # Queues.

    @unary("deploy")
    async def PutQueue(self, request: pb.Queue, call: Call) -> pb.Queue:
        """Make a queue, or replace its limits."""
        return queue_message(await self._parts.queues.put(queue_of(request)))

    @unary("deploy")
    async def PauseQueue(self, request: pb.PauseQueueRequest, call: Call) -> pb.Queue:
        """Let a queue start no more runs, or go on."""
        name = checked_name(request.name, "name", what="the name of a queue")
        return queue_message(await self._parts.queues.pause(name, paused=request.paused))

    @unary("query")
    async def ListQueues(self, request: pb.ListQueuesRequest, call: Call) -> pb.ListQueuesResponse:
        """Every queue, with how full it is."""
        rows = await self._parts.queues.all()
        return pb.ListQueuesResponse(queues=[queue_message(row) for row in rows])

    @unary("deploy")
    async def DeleteQueue(
        self, request: pb.DeleteQueueRequest, call: Call
    ) -> pb.DeleteQueueResponse:
        """Delete a queue that nothing is in."""
        name = checked_name(request.name, "name", what="the name of a queue")
        await self._parts.queues.delete(name)
        return pb.DeleteQueueResponse()

    # Schedules.

    @unary("invoke")
    async def PutSchedule(self, request: pb.Schedule, call: Call) -> pb.Schedule:
        """Store a schedule, or replace the one of that name."""
        workflow = checked_name(request.workflow, "workflow", what=_WORKFLOW)
        anchor = time_of(request.anchor, "anchor") if request.HasField("anchor") else None
        row = await self._parts.scheduler.put(
            name=checked_name(request.name, "name", what="the name of a schedule"),
            application=await self._application(request.application, workflow),
            workflow=workflow,
            document=checked_document(request.input, self._max_payload_bytes),
            principal=call.principal.name,
            cron=optional_name(request.cron, "cron"),
            zone=optional_name(request.zone, "zone") or "UTC",
            dst_policy=optional_name(request.dst_policy, "dst_policy") or "once",
            every=interval(request.every) if request.HasField("every") else None,
            anchor=anchor,
            missed_policy=optional_name(request.missed, "missed") or "one",
            queue=optional_name(request.queue, "queue"),
            paused=request.paused,
        )
        return schedule_message(row, 1)

    @unary("invoke")
    async def PauseSchedule(self, request: pb.PauseScheduleRequest, call: Call) -> pb.Schedule:
        """Let a schedule fire no more, or go on."""
        name = checked_name(request.name, "name", what="the name of a schedule")
        row = await self._parts.scheduler.pause(name, paused=request.paused)
        return schedule_message(row, 1)

    @unary("query")
    async def ListSchedules(
        self, request: pb.ListSchedulesRequest, call: Call
    ) -> pb.ListSchedulesResponse:
        """Every schedule, with its next fires."""
        if not 0 <= request.fires <= _MAX_FIRES:
            raise BadArgument(
                f"fires is {request.fires}; expected 1 to {_MAX_FIRES}, or 0 for 1", path="fires"
            )
        rows = await self._parts.scheduler.all()
        return pb.ListSchedulesResponse(
            schedules=[schedule_message(row, request.fires or 1) for row in rows]
        )

    @unary("invoke")
    async def DeleteSchedule(
        self, request: pb.DeleteScheduleRequest, call: Call
    ) -> pb.DeleteScheduleResponse:
        """Delete a schedule; the runs that it has started stay."""
        name = checked_name(request.name, "name", what="the name of a schedule")
        await self._parts.scheduler.delete(name)
        return pb.DeleteScheduleResponse()

    @unary("invoke")
    async def BackfillSchedule(
        self, request: pb.BackfillScheduleRequest, call: Call
    ) -> pb.BackfillScheduleResponse:
        """Start runs for the slots of a past window that have not fired."""
        run_ids = await self._parts.scheduler.backfill(
            checked_name(request.name, "name", what="the name of a schedule"),
            time_of(request.since, "since"),
            time_of(request.until, "until"),
        )
        return pb.BackfillScheduleResponse(run_ids=run_ids)

    async def _start(
        self,
        application: str,
        workflow: str,
        document: dict[str, object],
        call: Call,
        options: RunOptions,
    ) -> pb.StartRunResponse:
        starter, start = self._parts.starter, self._parts.starting.start
        try:
            request, outcome = await starter.start_new(
                application, workflow, document, call.principal.name, options, start
            )
        except NotFound as error:
            if error.metadata.get("kind") == "workflow" and options.deployment is None:
                await self._parts.workflows.workflow(workflow, application)  # tells the nearest
            raise
        return started_message(request, outcome)

    async def _application(self, given: str, workflow: str) -> str:
        named = optional_name(given, "application")
        return named or (await self._parts.workflows.workflow(workflow)).application

    async def _deployment(self, given: str) -> str | None:
        """A deployment that is named; NotFound unless it is stored."""
        wanted = optional_name(given, "deployment")
        if wanted is not None:
            await self._parts.starter.require_deployment(wanted)
        return wanted
