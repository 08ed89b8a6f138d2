"""Jobs and their reconfigurations: at most one change of a job per availability version."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from apiary import Database, Row, function
from workflows.sailor.plan import Plan, parse_availability, within
from workflows.sailor.reconfiguration import Action, actions
from workflows.sailor.search_result import Candidate
from workflows.sailor.simulator import simulate
from workflows.sailor.switching import Policy, Segment, next_plan

from .availability import newest_version, stored_availability
from .errors import Conflict, UnknownName, declared
from .inputs import covering_profile
from .plans import plan_problem, question, store_search, stored_plan
from .records import Begun, GoalSpec, JobSpec, LiveShape, Question, Reconfigured, Searched

__all__ = [
    "begin_reconfiguration",
    "commit_reconfiguration",
    "jobs_to_replan",
    "open_job",
]

REPLANNING = "REPLANNING"


@function
def open_job(db: Database, job: JobSpec, run_id: str) -> str:
    """Open a job, once. Conflict: it is open with other figures."""
    db.execute(
        "INSERT INTO sailor.job (job_id, model_id, objective, max_cost_usd, min_iterations_per_s,"
        " planner, profile, time_limit_s, reconfiguration_s, expected_segment_s, shape, run_id)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
        " ON CONFLICT (job_id) DO NOTHING",
        job.job_id,
        job.model,
        job.goal.objective,
        job.goal.max_cost_usd,
        job.goal.min_iterations_per_s,
        job.planner,
        job.profile,
        job.time_limit_s,
        job.reconfiguration_s,
        job.expected_segment_s,
        None if job.shape is None else asdict(job.shape),
        run_id,
    )
    stored = job_spec(job_row(db, job.job_id))
    if stored != job:
        raise Conflict(
            f"job {job.job_id!r} is open as {stored}, given {job}; choose another name",
            name=job.job_id,
        )
    return job.job_id


def job_row(db: Database, job_id: str) -> Row:
    """A job's row, or UnknownName."""
    row = db.first("SELECT * FROM sailor.job WHERE job_id = $1", job_id)
    if row is None:
        raise UnknownName(
            f"unknown job {job_id!r}; open it with sailor.submit", kind="job", name=job_id
        )
    return row


def job_spec(row: Row) -> JobSpec:
    """What a job was opened with."""
    return JobSpec(
        job_id=row.job_id,
        model=row.model_id,
        goal=GoalSpec(
            objective=row.objective,
            max_cost_usd=row.max_cost_usd,
            min_iterations_per_s=row.min_iterations_per_s,
        ),
        planner=row.planner,
        profile=row.profile,
        time_limit_s=row.time_limit_s,
        reconfiguration_s=row.reconfiguration_s,
        expected_segment_s=row.expected_segment_s,
        shape=None if row.shape is None else LiveShape(**row.shape),
    )


@function
def jobs_to_replan(db: Database) -> list[str]:
    """Jobs that are not done."""
    return db.values("SELECT job_id FROM sailor.job WHERE state <> 'DONE' ORDER BY job_id")


@function
def begin_reconfiguration(db: Database, job_id: str, version: int, run_id: str) -> Begun:
    """Begin a job's answer to a version; whoever asks again gets what was decided."""
    job = job_row(db, job_id)
    changed_at = db.value(
        "SELECT changed_at FROM sailor.availability_version WHERE version = $1", version
    )
    if changed_at is None:
        raise UnknownName(f"unknown version {version}", kind="version", name=str(version))
    row = _reconfiguration(db, job_id, version)
    if row is not None and row.state != REPLANNING:
        return Begun(question=None, decided=_decided(row), planner=job.planner, time_limit_s=None)
    if row is None:
        db.execute(
            "INSERT INTO sailor.reconfiguration (job_id, version, state, plan_before, changed_at,"
            " run_id) VALUES ($1, $2, 'REPLANNING', $3, $4, $5)",
            job_id,
            version,
            job.plan_id,
            changed_at,
            run_id,
        )
    spec = job_spec(job)
    available = stored_availability(db, version)
    asked = question(db, spec.model, available, spec.goal, spec.profile, run_id, version=version)
    return Begun(question=asked, decided=None, planner=spec.planner, time_limit_s=spec.time_limit_s)


def _question(db: Database, spec: JobSpec, version: int, run_id: str) -> Question | None:
    """What to ask for a job; None if no GPU that can be had has a profile of its model.

    GPUs of other types are left out: what a job cannot use must not keep it from the rest.
    """
    available = stored_availability(db, version)
    gpus = {gpu for (gpu, _), count in parse_availability(available).items() if count}
    profile, usable = covering_profile(db, spec.model, gpus, spec.profile)
    kept = {
        key: count
        for key, count in available.items()
        if count and next(iter(parse_availability({key: count})))[0] in usable
    }
    if not kept:
        return None
    return question(db, spec.model, kept, spec.goal, profile, run_id, version=version)


@function
def commit_reconfiguration(
    db: Database, job_id: str, version: int, found: Searched, run_id: str
) -> Reconfigured:
    """Decide a job's answer to a version, and change the job, in one transaction and once.

    The plan that runs is kept while it is still possible and a switch does not pay within the
    expected length of a segment.
    """
    row = _reconfiguration(db, job_id, version)
    if row is None:
        raise UnknownName(
            f"job {job_id!r} has not begun to answer version {version}",
            kind="reconfiguration",
            name=job_id,
        )
    if row.state != REPLANNING:
        return _decided(row)
    job = job_row(db, job_id)
    if version != newest_version(db) or (job.version or 0) > version:
        return _decide(db, job, version, "SUPERSEDED", job.plan_id)
    return _choose(db, job, version, found, run_id)


def _choose(db: Database, job: Row, version: int, found: Searched, run_id: str) -> Reconfigured:
    spec = job_spec(job)
    places = parse_availability(stored_availability(db, version))
    asked = _question(db, spec, version, run_id)
    assert asked is not None  # or nobody had searched
    rows = store_search(db, asked, found, run_id)
    current = None if job.plan_id is None else _candidate(db, job.plan_id)
    offered = _candidate(db, rows[0].plan_id) if rows else None
    policy = Policy(reconfiguration_s=spec.reconfiguration_s)
    segment = Segment(start_s=0.0, duration_s=spec.expected_segment_s, available=places)
    if offered is None and current is not None and within(current.plan, places):
        offered = current
    chosen = next_plan(current, offered, segment, policy)
    if chosen is None:
        return _decide(db, job, version, "WAITING", None)
    if current is not None and chosen.plan == current.plan:
        return _decide(db, job, version, "KEPT", job.plan_id)
    _store_actions(db, job.job_id, version, current.plan if current else None, chosen.plan)
    return _decide(db, job, version, "APPLIED", rows[0].plan_id)


def _candidate(db: Database, plan_id: int) -> Candidate:
    inputs, plan = stored_plan(db, plan_id)
    with declared():
        return Candidate(plan=plan, estimate=simulate(plan_problem(db, inputs, plan), plan))


def _decide(db: Database, job: Row, version: int, state: str, plan_id: int | None) -> Reconfigured:
    db.execute(
        "UPDATE sailor.reconfiguration SET state = $3, plan_after = $4, decided_at = now()"
        " WHERE job_id = $1 AND version = $2",
        job.job_id,
        version,
        state,
        plan_id,
    )
    if state != "SUPERSEDED":
        db.execute(
            "UPDATE sailor.job SET plan_id = $2, version = $3,"
            " state = CASE WHEN $2::bigint IS NULL THEN 'WAITING' ELSE 'TRAINING' END"
            " WHERE job_id = $1",
            job.job_id,
            plan_id,
            version,
        )
    row = _reconfiguration(db, job.job_id, version)
    assert row is not None
    return _decided(row)


def _reconfiguration(db: Database, job_id: str, version: int) -> Row | None:
    return db.first(
        "SELECT job_id, version, state, plan_before, plan_after FROM sailor.reconfiguration"
        " WHERE job_id = $1 AND version = $2",
        job_id,
        version,
    )


def _decided(row: Row) -> Reconfigured:
    return Reconfigured(
        job_id=row.job_id,
        version=row.version,
        state=row.state,
        plan_before=row.plan_before,
        plan_after=row.plan_after,
    )


def _store_actions(
    db: Database, job_id: str, version: int, before: Plan | None, after: Plan
) -> None:
    todo = actions(before, after)
    db.execute_many(
        "INSERT INTO sailor.reconfiguration_action (job_id, version, action, kind, gpu, degree,"
        " zone, stage_before, replica_before, stage_after, replica_after)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        [(job_id, version, number, *_columns(action)) for number, action in enumerate(todo)],
    )
    db.execute_many(
        "INSERT INTO sailor.reconfiguration_layer (job_id, version, action, layer, does)"
        " VALUES ($1, $2, $3, $4, $5)",
        [
            (job_id, version, number, layer, does)
            for number, action in enumerate(todo)
            for does, layers in (("load", action.load_layers), ("drop", action.drop_layers))
            for layer in layers
        ],
    )


def _columns(action: Action) -> tuple[Any, ...]:
    before, after, worker = action.before, action.after, action.worker
    return (
        action.kind,
        worker.gpu,
        worker.degree,
        worker.zone,
        before.stage if before else None,
        before.replica if before else None,
        after.stage if after else None,
        after.replica if after else None,
    )
