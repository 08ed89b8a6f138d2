"""Splitting layers over unlike stages: the smallest largest stage time that memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from workflows.sailor.compiled import compiled
from workflows.sailor.options import Options

Floats = NDArray[np.float64]
BISECTIONS = 30


@compiled
def _fill(
    limit: float,
    seconds: Floats,
    extra: Floats,
    model: Floats,
    kept: Floats,
    room: Floats,
    flight: Floats,
    stops: NDArray[np.int64],
) -> bool:
    """Give every stage as many layers as its time and memory allow; False if some are left."""
    depth, layers = seconds.shape[0], seconds.shape[1] - 1
    start = 0
    for i in range(depth):
        most = layers - (depth - 1 - i)
        stop = start
        while stop < most:
            new = stop + 1
            if seconds[i, new] - seconds[i, start] + extra[i] > limit:
                break
            held = model[i, new] - model[i, start] + flight[i] * (kept[i, new] - kept[i, start])
            if held > room[i]:
                break
            stop = new
        if stop == start:
            return False
        stops[i] = stop
        start = stop
    return bool(start == layers)


@compiled
def _balance(
    seconds: Floats,
    extra: Floats,
    model: Floats,
    kept: Floats,
    room: Floats,
    flight: Floats,
    bisections: int,
) -> NDArray[np.int64]:
    """Ends of the stages at the smallest limit found by bisection; all zero if nothing fits."""
    depth = seconds.shape[0]
    stops = np.zeros(depth, np.int64)
    low, high = 0.0, seconds[:, -1].max() + extra.max()
    best = np.zeros(depth, np.int64)
    if not _fill(high, seconds, extra, model, kept, room, flight, stops):
        return best
    best[:] = stops
    for _ in range(bisections):
        middle = (low + high) / 2
        if _fill(middle, seconds, extra, model, kept, room, flight, stops):
            high = middle
            best[:] = stops
        else:
            low = middle
    return best


def balanced_split(
    options: Options, choices: Sequence[int], microbatches: int
) -> tuple[int, ...] | None:
    """Layers per stage that minimise the slowest stage of a pipeline; None if nothing fits."""
    depth = len(choices)
    picked = [options.choices[c] for c in choices]
    inner = min(1, options.problem.job.layers - 1)
    extra = np.zeros(depth)
    for i in range(depth - 1):
        extra[i] += options.hop_s(choices[i], choices[i + 1], inner)
        extra[i + 1] += options.hop_s(choices[i + 1], choices[i], inner)
    stops = _balance(
        np.stack([c.layer_s for c in picked]),
        extra,
        np.stack([c.model_bytes for c in picked]),
        np.stack([c.kept_bytes for c in picked]),
        np.array([c.room_bytes for c in picked]),
        np.array([float(min(microbatches, depth - i)) for i in range(depth)]),
        BISECTIONS,
    )
    if stops[-1] == 0:
        return None
    ends = [0, *(int(stop) for stop in stops)]
    return tuple(b - a for a, b in pairwise(ends))
