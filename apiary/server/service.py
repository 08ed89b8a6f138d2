"""The service: one thin method per RPC. It checks the request, asks, and makes the answer."""

# ruff: noqa: N802 - every method has one form, and the name of its RPC

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..engine.base import Invocation
from ..engine.catalogue import Catalogue, RunFilter
from ..engine.querying import Querying
from ..engine.trimming import LogTrimmer, Trimmed
from ..errors import BadArgument
from ..execution.ids import checked_run_id, new_run_id
from ..execution.invoking import Invoker, raise_recorded_error
from ..proto.apiary.v1 import apiary_pb2 as pb
from ..proto.apiary.v1 import apiary_pb2_grpc
from ..telemetry import Telemetry
from .applications import Applications
from .calls import Call, Gate, Gated, stream, unary
from .deployer import Deployer
from .messages import (
    batch_message,
    deployed_message,
    function_message,
    outcome_message,
    run_message,
    trimmed_message,
)
from .requests import (
    checked_input,
    checked_name,
    checked_page_size,
    seconds,
    shorter,
    time_of,
)
from .workflow_messages import replay_message

__all__ = ["ApiaryService"]

_APPLICATION = "the name of an application"
_FUNCTION = "the name of a function, as in hotel.reserve"


class ApiaryService(Gated, apiary_pb2_grpc.ApiaryServicer):
    """apiary.v1.Apiary."""

    def __init__(
        self,
        gate: Gate,
        invoker: Invoker,
        catalogue: Catalogue,
        querying: Querying,
        deployer: Deployer,
        trimmer: LogTrimmer,
        *,
        telemetry: Telemetry | None,
        max_payload_bytes: int,
        query_timeout_s: float,
    ) -> None:
        self.gate = gate
        self.telemetry = telemetry
        self._invoker = invoker
        self._catalogue = catalogue
        self._applications = Applications(catalogue)
        self._querying = querying
        self._deployer = deployer
        self._trimmer = trimmer
        self._query_timeout_s = query_timeout_s
        self._max_payload_bytes = max_payload_bytes

    @unary("deploy")
    async def Deploy(self, request: pb.DeployRequest, call: Call) -> pb.DeployResponse:
        """Store a version of an application and let it serve new calls."""
        principal = call.principal.name
        if not request.check_only:
            return deployed_message(
                await self._deployer.deploy(request.bundle, principal=principal)
            )
        deployed, report = await self._deployer.check(request.bundle, principal=principal)
        message = deployed_message(deployed)
        message.replay.CopyFrom(replay_message(report))
        return message

    @unary("deploy")
    async def Rollback(self, request: pb.RollbackRequest, call: Call) -> pb.DeployResponse:
        """Let the version before the current one serve again."""
        application = checked_name(request.application, "application", what=_APPLICATION)
        return deployed_message(
            await self._deployer.rollback(application, principal=call.principal.name)
        )

    @unary("invoke")
    async def Invoke(self, request: pb.InvokeRequest, call: Call) -> pb.InvokeResponse:
        """Run a function as one transaction, exactly once per run id."""
        run_id = checked_run_id(request.run_id) if request.run_id else new_run_id()
        call.name_run(run_id)
        function = checked_name(request.function, "function", what=_FUNCTION)
        application = checked_name(
            request.application, "application", what=_APPLICATION, optional=True
        )
        timeout_s = seconds(request.timeout, "timeout") if request.HasField("timeout") else None
        invocation = Invocation(
            run_id=run_id,
            application=application or await self._applications.of(function),
            function=function,
            input=checked_input(request.input, self._max_payload_bytes),
            principal=call.principal.name,
            trace=call.metadata("traceparent"),
        )
        outcome = await self._invoker.invoke(
            invocation,
            fresh=request.fresh or not request.run_id,
            deadline_s=shorter(call.deadline_s(), timeout_s),
        )
        raise_recorded_error(outcome)
        return outcome_message(run_id, outcome)

    @unary(None)
    async def ListFunctions(
        self, request: pb.ListFunctionsRequest, call: Call
    ) -> pb.ListFunctionsResponse:
        """The functions that serve now."""
        application = checked_name(
            request.application, "application", what=_APPLICATION, optional=True
        )
        rows = await self._catalogue.functions(application)
        return pb.ListFunctionsResponse(functions=[function_message(row) for row in rows])

    @unary(None)
    async def DescribeFunction(
        self, request: pb.DescribeFunctionRequest, call: Call
    ) -> pb.FunctionDescription:
        """One function that serves now."""
        name = checked_name(request.name, "name", what=_FUNCTION)
        application = checked_name(
            request.application, "application", what=_APPLICATION, optional=True
        )
        return function_message(await self._catalogue.function(name, application))

    @unary("query")
    async def GetRun(self, request: pb.GetRunRequest, call: Call) -> pb.Run:
        """One run with its operations and attempts."""
        return run_message(await self._catalogue.run(checked_run_id(request.run_id)))

    @unary("query")
    async def ListRuns(self, request: pb.ListRunsRequest, call: Call) -> pb.ListRunsResponse:
        """A page of runs, newest first."""
        page = await self._catalogue.runs(
            RunFilter(
                application=checked_name(
                    request.application, "application", what=_APPLICATION, optional=True
                ),
                kind=checked_name(request.kind, "kind", what="a kind", optional=True),
                name=checked_name(request.name, "name", what=_FUNCTION, optional=True),
                statuses=request.statuses,
                since=time_of(request.since, "since") if request.HasField("since") else None,
                until=time_of(request.until, "until") if request.HasField("until") else None,
                run_id_prefix=checked_name(
                    request.run_id_prefix, "run_id_prefix", what="part of an id", optional=True
                ),
            ),
            size=checked_page_size(request.page_size),
            token=request.page_token,
        )
        return pb.ListRunsResponse(
            runs=[run_message(run) for run in page.runs], next_page_token=page.next_token or ""
        )

    @stream("query")
    async def Query(
        self, request: pb.QueryRequest, call: Call
    ) -> AsyncGenerator[pb.QueryResponse, None]:
        """The rows of one read-only statement."""
        timeout_s = self._query_timeout_s
        if request.HasField("timeout"):
            timeout_s = seconds(request.timeout, "timeout")
        bounded_s = shorter(timeout_s, call.deadline_s()) or timeout_s
        async with aclosing(self._querying.stream(request.sql, bounded_s)) as batches:
            async for batch in batches:
                yield batch_message(batch)

    @stream("deploy")
    async def TrimLog(
        self, request: pb.TrimLogRequest, call: Call
    ) -> AsyncGenerator[pb.TrimLogResponse, None]:
        """What has gone of the old part of the log, as it goes; or what would go."""
        if request.HasField("before") == request.HasField("older_than"):
            raise BadArgument("give either before or older_than", path="before")
        timeout_s = seconds(request.timeout, "timeout") if request.HasField("timeout") else None
        if request.HasField("before"):
            before = await self._trimmer.time_past(time_of(request.before, "before"))
        else:
            age_s = seconds(request.older_than, "older_than")
            before = await self._trimmer.time_ago(age_s)
        yield trimmed_message(before, Trimmed())
        sums = self._trimmer.trim(
            before, delete=not request.dry_run, timeout_s=shorter(timeout_s, call.deadline_s())
        )
        async with aclosing(sums):
            async for so_far in sums:
                yield trimmed_message(before, so_far)
