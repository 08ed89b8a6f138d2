"""Plans between the model and the database: how they are written, read back and checked.

For the bodies of steps: the functions called here are transactions of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from apiary import run_id
from functions import recycle
from functions.recycle.records import MAX_CELLS, Cells, OpRow, PlanFigures, PlanSetting
from workflows.recycle.check import Violation, check_figures, check_schedule, op_id
from workflows.recycle.failures import canonical_failures
from workflows.recycle.job import Job
from workflows.recycle.plan_set import compute_plan
from workflows.recycle.plan_tasks import PlanTask, SolverLimits
from workflows.recycle.planner import Plan, make_plan
from workflows.recycle.schedule import Operation, Schedule

__all__ = ["check_stored", "load_plan", "make_and_store", "plan_now"]


def make_and_store(plan_set_id: str, candidates: list[list[int]]) -> int:
    """Make the plan for the best of some counts and store it; its id."""
    setting = recycle.plan_setting(plan_set_id)
    plan = compute_plan(_task(setting, candidates))
    plan_id = recycle.begin_plan(plan_set_id, list(plan.counts), run_id())
    for rows in _portions(_cells_of(plan.schedule), _rows_at_once(plan.job)):
        recycle.add_cells(plan_id, rows)
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
    return _op_rows(plan.schedule)


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


def _op_rows(schedule: Schedule) -> list[OpRow]:
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


def _cells_of(schedule: Schedule) -> Iterator[Cells]:
    """A schedule as the database has it, by stage and home pipeline."""
    for stage, times in enumerate(schedule.job.times):
        for home in range(schedule.job.pipelines):
            yield Cells(
                stage=stage,
                home=home,
                forward_us=times.forward_us,
                input_grad_us=times.input_grad_us,
                weight_grad_us=times.weight_grad_us,
                executor=schedule.executor[home, stage].tolist(),
                forward_start_us=schedule.forward_start_us[home, stage].tolist(),
                input_grad_start_us=schedule.input_grad_start_us[home, stage].tolist(),
                weight_grad_start_us=schedule.weight_grad_start_us[home, stage].tolist(),
            )


def _rows_at_once(job: Job) -> int:
    return max(1, MAX_CELLS // job.micro_batches)


def _portions(rows: Iterator[Cells], size: int) -> Iterator[list[Cells]]:
    while portion := list(islice(rows, size)):
        yield portion


def load_plan(plan_id: int) -> Plan:
    """A stored plan with its schedule.

    What the database lacks of the schedule starts at -1, which no checker lets pass.
    """
    return _read(plan_id)[0]


def _read(plan_id: int) -> tuple[Plan, list[Cells]]:
    """A stored plan, and what it was read from."""
    stored = recycle.stored_plan(plan_id)
    setting = recycle.plan_setting(stored.plan_set_id)
    job = Job.from_json(setting.job)
    rows: list[Cells] = []
    at_once = _rows_at_once(job)
    while found := recycle.plan_cells(plan_id, first=len(rows), rows=at_once):
        rows += found
    plan = Plan(
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
    return plan, rows


def _schedule(job: Job, counts: list[int], split: bool, rows: list[Cells]) -> Schedule:
    shape = (job.pipelines, job.stages, job.micro_batches)
    executor, forward, input_grad, weight_grad = (
        np.full(shape, -1, dtype=np.int64) for _ in range(4)
    )
    for row in rows:
        if _fits(job, row):
            place = row.home, row.stage
            executor[place] = row.executor
            forward[place] = row.forward_start_us
            input_grad[place] = row.input_grad_start_us
            weight_grad[place] = row.weight_grad_start_us
    return Schedule(
        job=job,
        failed=canonical_failures(job, counts),
        split=split,
        executor=executor,
        forward_start_us=forward,
        input_grad_start_us=input_grad,
        weight_grad_start_us=weight_grad,
    )


def _fits(job: Job, row: Cells) -> bool:
    """Whether a row is one of the job's: the database refuses others only while a plan is made."""
    return (
        row.stage < job.stages
        and row.home < job.pipelines
        and len(row.executor) == job.micro_batches
    )


def check_stored(plan_id: int) -> list[Violation]:
    """Every rule that a stored plan breaks, by what the database holds of it now."""
    plan, rows = _read(plan_id)
    figures = check_figures(
        plan.schedule,
        objective=plan.objective,
        iteration_us=plan.iteration_us,
        makespan_us=plan.makespan_us,
        lower_bound_us=plan.lower_bound_us,
    )
    return [*check_schedule(plan.schedule), *figures, *_check_rows(plan, rows)]


def _check_rows(plan: Plan, rows: list[Cells]) -> Iterator[Violation]:
    """Rows are the job's own, and their operations as long as its stages' times say."""
    for row in rows:
        if _fits(plan.job, row):
            yield from _check_lengths(plan.job, row)
        else:
            yield Violation(
                rule="cells",
                ops=(),
                detail=f"the job has no row of {len(row.executor)} micro-batches of pipeline "
                f"{row.home} in stage {row.stage}",
            )


def _check_lengths(job: Job, row: Cells) -> Iterator[Violation]:
    times = job.times[row.stage]
    lengths_us: dict[Operation, tuple[int, int]] = {
        "F": (row.forward_us, times.forward_us),
        "I": (row.input_grad_us, times.input_grad_us),
        "W": (row.weight_grad_us, times.weight_grad_us),
    }
    for op, (found, expected) in lengths_us.items():
        if found != expected:
            yield Violation(
                rule="duration",
                ops=tuple(op_id(op, row.home, row.stage, j) for j in range(job.micro_batches)),
                detail=f"{op} of pipeline {row.home} in stage {row.stage} takes {found} us, "
                f"in the job {expected}",
            )
