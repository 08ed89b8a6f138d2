"""Measured times and memory of a job's stages."""

from __future__ import annotations

from typing import Literal

from apiary import Database, function
from functions.recycle.errors import Conflict, InvalidArgument, UnknownId, declared
from functions.recycle.records import OperationTime, StageBytes
from workflows.recycle.job import StageMemory, StageTimes

__all__ = ["memory_of", "store_profile", "times_of"]


@function
def store_profile(
    db: Database,
    profile_id: str,
    source: Literal["samples", "layers"],
    times: list[OperationTime],
    memory: list[StageBytes],
    run: str,
) -> str:
    """Store a profile; its id. The same again changes nothing, other figures are a Conflict."""
    stages = 1 + max((row.stage for row in times), default=-1)
    if stages == 0:
        raise InvalidArgument("a profile needs at least one stage")
    if memory and sorted(row.stage for row in memory) != list(range(stages)):
        raise InvalidArgument(f"memory is given for some of the {stages} stages: give it for all")
    new = db.execute(
        "INSERT INTO recycle.profile (profile_id, source, stages, run_id) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT DO NOTHING",
        profile_id,
        source,
        stages,
        run,
    )
    if not new:
        _require_same(db, profile_id, times, memory)
        return profile_id
    db.execute_many(
        "INSERT INTO recycle.stage_profile"
        " (profile_id, stage, operation, median_us, p95_us, samples)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        [(profile_id, t.stage, t.operation, t.median_us, t.p95_us, t.samples) for t in times],
    )
    if memory:
        db.execute_many(
            "INSERT INTO recycle.stage_memory (profile_id, stage, limit_bytes, static_bytes,"
            " forward_bytes, input_grad_bytes, weight_grad_bytes)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7)",
            [
                (
                    profile_id,
                    m.stage,
                    m.limit_bytes,
                    m.static_bytes,
                    m.forward_bytes,
                    m.input_grad_bytes,
                    m.weight_grad_bytes,
                )
                for m in memory
            ],
        )
    times_of(db, profile_id)
    memory_of(db, profile_id)
    return profile_id


def _require_same(
    db: Database, profile_id: str, times: list[OperationTime], memory: list[StageBytes]
) -> None:
    stored = db.query(
        "SELECT stage, operation, median_us, p95_us, samples FROM recycle.stage_profile"
        " WHERE profile_id = $1",
        profile_id,
    )
    given = {(t.stage, t.operation, t.median_us, t.p95_us, t.samples) for t in times}
    held = db.query(
        "SELECT stage, limit_bytes, static_bytes, forward_bytes, input_grad_bytes,"
        " weight_grad_bytes FROM recycle.stage_memory WHERE profile_id = $1",
        profile_id,
    )
    same_memory = {StageBytes(**row) for row in held} == set(memory)
    if {tuple(row.values()) for row in stored} != given or not same_memory:
        raise Conflict(
            f"profile {profile_id!r} is stored with other figures: choose another id",
            profile_id=profile_id,
        )


def times_of(db: Database, profile_id: str) -> tuple[StageTimes, ...]:
    """The stages' times by their medians; the optimizer step includes the all-reduce."""
    rows = db.query(
        "SELECT stage, operation, median_us FROM recycle.stage_profile WHERE profile_id = $1"
        " ORDER BY stage",
        profile_id,
    )
    if not rows:
        raise UnknownId(
            f"no profile {profile_id!r} is stored: make one with recycle.profile",
            kind="profile",
            id=profile_id,
        )
    stages: dict[int, dict[str, int]] = {}
    for row in rows:
        stages.setdefault(row.stage, {})[row.operation] = row.median_us
    with declared():
        return tuple(
            StageTimes(
                forward_us=stages.get(stage, {}).get("forward", 0),
                input_grad_us=stages.get(stage, {}).get("input_grad", 0),
                weight_grad_us=stages.get(stage, {}).get("weight_grad", 0),
                transfer_us=stages.get(stage, {}).get("transfer", 0),
                optimizer_us=stages.get(stage, {}).get("all_reduce", 0)
                + stages.get(stage, {}).get("optimizer", 0),
            )
            for stage in range(max(stages) + 1)
        )


def memory_of(db: Database, profile_id: str) -> tuple[StageMemory, ...] | None:
    """The stages' memory; None where it was not given."""
    rows = db.query(
        "SELECT limit_bytes, static_bytes, forward_bytes, input_grad_bytes, weight_grad_bytes"
        " FROM recycle.stage_memory WHERE profile_id = $1 ORDER BY stage",
        profile_id,
    )
    with declared():
        return tuple(StageMemory(**row) for row in rows) if rows else None
