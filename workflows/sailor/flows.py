"""Sailor as workflows: plan, compare, simulate. More are in `importing`, `elastic`, `measured`.

Functions of `functions.sailor` keep everything in tables. A search, a drawing, a measurement is a
step in a worker process, which reads what it needs from the tables and imports what it computes
with in its body: this module is imported wherever the service is deployed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from apiary import gather, run_id, step, workflow
from functions import sailor
from functions.sailor.errors import declared
from functions.sailor.plans import goal_of
from functions.sailor.records import GoalSpec, Inputs, PlanRow, Question, Searched, Simulated

from .catalogue import COMPARED
from .errors import NoFeasiblePlan
from .plan import Plan, parse_availability
from .problem import Problem
from .search_result import Candidate, Goal
from .simulator import simulate as judged

__all__ = [
    "Answer",
    "PlanReport",
    "compare",
    "draw_plan",
    "judge",
    "plan",
    "register",
    "search_plans",
    "simulate",
]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One planner's answer, one row of a comparison."""

    planner: str
    chosen: PlanRow | None
    """None: nothing fits and keeps the limits"""
    skipped_oom: int
    """better-ranked plans of the planner that do not fit their cards"""
    inside_cluster: bool
    """False: the plan uses more GPUs than there are, as published plans may"""
    seconds: float


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
        found = search_plans(asked, "sailor", "exact", time_limit_s)
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
def compare(
    model: str = "OPT-350",
    available: dict[str, int] | None = None,
    planners: Sequence[str] = COMPARED,
    objective: Literal["throughput", "cost"] = "throughput",
    max_cost_usd: float | None = None,
    min_iterations_per_s: float | None = None,
    time_limit_s: float | None = 60.0,
    profile: str = "best",
    mode: Mode = "exact",
) -> list[Answer]:
    """Planners side by side, each a child run, all judged by our memory check and simulator."""
    goal = GoalSpec(
        objective=objective,
        max_cost_usd=max_cost_usd,
        min_iterations_per_s=min_iterations_per_s,
    )
    asked = sailor.ask(model, available, goal, profile, run_id())
    answers = gather(
        *(judge.start(asked, planner, mode, time_limit_s, run_id()) for planner in planners)
    )
    svg = draw_comparison(asked, mode, answers)
    sailor.store_picture("comparison", svg, run_id())
    return answers


@workflow
def judge(
    asked: Question, planner: str, mode: Mode, time_limit_s: float | None, for_run: str
) -> Answer:
    """One planner's answer, stored under the run that asked for it."""
    found = search_plans(asked, planner, mode, time_limit_s, or_nothing=True)
    rows = sailor.commit_answer(asked, found, for_run)
    return Answer(
        planner=planner,
        chosen=rows[0] if rows else None,
        skipped_oom=found.skipped_oom,
        inside_cluster=found.inside_cluster,
        seconds=found.seconds,
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


@step(process=True)
def search_plans(
    asked: Question,
    planner: str,
    mode: Mode,
    time_limit_s: float | None,
    or_nothing: bool = False,
) -> Searched:
    """A planner's plans, best first; NoFeasiblePlan if nothing fits (``or_nothing``: none)."""
    from .comparison import run_planner

    places = parse_availability(asked.available)
    with declared():
        problem = stored_problem(asked.inputs, places)
        if planner == "sailor":
            return _search(problem, places, goal_of(asked.goal), time_limit_s, or_nothing, mode)
        row = run_planner(planner, problem, places, goal_of(asked.goal), mode=mode)
        if row.answer is None and not or_nothing:
            raise NoFeasiblePlan(f"{planner} lists {row.listed} plans, none fits and keeps limits")
    return Searched(
        planner=planner,
        mode=mode,
        layouts=[] if row.answer is None else [row.answer.plan.to_json()],
        seconds=row.search_s,
        complete=True,
        considered=row.listed,
        pruned=0,
        simulated=row.listed,
        skipped_oom=row.oom_plans,
        bound_s=None,
        inside_cluster=row.inside_cluster,
    )


def _search(
    problem: Problem,
    places: Mapping[tuple[str, str], int],
    goal: Goal,
    time_limit_s: float | None,
    or_nothing: bool,
    mode: Mode,
) -> Searched:
    from .planner import search

    started = time.perf_counter()
    try:
        found = search(problem, places, goal, time_limit_s=time_limit_s)
    except NoFeasiblePlan:
        if not or_nothing:
            raise
        return _nothing(time.perf_counter() - started, mode)
    return Searched(
        planner=found.planner,
        mode=mode,
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


def _nothing(seconds: float, mode: Mode) -> Searched:
    return Searched(
        planner="sailor",
        mode=mode,
        layouts=[],
        seconds=seconds,
        complete=True,
        considered=0,
        pruned=0,
        simulated=0,
        skipped_oom=0,
        bound_s=None,
        inside_cluster=True,
    )


@step(process=True)
def draw_plan(inputs: Inputs, layout: dict[str, Any]) -> dict[str, str]:
    """The timeline and the memory of a plan, as SVG."""
    from . import pictures

    chosen = Plan.from_json(layout)
    with declared():
        problem = stored_problem(inputs, chosen.gpus_used())
        return {
            "timeline": pictures.timeline_svg(problem, chosen),
            "memory": pictures.memory_svg(judged(problem, chosen)),
        }


@step(process=True)
def draw_comparison(asked: Question, mode: Mode, answers: list[Answer]) -> str:
    """Cost against throughput of the planners' answers, as SVG."""
    from . import comparison, pictures

    with declared():
        problem = stored_problem(asked.inputs, parse_availability(asked.available))
        rows = []
        for answer in answers:
            if answer.chosen is not None:
                layout = Plan.from_json(answer.chosen.layout)
                estimate = judged(problem, layout, mode=mode)
                rows.append(
                    comparison.Row(
                        planner=answer.planner,
                        answer=Candidate(plan=layout, estimate=estimate),
                        oom_plans=answer.skipped_oom,
                        unmeasured_plans=0,
                        listed=0,
                        search_s=answer.seconds,
                        inside_cluster=answer.inside_cluster,
                    )
                )
        return pictures.scatter_svg(rows, goal_of(asked.goal))
