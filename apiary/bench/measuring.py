"""Latency and throughput: interleaved rounds, closed loops, open loops, HDR histograms.

Interleaved: in each round every system gets the same request once, in random order, so that all see
the same noise of the machine; their results must be equal. Closed loop: so many clients, each with
one request at a time. Open loop: requests leave on a timetable whatever becomes of those before,
and a latency counts from the time of the timetable, so that a system which stalls is charged for
all that had to wait (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ApiaryError, ConfigurationError
from .hosting import Running, SystemFailed
from .workloads import Request

try:
    from hdrh.histogram import HdrHistogram
except ImportError as error:
    raise ConfigurationError(
        "hdrhistogram is not installed", hint="pip install 'apiary[bench]'"
    ) from error

__all__ = ["Block", "Latency", "Round", "ask", "closed_loop", "interleave", "open_loop"]

_LOWEST_NS, _HIGHEST_NS, _DIGITS = 1_000, 600_000_000_000, 3
_PATIENCE_S = 60.0
_OUTSTANDING = 256  # of an open loop; more wait, and their waiting counts
Call = Callable[[], Request]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """What a histogram says; times in milliseconds."""

    count: int
    errors: int
    seconds: float  # how long it was measured
    p10_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    mean_ms: float

    @property
    def per_second(self) -> float:
        """Requests done per second."""
        return self.count / self.seconds if self.seconds else 0.0


class Block:
    """Collects the latencies of one system."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(_LOWEST_NS, _HIGHEST_NS, _DIGITS)
        self._began = time.perf_counter()
        self.errors = 0
        self.first_error: str | None = None

    def record(self, seconds: float) -> None:
        """One request was done."""
        self._histogram.record_value(min(_HIGHEST_NS, max(_LOWEST_NS, round(seconds * 1e9))))

    def fail(self, error: Exception) -> None:
        """One request failed."""
        self.errors += 1
        self.first_error = self.first_error or f"{type(error).__name__}: {error}"

    def latency(self, seconds: float | None = None) -> Latency:
        """What was collected, in so many seconds (since the block was made)."""
        at = self._histogram.get_value_at_percentile
        return Latency(
            count=int(self._histogram.get_total_count()),
            errors=self.errors,
            seconds=time.perf_counter() - self._began if seconds is None else seconds,
            p10_ms=at(10.0) / 1e6,
            p50_ms=at(50.0) / 1e6,
            p90_ms=at(90.0) / 1e6,
            p99_ms=at(99.0) / 1e6,
            max_ms=self._histogram.get_max_value() / 1e6,
            mean_ms=self._histogram.get_mean_value() / 1e6,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Interleaved rounds of one workload."""

    blocks: Mapping[str, Block]
    rounds: int  # with those of the warm-up
    mismatches: tuple[str, ...]  # rounds in which results differed, the first few
    failed: Mapping[str, str]  # systems that failed, and were left out from then on


async def ask(system: Running, request: Request) -> Any:
    """The answer to a request; SystemFailed when there is none within a minute."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await system.call(request)
    except TimeoutError as error:
        raise SystemFailed(f"no answer within {_PATIENCE_S:g} s") from error


async def interleave(
    systems: Mapping[str, Running],
    request: Callable[[int], Request],
    *,
    first: int,
    seconds: float,
    at_least: int,
    warm_up: int,
) -> Round:
    """Rounds until the time is over, ``at_least`` so many, after the warm-up."""
    running = dict(systems)
    blocks = {name: Block() for name in running}
    mismatches: list[str] = []
    failed: dict[str, str] = {}
    number = -warm_up
    ends = time.perf_counter() + seconds
    while running and (number < at_least or time.perf_counter() < ends):
        asked = request(first + warm_up + number)
        results: dict[str, str] = {}
        for name in random.sample(list(running), len(running)):
            began = time.perf_counter()
            try:
                result = await ask(running[name], asked)
            except (SystemFailed, ApiaryError, OSError) as error:
                failed[name] = f"{type(error).__name__}: {error}"
                del running[name]
                continue
            if number >= 0:
                blocks[name].record(time.perf_counter() - began)
            results[name] = _canonical(result)
        if len(set(results.values())) > 1 and len(mismatches) < 3:
            mismatches.append(_difference(asked, results))
        number += 1
    return Round(
        blocks=blocks, rounds=number + warm_up, mismatches=tuple(mismatches), failed=failed
    )


def _canonical(result: Any) -> str:
    return json.dumps(result, sort_keys=True)


def _difference(asked: Request, results: Mapping[str, str]) -> str:
    said = "; ".join(f"{name} says {result[:80]}" for name, result in sorted(results.items()))
    return f"{asked.target}({json.dumps(asked.arguments)[:160]}): {said}"


async def closed_loop(system: Running, call: Call, *, clients: int, seconds: float) -> Block:
    """So many clients, each with one request at a time."""
    block = Block()
    ends = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < ends:
            began = time.perf_counter()
            try:
                await ask(system, call())
            except (SystemFailed, ApiaryError, OSError) as error:
                block.fail(error)
            else:
                block.record(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return block


async def open_loop(system: Running, call: Call, *, per_second: float, seconds: float) -> Block:
    """Requests at a fixed rate; a latency counts from when the request was due."""
    block = Block()
    room = asyncio.Semaphore(_OUTSTANDING)
    began = time.perf_counter()

    async def send(due: float) -> None:
        async with room:
            try:
                await ask(system, call())
            except (SystemFailed, ApiaryError, OSError) as error:
                block.fail(error)
            else:
                block.record(time.perf_counter() - due)

    async with asyncio.TaskGroup() as group:
        for number in range(max(1, int(per_second * seconds))):
            due = began + number / per_second
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            group.create_task(send(due))
    return block
