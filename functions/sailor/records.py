"""What travels between the functions, the steps and the workflows of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "Begun",
    "CheckpointRow",
    "GoalSpec",
    "Imported",
    "Inputs",
    "JobSpec",
    "LiveSegment",
    "LiveShape",
    "MeasuredPlan",
    "PlanRow",
    "Question",
    "Reconfigured",
    "ReplaySegment",
    "Searched",
    "Simulated",
    "Validated",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveShape:
    """The model of live runs, a small GPT on CPU."""

    blocks: int = 4
    hidden: int = 128
    heads: int = 4
    sequence_length: int = 64
    vocabulary: int = 1000
    seed: int = 0
    learning_rate: float = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job that is planned again whenever the availability changes."""

    job_id: str
    model: str
    goal: GoalSpec = GoalSpec()
    planner: str = "sailor"
    """or a baseline; "pipeline": one pipeline over all GPUs, for live jobs"""
    profile: str = "best"
    time_limit_s: float | None = 30.0
    """of a search"""
    reconfiguration_s: float = 11.35
    """what a switch costs; the default is the published sum of its phases"""
    expected_segment_s: float = 600.0
    """how long an availability is expected to last"""
    shape: LiveShape | None = None
    """what a live job trains"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfigured:
    """A job's answer to an availability version."""

    job_id: str
    version: int
    state: str
    """APPLIED, KEPT, WAITING or SUPERSEDED"""
    plan_before: int | None
    plan_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What to search for, or what was decided already."""

    question: Question | None
    decided: Reconfigured | None
    planner: str
    time_limit_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """A complete checkpoint."""

    slot: int
    step: int
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSegment:
    """Some steps of a live job under one plan, from one checkpoint to the next."""

    job_id: str
    plan_id: int
    version: int
    first_step: int
    steps: int
    split: list[int]
    replicas: int
    microbatch: int
    global_batch: int
    shape: LiveShape
    start: CheckpointRow | None
    slot: int
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """A plan that somebody ran."""

    name: str
    global_batch: int
    iteration_s: float
    reduce_s: float
    peak_bytes: float
    layout: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """Errors of the simulator on a platform's measured plans, as fractions."""

    platform: str
    plans: int
    mean: float
    median: float
    largest: float
    memory_mean: float
    errors: dict[str, float]
    """plan -> |simulated - measured| / measured"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySegment:
    """What a job would have done in a segment of a trace."""

    start_s: float
    duration_s: float
    available: dict[str, int]
    used: dict[str, int]
    switched: bool
    iterations: float
    iterations_per_s: float
    cost_usd: float
    layout: Document | None
