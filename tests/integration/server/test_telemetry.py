"""Spans and metrics, by the SDK's in-memory exporters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from apiary import Client, telemetry
from apiary.errors import ConfigurationError, FunctionError, NotFound
from apiary.server import ServerSettings
from apiary.telemetry import Attribute, Metric, Telemetry
from tests.integration.server.running import RunningServer


class Watched:
    """A server and a client that are observed, and what was seen."""

    def __init__(self, database_url: str) -> None:
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.telemetry = Telemetry(tracers, MeterProvider(metric_readers=[self.reader]))
        self.server = RunningServer(
            ServerSettings(address="127.0.0.1:0", database_url=database_url), self.telemetry
        )
        self.client = Client(self.server.address, telemetry=self.telemetry)

    def close(self) -> None:
        self.client.close()
        self.server.close()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: metric.data.data_points
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def watched(odd_database: str) -> Iterator[Watched]:
    watched = Watched(odd_database)
    yield watched
    watched.close()


def _call_spans(watched: Watched) -> tuple[ReadableSpan, ReadableSpan]:
    """The client's and the server's span of the last call."""
    found = {span.kind.name: span for span in watched.named("apiary.v1.Apiary/Invoke")}
    return found["CLIENT"], found["SERVER"]


def test_a_call_is_one_trace_from_the_client_to_the_function(watched: Watched) -> None:
    run_id = watched.client.invoke("odd.put", value=1).run_id
    client, server = _call_spans(watched)
    (function,) = watched.named("odd.put")
    assert client.parent is None
    assert server.parent is not None
    assert function.parent is not None
    assert server.parent.span_id == client.context.span_id
    assert function.parent.span_id == server.context.span_id
    assert function.context.trace_id == client.context.trace_id
    assert function.attributes is not None
    assert function.attributes[Attribute.FUNCTION] == "odd.put"
    assert function.attributes[Attribute.RUN_ID] == run_id
    assert function.attributes[Attribute.DEPLOYMENT] == watched.client.get_run(run_id).deployment


def test_the_record_keeps_the_trace(watched: Watched) -> None:
    run_id = watched.client.invoke("odd.put", value=1).run_id
    (function,) = watched.named("odd.put")
    expected = f"00-{function.context.trace_id:032x}-{function.context.span_id:016x}-"
    assert (watched.client.get_run(run_id).trace or "").startswith(expected)
    ((trace_id,),) = watched.client.query("SELECT trace_id FROM provenance.invocation")
    assert trace_id == f"{function.context.trace_id:032x}"


def test_a_server_that_is_not_observed_keeps_the_clients_trace(odd: Client) -> None:
    spans = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    with Client(odd.address, telemetry=Telemetry(tracers, MeterProvider())) as client:
        run_id = client.invoke("odd.put", value=1).run_id
    (call,) = spans.get_finished_spans()
    assert f"-{call.context.trace_id:032x}-{call.context.span_id:016x}-" in (
        odd.get_run(run_id).trace or ""
    )


def test_a_replayed_result_is_no_execution(watched: Watched) -> None:
    watched.client.call("odd.put", value=1, run_id="same")
    watched.spans.clear()
    assert watched.client.invoke("odd.put", value=1, run_id="same").replayed
    assert watched.named("odd.put") == []
    _, server = _call_spans(watched)
    assert server.attributes is not None
    assert server.attributes[Attribute.REPLAYED] is True


def test_failures_are_marked(watched: Watched) -> None:
    with pytest.raises(FunctionError):
        watched.client.call("odd.refuse", left=1)
    (function,) = watched.named("odd.refuse")
    client, server = _call_spans(watched)
    assert function.attributes is not None
    assert function.attributes[Attribute.ERROR_TYPE] == "Refused"
    for span in (client, server, function):
        assert span.status.status_code.name == "ERROR"
    assert server.attributes is not None
    assert server.attributes[Attribute.RPC_STATUS] == 9
    with pytest.raises(NotFound):
        watched.client.get_run("nothing")
    assert len(watched.named("apiary.v1.Apiary/GetRun")) == 2


def test_metrics_count_by_function(watched: Watched) -> None:
    for run_id in ("r0", "r1", "r2", "r0"):
        watched.client.call("odd.put", value=0, run_id=run_id)
    with pytest.raises(FunctionError):
        watched.client.call("odd.fail", message="no")
    found = watched.metrics()

    def total(metric: str, **labels: Any) -> int:
        wanted = {"faas.name": labels.pop("function"), **labels}
        return sum(
            point.value
            for point in found.get(metric, [])
            if wanted.items() <= dict(point.attributes).items()
        )

    assert total(Metric.STARTED, function="odd.put") == 4
    assert total(Metric.FINISHED, function="odd.put") == 4
    assert total(Metric.FINISHED, function="odd.put", **{Attribute.REPLAYED: True}) == 1
    assert total(Metric.FAILED, function="odd.put") == 0
    assert total(Metric.FAILED, function="odd.fail", **{Attribute.ERROR_TYPE: "ValueError"}) == 1
    (duration,) = [
        point
        for point in found[Metric.DURATION]
        if point.attributes[Attribute.FUNCTION] == "odd.put"
    ]
    assert duration.count == 3
    assert [point.value for point in found[Metric.POOL_WAITING]] == [0]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("TRACES_EXPORTER", "METRICS_EXPORTER", "EXPORTER_OTLP_ENDPOINT", "SDK_DISABLED"):
        monkeypatch.delenv(f"OTEL_{name}", raising=False)
    telemetry.from_environment.cache_clear()
    yield monkeypatch
    telemetry.from_environment.cache_clear()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_it_is_off_unless_asked_for(
    environment: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert telemetry.from_environment() is None


def test_the_environment_chooses_the_exporter(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_TRACES_EXPORTER", "console")
    assert telemetry.from_environment() is not None
    telemetry.from_environment.cache_clear()
    environment.setenv("OTEL_TRACES_EXPORTER", "nowhere")
    with pytest.raises(ConfigurationError, match="OTEL_TRACES_EXPORTER=nowhere"):
        telemetry.from_environment()


def test_when_off_it_is_not_even_imported() -> None:
    program = (
        "import sys; from apiary import Client; Client('127.0.0.1:1').close();"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
