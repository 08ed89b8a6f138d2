"""Plan sets, their plans and the operations of these."""

from __future__ import annotations

import json

from apiary import Database, function
from functions.recycle.errors import Conflict, InvalidArgument, UnknownId, declared
from functions.recycle.profiles import memory_of, times_of
from functions.recycle.records import (
    MAX_CELLS,
    Cells,
    OpRow,
    PlanFigures,
    PlanRequest,
    PlanSetting,
    PlanSummary,
    StoredPlan,
)
from workflows.recycle.bounds import free_failures
from workflows.recycle.failures import canonical_failures, check_failures, failure_counts, plan_key
from workflows.recycle.job import Job, activation_cap
from workflows.recycle.plan_tasks import SolverLimits, list_plan_tasks

__all__ = [
    "add_cells",
    "begin_plan",
    "find_plan",
    "open_plan_set",
    "plan_cells",
    "plan_ops",
    "plan_setting",
    "plan_summary",
    "planned_ops",
    "seal_plan",
    "stored_plan",
]

MAX_OPS = 50_000


@function
def open_plan_set(
    db: Database, plan_set_id: str, request: PlanRequest, run: str
) -> list[list[list[int]]]:
    """Store a plan set without plans; the counts among which each plan is to be chosen."""
    job = _job_of(db, request)
    with declared():
        limits = SolverLimits(time_limit_s=request.time_limit_s, seed=request.seed)
        tasks = list_plan_tasks(
            job,
            request.f_max,
            objective=request.objective,
            split=request.split,
            engine=request.engine,
            limits=limits,
            scope=request.scope,
        )
    new = db.execute(
        "INSERT INTO recycle.plan_set (plan_set_id, profile_id, pipelines, stages, micro_batches,"
        " f_max, objective, split, engine, time_limit_s, seed, scope, job, run_id)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
        " ON CONFLICT DO NOTHING",
        plan_set_id,
        request.profile_id,
        job.pipelines,
        job.stages,
        job.micro_batches,
        request.f_max,
        request.objective,
        request.split,
        request.engine,
        request.time_limit_s,
        request.seed,
        request.scope,
        json.loads(json.dumps(job.to_json())),
        run,
    )
    if not new:
        raise Conflict(
            f"plan set {plan_set_id!r} is stored: plans are not changed, choose another id",
            plan_set_id=plan_set_id,
        )
    return [[list(counts) for counts in task.candidates] for task in tasks]


def _job_of(db: Database, request: PlanRequest) -> Job:
    times = times_of(db, request.profile_id)
    if request.stages is not None and request.stages != len(times):
        raise InvalidArgument(
            f"stages = {request.stages}: profile {request.profile_id!r} has {len(times)}",
            argument="stages",
        )
    if request.micro_batches > MAX_CELLS:
        raise InvalidArgument(
            f"micro_batches = {request.micro_batches}: plans of up to {MAX_CELLS} can be stored",
            argument="micro_batches",
        )
    with declared():
        memory = memory_of(db, request.profile_id)
        if request.cap is not None:
            caps = request.cap if isinstance(request.cap, list) else [request.cap] * len(times)
            memory = tuple(activation_cap(cap) for cap in caps)
        return Job(
            pipelines=request.pipelines,
            stages=len(times),
            micro_batches=request.micro_batches,
            times=times,
            memory=memory,
        )


@function
def plan_setting(db: Database, plan_set_id: str) -> PlanSetting:
    """What the plans of a set are made with."""
    row = db.first(
        "SELECT job, objective, split, engine, time_limit_s, seed FROM recycle.plan_set"
        " WHERE plan_set_id = $1",
        plan_set_id,
    )
    if row is None:
        raise UnknownId(
            f"no plan set {plan_set_id!r} is stored: make one with recycle.plan",
            kind="plan set",
            id=plan_set_id,
        )
    return PlanSetting(**row)


@function
def begin_plan(db: Database, plan_set_id: str, counts: list[int], run: str) -> int:
    """Begin to write a plan, in portions; its id. It is seen by nobody until it is sealed."""
    setting = plan_setting(db, plan_set_id)
    plan_id: int = db.value(
        "INSERT INTO recycle.plan (plan_set_id, plan_key, counts, failures, sealed, run_id)"
        " VALUES ($1, $2, $3, $4, false, $5) RETURNING plan_id",
        plan_set_id,
        plan_key(counts, setting.objective, split=setting.split),
        counts,
        sum(counts),
        run,
    )
    return plan_id


# Nobody else writes this plan, and its readers wait until it is sealed.
@function(isolation="read committed")
def add_cells(db: Database, plan_id: int, rows: list[Cells]) -> None:
    """Add rows of cells to a plan that is being written; those it has already are left alone."""
    micro_batches: int | None = db.value(
        "SELECT s.micro_batches FROM recycle.plan JOIN recycle.plan_set s USING (plan_set_id)"
        " WHERE plan_id = $1",
        plan_id,
    )
    if micro_batches is None:
        raise UnknownId(f"no plan {plan_id} was begun", kind="plan", id=plan_id)
    columns = [
        _joined(micro_batches, name, [getattr(row, name) for row in rows])
        for name in (
            "executor",
            "forward_start_us",
            "input_grad_start_us",
            "weight_grad_start_us",
        )
    ]
    db.execute(
        "INSERT INTO recycle.cells (plan_id, stage, home, forward_us, input_grad_us,"
        " weight_grad_us, executor, forward_start_us, input_grad_start_us, weight_grad_start_us)"
        " SELECT $1, stage, home, forward_us, input_grad_us, weight_grad_us,"
        "        ($8::int[])[first : first + $7::int - 1],"
        "        ($9::bigint[])[first : first + $7::int - 1],"
        "        ($10::bigint[])[first : first + $7::int - 1],"
        "        ($11::bigint[])[first : first + $7::int - 1]"
        "   FROM (SELECT r.*, ((r.number - 1) * $7::int + 1)::int AS first"
        "           FROM unnest($2::int[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[])"
        "                WITH ORDINALITY AS r (stage, home, forward_us, input_grad_us,"
        "                                      weight_grad_us, number)) AS added"
        " ON CONFLICT DO NOTHING",
        plan_id,
        [row.stage for row in rows],
        [row.home for row in rows],
        [row.forward_us for row in rows],
        [row.input_grad_us for row in rows],
        [row.weight_grad_us for row in rows],
        micro_batches,
        *columns,
    )


def _joined(micro_batches: int, name: str, parts: list[list[int]]) -> list[int]:
    """The lists of all rows in one: an array of arrays would have to be a matrix."""
    for part in parts:
        if len(part) != micro_batches:
            raise InvalidArgument(
                f"a row of cells has {len(part)} of {name}: expected one for each of the "
                f"{micro_batches} micro-batches",
                argument=name,
            )
    return [value for part in parts for value in part]


@function
def seal_plan(db: Database, plan_id: int, figures: PlanFigures) -> int:
    """Finish a plan; its id, or that of the same set and counts which was sealed before it.

    The draft of the later one is thrown away: whoever reads a plan reads one and the same.
    """
    draft = db.one(
        "SELECT plan_set_id, plan_key, sealed FROM recycle.plan WHERE plan_id = $1", plan_id
    )
    # One after another for a set, or two could find that they are the first.
    job = db.one(
        "SELECT pipelines, stages FROM recycle.plan_set WHERE plan_set_id = $1 FOR UPDATE",
        draft.plan_set_id,
    )
    earlier: int | None = db.value(
        "SELECT plan_id FROM recycle.plan WHERE plan_set_id = $1 AND plan_key = $2 AND sealed",
        draft.plan_set_id,
        draft.plan_key,
    )
    if earlier is not None:
        if earlier != plan_id:
            db.execute("DELETE FROM recycle.cells WHERE plan_id = $1", plan_id)
            db.execute("DELETE FROM recycle.plan WHERE plan_id = $1", plan_id)
        return earlier
    expected = job.pipelines * job.stages
    found: int = db.value(
        "SELECT count(*) FROM recycle.cells WHERE plan_id = $1 AND stage < $2 AND home < $3",
        plan_id,
        job.stages,
        job.pipelines,
    )
    if found != expected:
        raise Conflict(
            f"plan {plan_id} has {found} rows of cells, its job has {expected}", plan_id=plan_id
        )
    db.execute(
        "UPDATE recycle.plan SET sealed = true, iteration_us = $2, makespan_us = $3,"
        " lower_bound_us = $4, in_order_bound_us = $5, status = $6, engine = $7,"
        " solver_seed = $8, wall_ms = $9 WHERE plan_id = $1",
        plan_id,
        figures.iteration_us,
        figures.makespan_us,
        figures.lower_bound_us,
        figures.in_order_bound_us,
        figures.status,
        figures.engine,
        figures.solver_seed,
        figures.wall_ms,
    )
    return plan_id


@function
def stored_plan(db: Database, plan_id: int) -> StoredPlan:
    """A plan without its operations."""
    row = db.first(
        "SELECT plan_id, plan_set_id, plan_key, counts, iteration_us, makespan_us, lower_bound_us,"
        " status, engine, gap FROM recycle.plan WHERE plan_id = $1 AND sealed",
        plan_id,
    )
    if row is None:
        raise UnknownId(f"no plan {plan_id} is stored", kind="plan", id=plan_id)
    return StoredPlan(**row)


@function
def plan_summary(db: Database, plan_set_id: str) -> PlanSummary:
    """All plans of a set, by failures, and how many failures cost nothing."""
    setting = plan_setting(db, plan_set_id)
    rows = db.query(
        "SELECT plan_id, plan_set_id, plan_key, counts, iteration_us, makespan_us, lower_bound_us,"
        " status, engine, gap FROM recycle.plan WHERE plan_set_id = $1 AND sealed"
        " ORDER BY failures, counts",
        plan_set_id,
    )
    with declared():
        budget = free_failures(Job.from_json(setting.job))
    return PlanSummary(
        plan_set_id=plan_set_id,
        plans=[StoredPlan(**row) for row in rows],
        free_failures=budget,
    )


@function
def plan_cells(db: Database, plan_id: int, first: int, rows: int) -> list[Cells]:
    """The cells of a plan, in rows by stage and home: ``rows`` of them from ``first`` on."""
    stored_plan(db, plan_id)
    found = db.query(
        "SELECT stage, home, forward_us, input_grad_us, weight_grad_us, executor,"
        " forward_start_us, input_grad_start_us, weight_grad_start_us FROM recycle.cells"
        " WHERE plan_id = $1 ORDER BY stage, home LIMIT $2 OFFSET $3",
        plan_id,
        rows,
        first,
    )
    return [Cells(**row) for row in found]


@function
def plan_ops(db: Database, plan_id: int, first: int = 0, rows: int = MAX_OPS) -> list[OpRow]:
    """The operations of a plan by stage, home, micro-batch: ``rows`` of them from ``first`` on."""
    plan_set_id = stored_plan(db, plan_id).plan_set_id
    if first < 0 or not 0 < rows <= MAX_OPS:
        raise InvalidArgument(
            f"first = {first}, rows = {rows}: expected at least 0, and 1..{MAX_OPS}"
        )
    job = db.one(
        "SELECT pipelines, micro_batches FROM recycle.plan_set WHERE plan_set_id = $1", plan_set_id
    )
    # A sealed plan has all its rows, and all are of one length: which ones are wanted is known.
    length = 3 * job.micro_batches
    from_row, skipped = divmod(first, length)
    to_row = (first + rows - 1) // length
    found = db.query(
        "SELECT pipeline, stage, op, home, micro_batch, start_us, end_us FROM recycle.op"
        " WHERE plan_id = $1 AND (stage, home) >= ($2::bigint, $3)"
        " AND (stage, home) <= ($4::bigint, $5)"
        " ORDER BY stage, home, micro_batch, op LIMIT $6 OFFSET $7",
        plan_id,
        *divmod(from_row, job.pipelines),
        *divmod(to_row, job.pipelines),
        rows,
        skipped,
    )
    return [(r.pipeline, r.stage, r.op, r.home, r.micro_batch, r.start_us, r.end_us) for r in found]


@function
def find_plan(db: Database, plan_set_id: str, counts: list[int]) -> int | None:
    """The id of the plan for these counts; None if the set has none."""
    setting = plan_setting(db, plan_set_id)
    found: int | None = db.value(
        "SELECT plan_id FROM recycle.plan WHERE plan_set_id = $1 AND plan_key = $2 AND sealed",
        plan_set_id,
        plan_key(counts, setting.objective, split=setting.split),
    )
    return found


@function
def planned_ops(
    db: Database,
    plan_set_id: str,
    failed: list[tuple[int, int]],
    first: int = 0,
    rows: int = MAX_OPS,
) -> list[OpRow] | None:
    """The operations when exactly these workers are dead; None if no plan of the counts is stored.

    Within a stage the live workers take the plan's roles in order; any may, since all of them hold
    the same parameters.
    """
    with declared():
        job = Job.from_json(plan_setting(db, plan_set_id).job)
        dead = check_failures(job, failed)
        counts = failure_counts(job, dead)
        planned_dead = canonical_failures(job, counts)
    plan_id = find_plan(db, plan_set_id, list(counts))
    if plan_id is None:
        return None
    names = {}
    for stage in range(job.stages):
        roles = [k for k in range(job.pipelines) if (k, stage) not in planned_dead]
        live = [k for k in range(job.pipelines) if (k, stage) not in dead]
        names.update({(role, stage): k for role, k in zip(roles, live, strict=True)})
    return [
        (names[pipeline, stage], stage, op, home, micro_batch, start_us, end_us)
        for pipeline, stage, op, home, micro_batch, start_us, end_us in plan_ops(
            db, plan_id, first, rows
        )
    ]
