"""Pictures, as SVG text: timelines, memory, throughput against failures and over a trace.

Each function takes plain results and returns the SVG of one figure. The same input gives the same
bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from workflows.recycle.errors import InvalidArgument
from workflows.recycle.job import Worker
from workflows.recycle.planner import Plan
from workflows.recycle.schedule import Operation, Schedule
from workflows.recycle.simulate import SimulationRun

__all__ = [
    "gantt_svg",
    "iteration_steps_svg",
    "memory_svg",
    "throughput_by_failures_svg",
    "throughput_over_time_svg",
]

_COLOURS: dict[Operation, str] = {"F": "#4c78a8", "I": "#f58518", "W": "#54a24b"}
_NAMES: dict[Operation, str] = {"F": "forward", "I": "input gradient", "W": "weight gradient"}
_MAX_LABELLED_OPS = 600


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    # Without a salt and a date the ids and the header differ from run to run.
    with mpl.rc_context({"svg.hashsalt": "recycle", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def gantt_svg(schedules: Mapping[str, Schedule]) -> str:
    """Workers against time for each titled schedule, one below the other, on one time axis.

    F, I and W have their colours, re-routed operations are hatched and labelled with their home
    pipeline, dead workers are grey.
    """
    if not schedules:
        raise InvalidArgument("a timeline needs at least one schedule")
    rows = sum(s.job.workers for s in schedules.values())
    figure = Figure(figsize=(11, 1.2 * len(schedules) + 0.22 * rows), layout="constrained")
    axes = figure.subplots(len(schedules), 1, squeeze=False, sharex=True)[:, 0]
    for ax, (title, schedule) in zip(axes, schedules.items(), strict=True):
        _draw_timeline(ax, schedule)
        ax.set_title(title, loc="left", fontsize=10)
    axes[-1].set_xlabel("time (µs)")
    handles = [Patch(color=_COLOURS[op], label=_NAMES[op]) for op in _COLOURS]
    handles.append(Patch(facecolor="white", edgecolor="black", hatch="////", label="re-routed"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return _svg(figure)


def _draw_timeline(ax: Axes, schedule: Schedule) -> None:
    job = schedule.job
    lanes = [Worker(k, i) for k in range(job.pipelines) for i in range(job.stages)]
    position = {worker: row for row, worker in enumerate(lanes)}
    labelled = 3 * job.workers * job.micro_batches <= _MAX_LABELLED_OPS
    for worker, ops in schedule.by_worker().items():
        for op in ops:
            moved = op.home != worker.pipeline
            ax.broken_barh(
                [(op.start_us, op.end_us - op.start_us)],
                (position[worker] - 0.4, 0.8),
                facecolor=_COLOURS[op.op],
                edgecolor="white",
                linewidth=0.4,
                hatch="////" if moved else None,
            )
            if moved and labelled:
                centre = (op.start_us + op.end_us) / 2
                ax.text(centre, position[worker], str(op.home), ha="center", va="center", size=6)
    for worker in schedule.failed:
        ax.axhspan(position[worker] - 0.4, position[worker] + 0.4, color="#d0d0d0")
    ax.set_yticks(range(len(lanes)), [f"pipeline {k}, stage {i}" for k, i in lanes], fontsize=6)
    ax.set_ylim(len(lanes) - 0.5, -0.5)


def memory_svg(schedule: Schedule) -> str:
    """Memory of every live worker over the iteration, with the limit of its stage.

    Raises `InvalidArgument` if the job has no memory model.
    """
    job = schedule.job
    if job.memory is None:
        raise InvalidArgument("the job has no memory model: nothing to draw")
    size = (2.6 * job.stages + 1, 1.7 * job.pipelines + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(job.pipelines, job.stages, squeeze=False, sharex=True, sharey="col")
    lanes = schedule.by_worker()
    for k in range(job.pipelines):
        for i, memory in enumerate(job.memory):
            ax = axes[k, i]
            ax.axhline(memory.limit_bytes, color="#e45756", linewidth=1, linestyle="--")
            delta = {
                "F": memory.forward_bytes,
                "I": memory.input_grad_bytes,
                "W": memory.weight_grad_bytes,
            }
            times, held = [0], [memory.static_bytes]
            for op in lanes.get(Worker(k, i), []):
                times.append(op.end_us)
                held.append(held[-1] + delta[op.op])
            title = f"({k}, {i})" if Worker(k, i) in lanes else f"({k}, {i}) dead"
            ax.step(times, held, where="post", color="#4c78a8", linewidth=1)
            ax.set_title(title, fontsize=8)
            ax.tick_params(labelsize=7)
    figure.supxlabel("time (µs)", fontsize=9)
    figure.supylabel("bytes", fontsize=9)
    return _svg(figure)


def throughput_by_failures_svg(series: Mapping[str, Mapping[int, float]]) -> str:
    """Normalised throughput against the number of dead workers, one line for each system."""
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    ax = figure.subplots()
    for name, values in series.items():
        failures = sorted(values)
        ax.plot(failures, [values[f] for f in failures], marker="o", markersize=3, label=name)
    ax.set_xlabel("dead workers")
    ax.set_ylabel("throughput / fault-free 1F1B")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8, frameon=False)
    return _svg(figure)


def throughput_over_time_svg(runs: Sequence[SimulationRun], *, batch: int) -> str:
    """Micro-batches per second over a failure trace for each system, and the dead workers.

    Each interval is drawn at its mean rate, its downtime included.
    """
    if not runs:
        raise InvalidArgument("a throughput picture needs at least one run")
    figure = Figure(figsize=(10, 5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for run in runs:
        times, rates = [], []
        for row in run.intervals:
            length_s = row.end_s - row.start_s
            rate = row.iterations * batch / length_s if length_s > 0 else 0.0
            times += [row.start_s / 3600, row.end_s / 3600]
            rates += [rate, rate]
        label = f"{run.system} (mean {run.normalised:.3f})"
        top.plot(times, rates, linewidth=1, label=label)
    edges = [row.start_s / 3600 for row in runs[0].intervals]
    edges.append(runs[0].intervals[-1].end_s / 3600)
    bottom.stairs([row.failed for row in runs[0].intervals], edges, fill=True, color="#bab0ac")
    top.set_ylabel("micro-batches/s")
    top.set_ylim(bottom=0)
    top.legend(fontsize=8, frameon=False, ncols=3)
    bottom.set_ylabel("dead workers")
    bottom.set_xlabel("time (h)")
    return _svg(figure)


def iteration_steps_svg(plans: Sequence[Plan]) -> str:
    """T against failures as a step curve, with the lower bound of each plan."""
    if not plans:
        raise InvalidArgument("a step curve needs at least one plan")
    ordered = sorted(plans, key=lambda plan: sum(plan.counts))
    failures = [sum(plan.counts) for plan in ordered]
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    ax = figure.subplots()
    ax.step(failures, [p.iteration_us for p in ordered], where="mid", label="plan")
    ax.plot(failures, [p.lower_bound_us for p in ordered], "_", color="black", label="lower bound")
    ax.set_xlabel("dead workers")
    ax.set_ylabel("iteration (µs)")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8, frameon=False)
    return _svg(figure)
