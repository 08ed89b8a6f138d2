"""Figures out of a result's document: medians over the repetitions, and their spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .catalogue import SYSTEMS
from .workloads import WORKLOADS

__all__ = ["Figure", "Goal", "Summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One system at one workload and round-trip time; milliseconds."""

    p10_ms: float
    p50_ms: float
    p99_ms: float
    lowest_p50_ms: float  # of the repetitions
    highest_p50_ms: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal, and what was reached."""

    text: str
    reached: str
    holds: bool | None  # None: not measured


class Summary:
    """Answers questions about a document that `Results.document` made."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.systems: list[str] = [name for name in SYSTEMS if name in document["plan"]["systems"]]
        self.workloads: list[str] = [
            name for name in WORKLOADS if name in document["plan"]["workloads"]
        ]
        self.rtts_ms: list[float] = sorted(document["plan"]["rtts_ms"])
        grouped: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
        for record in document["latencies"]:
            key = record["system"], record["workload"], record["rtt_ms"]
            grouped.setdefault(key, []).append(record)
        self._figures = {key: _figure(records) for key, records in grouped.items()}

    def figure(self, system: str, workload: str, rtt_ms: float) -> Figure | None:
        """What was measured there, if it was."""
        return self._figures.get((system, workload, rtt_ms))

    def factor(self, slower: str, faster: str, workload: str, rtt_ms: float) -> float | None:
        """How many times the p50 of one system is that of another."""
        above = self.figure(slower, workload, rtt_ms)
        below = self.figure(faster, workload, rtt_ms)
        return None if above is None or below is None else above.p50_ms / below.p50_ms

    def overhead(self, system: str, base: str, workload: str) -> float | None:
        """The same as a share: 0.25 is a quarter more."""
        factor = self.factor(system, base, workload, self.rtts_ms[0])
        return None if factor is None else factor - 1

    def others(self) -> list[str]:
        """The systems that one would use instead, without the floor."""
        return [name for name in self.systems if SYSTEMS[name].is_peer or name == "interactive"]

    def lost(self) -> list[tuple[str, str, float, float]]:
        """Where another system has the lower p50: (system, workload, rtt, how many times)."""
        found = []
        for workload in self.workloads:
            for rtt_ms in self.rtts_ms:
                for name in self.others():
                    factor = self.factor("grpc", name, workload, rtt_ms)
                    if factor is not None and factor > 1:
                        found.append((name, workload, rtt_ms, factor))
        return found

    def records(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """The records of a list that have these values."""
        return [
            record
            for record in self.document[table]
            if all(record[name] == value for name, value in where.items())
        ]

    def best_throughput(self, system: str, workload: str) -> float | None:
        """The highest, over all numbers of clients."""
        found = self.records("throughputs", system=system, workload=workload)
        return max((record["per_second"] for record in found), default=None)

    def goals(self) -> list[Goal]:
        """What the project wants to reach, beside what was reached."""
        return [
            self._recording("increment"),
            self._recording("reserve"),
            self._at_most("engine", "procedure-python", "reserve", 1.6, "hotel reserve, recorded"),
            self._beside_interactive(),
            self._hop("reserve"),
            self._per_second("reserve", 16, 1000),
            self._beside_calls(),
            self._at_least("interactive", "timeline", 0.5, 10.0, "retwis timeline"),
            self._at_least("dbos", "workflow-5", 0.0, 25.0, "five transactional functions"),
            self._limited(),
        ]

    def _recording(self, workload: str) -> Goal:
        text = f"{workload}: recorded, with provenance `writes`, within 1.3x of the bare procedure"
        python = self.factor("engine", "procedure-python", workload, 0.0)
        plpgsql = self.factor("engine", "procedure", workload, 0.0)
        if python is None or plpgsql is None:
            return _not_measured(text)
        reached = f"{python:.2f}x of PL/Python, {plpgsql:.2f}x of PL/pgSQL (p50)"
        return Goal(text=text, reached=reached, holds=python <= 1.3)

    def _at_least(
        self, slower: str, workload: str, rtt_ms: float, wanted: float, what: str
    ) -> Goal:
        text = f"{what} at {rtt_ms:g} ms: p50 over gRPC at least {wanted:g}x below {slower}"
        return _times(text, self.factor(slower, "grpc", workload, rtt_ms), wanted, decimals=1)

    def _at_most(self, system: str, base: str, workload: str, wanted: float, what: str) -> Goal:
        text = f"{what}: p50 of {system} at most {wanted:g}x that of {base}"
        factor = self.factor(system, base, workload, 0.0)
        if factor is None:
            return _not_measured(text)
        return Goal(text=text, reached=f"{factor:.2f}x", holds=factor <= wanted)

    def _beside_interactive(self) -> Goal:
        text = (
            "hotel reserve: p50 of engine at least 2.5x below interactive transactions with the"
            " same record, commits not waiting for the disk"
        )
        if self.document["machine"]["postgres"].get("synchronous_commit") != "off":
            return _not_measured(text)
        return _times(text, self.factor("interactive-recorded", "engine", "reserve", 0.0), 2.5)

    def _beside_calls(self) -> Goal:
        text = "five functions as one workflow in the database: p50 at least 2x below five calls"
        return _times(text, self.factor("engine-calls", "engine", "workflow-5", 0.0), 2)

    def _hop(self, workload: str) -> Goal:
        text = f"gRPC adds at most 1.5 ms at p50 ({workload})"
        engine, grpc = (self.figure(name, workload, 0.0) for name in ("engine", "grpc"))
        if engine is None or grpc is None:
            return _not_measured(text)
        added_ms = grpc.p50_ms - engine.p50_ms
        return Goal(text=text, reached=f"{added_ms:.2f} ms", holds=added_ms <= 1.5)

    def _per_second(self, workload: str, clients: int, wanted: float) -> Goal:
        text = f"{wanted:g} invocations a second over gRPC with {clients} clients ({workload})"
        found = self.records("throughputs", system="grpc", workload=workload, clients=clients)
        if not found:
            return _not_measured(text)
        reached = max(record["per_second"] for record in found)
        return Goal(text=text, reached=f"{reached:.0f}", holds=reached >= wanted)

    def _limited(self) -> Goal:
        text = "the server's throughput is limited by PostgreSQL, not by Python (reserve)"
        cost = self.records("costs", system="grpc", workload="reserve")
        best = self.best_throughput("grpc", "reserve")
        floor = self.best_throughput("procedure", "reserve")
        if not cost or best is None or not floor:
            return _not_measured(text)
        server, postgres = cost[0]["application_cpu_ms"], cost[0]["postgres_cpu_ms"]
        reached = (
            f"{best:.0f} requests/s, {best / floor:.0%} of the bare procedure's; per request the"
            f" server takes {server:.2f} ms of a processor, PostgreSQL {postgres:.2f} ms"
        )
        return Goal(text=text, reached=reached, holds=server < postgres)


def _times(text: str, factor: float | None, wanted: float, *, decimals: int = 2) -> Goal:
    """The goal of being so many times faster."""
    if factor is None:
        return _not_measured(text)
    return Goal(text=text, reached=f"{factor:.{decimals}f}x", holds=factor >= wanted)


def _not_measured(text: str) -> Goal:
    return Goal(text=text, reached="not measured", holds=None)


def _figure(records: Sequence[dict[str, Any]]) -> Figure:
    p50s = [record["p50_ms"] for record in records]
    return Figure(
        p10_ms=_median(record["p10_ms"] for record in records),
        p50_ms=median(p50s),
        p99_ms=_median(record["p99_ms"] for record in records),
        lowest_p50_ms=min(p50s),
        highest_p50_ms=max(p50s),
        count=sum(record["count"] for record in records),
    )


def _median(values: Iterable[float]) -> float:
    return median(list(values))
