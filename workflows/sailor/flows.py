"""Sailor as workflows: import, plan, compare, simulate.

Functions of `functions.sailor` keep everything in tables. A search, a drawing, a measurement is a
step in a worker process, which reads what it needs from the tables and imports what it computes
with in its body: this module is imported wherever the service is deployed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from apiary import run_id, step, workflow
from functions import sailor
from functions.sailor.errors import declared
from functions.sailor.records import GoalSpec, Inputs, PlanRow, Question, Searched, Simulated

from .plan import Plan, parse_availability
from .problem import Problem
from .search_result import Goal

__all__ = ["PlanReport", "draw_plan", "plan", "register", "search_plans", "simulate"]

Mode = Literal["exact", "published"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A planner's answer: the chosen plan, what it was made from, and the runners-up."""

    chosen: PlanRow
    others: list[PlanRow]
    inputs: Inputs
    available: dict[str, int]
    version: int | None
    seconds: float
    complete: bool
    """False: a time limit ended the search, and this is the best plan that it had"""
    bound_s: float | None
    """no plan of any shape on these GPUs is faster"""
    pictures: list[str]


@workflow
def plan(
    model: str = "OPT-350",
    available: dict[str, int] | None = None,
    objective: Literal["throughput", "cost"] = "throughput",
    max_cost_usd: float | None = None,
    min_iterations_per_s: float | None = None,
    time_limit_s: float | None = 60.0,
    profile: str = "best",
    pictures: bool = True,
) -> PlanReport:
    """The best plan for a model on what can be had, within limits per iteration.

    ``available`` is {"<gpu>_<zone>": GPUs}; without it the newest availability version is planned
    for, and planned again if it changes meanwhile.
    """
    goal = GoalSpec(
        objective=objective,
        max_cost_usd=max_cost_usd,
        min_iterations_per_s=min_iterations_per_s,
    )
    rows: list[PlanRow] | None = None
    while rows is None:
        asked = sailor.ask(model, available, goal, profile, run_id())
        found = search_plans(asked, time_limit_s)
        rows = sailor.commit_search(asked, found, run_id())
    drawn = []
    if pictures:
        for name, svg in draw_plan(asked.inputs, rows[0].layout).items():
            drawn.append(sailor.store_picture(name, svg, run_id()))
    return PlanReport(
        chosen=rows[0],
        others=rows[1:],
        inputs=asked.inputs,
        available=asked.available,
        version=asked.version,
        seconds=found.seconds,
        complete=found.complete,
        bound_s=found.bound_s,
        pictures=drawn,
    )


@workflow
def register(job: dict[str, Any]) -> str:
    """Register a model, so that it can be planned for; its name."""
    return sailor.register_model(job, run_id())


@workflow
def simulate(
    layout: dict[str, Any],
    model: str = "OPT-350",
    mode: Mode = "exact",
    profile: str = "best",
    available: dict[str, int] | None = None,
) -> Simulated:
    """Time, memory and cost of one iteration of a plan that you have in mind."""
    return sailor.simulate_plan(model, layout, mode, profile, available, run_id())


def stored_problem(inputs: Inputs, places: dict[tuple[str, str], int]) -> Problem:
    """What is stored about these GPU types and zones; for steps."""
    gpus, zones = sorted({gpu for gpu, _ in places}), sorted({zone for _, zone in places})
    return Problem.from_json(sailor.load_problem(inputs, gpus, zones))


def goal_of(goal: GoalSpec) -> Goal:
    """The goal as the library reads it."""
    return Goal(
        objective=goal.objective,
        max_cost_usd=goal.max_cost_usd,
        min_iterations_per_s=goal.min_iterations_per_s,
    )


@step(process=True)
def search_plans(asked: Question, time_limit_s: float | None) -> Searched:
    """Our planner's answer; NoFeasiblePlan if nothing fits."""
    from .planner import search  # noqa: PLC0415 - heavy, and only this step needs it

    places = parse_availability(asked.available)
    with declared():
        found = search(
            stored_problem(asked.inputs, places),
            places,
            goal_of(asked.goal),
            time_limit_s=time_limit_s,
        )
    return Searched(
        planner=found.planner,
        mode="exact",
        layouts=[candidate.plan.to_json() for candidate in found.candidates],
        seconds=found.seconds,
        complete=found.complete,
        considered=found.considered,
        pruned=found.pruned,
        simulated=found.simulated,
        skipped_oom=found.skipped_oom,
        bound_s=found.bound_s,
        inside_cluster=True,
    )


@step(process=True)
def draw_plan(inputs: Inputs, layout: dict[str, Any]) -> dict[str, str]:
    """The timeline and the memory of a plan, as SVG."""
    from . import pictures  # noqa: PLC0415
    from .simulator import simulate as judge  # noqa: PLC0415

    chosen = Plan.from_json(layout)
    with declared():
        problem = stored_problem(inputs, chosen.gpus_used())
        estimate = judge(problem, chosen)
        return {
            "timeline": pictures.timeline_svg(problem, chosen),
            "memory": pictures.memory_svg(estimate),
        }
