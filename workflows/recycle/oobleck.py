"""Oobleck's pipeline templates: iteration time, layer split, and pipelines for the nodes left.

Source: the planner documentation of SymbioticLab/Oobleck (pipeline time, N_b = 4S for templates).
The assignment of nodes minimises the slowest pipeline, where the paper uses the smallest variance
(recalled). One node is one worker here. Times in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from workflows.recycle.errors import InvalidArgument

__all__ = ["Assignment", "Template", "assign_nodes", "make_template", "pipeline_us"]

_ROUNDING = 1e-9


def pipeline_us(stage_us: Sequence[float], micro_batches: int) -> float:
    """T = sum w_i + (N_b - S + k* - 1)*w_k* + sum_{i >= k*} w_i.

    w_i = F_i + B_i is the time of a stage for one micro-batch, k* the rightmost slowest stage.
    """
    slowest = _rightmost_slowest(stage_us)
    steady = max(0, micro_batches - len(stage_us) + slowest - 1)
    return sum(stage_us) + steady * stage_us[slowest] + sum(stage_us[slowest:])


def _rightmost_slowest(stage_us: Sequence[float]) -> int:
    longest = max(stage_us)
    return max(i for i, w in enumerate(stage_us) if w == longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A pipeline for a number of nodes, one stage on each."""

    stage_us: tuple[float, ...]

    @property
    def nodes(self) -> int:
        """How many nodes it takes."""
        return len(self.stage_us)

    def time_us(self, micro_batches: int) -> float:
        """Its iteration time."""
        fixed_us, slope_us, hidden = _line(self.stage_us)
        return fixed_us + max(0, micro_batches - hidden) * slope_us

    def capacity(self, limit_us: float, batch: int) -> int:
        """The most micro-batches, up to ``batch``, that it finishes within ``limit_us``."""
        fixed_us, slope_us, hidden = _line(self.stage_us)
        slack_us = limit_us * (1 + _ROUNDING) - fixed_us
        return min(batch, hidden + math.floor(slack_us / slope_us)) if slack_us >= 0 else 0


@lru_cache(maxsize=1024)
def _line(stage_us: tuple[float, ...]) -> tuple[float, float, int]:
    """(a, b, h) with T = a + b*max(0, N_b - h), the pipeline time as a function of N_b."""
    slowest = _rightmost_slowest(stage_us)
    hidden = len(stage_us) - slowest + 1
    return pipeline_us(stage_us, hidden), stage_us[slowest], hidden


def make_template(layer_us: Sequence[float] | None, total_us: float, nodes: int) -> Template:
    """The split of the layers over ``nodes`` stages that is shortest for N_b = 4*nodes.

    Without layers the model is split evenly. Raises `InvalidArgument` for fewer layers than nodes.
    """
    if nodes < 1:
        raise InvalidArgument(f"a template for {nodes} nodes: expected at least 1", nodes=nodes)
    if layer_us is None:
        return Template(stage_us=(total_us / nodes,) * nodes)
    if len(layer_us) < nodes:
        raise InvalidArgument(
            f"{len(layer_us)} layers cannot be split over {nodes} nodes", nodes=nodes
        )
    best: tuple[float, tuple[float, ...]] | None = None
    for first in range(len(layer_us)):
        for last in range(first + 1, len(layer_us) + 1):
            split = _split_around(layer_us, first, last, nodes)
            if split is not None:
                time_us = pipeline_us(split, 4 * nodes)
                if best is None or time_us < best[0] - _ROUNDING:
                    best = (time_us, split)
    if best is None:
        raise InvalidArgument(f"no split of {len(layer_us)} layers over {nodes} nodes")
    return Template(stage_us=best[1])


def _split_around(
    layer_us: Sequence[float], first: int, last: int, nodes: int
) -> tuple[float, ...] | None:
    """Stages of which layers[first:last] is the rightmost slowest, as far left as possible.

    T grows with the position of the slowest stage, so the fewest stages before it are best.
    """
    slowest = sum(layer_us[first:last])
    before = _fewest_stages(layer_us[:first], slowest, strict=False)
    after = _fewest_stages(layer_us[last:], slowest, strict=True)
    if before is None or after is None:
        return None
    left = max(len(before), nodes - 1 - (len(layer_us) - last))
    right = nodes - 1 - left
    if left > first or right < len(after):
        return None
    stages = [*_refine(before, left), layer_us[first:last], *_refine(after, right)]
    return tuple(float(sum(stage)) for stage in stages)


def _fewest_stages(
    layer_us: Sequence[float], limit: float, *, strict: bool
) -> list[list[float]] | None:
    """Consecutive stages within ``limit`` (below it if ``strict``), filled one after another."""
    stages: list[list[float]] = []
    total = 0.0
    for layer in layer_us:
        if layer > limit or (strict and layer >= limit):
            return None
        total += layer
        if not stages or total > limit or (strict and total >= limit):
            stages.append([])
            total = layer
        stages[-1].append(layer)
    return stages


def _refine(stages: list[list[float]], count: int) -> list[list[float]]:
    """Cut stages further until there are ``count``; no stage grows."""
    stages = [list(stage) for stage in stages]
    while len(stages) < count:
        longest = max((s for s in stages if len(s) > 1), key=sum)
        at = stages.index(longest)
        stages[at : at + 1] = [longest[:1], longest[1:]]
    return stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Pipelines for the live nodes and their micro-batches."""

    time_us: float
    """The slowest pipeline."""
    nodes: tuple[int, ...]
    """Nodes of each pipeline, most first."""
    micro_batches: tuple[int, ...]


def assign_nodes(templates: Sequence[Template], nodes: int, batch: int) -> Assignment | None:
    """Pipelines on at most ``nodes`` nodes that finish ``batch`` micro-batches soonest.

    None if not even one pipeline fits. The smallest limit under which the pipelines together can
    finish the batch is found by bisection; for one limit this is a knapsack over the nodes.
    """
    usable = [t for t in templates if t.nodes <= nodes]
    if not usable:
        return None
    limits = _limits(tuple(usable), batch)
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        if _most(usable, nodes, float(limits[middle]), batch)[0] >= batch:
            high = middle
        else:
            low = middle + 1
    limit = float(limits[low])
    chosen = _most(usable, nodes, limit, batch)[1]
    return _deal(usable, chosen, limit, batch)


@lru_cache(maxsize=64)
def _limits(templates: tuple[Template, ...], batch: int) -> npt.NDArray[np.float64]:
    """All times that a pipeline can take, in order."""
    times = [[t.time_us(m) for m in range(1, batch + 1)] for t in templates]
    return np.unique(np.array(times, dtype=np.float64))


def _most(
    templates: Sequence[Template], nodes: int, limit_us: float, batch: int
) -> tuple[int, list[int]]:
    """The most micro-batches within ``limit_us``, and how often each template is used.

    An unbounded knapsack. Among n* pipelines other than the best kind (n* its nodes) some have
    sizes that sum to a multiple of n* and can be exchanged for it, so all but n* times the largest
    size of the nodes go to the best kind.
    """
    capacity = [t.capacity(limit_us, batch) for t in templates]
    best = max(range(len(templates)), key=lambda t: capacity[t] / templates[t].nodes)
    unit = templates[best].nodes
    largest = max(t.nodes for t in templates)
    fixed = max(0, (nodes - unit * largest) // unit)
    left = nodes - fixed * unit
    value, choice = [0] * (left + 1), [-1] * (left + 1)
    for room in range(1, left + 1):
        value[room], choice[room] = value[room - 1], -1
        for t, template in enumerate(templates):
            if template.nodes <= room:
                gain = value[room - template.nodes] + capacity[t]
                if capacity[t] and gain > value[room]:
                    value[room], choice[room] = gain, t
    used = [0] * len(templates)
    used[best] = fixed
    room = left
    while room > 0:
        if choice[room] < 0:
            room -= 1
        else:
            used[choice[room]] += 1
            room -= templates[choice[room]].nodes
    return value[left] + fixed * capacity[best], used


def _deal(
    templates: Sequence[Template], used: Sequence[int], limit_us: float, batch: int
) -> Assignment:
    """Micro-batches to the chosen pipelines, at least one each while they last.

    Pipelines for which none is left are not formed; their nodes idle.
    """
    pipelines = sorted(
        (template for template, count in zip(templates, used, strict=True) for _ in range(count)),
        key=lambda template: -template.nodes,
    )
    capacity = [t.capacity(limit_us, batch) for t in pipelines]
    surplus = sum(capacity) - batch
    dealt = []
    for room in capacity:
        give_up = min(surplus, room - 1)
        surplus -= give_up
        dealt.append(room - give_up)
    dealt[batch:] = [0] * len(dealt[batch:])
    pairs = [(t, m) for t, m in zip(pipelines, dealt, strict=True) if m > 0]
    return Assignment(
        time_us=max(t.time_us(m) for t, m in pairs),
        nodes=tuple(t.nodes for t, _ in pairs),
        micro_batches=tuple(m for _, m in pairs),
    )
