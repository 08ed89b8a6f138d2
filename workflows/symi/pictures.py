"""Pictures of popularity, placement, survival, loss and latency, as SVG text.

The same data gives the same bytes. Nothing here needs a display.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from . import arguments
from .placement import rank_slots

__all__ = [
    "latency_bars",
    "loss_curves",
    "popularity_heatmap",
    "replica_steps",
    "slot_map",
    "survival_lines",
]

FloatArray = NDArray[np.float64]
_Value = TypeVar("_Value")


def popularity_heatmap(tokens: ArrayLike, *, first_iteration: int = 0) -> str:
    """Tokens per expert (rows) and iteration (columns); ``tokens`` is ``[T, E]`` of one layer."""
    values = _matrix("tokens", tokens)
    figure, axes = _canvas(8.0, 3.5)
    last = first_iteration + len(values)
    image = axes.imshow(
        values.T,
        aspect="auto",
        interpolation="nearest",
        origin="lower",
        extent=(first_iteration - 0.5, last - 0.5, -0.5, values.shape[1] - 0.5),
    )
    figure.colorbar(image, ax=axes, label="tokens")
    _label(axes, "Popularity", "iteration", "expert")
    return _svg(figure)


def replica_steps(
    tokens: ArrayLike, counts: ArrayLike, slot_capacity: float, experts: Sequence[int] | None = None
) -> str:
    """Demand (line) against the capacity of its replicas (steps), in slots, per expert.

    ``tokens`` and ``counts`` are ``[T, E]`` of one layer. Without ``experts``, those whose demand
    shrinks most, grows most, and is spikiest are shown.
    """
    demand = _matrix("tokens", tokens) / arguments.positive_number("slot_capacity", slot_capacity)
    replicas = _matrix("counts", counts)
    if demand.shape != replicas.shape:
        raise arguments.refused("counts", replicas.shape, f"{demand.shape}", "use the same trace")
    chosen = list(experts) if experts is not None else _telling_experts(demand)
    figure = Figure(figsize=(8.0, 1.9 * len(chosen)), layout="constrained")
    for row, expert in enumerate(chosen, start=1):
        axes = figure.add_subplot(len(chosen), 1, row)
        axes.plot(demand[:, expert], linewidth=0.9, label="demand")
        axes.step(range(len(replicas)), replicas[:, expert], where="mid", label="replicas")
        axes.set_ylim(bottom=0)
        _label(axes, f"Expert {expert}", "iteration" if row == len(chosen) else "", "slots")
        _legend_beside(axes)
    return _svg(figure)


def survival_lines(survival: Mapping[str, ArrayLike]) -> str:
    """Share of surviving tokens per iteration, one line per policy."""
    figure, axes = _canvas(8.0, 3.5)
    for policy, shares in _some("survival", survival).items():
        axes.plot(100.0 * _vector(policy, shares), linewidth=0.9, label=policy)
    axes.set_ylim(top=100.0)
    _label(axes, "Surviving tokens", "iteration", "%")
    _legend_beside(axes)
    return _svg(figure)


def loss_curves(loss: Mapping[str, ArrayLike], latency_s: Mapping[str, ArrayLike]) -> str:
    """Loss against iterations (left) and against minutes (right), one line per policy.

    Both mappings have the same policies; ``latency_s`` is of each iteration.
    """
    if set(loss) != set(latency_s):
        raise arguments.refused(
            "latency_s", sorted(latency_s), f"{sorted(loss)}", "give both for every policy"
        )
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for policy, values in _some("loss", loss).items():
        curve = _vector(policy, values)
        minutes = np.cumsum(_vector(policy, latency_s[policy])) / 60.0
        left.plot(np.arange(1, len(curve) + 1), curve, linewidth=1.0, label=policy)
        right.plot(minutes, curve, linewidth=1.0, label=policy)
    _label(left, "Loss by iteration", "iteration", "loss")
    _label(right, "Loss by time", "minutes", "")
    _legend_beside(right)
    return _svg(figure)


def latency_bars(parts: Mapping[str, Mapping[str, float]]) -> str:
    """Average seconds of an iteration by part, one stacked bar per policy."""
    figure, axes = _canvas(7.0, 3.5)
    policies = list(_some("parts", parts))
    bottom = np.zeros(len(policies))
    for name in dict.fromkeys(name for policy in policies for name in parts[policy]):
        heights = np.array([parts[policy].get(name, 0.0) for policy in policies])
        axes.bar(policies, heights, bottom=bottom, label=name)
        bottom += heights
    _label(axes, "Iteration latency", "", "s")
    _legend_beside(axes)
    return _svg(figure)


def slot_map(placement: Sequence[int], slots_per_rank: int) -> str:
    """The expert in every slot, ranks as columns and slots as rows, coloured by expert."""
    arguments.positive_int("slots_per_rank", slots_per_rank)
    if not placement or len(placement) % slots_per_rank:
        raise arguments.refused(
            "placement",
            f"{len(placement)} slots",
            f"a multiple of {slots_per_rank}",
            "give the placement of whole ranks",
        )
    ranks = len(placement) // slots_per_rank
    grid = np.array([[placement[g] for g in rank_slots(n, slots_per_rank)] for n in range(ranks)]).T
    figure, axes = _canvas(max(3.0, 0.5 * ranks + 1.0), 0.5 * slots_per_rank + 1.2)
    axes.imshow(grid, cmap="tab20", aspect="equal", interpolation="nearest")
    for (slot, rank), expert in np.ndenumerate(grid):
        axes.text(rank, slot, str(expert), ha="center", va="center", fontsize=8)
    axes.set_xticks(range(ranks))
    axes.set_yticks(range(slots_per_rank))
    _label(axes, "Experts by slot", "rank", "slot")
    return _svg(figure)


def _telling_experts(demand: FloatArray) -> list[int]:
    """The experts that shrink most, grow most, and jump most; fewer where they coincide."""
    tenth = max(1, len(demand) // 10)
    growth = demand[-tenth:].mean(axis=0) - demand[:tenth].mean(axis=0)
    jumps = np.abs(np.diff(demand, axis=0)).max(axis=0, initial=0.0)
    found = (growth.argmin(), growth.argmax(), jumps.argmax())
    return list(dict.fromkeys(int(expert) for expert in found))


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _legend_beside(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _matrix(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise arguments.refused(name, array.shape, "shape [T, E]", "choose one layer of the trace")
    return array


def _vector(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise arguments.refused(name, array.shape, "one number per iteration", "give a series")
    return array


def _some(name: str, mapping: Mapping[str, _Value]) -> Mapping[str, _Value]:
    if not mapping:
        raise arguments.refused(name, {}, "at least one policy", "simulate or train one first")
    return mapping


def _svg(figure: Figure) -> str:
    # A fixed salt and no date make the picture a function of its data.
    with mpl.rc_context({"svg.hashsalt": "symi"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
