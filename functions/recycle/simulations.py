"""Simulated systems on failure traces, and pictures."""

from __future__ import annotations

from apiary import Database, function
from functions.recycle.errors import UnknownId
from functions.recycle.records import IntervalRow, SimulationFigures

__all__ = ["picture", "store_intervals", "store_picture", "store_simulation"]


@function
def store_intervals(
    db: Database, simulation_id: str, system: str, first: int, rows: list[IntervalRow]
) -> None:
    """Store intervals from number ``first`` on; those stored already are left alone."""
    db.execute_many(
        "INSERT INTO recycle.sim_interval (simulation_id, system, number, start_s, end_s, failed,"
        " iteration_us, downtime_s, iterations) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        " ON CONFLICT DO NOTHING",
        [(simulation_id, system, first + number, *row) for number, row in enumerate(rows)],
    )


@function
def store_simulation(
    db: Database,
    simulation_id: str,
    plan_set_id: str,
    figures: list[SimulationFigures],
    horizon_s: float,
    events: int,
    run: str,
    mtbf_s: float | None = None,
    repair_s: float | None = None,
    seed: int | None = None,
) -> list[SimulationFigures]:
    """Store the figures of a simulation whose intervals are stored; the figures."""
    db.execute_many(
        "INSERT INTO recycle.sim_run (simulation_id, system, plan_set_id, mtbf_s, repair_s,"
        " horizon_s, seed, events, iterations, micro_batches_per_s, normalised, downtime_s,"
        " restarts, run_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
        " ON CONFLICT DO NOTHING",
        [
            (
                simulation_id,
                f.system,
                plan_set_id,
                mtbf_s,
                repair_s,
                horizon_s,
                seed,
                events,
                f.iterations,
                f.micro_batches_per_s,
                f.normalised,
                f.downtime_s,
                f.restarts,
                run,
            )
            for f in figures
        ],
    )
    return figures


@function
def store_picture(db: Database, run: str, name: str, svg: str) -> None:
    """Store a picture of a run, in place of the one of the same name."""
    db.execute(
        "INSERT INTO recycle.picture (run_id, name, svg) VALUES ($1, $2, $3)"
        " ON CONFLICT (run_id, name) DO UPDATE SET svg = excluded.svg",
        run,
        name,
        svg,
    )


@function
def picture(db: Database, run: str, name: str) -> str:
    """The SVG text of a picture."""
    svg: str | None = db.value(
        "SELECT svg FROM recycle.picture WHERE run_id = $1 AND name = $2", run, name
    )
    if svg is None:
        raise UnknownId(f"run {run!r} has no picture {name!r}", kind="picture", id=name)
    return svg
