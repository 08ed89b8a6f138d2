"""What a popularity trace looks like: skew within an iteration, change between iterations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .trace import Trace

__all__ = [
    "LONGEST_LAG",
    "LayerStatistics",
    "autocorrelation",
    "entropy_bits",
    "gini",
    "layer_statistics",
    "max_over_mean",
    "swing",
]

LONGEST_LAG = 100
"""Longest lag of the autocorrelation, in iterations."""

SWING_ITERATIONS = 3
"""The paper reports changes of over 16x within three iterations."""

FloatArray = NDArray[np.float64]
TokenArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStatistics:
    """One layer's statistics; means are over the iterations that routed any token."""

    layer: int
    iterations: int
    mean_tokens: float
    """Tokens per iteration."""
    max_over_mean: float
    """Mean over iterations of the most popular expert's load over the average load."""
    largest_max_over_mean: float
    gini: float
    """0 where all experts are equally popular, (E - 1)/E where one takes all."""
    entropy_bits: float
    """log2(E) where all experts are equally popular, 0 where one takes all."""
    autocorrelation: list[float | None]
    """Lags 1, 2, … of the experts' shares; None where no share varies or the trace is short."""
    swing: float
    """Largest ratio of an expert's tokens within three iterations; 0 counts as one token."""


def max_over_mean(tokens: TokenArray) -> FloatArray:
    """max_e pop_e / mean_e pop_e per iteration; ``tokens`` is ``[T, E]`` without empty rows."""
    return np.asarray(tokens.max(axis=1) / tokens.mean(axis=1))


def gini(tokens: TokenArray) -> FloatArray:
    """Gini coefficient per iteration: sum_i (2i - E - 1) x_(i) / (E sum x), x ascending."""
    experts = tokens.shape[1]
    weights = 2 * np.arange(1, experts + 1) - experts - 1
    return np.asarray(np.sort(tokens, axis=1) @ weights / (experts * tokens.sum(axis=1)))


def entropy_bits(tokens: TokenArray) -> FloatArray:
    """-sum_e p_e log2 p_e per iteration, with 0 log 0 = 0."""
    shares = tokens / tokens.sum(axis=1, keepdims=True)
    logs = np.log2(np.where(shares > 0, shares, 1.0))
    return np.asarray(-(shares * logs).sum(axis=1))


def autocorrelation(tokens: TokenArray, lag: int) -> float | None:
    """Mean over experts of the lag's autocorrelation of their shares; None where undefined.

    r(k) = sum_t (x_t - m)(x_(t+k) - m) / sum_t (x_t - m)^2; experts of constant share are left out.
    """
    if lag >= len(tokens):
        return None
    shares = tokens / tokens.sum(axis=1, keepdims=True)
    centred = shares - shares.mean(axis=0)
    energy = (centred**2).sum(axis=0)
    # Rounding leaves a constant share with an energy of a few units in the last place.
    varying = energy > 1e-24 * len(tokens)
    if not varying.any():
        return None
    products = (centred[:-lag] * centred[lag:]).sum(axis=0)
    return float((products[varying] / energy[varying]).mean())


def swing(tokens: TokenArray, within: int = SWING_ITERATIONS) -> float:
    """Largest ratio of one expert's tokens between iterations at most ``within`` apart."""
    counts = np.maximum(tokens, 1).astype(np.float64)
    largest = 1.0
    for distance in range(1, min(within, len(counts) - 1) + 1):
        ratio = counts[distance:] / counts[:-distance]
        largest = max(largest, float(ratio.max()), float(1.0 / ratio.min()))
    return largest


def layer_statistics(trace: Trace, layer: int, longest_lag: int = LONGEST_LAG) -> LayerStatistics:
    """All statistics of one layer of a trace."""
    tokens = trace.tokens[:, layer]
    routed = tokens[tokens.sum(axis=1) > 0]
    if not len(routed):
        routed = np.ones((1, trace.experts), dtype=np.int64)
    skew = max_over_mean(routed)
    return LayerStatistics(
        layer=layer,
        iterations=trace.iterations,
        mean_tokens=float(tokens.sum(axis=1).mean()),
        max_over_mean=float(skew.mean()),
        largest_max_over_mean=float(skew.max()),
        gini=float(gini(routed).mean()),
        entropy_bits=float(entropy_bits(routed).mean()),
        autocorrelation=[autocorrelation(routed, lag) for lag in range(1, longest_lag + 1)],
        swing=swing(tokens),
    )
