"""The bound of `schedule.lower_bound_s` for many numbers of microbatches at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workflows.sailor.schedule import Chain

Floats = NDArray[np.float64]


def chain_bounds_s(chain: Chain, microbatches: NDArray[np.int64]) -> Floats:
    """`lower_bound_s` for many numbers of microbatches at once."""
    forward, backward = np.array(chain.forward_s), np.array(chain.backward_s)
    depth = forward.size
    work = forward + backward
    before = np.cumsum(work) - work
    n = microbatches[None, :].astype(np.float64)
    busy = before[:, None] + n * work[:, None]
    left = np.maximum(0.0, n - (depth - np.arange(depth))[:, None])
    filled = (work.sum() - backward)[:, None] + n * backward[:, None] + left * forward[:, None]
    bounds: Floats = np.maximum(busy, filled).max(axis=0)
    return bounds
