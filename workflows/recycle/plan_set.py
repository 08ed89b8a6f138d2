"""All plans of a job ahead of its failures.

`list_plan_tasks` names the plans as independent tasks; `compute_plan` makes one of them, in any
process and any order; a `PlanSet` holds the results under the key by which a failure finds its
plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal

from workflows.recycle.errors import InvalidArgument, UnknownPlan
from workflows.recycle.exact import SolverLimits
from workflows.recycle.failures import canonical_failures, check_counts
from workflows.recycle.job import Job, whole
from workflows.recycle.normalize import best_counts, near_counts
from workflows.recycle.planner import Engine, Plan, make_plan
from workflows.recycle.schedule import Objective

__all__ = ["PlanSet", "PlanTask", "compute_plan", "list_plan_tasks", "plan_key"]

MAX_COUNT_VECTORS = 10_000


def plan_key(counts: Sequence[int], objective: Objective, *, split: bool = True) -> str:
    """The key of a plan within the set of its job, for example ``stagger:split:0-0-1-0``."""
    return f"{objective}:{'split' if split else 'coupled'}:{'-'.join(map(str, counts))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTask:
    """One plan to be made."""

    job: Job
    failures: int
    candidates: tuple[tuple[int, ...], ...]
    """Counts to realise, best bound first; the shortest realised plan is kept."""
    objective: Objective = "stagger"
    split: bool = True
    engine: Engine = "auto"
    limits: SolverLimits = field(default_factory=SolverLimits)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return asdict(self) | {"candidates": [list(c) for c in self.candidates]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PlanTask:
        """The task that `to_json` wrote."""
        changed = {
            "job": Job.from_json(data["job"]),
            "candidates": tuple(tuple(c) for c in data["candidates"]),
            "limits": SolverLimits(**data["limits"]),
        }
        return cls(**(data | changed))


def list_plan_tasks(
    job: Job,
    f_max: int,
    *,
    objective: Objective = "stagger",
    split: bool = True,
    engine: Engine = "auto",
    limits: SolverLimits | None = None,
    scope: Literal["normalized", "counts"] = "normalized",
    candidates: int = 3,
) -> list[PlanTask]:
    """The plans for 0..f_max failures.

    ``normalized``: one plan for each f, the best of the ``candidates`` best count vectors.
    ``counts``: one plan for every count vector, so that a failure finds its plan whether or not a
    worker is moved. Raises `InvalidArgument` if f_max > S*(P-1) or there are too many vectors.
    """
    whole("f_max", f_max, 0)
    whole("candidates", candidates, 1)
    most = job.stages * (job.pipelines - 1)
    if f_max > most:
        raise InvalidArgument(
            f"f_max = {f_max}: this job survives at most S*(P-1) = {most} failures", f_max=f_max
        )
    if scope == "normalized":
        groups = [_candidates(job, f, objective, candidates) for f in range(f_max + 1)]
    else:
        groups = [(counts,) for counts in _count_vectors(job, f_max)]
    return [
        PlanTask(
            job=job,
            failures=sum(group[0]),
            candidates=group,
            objective=objective,
            split=split,
            engine=engine,
            limits=limits or SolverLimits(),
        )
        for group in groups
    ]


def _candidates(
    job: Job, failures: int, objective: Objective, limit: int
) -> tuple[tuple[int, ...], ...]:
    best = best_counts(job, failures, objective=objective)
    near = near_counts(job, best, objective=objective)
    return tuple(n.counts for n in near[:limit])


def _count_vectors(job: Job, f_max: int) -> list[tuple[int, ...]]:
    per_stage = min(job.pipelines - 1, f_max) + 1
    if per_stage**job.stages > MAX_COUNT_VECTORS:
        raise InvalidArgument(
            f"up to {per_stage}^{job.stages} count vectors are too many to plan ahead: "
            "use the scope normalized, or a smaller f_max",
            f_max=f_max,
        )
    vectors = [v for v in product(range(per_stage), repeat=job.stages) if sum(v) <= f_max]
    return sorted(vectors, key=lambda v: (sum(v), v))


def compute_plan(task: PlanTask) -> Plan:
    """Make the plan of one task: realise its candidates, keep the shortest, the first if equal.

    Stops at the first candidate that meets the best bound of all.
    """
    best: Plan | None = None
    for counts in task.candidates:
        plan = make_plan(
            task.job,
            canonical_failures(task.job, counts),
            objective=task.objective,
            split=task.split,
            engine=task.engine,
            limits=task.limits,
        )
        if best is None or plan.iteration_us < best.iteration_us:
            best = plan
        if best is plan and plan.iteration_us == plan.lower_bound_us:
            break
    if best is None:
        raise InvalidArgument("a plan task needs at least one candidate", failures=task.failures)
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSet:
    """The plans of one job for one objective."""

    job: Job
    objective: Objective
    split: bool
    plans: dict[tuple[int, ...], Plan]
    """By counts."""

    @classmethod
    def of(cls, plans: Iterable[Plan]) -> PlanSet:
        """A set of plans of the same job, objective and split; `InvalidArgument` if they differ."""
        plans = list(plans)
        kinds = {(p.objective, p.schedule.split) for p in plans}
        if len(kinds) != 1 or any(p.job != plans[0].job for p in plans):
            raise InvalidArgument("a plan set needs plans of one job, one objective and one split")
        objective, split = kinds.pop()
        return cls(
            job=plans[0].job,
            objective=objective,
            split=split,
            plans={plan.counts: plan for plan in plans},
        )

    def lookup(self, counts: Sequence[int]) -> Plan:
        """The plan of exactly these counts; `UnknownPlan` if it is not stored."""
        check_counts(self.job, counts)
        plan = self.plans.get(tuple(counts))
        if plan is None:
            key = plan_key(counts, self.objective, split=self.split)
            raise UnknownPlan(f"no plan {key} is stored: make it with `make_plan`", key=key)
        return plan

    def for_failures(self, failures: int) -> Plan:
        """The shortest stored plan for f failures in all; `UnknownPlan` if there is none."""
        found = [plan for plan in self.plans.values() if sum(plan.counts) == failures]
        if not found:
            raise UnknownPlan(f"no plan for {failures} failures is stored", key=f"f={failures}")
        return min(found, key=lambda plan: (plan.iteration_us, plan.makespan_us, plan.counts))

    def iterations_us(self) -> dict[tuple[int, ...], int]:
        """T of every stored plan, by counts."""
        return {counts: plan.iteration_us for counts, plan in self.plans.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return {"plans": [plan.to_json() for plan in self.plans.values()]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PlanSet:
        """The set that `to_json` wrote."""
        return cls.of(Plan.from_json(plan) for plan in data["plans"])
