"""Running jobs: their control state, and what events do to it.

A job's row is its lock: an event takes it before it reads, and writes it under compare-and-set on
the epoch, so that of two events at once the second sees what the first did.
"""

from __future__ import annotations

from typing import Any

from apiary import Database, Row, function
from functions.recycle.errors import Conflict, InvalidArgument, UnknownId, declared
from functions.recycle.plans import plan_setting
from functions.recycle.records import EventAnswer
from workflows.recycle.errors import Conflict as ModelConflict
from workflows.recycle.failures import plan_key
from workflows.recycle.job import Job, Worker
from workflows.recycle.state import (
    Event,
    EventKind,
    JobState,
    Member,
    Move,
    Outcome,
    initial_state,
)
from workflows.recycle.transitions import SwitchPolicy, Transition, apply_event

__all__ = ["attach_plan", "create_job", "job_outcomes", "job_plan_set", "job_state", "on_event"]


@function
def create_job(
    db: Database,
    job_id: str,
    plan_set_id: str,
    run: str,
    expected_iterations: float = 1000.0,
    copy_us: float = 0.0,
    allow_moves: bool = True,
) -> JobState:
    """A job with all workers live, on the fault-free plan; its state.

    ``expected_iterations`` (until the next event) and ``copy_us`` (of one stage's state) decide
    whether workers move between stages. The same job again is a look at it; with another plan set
    or another policy it is a Conflict.
    """
    setting = plan_setting(db, plan_set_id)
    if not 0 <= expected_iterations < float("inf") or not 0 <= copy_us < float("inf"):
        raise InvalidArgument(
            f"expected_iterations = {expected_iterations}, copy_us = {copy_us}: expected both"
            " finite and at least 0"
        )
    with declared():
        job = Job.from_json(setting.job)
        counts = (0,) * job.stages
        key = plan_key(counts, setting.objective, split=setting.split)
        state = initial_state(job_id, job.pipelines, job.stages, key)
    new = db.execute(
        "INSERT INTO recycle.job (job_id, plan_set_id, expected_iterations, copy_us, allow_moves,"
        " epoch, phase, iteration, attempt, counts, plan_key, active_plan, moves, run_id)"
        " VALUES ($1, $2, $3, $4, $5, 0, 'running', 0, 0, $6, $7, $8, '[]'::jsonb, $9)"
        " ON CONFLICT DO NOTHING",
        job_id,
        plan_set_id,
        expected_iterations,
        copy_us,
        allow_moves,
        list(counts),
        key,
        _plan_id(db, plan_set_id, key),
        run,
    )
    if not new:
        return _same_job(db, job_id, (plan_set_id, expected_iterations, copy_us, allow_moves))
    db.execute_many(
        "INSERT INTO recycle.worker (job_id, pipeline, stage, state, role_pipeline, role_stage)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        [(job_id, *m.worker, m.state, *m.worker) for m in state.members],
    )
    return state


def _same_job(db: Database, job_id: str, wanted: tuple[Any, ...]) -> JobState:
    row = _job_row(db, job_id)
    if (row.plan_set_id, row.expected_iterations, row.copy_us, row.allow_moves) != wanted:
        raise Conflict(
            f"job {job_id!r} is stored with another plan set or policy: choose another id",
            job_id=job_id,
        )
    return _state(db, row)


def _plan_id(db: Database, plan_set_id: str, key: str | None) -> int | None:
    found: int | None = db.value(
        "SELECT plan_id FROM recycle.plan WHERE plan_set_id = $1 AND plan_key = $2 AND sealed",
        plan_set_id,
        key,
    )
    return found


def _require_row(row: Row | None, job_id: str) -> Row:
    if row is None:
        raise UnknownId(
            f"no job {job_id!r} is stored: make one with recycle.create_job",
            kind="job",
            id=job_id,
        )
    return row


def _job_row(db: Database, job_id: str) -> Row:
    row = db.first("SELECT * FROM recycle.job WHERE job_id = $1", job_id)
    return _require_row(row, job_id)


def _locked_job_row(db: Database, job_id: str) -> Row:
    row = db.first("SELECT * FROM recycle.job WHERE job_id = $1 FOR UPDATE", job_id)
    return _require_row(row, job_id)


def _state(db: Database, row: Row) -> JobState:
    workers = db.query(
        "SELECT pipeline, stage, state, role_pipeline, role_stage FROM recycle.worker"
        " WHERE job_id = $1 ORDER BY pipeline, stage",
        row.job_id,
    )
    members = tuple(
        Member(
            worker=Worker(w.pipeline, w.stage),
            state=w.state,
            role=None if w.role_stage is None else Worker(w.role_pipeline, w.role_stage),
        )
        for w in workers
    )
    return JobState(
        job_id=row.job_id,
        pipelines=1 + max(m.worker.pipeline for m in members),
        stages=len(row.counts),
        epoch=row.epoch,
        phase=row.phase,
        iteration=row.iteration,
        attempt=row.attempt,
        counts=tuple(row.counts),
        plan_key=row.plan_key,
        next_counts=None if row.next_counts is None else tuple(row.next_counts),
        members=members,
        moves=tuple(Move.from_json(move) for move in row.moves),
    )


@function
def job_state(db: Database, job_id: str) -> JobState:
    """The control state of a job."""
    return _state(db, _job_row(db, job_id))


@function
def job_plan_set(db: Database, job_id: str) -> str:
    """The plan set that a job runs on."""
    plan_set_id: str = _job_row(db, job_id).plan_set_id
    return plan_set_id


@function
def job_outcomes(db: Database, job_id: str) -> list[Outcome]:
    """What the events of a job did, oldest first."""
    _job_row(db, job_id)
    outcomes = db.values(
        "SELECT outcome FROM recycle.event WHERE job_id = $1 ORDER BY number", job_id
    )
    return [Outcome.from_json(outcome) for outcome in outcomes]


@function
def on_event(
    db: Database,
    job_id: str,
    event_key: str,
    kind: EventKind,
    worker: Worker | None = None,
    epoch: int | None = None,
    iteration: int | None = None,
    attempt: int | None = None,
    loss: float | None = None,
) -> EventAnswer:
    """Apply an event to a job: the state's next epoch and the stored plan for it, at once.

    The same event under the same key has the answer that it had the first time, and changes
    nothing; another event under that key is a Conflict, as is an event for another ``epoch`` than
    the job's, the join of a live worker, or the failure of a dead one. ``worker`` is for fail and
    join, ``iteration`` for commit and restart, ``attempt`` and ``loss`` for commit.
    """
    if not event_key:
        raise InvalidArgument("an event needs a key that is its own", argument="event_key")
    event = Event(
        event_key=event_key,
        kind=kind,
        worker=worker,
        epoch=epoch,
        iteration=iteration,
        attempt=attempt,
        loss=loss,
    )
    row = _locked_job_row(db, job_id)
    recorded = db.first(
        "SELECT outcome, plan_id FROM recycle.event WHERE job_id = $1 AND event_key = $2",
        job_id,
        event_key,
    )
    state = _state(db, row)
    if recorded is not None:
        return _again(event, recorded)
    with declared():
        after = apply_event(state, event, _policy(db, row))
    plan_id = _plan_id(db, row.plan_set_id, after.state.plan_key)
    _save(db, state, after.state, plan_id)
    _record(db, job_id, after, plan_id)
    return EventAnswer(plan_id=plan_id, outcome=after.outcome)


def _again(event: Event, recorded: Row) -> EventAnswer:
    outcome = Outcome.from_json(recorded.outcome)
    if outcome.event != event:
        with declared():
            raise ModelConflict(
                f"event key {event.event_key!r} was used for another event; a new event needs a "
                "new key",
                event_key=event.event_key,
            )
    return EventAnswer(plan_id=recorded.plan_id, outcome=outcome)


def _policy(db: Database, row: Row) -> SwitchPolicy:
    setting = plan_setting(db, row.plan_set_id)
    stored = db.query(
        "SELECT counts, iteration_us FROM recycle.plan WHERE plan_set_id = $1 AND sealed",
        row.plan_set_id,
    )
    return SwitchPolicy(
        job=Job.from_json(setting.job),
        objective=setting.objective,
        split=setting.split,
        iterations_us={tuple(plan.counts): plan.iteration_us for plan in stored},
        expected_iterations=row.expected_iterations,
        copy_us=row.copy_us,
        allow_moves=row.allow_moves,
    )


def _save(db: Database, before: JobState, after: JobState, plan_id: int | None) -> None:
    """Replace the state, if it is still the one that was read."""
    changed = db.execute(
        "UPDATE recycle.job SET epoch = $2, phase = $3, iteration = $4, attempt = $5, counts = $6,"
        " plan_key = $7, active_plan = $8, next_counts = $9, moves = $10"
        " WHERE job_id = $1 AND epoch = $11 AND iteration = $12",
        after.job_id,
        after.epoch,
        after.phase,
        after.iteration,
        after.attempt,
        list(after.counts),
        after.plan_key,
        plan_id,
        None if after.next_counts is None else list(after.next_counts),
        [move.to_json() for move in after.moves],
        before.epoch,
        before.iteration,
    )
    if changed != 1:
        raise Conflict(
            f"job {after.job_id!r} left epoch {before.epoch} meanwhile: read its state again",
            expected=before.epoch,
        )
    for old, new in zip(before.members, after.members, strict=True):
        if old != new:
            role = (None, None) if new.role is None else tuple(new.role)
            db.execute(
                "UPDATE recycle.worker SET state = $4, role_pipeline = $5, role_stage = $6"
                " WHERE job_id = $1 AND pipeline = $2 AND stage = $3",
                after.job_id,
                new.worker.pipeline,
                new.worker.stage,
                new.state,
                *role,
            )


def _record(db: Database, job_id: str, after: Transition, plan_id: int | None) -> None:
    event, outcome = after.outcome.event, after.outcome
    if event.kind == "commit":
        db.execute(
            "INSERT INTO recycle.iteration (job_id, iteration, attempt, loss, ms)"
            " SELECT $1, $2, $3, $4, coalesce(extract(epoch FROM clock_timestamp()"
            "        - (SELECT max(happened_at) FROM recycle.event WHERE job_id = $1)) * 1000, 0)",
            job_id,
            event.iteration,
            event.attempt,
            event.loss,
        )
    pipeline, stage = (None, None) if event.worker is None else tuple(event.worker)
    db.execute(
        "INSERT INTO recycle.event (job_id, event_key, kind, pipeline, stage, number, happened_at,"
        " epoch, plan_before, plan_after, plan_id, moves, outcome)"
        " SELECT $1, $2, $3, $4, $5, 1 + count(*), clock_timestamp(), $6, $7, $8, $9, $10, $11"
        "   FROM recycle.event WHERE job_id = $1",
        job_id,
        event.event_key,
        event.kind,
        pipeline,
        stage,
        outcome.epoch,
        outcome.plan_before,
        outcome.plan_after,
        plan_id,
        len(outcome.moves),
        outcome.to_json(),
    )


@function
def attach_plan(db: Database, job_id: str) -> int | None:
    """Let a job run on the plan of its counts, now that it is stored; its id, None if it is not."""
    row = _locked_job_row(db, job_id)
    plan_id = _plan_id(db, row.plan_set_id, row.plan_key)
    db.execute("UPDATE recycle.job SET active_plan = $2 WHERE job_id = $1", job_id, plan_id)
    return plan_id
