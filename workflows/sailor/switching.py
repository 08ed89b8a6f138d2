"""When the GPUs change: whether to go on, to switch, or to wait.

A plan is kept while its GPUs are still there; a better one is taken only if the iterations that it
gains over the rest of the segment are worth more than the switch (hysteresis).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from workflows.sailor.plan import within
from workflows.sailor.search_result import Candidate, Goal

RECONFIGURATION_S: Final[Mapping[str, float]] = {
    "plan": 0.1,
    "clean_up": 3.0,
    "broadcast": 1.25,
    "regroup": 4.5,
    "rebuild": 2.0,
    "data_loader": 0.5,
}
"""Phases of a kill-free reconfiguration as published for 16 -> 20 V100 and OPT-350."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of time with one availability."""

    start_s: float
    duration_s: float
    available: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a job reacts to changes."""

    goal: Goal = field(default_factory=Goal)
    reconfiguration_s: float = sum(RECONFIGURATION_S.values())
    time_limit_s: float | None = None
    """of each search"""
    hysteresis: bool = True


def worth_switching(
    current: Candidate, better: Candidate, left_s: float, reconfiguration_s: float
) -> bool:
    """Whether the iterations gained over the time left exceed those lost by the switch."""
    gained = max(0.0, left_s - reconfiguration_s) * better.estimate.iterations_per_s
    return gained > left_s * current.estimate.iterations_per_s


def next_plan(
    current: Candidate | None, found: Candidate | None, segment: Segment, policy: Policy
) -> Candidate | None:
    """The plan of a segment: keep the current one if it still runs and a switch does not pay."""
    if current is None or not within(current.plan, segment.available):
        return found
    if found is None or found.plan == current.plan:
        return current
    if not policy.hysteresis:
        return found
    pays = worth_switching(current, found, segment.duration_s, policy.reconfiguration_s)
    return found if pays else current
