"""The service: one thin method per RPC. It checks the request, asks, and makes the answer."""

from __future__ import annotations

from ..engine.base import Invocation
from ..execution.ids import new_run_id
from ..execution.invoking import Invoker, raise_recorded_error
from ..proto.apiary.v1 import apiary_pb2, apiary_pb2_grpc
from .applications import Applications
from .calls import Call, Gate, Gated, unary
from .deployer import Deployer
from .messages import deployed_message, outcome_message
from .requests import checked_input, checked_name, seconds, shorter

__all__ = ["ApiaryService"]

_FUNCTION = "the name of a function, as in hotel.reserve"


class ApiaryService(Gated, apiary_pb2_grpc.ApiaryServicer):
    """apiary.v1.Apiary."""

    def __init__(
        self,
        gate: Gate,
        invoker: Invoker,
        applications: Applications,
        deployer: Deployer,
        *,
        max_payload_bytes: int,
    ) -> None:
        self.gate = gate
        self._invoker = invoker
        self._applications = applications
        self._deployer = deployer
        self._max_payload_bytes = max_payload_bytes

    @unary("deploy")
    async def Deploy(  # noqa: N802 - the RPC's name
        self, request: apiary_pb2.DeployRequest, call: Call
    ) -> apiary_pb2.DeployResponse:
        """Store a version of an application and let it serve new calls."""
        deployed = await self._deployer.deploy(
            request.bundle, principal=call.principal.name, check_only=request.check_only
        )
        return deployed_message(deployed)

    @unary("deploy")
    async def Rollback(  # noqa: N802
        self, request: apiary_pb2.RollbackRequest, call: Call
    ) -> apiary_pb2.DeployResponse:
        """Let the version before the current one serve again."""
        application = checked_name(
            request.application, "application", what="the name of an application"
        )
        return deployed_message(
            await self._deployer.rollback(application, principal=call.principal.name)
        )

    @unary("invoke")
    async def Invoke(  # noqa: N802
        self, request: apiary_pb2.InvokeRequest, call: Call
    ) -> apiary_pb2.InvokeResponse:
        """Run a function as one transaction, exactly once per run id."""
        run_id = request.run_id or new_run_id()
        call.name_run(run_id)
        function = checked_name(request.function, "function", what=_FUNCTION)
        timeout_s = seconds(request.timeout, "timeout") if request.HasField("timeout") else None
        invocation = Invocation(
            run_id=run_id,
            application=request.application or await self._applications.of(function),
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
