"""Live training: segments between checkpoints, each committed once."""

from __future__ import annotations

from apiary import Database, Row, function
from workflows.sailor.plan import Plan

from .errors import BadJob, BadPlan, Conflict
from .jobs import job_row
from .plans import stored_plan
from .records import CheckpointRow, LiveSegment, LiveShape

__all__ = ["commit_segment", "finish_job", "newest_checkpoint", "next_segment", "training_course"]


@function
def newest_checkpoint(db: Database, job_id: str) -> CheckpointRow | None:
    """The newest complete checkpoint of a job, None before the first."""
    return _newest(db, job_id)


def _newest(db: Database, job_id: str) -> CheckpointRow | None:
    row = db.first(
        "SELECT slot, step, location FROM sailor.checkpoint WHERE job_id = $1 AND complete"
        " ORDER BY step DESC LIMIT 1",
        job_id,
    )
    return None if row is None else CheckpointRow(**row)


@function
def next_segment(
    db: Database, job_id: str, steps: int, until: int, folder: str, run_id: str
) -> LiveSegment | None:
    """What to train next: up to ``steps`` steps under the job's plan of now; None when done.

    The slot that does not hold the newest complete checkpoint is given to it, and is incomplete
    until the segment is committed.
    """
    job = job_row(db, job_id)
    if steps < 1 or until < 1:
        raise BadJob(f"{steps} steps at a time until step {until}: expected at least 1 of each")
    if job.steps >= until:
        return None
    if job.plan_id is None or job.shape is None:
        raise BadJob(
            f"job {job_id!r} has {'no plan yet' if job.plan_id is None else 'no shape'}; a live job"
            " needs both: submit it with a shape, and wait for a plan"
        )
    start = _newest(db, job_id)
    slot = 0 if start is None else 1 - start.slot
    count = min(steps, until - job.steps)
    db.execute(
        "INSERT INTO sailor.checkpoint (job_id, slot, step, complete, location, run_id)"
        " VALUES ($1, $2, $3, false, $4, $5) ON CONFLICT (job_id, slot) DO UPDATE"
        " SET step = excluded.step, complete = false, location = excluded.location,"
        " written_at = now(), run_id = excluded.run_id",
        job_id,
        slot,
        job.steps + count,
        folder,
        run_id,
    )
    return _segment(db, job, start, slot, count, folder)


def _segment(
    db: Database, job: Row, start: CheckpointRow | None, slot: int, count: int, folder: str
) -> LiveSegment:
    _, plan = stored_plan(db, job.plan_id)
    _require_even(plan)
    return LiveSegment(
        job_id=job.job_id,
        plan_id=job.plan_id,
        version=job.version,
        first_step=job.steps,
        steps=count,
        split=list(plan.split),
        replicas=plan.width,
        microbatch=plan.microbatch,
        global_batch=db.value(
            "SELECT global_batch FROM sailor.model WHERE model_id = $1", job.model_id
        ),
        shape=LiveShape(**job.shape),
        start=start,
        slot=slot,
        folder=folder,
    )


def _require_even(plan: Plan) -> None:
    if any(len(stage.replicas) != plan.width for stage in plan.stages) or any(
        replica.degree != 1 for stage in plan.stages for replica in stage.replicas
    ):
        raise BadPlan("a live job runs plans with equally many replicas per stage and degree 1")


@function
def commit_segment(
    db: Database, done: LiveSegment, seconds: list[float], losses: list[float], run_id: str
) -> int:
    """Keep a segment's measurements and make its checkpoint the newest; the steps done so far.

    Conflict: somebody else has trained these steps.
    """
    job = job_row(db, done.job_id)
    if job.steps != done.first_step:
        raise Conflict(
            f"job {done.job_id!r} is at step {job.steps}, the segment begins at {done.first_step}:"
            " another run trains the job",
            name=done.job_id,
        )
    after = done.first_step + done.steps
    db.execute_many(
        "INSERT INTO sailor.measured (job_id, step, plan_id, seconds, loss, run_id)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        [
            (done.job_id, done.first_step + i, done.plan_id, took, loss, run_id)
            for i, (took, loss) in enumerate(zip(seconds, losses, strict=True))
        ],
    )
    db.execute(
        "UPDATE sailor.checkpoint SET complete = true, written_at = now()"
        " WHERE job_id = $1 AND slot = $2 AND step = $3",
        done.job_id,
        done.slot,
        after,
    )
    db.execute("UPDATE sailor.job SET steps = $2 WHERE job_id = $1", done.job_id, after)
    db.execute(
        "UPDATE sailor.reconfiguration SET resumed_at = now()"
        " WHERE job_id = $1 AND version = $2 AND resumed_at IS NULL AND state = 'APPLIED'",
        done.job_id,
        done.version,
    )
    return after


@function
def finish_job(db: Database, job_id: str) -> None:
    """The job is done: changes of availability do not concern it any more."""
    db.execute("UPDATE sailor.job SET state = 'DONE' WHERE job_id = $1", job_row(db, job_id).job_id)


@function
def training_course(db: Database, job_id: str) -> tuple[list[float], list[int]]:
    """Loss and plan of every step so far."""
    rows = db.query(
        "SELECT loss, plan_id FROM sailor.measured WHERE job_id = $1 ORDER BY step", job_id
    )
    return [row.loss for row in rows], [row.plan_id for row in rows]
