"""Replay a popularity trace under several policies: drops, latency, and minutes to a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import arguments
from .capacity import real_slot_capacity
from .convergence import minutes_to_target
from .latency import LatencyModel, LatencyParts
from .placement import replica_counts
from .policies import Oracle, Policy, advance, initial_state
from .trace import Trace

__all__ = ["PolicyResult", "fewer_drops_percent", "policy_counts", "simulate", "slot_capacities"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """What one policy makes of a trace."""

    policy: str
    counts: NDArray[np.int64]
    """Replicas during each iteration, ``[T, L, E]``."""
    dropped: FloatArray
    """Dropped tokens, ``[T, L, E]``."""
    survival: FloatArray
    """Share of surviving tokens per iteration over all layers, ``[T]``."""
    latency: LatencyParts
    """Seconds per iteration by part, each ``[T]``."""
    drop_share: float
    """Dropped over routed tokens of the whole trace."""

    @property
    def latency_s(self) -> FloatArray:
        """Seconds of each iteration, ``[T]``."""
        return np.asarray(np.sum(list(self.latency.values()), axis=0))

    @property
    def mean_latency_s(self) -> float:
        """Average seconds of an iteration."""
        return float(self.latency_s.mean())

    def minutes(self, iterations: float) -> float:
        """Minutes that this many iterations take at the average latency."""
        return minutes_to_target(iterations, self.mean_latency_s)


def simulate(
    trace: Trace,
    policies: Sequence[Policy],
    *,
    ranks: int,
    slots_per_rank: int,
    latency: LatencyModel,
    capacity_factor: float = 1.0,
) -> list[PolicyResult]:
    """Drops and latency of every iteration of ``trace`` under each policy.

    Every policy starts uniform. The replicas of an iteration are decided before its popularity is
    known (except by the oracle).

    Raises:
        InvalidPlacement: the experts do not fit the slots.
        InvalidArgument: no policy, a capacity factor of 0 or less, or a policy that does not fit.
    """
    slots = arguments.positive_int("ranks", ranks) * arguments.positive_int(
        "slots_per_rank", slots_per_rank
    )
    if not policies:
        raise arguments.refused("policies", [], "at least one policy", "name a policy")
    capacities = slot_capacities(trace, slots, capacity_factor)
    return [_simulated(trace, policy, slots, capacities, latency) for policy in policies]


def slot_capacities(trace: Trace, slots: int, capacity_factor: float = 1.0) -> FloatArray:
    """cf * tok / (sN) for each iteration and layer, ``[T, L]``; real-valued."""
    unit = real_slot_capacity(1.0, slots, capacity_factor)
    return np.asarray(unit * trace.tokens.sum(axis=2))


def policy_counts(trace: Trace, policy: Policy, slots: int) -> NDArray[np.int64]:
    """Replicas during each iteration, ``[T, L, E]``."""
    counts = np.empty(trace.tokens.shape, dtype=np.int64)
    for layer in range(trace.layers):
        state = initial_state(policy, experts=trace.experts, slots=slots)
        for index, popularity in enumerate(trace.tokens[:, layer].tolist()):
            if isinstance(policy, Oracle):
                counts[index, layer] = replica_counts(popularity, slots)
                continue
            counts[index, layer] = state.counts
            state = advance(policy, state, completed=index + 1, popularity=popularity)
    return counts


def fewer_drops_percent(result: PolicyResult, baseline: PolicyResult) -> float:
    """By how many percent ``result`` drops fewer tokens than ``baseline``."""
    if not baseline.drop_share:
        raise arguments.refused(
            "baseline", baseline.policy, "a policy that drops tokens", "compare survival instead"
        )
    return 100.0 * (1.0 - result.drop_share / baseline.drop_share)


def _simulated(
    trace: Trace, policy: Policy, slots: int, capacities: FloatArray, latency: LatencyModel
) -> PolicyResult:
    counts = policy_counts(trace, policy, slots)
    dropped = np.maximum(0.0, trace.tokens - capacities[:, :, None] * counts)
    routed = trace.tokens.sum(axis=(1, 2))
    lost = dropped.sum(axis=(1, 2))
    return PolicyResult(
        policy=str(policy),
        counts=counts,
        dropped=dropped,
        survival=1.0 - lost / np.maximum(routed, 1),
        latency=latency.parts(policy, counts, np.asarray(trace.tokens - dropped, dtype=np.float64)),
        drop_share=float(lost.sum() / max(int(routed.sum()), 1)),
    )
