"""What travels between the functions, the steps and the workflows of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "GoalSpec",
    "Imported",
    "Inputs",
    "PlanRow",
    "Question",
    "Searched",
    "Simulated",
]

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalSpec:
    """What a plan is to be best at, and within which limits; None: no limit."""

    objective: Literal["throughput", "cost"] = "throughput"
    max_cost_usd: float | None = None
    """USD per iteration"""
    min_iterations_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The stored inputs that a plan is made from."""

    model_id: str
    profile_id: str
    profile_source: str
    """"roofline": from published hardware figures, not measured"""
    network_id: str
    price_list_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a planner is asked."""

    inputs: Inputs
    goal: GoalSpec
    available: dict[str, int]
    """"<gpu>_<zone>" -> GPUs"""
    version: int | None
    """the availability version; None: a what-if that no change makes stale"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a planner answered: layouts best first (none: nothing fits), and what it did."""

    planner: str
    mode: Literal["exact", "published"]
    layouts: list[Document]
    seconds: float
    complete: bool
    considered: int
    pruned: int
    simulated: int
    skipped_oom: int
    bound_s: float | None
    inside_cluster: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A stored plan."""

    plan_id: int
    planner: str
    iteration_s: float
    iterations_per_s: float
    cost_usd: float
    stages: int
    replicas: int
    microbatch: int
    gpus: dict[str, int]
    """"<gpu>_<zone>" -> GPUs that it uses"""
    layout: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What one iteration of a stored plan takes."""

    plan_id: int
    iteration_s: float
    cost_usd: float
    peak_bytes: float
    feasible: bool
    reasons: list[str]
    warnings: list[str]
    estimate: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import stored, or found stored already."""

    kind: str
    name: str
    checksum: str
    rows: int
    stored: bool
    """False: the same content was there already"""
