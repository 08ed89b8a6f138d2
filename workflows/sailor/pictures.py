"""Pictures as SVG text: pipeline timeline, memory bars, errors, cost against throughput.

matplotlib is drawn to without a display and without its global state. Every function returns the
text of an SVG file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, Final

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from workflows.sailor.comparison import Row
from workflows.sailor.errors import BadJob
from workflows.sailor.plan import Plan
from workflows.sailor.problem import Problem
from workflows.sailor.schedule import run_chain
from workflows.sailor.search_result import Goal
from workflows.sailor.simulator import Estimate, chain_of, pipeline_shares, simulate
from workflows.sailor.trace import Replay

COLOURS: Final = {
    "forward": "#4c78a8",
    "backward": "#f58518",
    "send": "#bab0ac",
    "all-reduce": "#54a24b",
    "update": "#b279a2",
}
MEMORY_PARTS: Final = (
    ("weights", "weights_bytes", "#4c78a8"),
    ("gradients", "gradients_bytes", "#72b7b2"),
    ("optimizer", "optimizer_bytes", "#54a24b"),
    ("buffers", "buffers_bytes", "#eeca3b"),
    ("activations", "activations_bytes", "#f58518"),
    ("platform", "fixed_bytes", "#bab0ac"),
)


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def _svg(figure: Figure) -> str:
    out = StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def timeline_svg(problem: Problem, plan: Plan, *, pipeline: int = 0) -> str:
    """1F1B of one pipeline, one row per stage, with the stage's all-reduce and step at its end."""
    if not 0 <= pipeline < plan.width:
        raise BadJob(f"pipeline {pipeline} of {plan.width}: expected 0 to {plan.width - 1}")
    estimate = simulate(problem, plan)
    chain = chain_of(problem, plan, [stage.replicas[pipeline] for stage in plan.stages])
    run = run_chain(chain, pipeline_shares(problem, plan)[pipeline], blocking=True)
    figure, axes = _figure(12, 1 + 0.5 * plan.depth)
    seen: set[str] = set()

    def bar(row: int, kind: str, spans: list[tuple[float, float]]) -> None:
        label = None if kind in seen else kind
        seen.add(kind)
        axes.broken_barh(
            spans,
            (row - 0.4, 0.8),
            facecolors=COLOURS[kind],
            edgecolor="white",
            lw=0.3,
            label=label,
        )

    for i in range(plan.depth):
        f, b = chain.forward_s[i], chain.backward_s[i]
        bar(i, "forward", [(float(x), f) for x in run.start_forward_s[i]])
        bar(i, "backward", [(float(x), b) for x in run.start_backward_s[i]])
        sends = [(float(x) + f, chain.send_forward_s[i]) for x in run.start_forward_s[i]]
        sends += [(float(x) + b, chain.send_backward_s[i]) for x in run.start_backward_s[i]]
        if plan.depth > 1:
            bar(i, "send", [span for span in sends if span[1] > 0])
        end, terms = float(run.end_s[i]), estimate.stages[i]
        bar(i, "all-reduce", [(end, terms.sync_s)])
        bar(i, "update", [(end + terms.sync_s, terms.update_s)])
    axes.set_yticks(range(plan.depth), [f"stage {i}" for i in range(plan.depth)])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_title(f"one iteration: {estimate.iteration_s:.4g} s")
    axes.legend(loc="upper right", ncols=5, fontsize="small")
    return _svg(figure)


def memory_svg(estimate: Estimate) -> str:
    """Stacked memory of every kind of worker, with the limit of its card."""
    figure, axes = _figure(max(5.0, 0.9 * len(estimate.memory)), 4.5)
    names = [f"{w.stage}: {w.gpu}\nt={w.degree} x{w.replicas}" for w in estimate.memory]
    bottom = [0.0] * len(names)
    for label, field, colour in MEMORY_PARTS:
        heights = [getattr(w, field) / 1e9 for w in estimate.memory]
        axes.bar(range(len(names)), heights, bottom=bottom, color=colour, label=label)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    for i, worker in enumerate(estimate.memory):
        axes.hlines(worker.limit_bytes / 1e9, i - 0.45, i + 0.45, color="#e45756", lw=2)
    axes.set_xticks(range(len(names)), names, fontsize="small")
    axes.set_ylabel("GB per GPU (red: the card)")
    axes.legend(fontsize="small")
    return _svg(figure)


def error_svg(errors: Mapping[str, Sequence[float]]) -> str:
    """Box plot of |estimate - measured| / measured per set or simulator."""
    if not errors or not all(errors.values()):
        raise BadJob("an error plot needs at least one value in every set")
    figure, axes = _figure(1.5 + 1.4 * len(errors), 4)
    axes.boxplot([[100 * e for e in row] for row in errors.values()], tick_labels=list(errors))
    axes.set_ylabel("error of the iteration time, %")
    return _svg(figure)


def scatter_svg(rows: Sequence[Row], goal: Goal | None = None) -> str:
    """Cost against throughput of several planners, with the limits as lines."""
    figure, axes = _figure(6, 4.5)
    for row in rows:
        if row.answer is None:
            continue
        estimate = row.answer.estimate
        point = (estimate.iterations_per_s, estimate.cost_usd)
        axes.scatter(*point, s=40)
        note = f"{row.planner} ({row.oom_plans} OOM)" if row.oom_plans else row.planner
        axes.annotate(note, point, textcoords="offset points", xytext=(5, 4), fontsize="small")
    if goal and goal.max_cost_usd is not None:
        axes.axhline(goal.max_cost_usd, color="#e45756", ls="--")
    if goal and goal.min_iterations_per_s is not None:
        axes.axvline(goal.min_iterations_per_s, color="#e45756", ls="--")
    axes.set_xlabel("iterations per second")
    axes.set_ylabel("USD per iteration")
    return _svg(figure)


def replay_svg(replayed: Replay) -> str:
    """GPUs available and used over a trace, and the throughput beneath."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasSVG(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    edges = [step.segment.start_s for step in replayed.steps]
    edges.append(edges[-1] + replayed.steps[-1].segment.duration_s)
    available = [sum(step.segment.available.values()) for step in replayed.steps]
    used = [
        sum(step.chosen.plan.gpus_used().values()) if step.chosen else 0 for step in replayed.steps
    ]
    above.stairs(available, edges, label="available")
    above.stairs(used, edges, label="used", fill=True, alpha=0.5)
    above.set_ylabel("GPUs")
    above.legend(fontsize="small")
    below.stairs([step.iterations_per_s for step in replayed.steps], edges)
    below.set_ylabel("iterations per second")
    below.set_xlabel("seconds")
    return _svg(figure)
