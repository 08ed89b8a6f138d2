"""Availability traces, and what a job would have done under one.

A trace is a list of changes; a segment lasts from one change to the next. `replay` plans each
segment, decides whether to switch, and counts iterations, money and reconfigurations:

    iterations = max(0, τ - T_reconf) / T      T_reconf only where the plan was switched

A lasting plan is kept while its GPUs are still there; a better one is taken only if the iterations
that it gains over the rest of the segment are worth more than the switch (hysteresis).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from workflows.sailor.errors import BadProfileFile, NoFeasiblePlan
from workflows.sailor.plan import Availability, parse_availability
from workflows.sailor.planner import search
from workflows.sailor.problem import Problem
from workflows.sailor.search_result import Candidate
from workflows.sailor.switching import Policy, Segment, next_plan


def segments_of(rows: Sequence[tuple[float, Availability]]) -> list[Segment]:
    """Rows (time, availability) to segments; equal neighbours are one, no empty start."""
    if not rows:
        raise BadProfileFile("the trace has no row")
    changes: list[tuple[float, Availability]] = []
    for at, available in rows:
        if not changes or dict(available) != dict(changes[-1][1]):
            changes.append((at, available))
    ends = [at for at, _ in changes[1:]] + [rows[-1][0]]
    segments = [
        Segment(start_s=at, duration_s=end - at, available=dict(available))
        for (at, available), end in zip(changes, ends, strict=True)
    ]
    return segments[1:] if sum(segments[0].available.values()) == 0 else segments


def segments_from_csv(text: str) -> list[Segment]:
    """`,Timestamp,<gpu>_<zone>,…` with one row per change."""
    rows: list[tuple[float, Availability]] = []
    for line in csv.DictReader(StringIO(text)):
        try:
            at = float(line["Timestamp"])
            counts = {k: int(v) for k, v in line.items() if k not in ("", "Timestamp")}
        except (KeyError, TypeError, ValueError) as error:
            raise BadProfileFile(f"trace row {len(rows)}: {error}") from error
        rows.append((at, parse_availability(counts)))
    return segments_of(rows)


def segments_from_json(entries: Iterable[Mapping[str, Any]], gpu: str, zone: str) -> list[Segment]:
    """`[{"Time": s, "GPUs": n}]`, all of one type and zone."""
    return segments_of([(float(e["Time"]), {(gpu, zone): int(e["GPUs"])}) for e in entries])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the job did in one segment."""

    segment: Segment
    chosen: Candidate | None
    """None if no plan fits: the job waits"""
    switched: bool
    iterations: float
    cost_usd: float

    @property
    def iterations_per_s(self) -> float:
        """Throughput while running."""
        return self.chosen.estimate.iterations_per_s if self.chosen else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A whole trace."""

    steps: tuple[Step, ...]

    @property
    def iterations(self) -> float:
        """Iterations that were done."""
        return sum(step.iterations for step in self.steps)

    @property
    def cost_usd(self) -> float:
        """USD of GPUs and traffic."""
        return sum(step.cost_usd for step in self.steps)

    @property
    def reconfigurations(self) -> int:
        """Switches of the plan, the first start not counted."""
        return sum(step.switched for step in self.steps)


Finder = Callable[[Problem, Availability, Policy], Candidate | None]


def find(problem: Problem, available: Availability, policy: Policy) -> Candidate | None:
    """The best plan for an availability, or None if there is none."""
    try:
        return search(problem, available, policy.goal, time_limit_s=policy.time_limit_s).best
    except NoFeasiblePlan:
        return None


def replay(
    problem: Problem,
    segments: Sequence[Segment],
    policy: Policy | None = None,
    *,
    finder: Finder = find,
) -> Replay:
    """Run a job through a trace on paper."""
    policy = policy or Policy()
    steps: list[Step] = []
    current: Candidate | None = None
    started = False
    for segment in segments:
        chosen = next_plan(current, finder(problem, segment.available, policy), segment, policy)
        changed = chosen is not None and (current is None or chosen.plan != current.plan)
        switched = changed and started
        lost = policy.reconfiguration_s if switched else 0.0
        steps.append(_step(segment, chosen, lost, switched=switched))
        current = chosen
        started = started or chosen is not None
    return Replay(steps=tuple(steps))


def _step(segment: Segment, chosen: Candidate | None, lost_s: float, *, switched: bool) -> Step:
    iterations = cost = 0.0
    if chosen is not None:
        estimate = chosen.estimate
        iterations = max(0.0, segment.duration_s - lost_s) / estimate.iteration_s
        rate = estimate.cost.compute_usd / estimate.iteration_s
        # GPUs are paid for during a reconfiguration too
        cost = rate * segment.duration_s + estimate.cost.communication_usd * iterations
    return Step(
        segment=segment, chosen=chosen, switched=switched, iterations=iterations, cost_usd=cost
    )
