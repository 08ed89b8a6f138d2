"""Systems on a failure trace: throughput, downtime and restarts.

    iters_e = max(0, interval_e - downtime_e)/T(state_e)
    avg throughput = sum_e iters_e * P*M / horizon;  normalised = avg / fault-free 1F1B throughput

An interval runs from one event to the next; its downtime is what the event that opens it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workflows.recycle.baselines import fault_free_us
from workflows.recycle.job import Job, Worker
from workflows.recycle.systems import (
    Costs,
    Reaction,
    RecycleOptions,
    System,
    make_system,
)
from workflows.recycle.traces import Trace, TraceEvent

__all__ = ["Interval", "SimulationRun", "run_system", "simulate", "throughput_by_failures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From one event to the next."""

    start_s: float
    end_s: float
    failed: int
    """Dead workers during it."""
    iteration_us: float | None
    """None: the system stands still."""
    downtime_s: float
    """Lost at its start, at most its whole length."""
    iterations: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRun:
    """One system on one trace."""

    system: str
    intervals: tuple[Interval, ...]
    iterations: float
    """Done until the horizon; a restart's lost work is part of the downtime."""
    micro_batches_per_s: float
    normalised: float
    """Throughput over that of fault-free 1F1B."""
    downtime_s: float
    """Lost to events, and to standing still."""
    restarts: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return asdict(self) | {"intervals": [asdict(row) for row in self.intervals]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SimulationRun:
        """The run that `to_json` wrote."""
        intervals = tuple(Interval(**row) for row in data["intervals"])
        return cls(**(data | {"intervals": intervals}))


def simulate(
    job: Job,
    trace: Trace,
    systems: Sequence[str],
    *,
    costs: Costs | None = None,
    recycle: RecycleOptions | None = None,
    layer_us: tuple[float, ...] | None = None,
    template_nodes: tuple[int, ...] | None = None,
) -> list[SimulationRun]:
    """Each system on the same trace. Raises `InvalidArgument` for unknown names or a bad trace."""
    trace.validate(job)
    return [
        run_system(
            job,
            trace,
            make_system(
                name,
                job,
                costs or Costs(),
                recycle=recycle,
                layer_us=layer_us,
                template_nodes=template_nodes,
            ),
        )
        for name in systems
    ]


def run_system(job: Job, trace: Trace, system: System) -> SimulationRun:
    """One system through all events of a valid trace."""
    intervals: list[Interval] = []
    restarts, failed, begin_s = 0, 0, 0.0
    reaction = system.start()
    for event in trace.events:
        intervals.append(_interval(begin_s, event.time_s, failed, reaction))
        reaction = system.react(event)
        restarts += reaction.restarted
        failed += 1 if event.kind == "fail" else -1
        begin_s = event.time_s
    intervals.append(_interval(begin_s, trace.horizon_s, failed, reaction))
    iterations = sum(row.iterations for row in intervals)
    throughput = iterations * job.batch / trace.horizon_s
    fault_free = job.batch / (fault_free_us(job) / 1e6)
    return SimulationRun(
        system=system.name,
        intervals=tuple(intervals),
        iterations=iterations,
        micro_batches_per_s=throughput,
        normalised=throughput / fault_free,
        downtime_s=sum(row.downtime_s for row in intervals),
        restarts=restarts,
    )


def throughput_by_failures(
    job: Job,
    order: Sequence[Worker],
    systems: Sequence[str],
    *,
    costs: Costs | None = None,
    recycle: RecycleOptions | None = None,
) -> dict[str, dict[int, float]]:
    """T_1F1B/T of each system after 0, 1, 2, ... of the workers in ``order`` have died.

    Downtime is left out; 0 means that the system cannot run.
    """
    events = [
        TraceEvent(time_s=float(n), worker=Worker(*worker), kind="fail")
        for n, worker in enumerate(order)
    ]
    Trace(events=tuple(events), horizon_s=float(len(order) + 1)).validate(job)
    fault_free = fault_free_us(job)
    series = {}
    for name in systems:
        system = make_system(name, job, costs or Costs(), recycle=recycle)
        reactions = [system.start(), *(system.react(event) for event in events)]
        times = [reaction.iteration_us for reaction in reactions]
        series[name] = {f: fault_free / t if t else 0.0 for f, t in enumerate(times)}
    return series


def _interval(start_s: float, end_s: float, failed: int, reaction: Reaction) -> Interval:
    length_s = end_s - start_s
    stands_still = reaction.iteration_us is None
    downtime_s = length_s if stands_still else min(length_s, reaction.downtime_s)
    iterations = 0.0
    if reaction.iteration_us is not None:
        iterations = (length_s - downtime_s) / (reaction.iteration_us / 1e6)
    return Interval(
        start_s=start_s,
        end_s=end_s,
        failed=failed,
        iteration_us=reaction.iteration_us,
        downtime_s=downtime_s,
        iterations=iterations,
    )
