"""A short run of the benchmark, of our own systems: they do the same, and it is written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiary.bench.catalogue import SYSTEMS, System
from apiary.bench.databases import Databases, measured_server
from apiary.bench.hosting import Direct
from apiary.bench.measuring import interleave
from apiary.bench.network import Network, round_trip_ms
from apiary.bench.report import write_report
from apiary.bench.results import Plan
from apiary.bench.running import measure
from apiary.bench.storing import store
from apiary.bench.systems.base import Adapter
from apiary.bench.systems.engine import Engine
from apiary.bench.systems.interactive import Interactive
from apiary.bench.systems.procedure import Procedure
from apiary.bench.workloads import WORKLOADS, Request, Scale
from apiary.local import PrivateCluster

SCALE = Scale().smaller(20)
# A measurement of nothing: what is durable is not what is tested here.
SETTINGS = {"fsync": "off", "max_connections": "100", "shared_buffers": "64MB"}


@pytest.fixture
def cluster(test_directory: Path) -> Iterator[PrivateCluster]:
    with measured_server(test_directory, SETTINGS) as running:
        yield running


def test_procedures_transactions_and_functions_do_the_same(cluster: PrivateCluster) -> None:
    systems = [SYSTEMS[name] for name in ("procedure", "procedure-python", "engine", "interactive")]
    databases = Databases(cluster, SCALE)
    databases.prepare(systems)
    adapters = (Procedure("floor"), Procedure("floor_python"), Engine(), Interactive())

    async def compare() -> None:
        running = {
            system.name: await Direct.start(adapter, cluster.url(system.database))
            for system, adapter in zip(systems, adapters, strict=True)
        }
        for workload in WORKLOADS.values():
            doing = {
                name: each for name, each in running.items() if SYSTEMS[name].supports(workload)
            }
            done = await interleave(
                doing,
                lambda number, workload=workload: workload.request(number, SCALE),
                first=0,
                seconds=0,
                at_least=12 if not workload.is_workflow else 2,
                warm_up=0,
            )
            assert not done.mismatches
            assert not done.failed
            left = {databases.effects(SYSTEMS[name], workload) for name in doing}
            assert len(left) == 1, workload.name
        for each in running.values():
            await each.close()

    asyncio.run(compare())


def test_a_distance_of_nothing_is_the_same_everywhere(cluster: PrivateCluster) -> None:
    systems = [SYSTEMS[name] for name in ("procedure", "engine", "interactive")]
    Databases(cluster, SCALE).prepare(systems)
    here = Request(target="hotel.search", arguments={"longitude": 0.0, "latitude": 0.0})

    async def found(adapter: Adapter, system: System) -> str:
        running = await Direct.start(adapter, cluster.url(system.database))
        try:
            return json.dumps(await running.call(here), sort_keys=True)
        finally:
            await running.close()

    adapters = (Procedure("floor"), Engine(), Interactive())
    answers = {asyncio.run(found(*each)) for each in zip(adapters, systems, strict=True)}
    assert len(answers) == 1
    assert '"distance_km": 0.0,' in answers.pop()  # there is a hotel


def test_a_run_is_measured_checked_stored_and_reported(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    plan = Plan(
        systems=("procedure", "engine", "grpc", "interactive"),
        workloads=("increment", "workflow-5"),
        rtts_ms=(0.0, 0.5),
        repetitions=1,
        budget_s=1.0,
        clients=(1, 4),
        scale=SCALE,
        idle_s=0.1,
        warm_up_s=0.1,
        settle_s=0.0,
    )
    said: list[str] = []
    results = measure(cluster, plan, said.append)

    assert results.equal, results.failures or [c for c in results.checks if not c["equal"]]
    measured = {(each["system"], each["workload"], each["rtt_ms"]) for each in results.latencies}
    assert measured == {
        (system, workload, rtt)
        for system in plan.systems
        for workload in plan.workloads
        for rtt in plan.rtts_ms
    }
    costs = {(each["system"], each["workload"]): each for each in results.costs}
    assert costs["engine", "increment"]["statements"] == 1
    assert costs["interactive", "increment"]["statements"] == 4
    assert costs["interactive", "workflow-5"]["statements"] == 30
    assert costs["procedure", "workflow-5"]["commits"] == 5
    assert len(results.throughputs) == 16
    assert len(results.open_loops) == 16

    document: dict[str, Any] = json.loads(json.dumps(results.document()))
    url = cluster.url(SYSTEMS["engine"].database)
    asyncio.run(store(Engine(), url, document))
    kept = asyncio.run(_stored(url, document["result_id"]))
    assert kept["throughputs"] == document["throughputs"]

    report = write_report(document, [], tmp_path)
    assert "| Apiary in the database, over gRPC |" in report
    assert "## Where others are faster" in report
    assert f"{len(results.checks)} of {len(results.checks)} blocks" in report


def test_the_proxy_delays_a_round_trip(cluster: PrivateCluster) -> None:
    async def trips() -> tuple[float, float]:
        network = await Network.start(cluster.port)
        try:
            await network.set_rtt(5)
            five = await round_trip_ms(network.url(cluster.url()))
            await network.set_rtt(0)
            return five, await round_trip_ms(network.url(cluster.url()))
        finally:
            await network.close()

    five_ms, none_ms = asyncio.run(trips())
    assert five_ms >= 5
    assert none_ms > 0


async def _stored(url: str, result_id: str) -> Any:
    engine = await Direct.start(Engine(), url)
    try:
        asked = Request(target="bench.stored", arguments={"result_id": result_id})
        return await engine.call(asked)
    finally:
        await engine.close()
