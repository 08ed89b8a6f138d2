"""Fitting the simulator to a platform, and how far to trust it.

    measured = α·compute + β·p2p + γ·sync        (non-negative least squares, relative weights)

The parts are those of the published closed form. Each plan is also predicted by a fit without it;
those errors give the honest accuracy and the interval that goes with every estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]

from workflows.sailor.errors import BadJob
from workflows.sailor.plan import Plan
from workflows.sailor.problem import Problem
from workflows.sailor.published_time import published_time
from workflows.sailor.validation import Measured

FACTORS: Final = 3
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The iteration time in the three parts that are scaled, seconds."""

    compute_s: float
    p2p_s: float
    sync_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Factors of one platform."""

    platform: str
    compute: float
    """α"""
    p2p: float
    """β; 0 if no plan of the set has a send"""
    sync: float
    """γ"""
    plans: int
    error: float
    """mean relative error of predicting each plan without itself"""
    low: float
    """smallest measured / predicted ratio of those predictions"""
    high: float
    """largest one"""

    def predict_s(self, parts: Parts) -> float:
        """α·compute + β·p2p + γ·sync."""
        return self.compute * parts.compute_s + self.p2p * parts.p2p_s + self.sync * parts.sync_s

    def interval_s(self, parts: Parts) -> tuple[float, float]:
        """The range that covered all plans of the set when they were left out."""
        predicted = self.predict_s(parts)
        return predicted * self.low, predicted * self.high

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def parts_of(problem: Problem, plan: Plan) -> Parts:
    """Split the closed form: what computing takes, what sends add, what the reduction takes."""
    time = published_time(problem, plan)
    overhead = (time.microbatches - 1) * max(term.compute_s for term in time.terms)
    compute = overhead + time.compute_s + time.update_s
    return Parts(compute_s=compute, p2p_s=time.pipeline_s - compute, sync_s=time.sync_s)


def _fit(rows: Floats, measured: Floats) -> Floats:
    factors, _ = nnls(rows / measured[:, None], np.ones(len(measured)))
    return np.asarray(factors, dtype=np.float64)


def calibrate(problem: Problem, platform: str, measured: Sequence[Measured]) -> Calibration:
    """Fit a platform's factors to plans that were run on it (at least four)."""
    if len(measured) <= FACTORS:
        raise BadJob(
            f"calibrating {platform} needs more than {FACTORS} measured plans, got {len(measured)}"
        )
    parts = [parts_of(problem.with_global_batch(x.global_batch), x.plan) for x in measured]
    rows = np.array([[p.compute_s, p.p2p_s, p.sync_s] for p in parts])
    times = np.array([x.iteration_s for x in measured])
    compute, p2p, sync = _fit(rows, times)
    ratios = []
    for left_out in range(len(times)):
        others = np.arange(len(times)) != left_out
        ratios.append(float(times[left_out] / (rows[left_out] @ _fit(rows[others], times[others]))))
    return Calibration(
        platform=platform,
        compute=float(compute),
        p2p=float(p2p),
        sync=float(sync),
        plans=len(times),
        error=fmean(abs(1 / ratio - 1) for ratio in ratios),
        low=min(ratios),
        high=max(ratios),
    )
