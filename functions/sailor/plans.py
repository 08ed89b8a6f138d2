"""Plans: what a planner found, or somebody has in mind, judged by the one simulator."""

from __future__ import annotations

from typing import Any

from apiary import Database, function
from workflows.sailor.plan import Plan, check_available, parse_availability
from workflows.sailor.problem import Problem
from workflows.sailor.search_result import Goal
from workflows.sailor.simulator import Estimate, Mode, simulate

from .availability import current_version, stored_availability
from .errors import UnknownName, declared
from .inputs import inputs_for, problem_of
from .records import GoalSpec, Inputs, PlanRow, Question, Searched, Simulated

__all__ = [
    "ask",
    "commit_answer",
    "commit_search",
    "plan_row",
    "simulate_plan",
    "store_picture",
    "stored_plan",
]


@function
def ask(
    db: Database,
    model: str,
    available: dict[str, int] | None,
    goal: GoalSpec,
    profile: str,
    run_id: str,
) -> Question:
    """What a planner needs to know: inputs, goal and GPUs (None: those of the newest version)."""
    return question(db, model, available, goal, profile, run_id)


def question(
    db: Database,
    model: str,
    available: dict[str, int] | None,
    goal: GoalSpec,
    profile: str,
    run_id: str,
    *,
    version: int | None = None,
) -> Question:
    """`ask` as a part of another function; ``version`` is that of ``available``."""
    if available is None:
        version = current_version(db, run_id)
        available = stored_availability(db, version)
    with declared():
        goal_of(goal)
        places = [place for place, count in parse_availability(available).items() if count]
        if not places:
            places = list(parse_availability(available))
        inputs = inputs_for(
            db,
            model,
            sorted({gpu for gpu, _ in places}),
            sorted({zone for _, zone in places}),
            profile,
            run_id,
        )
    return Question(inputs=inputs, goal=goal, available=available, version=version)


def goal_of(goal: GoalSpec) -> Goal:
    """The library's goal; refuses limits that are not positive."""
    return Goal(
        objective=goal.objective,
        max_cost_usd=goal.max_cost_usd,
        min_iterations_per_s=goal.min_iterations_per_s,
    )


@function
def simulate_plan(
    db: Database,
    model: str,
    layout: dict[str, Any],
    mode: Mode,
    profile: str,
    available: dict[str, int] | None,
    run_id: str,
) -> Simulated:
    """Store a plan that somebody has in mind, with its time, memory and cost.

    ``available`` is checked if it is given: NotAvailable names what is missing.
    """
    with declared():
        plan = Plan.from_json(layout)
        if available is not None:
            check_available(plan, parse_availability(available))
        gpus = sorted({gpu for gpu, _ in plan.gpus_used()})
        zones = sorted({zone for _, zone in plan.gpus_used()})
        inputs = inputs_for(db, model, gpus, zones, profile, run_id)
        problem = plan_problem(db, inputs, plan)
        estimate = simulate(problem, plan, mode=mode)
    plan_id = store_plan(db, problem, inputs, plan, estimate, "given", 0, None, run_id)
    return Simulated(
        plan_id=plan_id,
        iteration_s=estimate.iteration_s,
        cost_usd=estimate.cost_usd,
        peak_bytes=estimate.peak_bytes,
        feasible=estimate.feasible,
        reasons=list(estimate.reasons),
        warnings=list(estimate.warnings),
        estimate=estimate.to_json(),
    )


def plan_problem(db: Database, inputs: Inputs, *plans: Plan) -> Problem:
    """What judging these plans needs of the stored inputs, and no more."""
    used = [place for plan in plans for place in plan.gpus_used()]
    return problem_of(
        db,
        inputs,
        sorted({gpu for gpu, _ in used}),
        sorted({zone for _, zone in used}),
    )


@function
def commit_answer(db: Database, asked: Question, found: Searched, run_id: str) -> list[PlanRow]:
    """Store what a planner answered to a question that no change makes stale."""
    return store_search(db, asked, found, run_id)


@function
def commit_search(
    db: Database, asked: Question, found: Searched, run_id: str
) -> list[PlanRow] | None:
    """Store what a search found, if the availability that it was made for is still the newest.

    None: it is not, and the search has to be made again. Estimates are computed here, from the
    stored rows, so that a stored plan and its figures cannot disagree.
    """
    if asked.version is not None and asked.version != current_version(db, run_id):
        return None
    return store_search(db, asked, found, run_id)


def store_search(db: Database, asked: Question, found: Searched, run_id: str) -> list[PlanRow]:
    """The plans and the statistics of a search; the first is the choice."""
    plans = [Plan.from_json(layout) for layout in found.layouts]
    rows: list[PlanRow] = []
    with declared():
        problem = plan_problem(db, asked.inputs, *plans) if plans else None
        for rank, plan in enumerate(plans):
            assert problem is not None
            estimate = simulate(problem, plan, mode=found.mode)
            plan_id = store_plan(
                db,
                problem,
                asked.inputs,
                plan,
                estimate,
                found.planner,
                rank,
                asked.version,
                run_id,
            )
            rows.append(plan_row(plan_id, found.planner, plan, estimate))
    db.execute(
        "INSERT INTO sailor.search (run_id, planner, plan_id, version, objective, max_cost_usd,"
        " min_iterations_per_s, seconds, complete, considered, pruned, simulated, skipped_oom,"
        " bound_s, inside_cluster)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        run_id,
        found.planner,
        rows[0].plan_id if rows else None,
        asked.version,
        asked.goal.objective,
        asked.goal.max_cost_usd,
        asked.goal.min_iterations_per_s,
        found.seconds,
        found.complete,
        found.considered,
        found.pruned,
        found.simulated,
        found.skipped_oom,
        found.bound_s,
        found.inside_cluster,
    )
    return rows


def plan_row(plan_id: int, planner: str, plan: Plan, estimate: Estimate) -> PlanRow:
    """What a caller sees of a stored plan."""
    return PlanRow(
        plan_id=plan_id,
        planner=planner,
        iteration_s=estimate.iteration_s,
        iterations_per_s=estimate.iterations_per_s,
        cost_usd=estimate.cost_usd,
        stages=plan.depth,
        replicas=plan.width,
        microbatch=plan.microbatch,
        gpus={f"{gpu}_{zone}": n for (gpu, zone), n in sorted(plan.gpus_used().items())},
        layout=plan.to_json(),
    )


def store_plan(
    db: Database,
    problem: Problem,
    inputs: Inputs,
    plan: Plan,
    estimate: Estimate,
    planner: str,
    rank: int,
    version: int | None,
    run_id: str,
) -> int:
    """A plan with its stages, replicas and the parts of its time; its id."""
    plan_id: int = db.value(
        "INSERT INTO sailor.plan (model_id, profile_id, network_id, price_list_id, version,"
        " planner, mode, rank, microbatch, stages, replicas, global_batch, iteration_s,"
        " compute_usd, traffic_usd, peak_bytes, feasible, layout, run_id) VALUES ($1, $2, $3, $4,"
        " $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) RETURNING plan_id",
        inputs.model_id,
        inputs.profile_id,
        inputs.network_id,
        inputs.price_list_id,
        version,
        planner,
        estimate.mode,
        rank,
        plan.microbatch,
        plan.depth,
        plan.width,
        problem.job.global_batch,
        estimate.iteration_s,
        estimate.cost.compute_usd,
        estimate.cost.communication_usd,
        estimate.peak_bytes,
        estimate.feasible,
        plan.to_json(),
        run_id,
    )
    db.execute_many(
        "INSERT INTO sailor.stage (plan_id, stage, first_layer, last_layer)"
        " VALUES ($1, $2, $3, $4)",
        [(plan_id, i, stage.first_layer, stage.last_layer) for i, stage in enumerate(plan.stages)],
    )
    memory = {(m.stage, m.gpu, m.degree): m for m in estimate.memory}
    db.execute_many(
        "INSERT INTO sailor.replica (plan_id, stage, replica, gpu, degree, zone, peak_bytes,"
        " limit_bytes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        [
            (plan_id, i, j, r.gpu, r.degree, r.zone, worker.peak_bytes, worker.limit_bytes)
            for i, stage in enumerate(plan.stages)
            for j, r in enumerate(stage.replicas)
            for worker in (memory[i, r.gpu, r.degree],)
        ],
    )
    db.execute_many(
        "INSERT INTO sailor.sim_part (plan_id, stage, compute_s, send_forward_s, send_backward_s,"
        " update_s, sync_s) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        [
            (plan_id, i, t.compute_s, t.send_forward_s, t.send_backward_s, t.update_s, t.sync_s)
            for i, t in enumerate(estimate.stages)
        ],
    )
    return plan_id


def stored_plan(db: Database, plan_id: int) -> tuple[Inputs, Plan]:
    """A plan and the inputs that it was made from."""
    row = db.first(
        "SELECT p.model_id, p.profile_id, r.source AS profile_source, p.network_id,"
        " p.price_list_id, p.layout FROM sailor.plan p JOIN sailor.profile r USING (profile_id)"
        " WHERE plan_id = $1",
        plan_id,
    )
    if row is None:
        raise UnknownName(f"unknown plan {plan_id}", kind="plan", name=str(plan_id))
    layout = row.pop("layout")
    return Inputs(**row), Plan.from_json(layout)


@function
def store_picture(db: Database, name: str, svg: str, run_id: str) -> str:
    """Keep a picture with the run that drew it; drawn again it replaces the old one."""
    db.execute(
        "INSERT INTO sailor.picture (run_id, name, svg) VALUES ($1, $2, $3)"
        " ON CONFLICT (run_id, name) DO UPDATE SET svg = excluded.svg",
        run_id,
        name,
        svg,
    )
    return name
