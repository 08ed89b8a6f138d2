"""What was measured, how far the simulator is from it, and what traces would have brought."""

from __future__ import annotations

from typing import Any, Literal

from apiary import Database, function
from workflows.sailor.plan import Plan
from workflows.sailor.validation import Measured, compare_measured, summarise

from .errors import UnknownName, declared
from .inputs import inputs_for
from .plans import plan_problem
from .records import Imported, Inputs, MeasuredPlan, ReplaySegment, Validated

__all__ = [
    "measured_plans",
    "store_calibration",
    "store_measured_plans",
    "store_replay",
    "validate_platform",
]


@function
def store_measured_plans(
    db: Database, platform: str, model: str, plans: list[MeasuredPlan], run_id: str
) -> Imported:
    """Store plans that were run on a platform; those that are stored already stay as they are."""
    stored = db.execute_many(
        "INSERT INTO sailor.measured_plan (platform, name, model_id, global_batch, iteration_s,"
        " reduce_s, peak_bytes, stages, layout, run_id)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
        " ON CONFLICT (platform, name) DO NOTHING",
        [
            (
                platform,
                row.name,
                model,
                row.global_batch,
                row.iteration_s,
                row.reduce_s,
                row.peak_bytes,
                len(row.layout["stages"]),
                row.layout,
                run_id,
            )
            for row in plans
        ],
    )
    return Imported(
        kind="measured plans", name=platform, checksum="", rows=len(plans), stored=stored > 0
    )


def _measured(db: Database, platform: str) -> tuple[str, list[Measured]]:
    rows = db.query(
        "SELECT name, model_id, global_batch, iteration_s, reduce_s, peak_bytes, layout"
        " FROM sailor.measured_plan WHERE platform = $1 ORDER BY name",
        platform,
    )
    if not rows:
        known = db.values("SELECT DISTINCT platform FROM sailor.measured_plan ORDER BY 1")
        raise UnknownName(
            f"no measured plan of platform {platform!r}; stored are {', '.join(known) or 'none'}",
            kind="platform",
            name=platform,
        )
    model = rows[0].model_id
    found = [
        Measured(
            name=row.name,
            plan=Plan.from_json(row.layout),
            global_batch=row.global_batch,
            iteration_s=row.iteration_s,
            reduce_s=row.reduce_s,
            peak_bytes=row.peak_bytes,
        )
        for row in rows
    ]
    return model, found


@function
def validate_platform(
    db: Database,
    platform: str,
    mode: Literal["exact", "published"],
    profile: str,
    leave_out: list[str],
    run_id: str,
) -> Validated:
    """Simulate a platform's measured plans and keep the error of each."""
    model, measured = _measured(db, platform)
    measured = [row for row in measured if row.name not in leave_out]
    with declared():
        inputs = _inputs(db, model, measured, profile, run_id)
        problem = plan_problem(db, inputs, *(row.plan for row in measured))
        compared = compare_measured(problem, measured, mode=mode)
        times = summarise([row.time_error for row in compared])
        memory = summarise([row.memory_error for row in compared])
    db.execute_many(
        "INSERT INTO sailor.validation (run_id, platform, name, mode, iteration_s, peak_bytes,"
        " time_error, memory_error) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        [
            (
                run_id,
                platform,
                row.measured.name,
                mode,
                row.estimate.iteration_s,
                row.estimate.peak_bytes,
                row.time_error,
                row.memory_error,
            )
            for row in compared
        ],
    )
    return Validated(
        platform=platform,
        plans=times.count,
        mean=times.mean,
        median=times.median,
        largest=times.largest,
        memory_mean=memory.mean,
        errors={row.measured.name: row.time_error for row in compared},
    )


def _inputs(
    db: Database, model: str, measured: list[Measured], profile: str, run_id: str
) -> Inputs:
    places = [place for row in measured for place in row.plan.gpus_used()]
    return inputs_for(
        db,
        model,
        sorted({gpu for gpu, _ in places}),
        sorted({zone for _, zone in places}),
        profile,
        run_id,
    )


@function
def measured_plans(
    db: Database, platform: str, profile: str, run_id: str
) -> tuple[Inputs, list[MeasuredPlan]]:
    """A platform's measured plans and the inputs to simulate them with."""
    model, measured = _measured(db, platform)
    with declared():
        inputs = _inputs(db, model, measured, profile, run_id)
    return inputs, [
        MeasuredPlan(
            name=row.name,
            global_batch=row.global_batch,
            iteration_s=row.iteration_s,
            reduce_s=row.reduce_s,
            peak_bytes=row.peak_bytes,
            layout=row.plan.to_json(),
        )
        for row in measured
    ]


@function
def store_calibration(db: Database, calibration: dict[str, Any], run_id: str) -> None:
    """Keep a platform's fitted factors."""
    db.execute(
        "INSERT INTO sailor.calibration (run_id, platform, compute, p2p, sync, plans, error, low,"
        " high) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        run_id,
        calibration["platform"],
        calibration["compute"],
        calibration["p2p"],
        calibration["sync"],
        calibration["plans"],
        calibration["error"],
        calibration["low"],
        calibration["high"],
    )


@function
def store_replay(db: Database, segments: list[ReplaySegment], run_id: str) -> int:
    """Keep what a job would have done under a trace; the number of segments."""
    return db.execute_many(
        "INSERT INTO sailor.replay_segment (run_id, segment, start_s, duration_s, available, used,"
        " switched, iterations, iterations_per_s, cost_usd, layout)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        [
            (
                run_id,
                number,
                row.start_s,
                row.duration_s,
                row.available,
                row.used,
                row.switched,
                row.iterations,
                row.iterations_per_s,
                row.cost_usd,
                row.layout,
            )
            for number, row in enumerate(segments)
        ],
    )
