"""A whole run: prepare, measure each thing in turn, check that all did the same, store the result.

Time is shared out so that a run takes about its budget: half of it to interleaved latencies at all
round-trip times, the rest to throughput, open loops and costs. Preparing comes on top.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from ..errors import ApiaryError
from ..local import PrivateCluster
from .catalogue import SYSTEMS, System
from .counting import Counters, Watch
from .databases import Databases, sync_ms
from .hosting import Running, SystemFailed
from .measuring import ask, closed_loop, interleave, open_loop
from .network import Network, round_trip_ms
from .results import Plan, Results, describe_machine, started_now
from .workloads import WORKLOADS, Request, Workload

__all__ = ["measure"]

_LATENCY, _THROUGHPUT, _OPEN, _COSTS = 0.5, 0.25, 0.1, 0.15  # shares of the budget
_CURVES = ("increment", "reserve", "workflow-5")  # whose throughput is looked at
_OPEN_AT = (0.5, 0.8)  # of a system's own best throughput
_FLUSHED = "workflow-5"
_FLUSHES_REQUESTS = 40
_PROXIED = "a delaying TCP proxy (asyncio; select() with 1 us timer slack)"
Say = Callable[[str], None]


def measure(cluster: PrivateCluster, plan: Plan, say: Say, command: str = "") -> Results:
    """Measure everything of a plan on a server that is otherwise unused."""
    started_at, result_id = started_now()
    results = Results(
        result_id=result_id,
        plan=plan,
        machine=describe_machine(sync_ms(cluster.directory), _postgres(cluster)),
        command=command,
        started_at=started_at,
    )
    began = time.monotonic()
    asyncio.run(_Run(cluster, plan, results, say).everything())
    results.seconds = round(time.monotonic() - began, 1)
    return results


def _postgres(cluster: PrivateCluster) -> dict[str, str]:
    names = ("server_version", "fsync", "synchronous_commit", "wal_sync_method",
             "full_page_writes", "shared_buffers", "max_wal_size")  # fmt: skip
    with psycopg.connect(cluster.url()) as connection:
        rows = connection.execute(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)",
            [list(names)],
        )
        return dict(rows.fetchall())


class _Run:
    def __init__(self, cluster: PrivateCluster, plan: Plan, results: Results, say: Say) -> None:
        self._cluster = cluster
        self._plan = plan
        self._results = results
        self._say = say
        self._systems = [SYSTEMS[name] for name in plan.systems]
        self._workloads = [WORKLOADS[name] for name in plan.workloads]
        self._databases = Databases(cluster, plan.scale)
        self._numbers = dict.fromkeys(WORKLOADS, 0)  # of the next interleaved request
        # Requests beside the interleaved ones: from a range of their own, for each system.
        self._others = {
            (system, name): itertools.count(1_000_000)
            for system in plan.systems
            for name in WORKLOADS
        }
        self._watch = Watch()

    async def everything(self) -> None:
        """The whole plan."""
        self._say("preparing the databases")
        await asyncio.to_thread(self._databases.prepare, self._systems)
        near = [rtt for rtt in self._plan.rtts_ms if rtt == 0]
        far = [rtt for rtt in self._plan.rtts_ms if rtt > 0]
        if far:
            await self._far(far)
        async with self._running(lambda url: url) as running:
            if near:
                await self._latencies(running, [0.0], None)
            await self._costs(running)
            await self._throughputs(running)
            await self._open_loops(running)
            await self._count_flushes(running)
        self._results.loads = self._watch.loads

    async def _far(self, rtts_ms: Sequence[float]) -> None:
        network = await Network.start(self._cluster.port)
        self._results.network = _PROXIED
        try:
            async with self._running(network.url) as running:
                await self._latencies(running, rtts_ms, network)
        finally:
            await network.close()

    # Starting.

    @asynccontextmanager
    async def _running(self, way: Callable[[str], str]) -> AsyncIterator[dict[str, Running]]:
        running: dict[str, Running] = {}
        try:
            self._say(f"starting {', '.join(system.name for system in self._systems)}")
            await self._start_all(way, running)
            yield running
        finally:
            for name in list(running):
                await running.pop(name).close()

    async def _start_all(self, way: Callable[[str], str], running: dict[str, Running]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for system in self._systems:
                    group.create_task(self._start(system, way, running))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def _start(
        self, system: System, way: Callable[[str], str], running: dict[str, Running]
    ) -> None:
        running[system.name] = await system.start(way(self._cluster.url(system.database)))
        self._say(f"{system.name} runs")

    def _doing(self, running: dict[str, Running], workload: Workload) -> dict[str, Running]:
        return {
            name: system
            for name, system in running.items()
            if SYSTEMS[name].supports(workload)
            and not any(
                failure["system"] == name and failure["workload"] == workload.name
                for failure in self._results.failures
            )
        }

    # Latencies.

    async def _latencies(
        self, running: dict[str, Running], rtts_ms: Sequence[float], network: Network | None
    ) -> None:
        blocks = len(self._workloads) * len(self._plan.rtts_ms) * self._plan.repetitions
        seconds = self._plan.budget_s * _LATENCY / blocks
        for workload in self._workloads:  # every connection has met every statement
            await self._block(running, workload, 0.0, None, rtts_ms[0])
        for repetition in range(self._plan.repetitions):
            for rtt_ms in random.sample(list(rtts_ms), len(rtts_ms)):
                url = self._cluster.url("postgres")
                if network is not None:
                    await network.set_rtt(rtt_ms)
                    url = network.url(url)
                self._say(f"latencies: repetition {repetition + 1}, {rtt_ms:g} ms")
                self._results.round_trips.append(
                    {"rtt_ms": rtt_ms, "measured_ms": round(await round_trip_ms(url), 3)}
                )
                for workload in random.sample(self._workloads, len(self._workloads)):
                    await self._block(running, workload, seconds, repetition, rtt_ms)

    async def _block(
        self,
        running: dict[str, Running],
        workload: Workload,
        seconds: float,
        repetition: int | None,
        rtt_ms: float,
    ) -> None:
        doing = self._doing(running, workload)
        done = await interleave(
            doing,
            lambda number: workload.request(number, self._plan.scale),
            first=self._numbers[workload.name],
            seconds=seconds,
            at_least=self._plan.at_least if repetition is not None else 0,
            warm_up=0 if repetition is not None else self._plan.warm_up,
        )
        self._numbers[workload.name] += done.rounds
        for name, message in done.failed.items():
            self._fail(name, workload, message)
        where = {"workload": workload.name, "rtt_ms": rtt_ms, "repetition": repetition}
        if repetition is not None:
            for name, block in done.blocks.items():
                if name not in done.failed:
                    record = self._results.latency({"system": name, **where}, block.latency())
                    self._results.latencies.append(record)
        await self._check(set(doing) - set(done.failed), workload, where, done.mismatches)
        self._watch.look()

    async def _check(
        self,
        names: set[str],
        workload: Workload,
        where: dict[str, Any],
        mismatches: Sequence[str],
    ) -> None:
        left = {
            name: await asyncio.to_thread(self._databases.effects, SYSTEMS[name], workload)
            for name in sorted(names)
        }
        self._results.checks.append(
            {
                **where,
                "equal": not mismatches and len(set(left.values())) <= 1,
                "mismatches": list(mismatches),
                "effects": {name: list(effects) for name, effects in left.items()},
            }
        )

    def _fail(self, system: str, workload: Workload, message: str) -> None:
        self._say(f"{system} failed at {workload.name}: {message[:200]}")
        self._results.failures.append(
            {"system": system, "workload": workload.name, "message": message[:500]}
        )

    # Throughput, open loops.

    def _call(self, name: str, workload: Workload) -> Callable[[], Request]:
        numbers = self._others[name, workload.name]
        return lambda: workload.request(next(numbers), self._plan.scale)

    async def _throughputs(self, running: dict[str, Running]) -> None:
        cells = [
            (name, workload, clients)
            for workload in self._workloads
            if workload.name in _CURVES
            for name in self._doing(running, workload)
            if not SYSTEMS[name].is_variant
            for clients in self._plan.clients
        ]
        if not cells:
            return
        self._say(f"throughput: {len(cells)} cells")
        for system, asked in sorted({(name, workload.name) for name, workload, _ in cells}):
            await self._warm_up(running[system], system, WORKLOADS[asked])
        seconds = self._plan.budget_s * _THROUGHPUT / len(cells)
        for name, workload, clients in random.sample(cells, len(cells)):
            block = await closed_loop(
                running[name], self._call(name, workload), clients=clients, seconds=seconds
            )
            where = {"system": name, "workload": workload.name, "clients": clients}
            self._results.throughputs.append(self._results.latency(where, block.latency()))
            if block.first_error is not None:
                self._fail(name, workload, f"with {clients} clients: {block.first_error}")
            self._watch.look()

    async def _warm_up(self, running: Running, name: str, workload: Workload) -> None:
        """Let a pool open all its connections, one after another, and their backends load code."""
        call, clients = self._call(name, workload), max(self._plan.clients)
        block = await closed_loop(running, call, clients=clients, seconds=self._plan.warm_up_s)
        if block.first_error is not None:
            self._fail(name, workload, f"warming up: {block.first_error}")

    async def _open_loops(self, running: dict[str, Running]) -> None:
        best: dict[tuple[str, str], float] = {}
        for record in self._results.throughputs:
            key = record["system"], record["workload"]
            best[key] = max(best.get(key, 0.0), record["per_second"])
        cells = [(*key, share) for key in best for share in _OPEN_AT if best[key] > 0]
        if not cells:
            return
        self._say(f"open loops: {len(cells)} cells")
        seconds = self._plan.budget_s * _OPEN / len(cells)
        for name, workload_name, share in random.sample(cells, len(cells)):
            workload = WORKLOADS[workload_name]
            rate = best[name, workload_name] * share
            block = await open_loop(
                running[name], self._call(name, workload), per_second=rate, seconds=seconds
            )
            where = {"system": name, "workload": workload_name, "share": share, "rate": rate}
            self._results.open_loops.append(self._results.latency(where, block.latency()))
            if block.first_error is not None:
                self._fail(name, workload, f"open loop: {block.first_error}")
            self._watch.look()

    # Costs.

    async def _costs(self, running: dict[str, Running]) -> None:
        counters = Counters(self._cluster.url(), self._cluster.pid)
        try:
            await self._idle(running, counters)
            cells = [
                (name, workload)
                for workload in self._workloads
                for name in self._doing(running, workload)
            ]
            self._say(f"costs: {len(cells)} cells")
            seconds = self._plan.budget_s * _COSTS / len(cells)
            for name, workload in cells:
                await self._cost(running[name], SYSTEMS[name], workload, seconds, counters)
        finally:
            counters.close()

    async def _cost(
        self,
        running: Running,
        system: System,
        workload: Workload,
        seconds: float,
        counters: Counters,
    ) -> None:
        call = self._call(system.name, workload)
        before = counters.snapshot(system.database, running.pids)
        requests = 0
        ends = time.perf_counter() + seconds
        try:
            while requests < self._plan.at_least or time.perf_counter() < ends:
                await ask(running, call())
                requests += 1
        except (SystemFailed, ApiaryError, OSError) as error:
            self._fail(system.name, workload, f"{type(error).__name__}: {error}")
            return
        after = counters.snapshot(system.database, running.pids)
        where = {"system": system.name, "workload": workload.name}
        record = self._results.cost(where, counters.cost(before, after, requests))
        self._results.costs.append(record)
        self._watch.look()

    async def _idle(self, running: dict[str, Running], counters: Counters) -> None:
        """What each system asks of the database when nobody asks anything of it."""
        self._say("idle")
        before = {
            name: counters.snapshot(SYSTEMS[name].database, system.pids)
            for name, system in running.items()
        }
        await asyncio.sleep(self._plan.idle_s)
        for name, system in running.items():
            after = counters.snapshot(SYSTEMS[name].database, system.pids)
            statements = (after.statements - before[name].statements) / self._plan.idle_s
            self._results.idle.append({"system": name, "statements_per_s": round(statements, 2)})

    async def _count_flushes(self, running: dict[str, Running]) -> None:
        """Flushes of the log per workflow: backends tell theirs when they end, so systems end."""
        workload = WORKLOADS[_FLUSHED]
        if workload not in self._workloads:
            return
        self._say("flushes")
        await asyncio.sleep(self._plan.settle_s)
        counters = Counters(self._cluster.url(), self._cluster.pid)
        try:
            for name in list(running):
                if name not in self._doing(running, workload):
                    await running.pop(name).close()
                    await counters.until_gone(SYSTEMS[name].database)
            for name in self._doing(running, workload):
                before = counters.flushes()
                call = self._call(name, workload)
                for _ in range(_FLUSHES_REQUESTS):
                    await ask(running[name], call())
                await running.pop(name).close()
                await counters.until_gone(SYSTEMS[name].database)
                flushes = (counters.flushes() - before) / _FLUSHES_REQUESTS
                self._results.flushes.append(
                    {"system": name, "workload": workload.name, "flushes": round(flushes, 2)}
                )
        finally:
            counters.close()
