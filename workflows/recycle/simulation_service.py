"""Simulations of a stored plan set's job, for the bodies of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from apiary import progress, run_id
from functions import recycle
from functions.recycle.records import IntervalRow, SimulationFigures
from workflows.recycle.errors import InvalidArgument
from workflows.recycle.job import Job, Worker
from workflows.recycle.pictures import throughput_by_failures_svg, throughput_over_time_svg
from workflows.recycle.simulate import SimulationRun, simulate, throughput_by_failures
from workflows.recycle.systems import Costs, RecycleOptions
from workflows.recycle.traces import Trace, exponential_trace

__all__ = ["simulate_stored"]

PORTION = 10_000
"""Intervals in one transaction."""

MAX_DRAWN_FAILURES = 24


def simulate_stored(
    plan_set_id: str,
    document: dict[str, Any],
    *,
    systems: list[str],
    period_source: Literal["plan", "bound"],
    costs: dict[str, float],
) -> tuple[int, list[SimulationFigures]]:
    """Run the systems and store their intervals and pictures; events of the trace and figures."""
    setting = recycle.plan_setting(plan_set_id)
    job = Job.from_json(setting.job)
    trace = _trace(job, document)
    unknown = sorted(set(costs) - set(Costs.__dataclass_fields__))
    if unknown:
        known = ", ".join(Costs.__dataclass_fields__)
        raise InvalidArgument(f"costs {unknown} are unknown: expected some of {known}")
    chosen = Costs(**costs)  # type: ignore[arg-type]  # spares is checked there
    options = RecycleOptions(objective=setting.objective, period_source=period_source)
    runs = []
    for done, system in enumerate(systems):
        runs += simulate(job, trace, [system], costs=chosen, recycle=options)
        _store_intervals(runs[-1])
        progress(done + 1, len(systems), system)
    _draw(job, runs, systems, options)
    return len(trace.events), [_figures(run) for run in runs]


def _trace(job: Job, document: dict[str, Any]) -> Trace:
    if "events" in document:
        return Trace.from_json(document).validate(job)
    return exponential_trace(
        job,
        mtbf_s=document["mtbf_s"],
        repair_s=document["repair_s"],
        horizon_s=document["horizon_s"],
        seed=document["seed"],
    )


def _store_intervals(run: SimulationRun) -> None:
    for first, rows in _portions(run):
        recycle.store_intervals(run_id(), run.system, first, rows)


def _portions(run: SimulationRun) -> Iterator[tuple[int, list[IntervalRow]]]:
    rows = [
        (i.start_s, i.end_s, i.failed, i.iteration_us, i.downtime_s, i.iterations)
        for i in run.intervals
    ]
    for first in range(0, len(rows), PORTION):
        yield first, rows[first : first + PORTION]


def _figures(run: SimulationRun) -> SimulationFigures:
    return SimulationFigures(
        system=run.system,
        iterations=run.iterations,
        micro_batches_per_s=run.micro_batches_per_s,
        normalised=run.normalised,
        downtime_s=run.downtime_s,
        restarts=run.restarts,
    )


def _draw(job: Job, runs: list[SimulationRun], systems: list[str], options: RecycleOptions) -> None:
    over_time = throughput_over_time_svg(runs, batch=job.batch)
    recycle.store_picture(run_id(), "throughput over time", over_time)
    # One stage after another loses a worker, as in the best plans.
    order = [Worker(k, i) for k in range(1, job.pipelines) for i in range(job.stages)]
    series = throughput_by_failures(job, order[:MAX_DRAWN_FAILURES], systems, recycle=options)
    recycle.store_picture(run_id(), "throughput by failures", throughput_by_failures_svg(series))
