"""What every planner is asked and what it answers: objective, limits, ranked plans, statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from workflows.sailor.errors import BadJob
from workflows.sailor.plan import Plan
from workflows.sailor.simulator import Estimate

Objective = Literal["throughput", "cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What to look for. None means no limit; a limit of 0 is refused."""

    objective: Objective = "throughput"
    max_cost_usd: float | None = None
    """USD per iteration"""
    min_iterations_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.objective not in ("throughput", "cost"):
            raise BadJob(f"objective is {self.objective!r}, expected throughput or cost")
        for name in ("max_cost_usd", "min_iterations_per_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadJob(f"{name} is {value}, expected a positive number or none at all")

    @property
    def max_iteration_s(self) -> float | None:
        """The throughput floor as a limit of the iteration time."""
        floor = self.min_iterations_per_s
        return None if floor is None else 1.0 / floor

    def met_by(self, estimate: Estimate) -> bool:
        """Whether an estimate keeps both limits."""
        within = self.max_cost_usd is None or estimate.cost_usd <= self.max_cost_usd
        limit = self.max_iteration_s
        return within and (limit is None or estimate.iteration_s <= limit)

    def key(self, estimate: Estimate) -> tuple[float, float]:
        """What is minimised, with the other figure to break ties."""
        figures = (estimate.iteration_s, estimate.cost_usd)
        return figures if self.objective == "throughput" else figures[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan with its estimate."""

    plan: Plan
    estimate: Estimate

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"plan": self.plan.to_json(), "estimate": self.estimate.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Plans that keep the limits, best first, and what the search did."""

    planner: str
    candidates: tuple[Candidate, ...]
    seconds: float
    complete: bool
    """False if a time limit ended the search: the first candidate is the best found so far"""
    considered: int
    """layouts whose bound was good enough to be queued (or that the planner lists)"""
    pruned: int
    """queued layouts that were ruled out by a better plan"""
    simulated: int
    """plans that were scored by the simulator"""
    skipped_oom: int = 0
    """better-ranked plans of the planner that do not fit their cards"""
    unusable_links: tuple[str, ...] = ()
    """links that some layout needed and that are missing or have no positive bandwidth there"""
    bound_s: float | None = None
    """no plan of any shape on these GPUs is faster (a relaxation; throughput only)"""

    @property
    def best(self) -> Candidate:
        """The chosen plan."""
        return self.candidates[0]

    @property
    def gap(self) -> float | None:
        """(best - bound) / best, or None if no bound is known."""
        if self.bound_s is None:
            return None
        return 1.0 - self.bound_s / self.best.estimate.iteration_s

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "planner": self.planner,
            "seconds": self.seconds,
            "complete": self.complete,
            "considered": self.considered,
            "pruned": self.pruned,
            "simulated": self.simulated,
            "skipped_oom": self.skipped_oom,
            "unusable_links": list(self.unusable_links),
            "bound_s": self.bound_s,
            "gap": self.gap,
            "candidates": [candidate.to_json() for candidate in self.candidates],
        }
