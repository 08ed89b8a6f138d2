"""What travels to and from the functions and workflows of this service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from workflows.recycle.job import Objective
from workflows.recycle.plan_tasks import Engine
from workflows.recycle.state import Outcome

__all__ = [
    "MAX_CELLS",
    "Cells",
    "EventAnswer",
    "IntervalRow",
    "OpRow",
    "OperationTime",
    "PlanFigures",
    "PlanRequest",
    "PlanSetting",
    "PlanSummary",
    "RollbackRow",
    "SimulationFigures",
    "StageBytes",
    "StoredPlan",
]

OpRow = tuple[int, int, str, int, int, int, int]
"""(pipeline, stage, F/I/W, home pipeline, micro-batch, start_us, end_us)"""

MAX_CELLS = 65_536
"""Micro-batches in stages that travel in one call: two to three megabytes of its four as JSON."""

IntervalRow = tuple[float, float, int, float | None, float, float]
"""(start_s, end_s, failed, iteration_us, downtime_s, iterations)"""

RollbackRow = tuple[int, int, int, int]
"""(iteration, pipeline, stage, steps)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTime:
    """One operation of one stage."""

    stage: int
    operation: str
    median_us: int
    p95_us: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBytes:
    """Memory of one worker of a stage, in bytes; see `workflows.recycle.job.StageMemory`."""

    stage: int
    limit_bytes: int
    static_bytes: int
    forward_bytes: int
    input_grad_bytes: int
    weight_grad_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a plan set is made for."""

    profile_id: str
    pipelines: int
    micro_batches: int
    f_max: int
    stages: int | None = None
    """None: as many as the profile has."""
    objective: Objective = "stagger"
    split: bool = True
    cap: int | list[int] | None = None
    """Micro-batches held by a worker, for all stages or for each; None: the profile's memory."""
    engine: Engine = "auto"
    time_limit_s: float = 10.0
    seed: int = 1
    scope: Literal["normalized", "counts"] = "normalized"
    """One plan for each number of failures, or one for every vector of counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSetting:
    """What a plan of a set is made with."""

    job: dict[str, Any]
    """As `Job.to_json` writes it."""
    objective: Objective
    split: bool
    engine: Engine
    time_limit_s: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What a plan does with the micro-batches of one pipeline in one stage; lists are by these."""

    stage: int
    home: int
    """The micro-batches' own pipeline."""
    forward_us: int
    input_grad_us: int
    weight_grad_us: int
    executor: list[int]
    """Pipeline of the worker that executes a micro-batch here."""
    forward_start_us: list[int]
    input_grad_start_us: list[int]
    weight_grad_start_us: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
    """The figures of a plan; see `workflows.recycle.planner.Plan`."""

    iteration_us: int
    makespan_us: int
    lower_bound_us: int
    in_order_bound_us: int | None
    status: str
    engine: str
    solver_seed: int | None
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A sealed plan without its operations."""

    plan_id: int
    plan_set_id: str
    plan_key: str
    counts: list[int]
    iteration_us: int
    makespan_us: int
    lower_bound_us: int
    status: str
    engine: str
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """A plan set: one row for each plan, by failures."""

    plan_set_id: str
    plans: list[StoredPlan]
    free_failures: int
    """Dead workers in each stage that cost nothing over fault-free 1F1B: the staggered step with
    uniform stages, memory permitting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAnswer:
    """What an event did."""

    plan_id: int | None
    """The plan to run, found in the same transaction; None: none is stored for these counts."""
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationFigures:
    """One system on one trace; see `workflows.recycle.simulate.SimulationRun`."""

    system: str
    iterations: float
    micro_batches_per_s: float
    normalised: float
    downtime_s: float
    restarts: int
