"""All plans of a job ahead of its failures.

`plan_tasks.list_plan_tasks` names the plans as independent tasks; `compute_plan` makes one of
them, in any process and any order; a `PlanSet` holds the results under the key by which a failure
finds its plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from workflows.recycle.errors import InvalidArgument, UnknownPlan
from workflows.recycle.failures import canonical_failures, check_counts, plan_key
from workflows.recycle.job import Job, Objective
from workflows.recycle.plan_tasks import PlanTask
from workflows.recycle.planner import Plan, make_plan

__all__ = ["PlanSet", "compute_plan"]


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
