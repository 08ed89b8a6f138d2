"""Plans between the model and the database: how they are written, read back and checked.

For the bodies of steps: the functions called here are transactions of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from apiary import run_id
from functions import recycle
from functions.recycle.records import OpRow, PlanFigures, PlanSetting
from workflows.recycle.check import Violation, check_figures, check_schedule, op_id
from workflows.recycle.failures import canonical_failures
from workflows.recycle.job import Job
from workflows.recycle.plan_set import compute_plan
from workflows.recycle.plan_tasks import PlanTask, SolverLimits
from workflows.recycle.planner import Plan, make_plan
from workflows.recycle.routing import IntArray
from workflows.recycle.schedule import Operation, Schedule

__all__ = ["check_stored", "load_plan", "make_and_store", "plan_now", "rows_of"]

_OPERATIONS: tuple[Operation, ...] = ("F", "I", "W")
PORTION = 20_000
"""Operations in one transaction: about a megabyte."""


def make_and_store(plan_set_id: str, candidates: list[list[int]]) -> int:
    """Make the plan for the best of some counts and store it; its id."""
    setting = recycle.plan_setting(plan_set_id)
    plan = compute_plan(_task(setting, candidates))
    plan_id = recycle.begin_plan(plan_set_id, list(plan.counts), run_id())
    for rows in _portions(rows_of(plan.schedule)):
        recycle.add_ops(plan_id, rows)
    figures = PlanFigures(
        iteration_us=plan.iteration_us,
        makespan_us=plan.makespan_us,
        lower_bound_us=plan.lower_bound_us,
        in_order_bound_us=plan.in_order_bound_us,
        status=plan.status,
        engine=plan.engine,
        solver_seed=plan.solver_seed,
        wall_ms=plan.wall_ms,
    )
    return recycle.seal_plan(plan_id, figures)


def plan_now(plan_set_id: str, failed: list[tuple[int, int]]) -> list[OpRow]:
    """The operations of a greedy plan for exactly these dead workers; it is not stored."""
    setting = recycle.plan_setting(plan_set_id)
    plan = make_plan(
        Job.from_json(setting.job),
        failed,
        objective=setting.objective,
        split=setting.split,
        engine="greedy",
    )
    return rows_of(plan.schedule)


def _task(setting: PlanSetting, candidates: list[list[int]]) -> PlanTask:
    return PlanTask(
        job=Job.from_json(setting.job),
        failures=sum(candidates[0]),
        candidates=tuple(tuple(counts) for counts in candidates),
        objective=setting.objective,
        split=setting.split,
        engine=setting.engine,
        limits=SolverLimits(time_limit_s=setting.time_limit_s, seed=setting.seed),
    )


def rows_of(schedule: Schedule) -> list[OpRow]:
    """The operations of a schedule as the database has them."""
    return [
        (
            op.worker.pipeline,
            op.worker.stage,
            op.op,
            op.home,
            op.micro_batch,
            op.start_us,
            op.end_us,
        )
        for op in schedule.ops()
    ]


def _portions(rows: list[OpRow]) -> Iterator[list[OpRow]]:
    for first in range(0, len(rows), PORTION):
        yield rows[first : first + PORTION]


def load_plan(plan_id: int) -> Plan:
    """A stored plan with its schedule.

    What the database lacks of the schedule starts at -1, which no checker lets pass.
    """
    return _plan_of(plan_id, _all_rows(plan_id))


def _plan_of(plan_id: int, rows: list[OpRow]) -> Plan:
    stored = recycle.stored_plan(plan_id)
    setting = recycle.plan_setting(stored.plan_set_id)
    job = Job.from_json(setting.job)
    return Plan(
        objective=setting.objective,
        schedule=_schedule(job, stored.counts, setting.split, rows),
        iteration_us=stored.iteration_us,
        makespan_us=stored.makespan_us,
        lower_bound_us=stored.lower_bound_us,
        in_order_bound_us=None,
        status=stored.status,  # type: ignore[arg-type]  # the table allows no other
        engine=stored.engine,  # type: ignore[arg-type]
        solver_seed=None,
        wall_ms=0,
    )


def _all_rows(plan_id: int) -> list[OpRow]:
    rows: list[OpRow] = []
    while found := recycle.plan_ops(plan_id, first=len(rows), rows=PORTION):
        rows += found
    return rows


def _schedule(job: Job, counts: list[int], split: bool, rows: list[OpRow]) -> Schedule:
    shape = (job.pipelines, job.stages, job.micro_batches)
    starts = {op: np.full(shape, -1, dtype=np.int64) for op in ("F", "I", "W")}
    executor = np.full(shape, -1, dtype=np.int64)
    for pipeline, stage, op, home, micro_batch, start_us, _ in rows:
        starts[op][home, stage, micro_batch] = start_us
        executor[home, stage, micro_batch] = pipeline
    return Schedule(
        job=job,
        failed=canonical_failures(job, counts),
        split=split,
        executor=executor,
        forward_start_us=starts["F"],
        input_grad_start_us=starts["I"],
        weight_grad_start_us=starts["W"],
    )


def check_stored(plan_id: int) -> list[Violation]:
    """Every rule that a stored plan breaks, by what the database holds of it now."""
    rows = _all_rows(plan_id)
    plan = _plan_of(plan_id, rows)
    figures = check_figures(
        plan.schedule,
        objective=plan.objective,
        iteration_us=plan.iteration_us,
        makespan_us=plan.makespan_us,
        lower_bound_us=plan.lower_bound_us,
    )
    return [*check_schedule(plan.schedule), *figures, *_check_rows(plan, rows)]


def _check_rows(plan: Plan, rows: list[OpRow]) -> list[Violation]:
    """The operations of one cell run on one worker, each as long as its stage's time says."""
    found = []
    lengths: dict[str, IntArray] = {op: plan.schedule.duration_us(op) for op in _OPERATIONS}
    executor = plan.schedule.executor
    for pipeline, stage, op, home, micro_batch, start_us, end_us in rows:
        name = op_id(op, home, stage, micro_batch)  # type: ignore[arg-type]
        if end_us - start_us != lengths[op][stage]:
            found.append(
                Violation(
                    rule="duration",
                    ops=(name,),
                    detail=f"{name} takes {end_us - start_us} us, its stage {lengths[op][stage]}",
                )
            )
        if pipeline != executor[home, stage, micro_batch]:
            found.append(
                Violation(
                    rule="one-executor",
                    ops=(name,),
                    detail=f"{name} runs on pipeline {pipeline}, its cell elsewhere",
                )
            )
    return found
