"""Planners side by side: every plan is judged by our memory check and our simulator.

Each planner lists plans in the order of its own estimate. The first that fits memory and keeps the
limits when simulated is its answer; better-ranked ones that do not fit are counted ("OOM plans").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workflows.sailor.baseline_amp import amp_plans
from workflows.sailor.baseline_dtfm import dtfm_plans
from workflows.sailor.baseline_others import atlas_plans, varuna_plans
from workflows.sailor.catalogue import COMPARED
from workflows.sailor.errors import MissingLink, MissingProfile, NoFeasiblePlan, UnknownName
from workflows.sailor.memory import plan_memory
from workflows.sailor.plan import (
    Availability,
    Plan,
    Replica,
    even_split,
    stages_from_split,
    within,
)
from workflows.sailor.planner import search
from workflows.sailor.problem import Problem
from workflows.sailor.reference_planner import reference_plans
from workflows.sailor.search_result import Candidate, Goal
from workflows.sailor.simulator import Mode, simulate

PlanList = Callable[[Problem, Availability, Goal], list[Plan]]


def _reference(problem: Problem, available: Availability, goal: Goal) -> list[Plan]:
    return [plan for plan, _, _ in reference_plans(problem, available, goal)]


def _own(problem: Problem, available: Availability, goal: Goal) -> list[Plan]:
    try:
        return [c.plan for c in search(problem, available, goal).candidates]
    except NoFeasiblePlan:
        return []


def _pipeline(problem: Problem, available: Availability, goal: Goal) -> list[Plan]:
    """One pipeline over all GPUs, best microbatch first: what a job of one machine runs as."""
    replicas = [
        Replica(gpu=gpu, degree=1, zone=zone)
        for (gpu, zone), count in sorted(available.items())
        for _ in range(count)
    ][: problem.job.layers]
    if not replicas:
        return []
    stages = stages_from_split(
        even_split(problem.job.layers, len(replicas)), [[replica] for replica in replicas]
    )
    gpus = {replica.gpu for replica in replicas}
    plans = [
        Plan(microbatch=m, stages=stages)
        for m in problem.profile.microbatches(gpus)
        if problem.job.global_batch % m == 0
        and all((gpu, m, 1) in problem.profile.times for gpu in gpus)
    ]
    return sorted(plans, key=lambda plan: goal.key(simulate(problem, plan)))


PLANNERS: Mapping[str, PlanList] = {
    "sailor": _own,
    "reference": _reference,
    "amp": amp_plans,
    "varuna": varuna_plans,
    "atlas": atlas_plans,
    "dtfm": dtfm_plans,
    "pipeline": _pipeline,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One planner's answer."""

    planner: str
    answer: Candidate | None
    """None if no plan fits and keeps the limits"""
    oom_plans: int
    unmeasured_plans: int
    """better-ranked plans that need a profile or link that was not measured"""
    listed: int
    search_s: float
    inside_cluster: bool
    """whether the answer uses no more GPUs than there are"""

    def to_json(self) -> dict[str, Any]:
        """Plain values, one row of the table."""
        estimate = self.answer.estimate if self.answer else None
        return {
            "planner": self.planner,
            "iteration_s": estimate.iteration_s if estimate else None,
            "iterations_per_s": estimate.iterations_per_s if estimate else None,
            "cost_usd": estimate.cost_usd if estimate else None,
            "oom_plans": self.oom_plans,
            "unmeasured_plans": self.unmeasured_plans,
            "listed": self.listed,
            "search_s": self.search_s,
            "inside_cluster": self.inside_cluster,
            "plan": self.answer.plan.to_json() if self.answer else None,
        }


def run_planner(
    name: str,
    problem: Problem,
    available: Availability,
    goal: Goal | None = None,
    *,
    mode: Mode = "exact",
) -> Row:
    """The answer of one planner under our memory check and simulator."""
    if name not in PLANNERS:
        raise UnknownName(
            f"unknown planner {name!r}; known are {', '.join(PLANNERS)}", kind="planner", name=name
        )
    goal = goal or Goal()
    started = time.perf_counter()
    plans = PLANNERS[name](problem, available, goal)
    seconds = time.perf_counter() - started
    oom = unmeasured = 0
    answer: Candidate | None = None
    for plan in plans:
        try:
            fits = all(w.fits for w in plan_memory(problem, plan, published=mode == "published"))
            estimate = simulate(problem, plan, mode=mode) if fits else None
        except (MissingProfile, MissingLink):
            unmeasured += 1
            continue
        if estimate is None:
            oom += 1
        elif goal.met_by(estimate):
            answer = Candidate(plan=plan, estimate=estimate)
            break
    return Row(
        planner=name,
        answer=answer,
        oom_plans=oom,
        unmeasured_plans=unmeasured,
        listed=len(plans),
        search_s=seconds,
        inside_cluster=answer is not None and within(answer.plan, available),
    )


def compare(
    problem: Problem,
    available: Availability,
    planners: Sequence[str] = COMPARED,
    goal: Goal | None = None,
    *,
    mode: Mode = "exact",
) -> list[Row]:
    """One row per planner."""
    return [run_planner(name, problem, available, goal, mode=mode) for name in planners]
