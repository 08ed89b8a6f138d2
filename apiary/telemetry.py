"""OpenTelemetry: spans from client through server to function, and metrics.

Off unless the standard environment asks for it (an OTEL_*_EXPORTER other than none, or an OTLP
endpoint); then it costs nothing, not even an import. `from_environment` sets the exporters up as
the variables say. A program with providers of its own passes `Telemetry(tracers, meters)`.

Names follow OpenTelemetry's conventions for FaaS and RPC, which are still in development: they are
all in `Attribute` and `Metric`, and nowhere else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from .errors import ApiaryError, ConfigurationError
from .proto.apiary.v1 import apiary_pb2

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["Attribute", "Metric", "Observed", "Telemetry", "from_environment"]

SCOPE = "apiary"
_OFF = ("", "none")


class Attribute:
    """Names of attributes."""

    FUNCTION: Final = "faas.name"
    DEPLOYMENT: Final = "faas.version"
    TRIGGER: Final = "faas.trigger"
    INVOCATION: Final = "faas.invocation_id"
    RPC_SYSTEM: Final = "rpc.system"
    RPC_SERVICE: Final = "rpc.service"
    RPC_METHOD: Final = "rpc.method"
    RPC_STATUS: Final = "rpc.grpc.status_code"
    ERROR_TYPE: Final = "error.type"
    APPLICATION: Final = "apiary.application"
    RUN_ID: Final = "apiary.run.id"
    SEQ: Final = "apiary.operation.seq"
    XID: Final = "apiary.xid"
    REPLAYED: Final = "apiary.replayed"


class Metric:
    """Names of metrics."""

    STARTED: Final = "apiary.invocations.started"
    FINISHED: Final = "apiary.invocations.finished"
    FAILED: Final = "apiary.invocations.failed"
    DURATION: Final = "apiary.invocation.duration"
    RETRIES: Final = "apiary.transaction.retries"
    POOL_WAITING: Final = "apiary.pool.waiting"


class Telemetry:
    """Spans and metrics by these providers; by the process's global ones when not given."""

    def __init__(
        self, tracers: TracerProvider | None = None, meters: MeterProvider | None = None
    ) -> None:
        from opentelemetry import metrics, trace  # noqa: PLC0415 - not imported when it is off
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = (tracers or trace.get_tracer_provider()).get_tracer(SCOPE)
        self._meter = meter = (meters or metrics.get_meter_provider()).get_meter(SCOPE)
        self._started = meter.create_counter(Metric.STARTED, description="by function")
        self._finished = meter.create_counter(Metric.FINISHED, description="failed ones included")
        self._failed = meter.create_counter(Metric.FAILED, description="by function and error")
        self._duration = meter.create_histogram(Metric.DURATION, unit="s")
        self._retries = meter.create_counter(Metric.RETRIES, description="after conflicts")

    def watch_pool(self, waiting: Callable[[], int]) -> None:
        """Report how many calls wait for a database connection."""
        from opentelemetry.metrics import Observation  # noqa: PLC0415

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            yield Observation(waiting())

        self._meter.create_observable_gauge(Metric.POOL_WAITING, [observe])

    def retried(self, function: str) -> None:
        """A transaction is tried again."""
        self._retries.add(1, {Attribute.FUNCTION: function})

    @contextmanager
    def calling(self, method: str, function: str | None) -> Iterator[tuple[tuple[str, str], ...]]:
        """A span of a client's call; gives the metadata that carries it to the server."""
        attributes = _rpc(method)
        if function is not None:
            attributes[Attribute.FUNCTION] = function
        with self._tracer.start_as_current_span(
            f"{_service(method)}/{method}",
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
        ) as span:
            try:
                yield tuple(self._carrier(span).items())
            except ApiaryError as error:
                span.set_attribute(Attribute.ERROR_TYPE, error.reason)
                raise

    @contextmanager
    def serving(self, method: str, sent: Mapping[str, str]) -> Iterator[Span]:
        """A span of a call being served, below the client's."""
        parent = self._propagator.extract(sent)
        with self._tracer.start_as_current_span(
            f"{_service(method)}/{method}",
            parent,
            kind=self._trace.SpanKind.SERVER,
            attributes=_rpc(method),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    def refused(self, span: Span, status_code: int, error: ApiaryError) -> None:
        """A served call ends with an error."""
        span.set_attribute(Attribute.RPC_STATUS, status_code)
        span.set_attribute(Attribute.ERROR_TYPE, error.reason)
        span.set_status(self._trace.StatusCode.ERROR, error.message)

    def invoking(self, function: str, application: str, run_id: str, seq: int) -> Observed:
        """A function is about to run: its span, and the trace to be kept with its record."""
        self._started.add(1, {Attribute.FUNCTION: function, Attribute.APPLICATION: application})
        span = self._tracer.start_span(
            function,
            attributes={
                Attribute.FUNCTION: function,
                Attribute.TRIGGER: "other",
                Attribute.INVOCATION: run_id,
                Attribute.APPLICATION: application,
                Attribute.RUN_ID: run_id,
                Attribute.SEQ: seq,
            },
        )
        return Observed(self, span, function, application)

    def _carrier(self, span: Span) -> dict[str, str]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        return carrier


class Observed:
    """One invocation that is being observed."""

    def __init__(self, telemetry: Telemetry, span: Span, function: str, application: str) -> None:
        self._telemetry = telemetry
        self._span = span
        self._labels = {Attribute.FUNCTION: function, Attribute.APPLICATION: application}
        self._began = time.perf_counter()
        self.traceparent = telemetry._carrier(span).get("traceparent")

    def replayed(self) -> None:
        """Nothing ran: no span of it is sent, and the call's span says so."""
        self._telemetry._trace.get_current_span().set_attribute(Attribute.REPLAYED, True)
        self._telemetry._finished.add(1, {**self._labels, Attribute.REPLAYED: True})

    def finished(self, deployment: str, xid: str | None) -> None:
        """It ran to its result."""
        self._end(deployment, xid)

    def failed(self, error_type: str, message: str, deployment: str | None = None) -> None:
        """It ended with an error, recorded or not."""
        self._span.set_attribute(Attribute.ERROR_TYPE, error_type)
        self._span.set_status(self._telemetry._trace.StatusCode.ERROR, message)
        self._telemetry._failed.add(1, {**self._labels, Attribute.ERROR_TYPE: error_type})
        self._end(deployment, None)

    def _end(self, deployment: str | None, xid: str | None) -> None:
        if deployment is not None:
            self._span.set_attribute(Attribute.DEPLOYMENT, deployment)
        if xid is not None:
            self._span.set_attribute(Attribute.XID, xid)
        self._span.end()
        self._telemetry._finished.add(1, {**self._labels, Attribute.REPLAYED: False})
        self._telemetry._duration.record(time.perf_counter() - self._began, self._labels)


def _service(method: str) -> str:
    """The full name of the service that has a method; their methods have different names."""
    return next(
        service.full_name
        for service in apiary_pb2.DESCRIPTOR.services_by_name.values()
        if method in service.methods_by_name
    )


def _rpc(method: str) -> dict[str, str]:
    return {
        Attribute.RPC_SYSTEM: "grpc",
        Attribute.RPC_SERVICE: _service(method),
        Attribute.RPC_METHOD: method,
    }


@cache
def from_environment() -> Telemetry | None:
    """What the OTEL_* variables of this process ask for; None when they ask for nothing.

    ConfigurationError when an exporter that they name is not installed.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    traces, metrics = _exporter("TRACES"), _exporter("METRICS")
    if traces in _OFF and metrics in _OFF:
        return None
    return Telemetry(_tracers(traces), _meters(metrics))


def _exporter(signal: str) -> str:
    """The name of a signal's exporter: otlp when there is an endpoint and nothing else is said."""
    chosen = os.environ.get(f"OTEL_{signal}_EXPORTER")
    if chosen is not None:
        return chosen.strip()
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return "otlp" if any(os.environ.get(name) for name in endpoints) else ""


def _tracers(exporter: str) -> TracerProvider:
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider()
    if exporter not in _OFF:
        provider.add_span_processor(BatchSpanProcessor(_load("traces", exporter)))
    return provider


def _meters(exporter: str) -> MeterProvider:
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    readers = []
    if exporter not in _OFF:
        readers.append(PeriodicExportingMetricReader(_load("metrics", exporter)))
    return MeterProvider(metric_readers=readers)


def _load(signal: str, name: str) -> Any:
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return found.load()()
    raise ConfigurationError(
        f"OTEL_{signal.upper()}_EXPORTER={name}: no such exporter is installed",
        hint="pip install 'apiary[otlp]' has otlp; console and none need nothing",
    )
