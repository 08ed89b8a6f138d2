"""Failure traces: read from a file, or drawn from a mean time between failures.

A trace is valid for its job: a worker fails only while it lives and joins only while it is dead.
"""

from __future__ import annotations

import csv
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from workflows.recycle.errors import InvalidArgument, InvalidWorker
from workflows.recycle.job import Job, Worker

__all__ = ["MTBF_PRESETS_S", "Trace", "TraceEvent", "exponential_trace", "read_trace"]

MTBF_PRESETS_S = {"6h": 6 * 3600.0, "2h": 2 * 3600.0, "30min": 1800.0}
"""Cluster-wide mean times between failures, as used in evaluations of this kind (recalled)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """A worker dies or comes back."""

    time_s: float
    worker: Worker
    kind: Literal["fail", "join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Events in order of time, and how long the run lasts."""

    events: tuple[TraceEvent, ...]
    horizon_s: float

    def validate(self, job: Job) -> Trace:
        """This trace; `InvalidArgument` or `InvalidWorker` names the first event that is wrong."""
        if self.horizon_s <= 0:
            raise InvalidArgument(f"horizon {self.horizon_s} s: expected more than 0")
        dead: set[Worker] = set()
        previous = 0.0
        for number, event in enumerate(self.events):
            where = f"event {number} at {event.time_s} s"
            k, i = event.worker
            if not (0 <= k < job.pipelines and 0 <= i < job.stages):
                raise InvalidWorker(f"{where}: no worker ({k}, {i})", pipeline=k, stage=i)
            if not previous <= event.time_s <= self.horizon_s:
                raise InvalidArgument(
                    f"{where}: expected a time from {previous} s, the event before, to the horizon "
                    f"{self.horizon_s} s"
                )
            if event.kind not in ("fail", "join"):
                raise InvalidArgument(f"{where}: kind {event.kind!r} is neither fail nor join")
            if (event.kind == "fail") == (event.worker in dead):
                state = "dead" if event.worker in dead else "live"
                raise InvalidArgument(f"{where}: {event.kind} of the {state} worker ({k}, {i})")
            (dead.add if event.kind == "fail" else dead.remove)(event.worker)
            previous = event.time_s
        return self

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return {
            "events": [[e.time_s, list(e.worker), e.kind] for e in self.events],
            "horizon_s": self.horizon_s,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trace:
        """The trace that `to_json` wrote."""
        events = tuple(
            TraceEvent(time_s=time_s, worker=Worker(*worker), kind=kind)
            for time_s, worker, kind in data["events"]
        )
        return cls(events=events, horizon_s=data["horizon_s"])


def read_trace(path: Path, job: Job, *, horizon_s: float) -> Trace:
    """A CSV file with the header ``time_s,pipeline,stage,kind``; checked against ``job``."""
    with path.open(newline="", encoding="utf-8") as handle:
        reader = csv.DictReader(handle)
        expected = ["time_s", "pipeline", "stage", "kind"]
        if reader.fieldnames != expected:
            raise InvalidArgument(
                f"{path.name}: header {reader.fieldnames}, expected {expected}", path=str(path)
            )
        events = tuple(_parse_rows(reader, path))
    return Trace(events=events, horizon_s=horizon_s).validate(job)


def _parse_rows(rows: Iterable[dict[str, str]], path: Path) -> Iterable[TraceEvent]:
    for line, row in enumerate(rows, start=2):
        try:
            worker = Worker(int(row["pipeline"]), int(row["stage"]))
            kind: Any = row["kind"]
            yield TraceEvent(time_s=float(row["time_s"]), worker=worker, kind=kind)
        except ValueError as error:
            raise InvalidArgument(f"{path.name}, line {line}: {error}", line=line) from error


def exponential_trace(
    job: Job, *, mtbf_s: float, repair_s: float, horizon_s: float, seed: int
) -> Trace:
    """Failures of the whole cluster with mean gap ``mtbf_s``, repairs with mean ``repair_s``.

    Each failure hits one of the live workers, all alike. The same seed gives the same trace
    (numpy's PCG64).
    """
    if min(mtbf_s, repair_s, horizon_s) <= 0:
        raise InvalidArgument(
            f"MTBF {mtbf_s} s, repair {repair_s} s, horizon {horizon_s} s: all must be over 0"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    live = [Worker(k, i) for k in range(job.pipelines) for i in range(job.stages)]
    repairs: list[tuple[float, Worker]] = []
    events: list[TraceEvent] = []
    now = float(rng.exponential(mtbf_s))
    while now <= horizon_s:
        while repairs and repairs[0][0] <= now:
            time_s, worker = heapq.heappop(repairs)
            events.append(TraceEvent(time_s=time_s, worker=worker, kind="join"))
            live.append(worker)
        if live:
            index = int(rng.integers(len(live)))
            live[index], live[-1] = live[-1], live[index]
            worker = live.pop()
            events.append(TraceEvent(time_s=now, worker=worker, kind="fail"))
            heapq.heappush(repairs, (now + float(rng.exponential(repair_s)), worker))
        now += float(rng.exponential(mtbf_s))
    while repairs and repairs[0][0] <= horizon_s:
        time_s, worker = heapq.heappop(repairs)
        events.append(TraceEvent(time_s=time_s, worker=worker, kind="join"))
    return Trace(events=tuple(events), horizon_s=horizon_s)
