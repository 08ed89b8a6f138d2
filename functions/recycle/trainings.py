"""Where the processes of training jobs meet, and what they undid."""

from __future__ import annotations

from dataclasses import dataclass

from apiary import Database, function
from functions.recycle.records import RollbackRow

__all__ = ["TrainingPlace", "claim_place", "record_rollbacks", "training_place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlace:
    """A directory on a machine."""

    host: str
    directory: str


@function
def training_place(db: Database, job_id: str) -> TrainingPlace | None:
    """Where the processes of a job share files; None if none was started."""
    row = db.first("SELECT host, directory FROM recycle.training WHERE job_id = $1", job_id)
    return None if row is None else TrainingPlace(**row)


@function
def claim_place(db: Database, job_id: str, place: TrainingPlace) -> TrainingPlace:
    """Let a job's processes share this place; the one that was claimed first."""
    db.execute(
        "INSERT INTO recycle.training (job_id, host, directory) VALUES ($1, $2, $3)"
        " ON CONFLICT DO NOTHING",
        job_id,
        place.host,
        place.directory,
    )
    row = db.one("SELECT host, directory FROM recycle.training WHERE job_id = $1", job_id)
    return TrainingPlace(**row)


@function
def record_rollbacks(db: Database, job_id: str, rows: list[RollbackRow]) -> None:
    """Store which steps were undone; what is stored already is left alone."""
    db.execute_many(
        "INSERT INTO recycle.step_rollback (job_id, iteration, pipeline, stage, steps)"
        " VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
        [(job_id, *row) for row in rows],
    )
