"""An invoker whose invocations are seen: a span and metrics of each function that runs."""

from __future__ import annotations

from dataclasses import replace

from ..engine.base import Engine, Invocation, Outcome
from ..errors import ApiaryError
from ..execution.invoking import Invoker
from ..telemetry import Telemetry

__all__ = ["ObservedInvoker"]


class ObservedInvoker(Invoker):
    """`Invoker` with telemetry; the function's span is the trace that its record keeps."""

    def __init__(self, engine: Engine, telemetry: Telemetry) -> None:
        super().__init__(engine)
        self._telemetry = telemetry
        self.on_retry = lambda invocation: telemetry.retried(invocation.function)

    async def invoke(
        self, invocation: Invocation, *, fresh: bool, deadline_s: float | None = None
    ) -> Outcome:
        """As `Invoker.invoke`."""
        observed = self._telemetry.invoking(
            invocation.function, invocation.application, invocation.run_id, invocation.seq
        )
        try:
            outcome = await super().invoke(
                replace(invocation, trace=observed.traceparent or invocation.trace),
                fresh=fresh,
                deadline_s=deadline_s,
            )
        except ApiaryError as error:
            observed.failed(error.reason, error.message)
            raise
        except BaseException as error:
            observed.failed(type(error).__name__, "the caller went away")
            raise
        if outcome.replayed:
            observed.replayed()
        elif outcome.error is not None:
            observed.failed(outcome.error["type"], outcome.error["message"], outcome.deployment)
        else:
            observed.finished(outcome.deployment, outcome.xid)
        return outcome
