"""Synthetic popularity: a slow and a fast random walk of the router's logits, per expert.

    a <- rho_a a + sigma_a sqrt(1 - rho_a^2) n,    b <- rho_b b + sigma_b sqrt(1 - rho_b^2) n'
    pop ~ multinomial(tok, softmax(a + b))

The default process was chosen among 72 settings so that seed 0 gives the paper's four ratios of
dropped tokens. It is a calibration of those four numbers, and no prediction of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import arguments
from .trace import Trace

__all__ = ["PopularityProcess", "synthesize"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopularityProcess:
    """Spread (in logits) and memory (correlation of one iteration with the next) of both walks."""

    slow_spread: float = 0.8
    slow_memory: float = 0.97
    fast_spread: float = 0.15
    fast_memory: float = 0.5

    def __post_init__(self) -> None:
        for name in ("slow_spread", "fast_spread"):
            arguments.non_negative_number(name, getattr(self, name))
        for name in ("slow_memory", "fast_memory"):
            if arguments.non_negative_number(name, getattr(self, name)) > 1:
                raise arguments.refused(
                    name, getattr(self, name), "a correlation in 0..1", "use 1 for a fixed skew"
                )


def synthesize(
    *,
    experts: int,
    tokens: int,
    iterations: int,
    seed: int,
    layers: int = 1,
    process: PopularityProcess | None = None,
    run: str = "synthetic",
) -> Trace:
    """A trace of ``tokens`` tokens per iteration and layer, the same for the same arguments.

    Layer 0 draws from ``seed`` alone, so that adding layers does not change it.
    """
    for name, value in (
        ("experts", experts),
        ("tokens", tokens),
        ("iterations", iterations),
        ("layers", layers),
    ):
        arguments.positive_int(name, value)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise arguments.refused("seed", seed, "a whole number of at least 0", "choose a seed")
    chosen = process or PopularityProcess()
    drawn = [
        _layer(
            np.random.default_rng([seed, layer] if layer else seed),
            chosen,
            experts,
            tokens,
            iterations,
        )
        for layer in range(layers)
    ]
    return Trace(run=run, first_iteration=0, tokens=np.stack(drawn, axis=1))


def _layer(
    generator: np.random.Generator,
    process: PopularityProcess,
    experts: int,
    tokens: int,
    iterations: int,
) -> NDArray[np.int64]:
    slow = process.slow_spread * generator.normal(size=experts)
    fast = process.fast_spread * generator.normal(size=experts)
    drawn = np.empty((iterations, experts), dtype=np.int64)
    for iteration in range(iterations):
        slow = _walked(generator, slow, process.slow_spread, process.slow_memory)
        fast = _walked(generator, fast, process.fast_spread, process.fast_memory)
        drawn[iteration] = generator.multinomial(tokens, _softmax(slow + fast))
    return drawn


def _walked(
    generator: np.random.Generator, state: FloatArray, spread: float, memory: float
) -> FloatArray:
    noise = spread * math.sqrt(1.0 - memory**2)
    return np.asarray(memory * state + noise * generator.normal(size=len(state)))


def _softmax(logits: FloatArray) -> FloatArray:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())
