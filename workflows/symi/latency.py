"""How long an iteration takes.

`CalibratedLatency` needs no hardware figures: relative latencies that follow from the paper's
Table 3 and its iteration savings. `PhysicalLatency` adds up the phases of an iteration from sizes
and bandwidths:

    t = dense + sum over layers (4 T_a2a + max_rank kept * t_tok + T_G + T_W + T_step)
        + overhead + T_rebalance

Tokens are taken to start evenly on all ranks and to spread evenly over the replicas of their class.
Both give a mapping from the name of a part to an array of seconds per iteration; parts add up.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from . import arguments
from .convergence import iteration_fraction
from .costs import ExpertLayer, Links, Variant, static_time_s, symi_time_s
from .memory import incoming_experts
from .placement import contiguous, interleaved
from .policies import FlexFull, FlexShift, Policy, Static
from .published import MINUTES_TO_LOSS_4

__all__ = [
    "CalibratedLatency",
    "LatencyModel",
    "LatencyParts",
    "PhysicalLatency",
    "all_to_all_s",
    "calibrate",
    "rank_tokens",
    "rebalance_s",
]

FloatArray = NDArray[np.float64]
LatencyParts = dict[str, FloatArray]


class LatencyModel(Protocol):
    """Latency of every iteration under a policy."""

    def parts(self, policy: Policy, counts: NDArray[np.int64], kept: FloatArray, /) -> LatencyParts:
        """Seconds per part, each ``[T]``; ``counts`` and ``kept`` tokens are ``[T, L, E]``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedLatency:
    """Latencies relative to an average iteration of SYMI."""

    static: float
    """DeepSpeed's iteration."""
    flex_plain: float
    """FlexMoE's iteration that does not rebalance."""
    flex_factor: float
    """A rebalancing iteration of FlexMoE over a plain one."""
    symi_s: float = 1.0
    """Seconds of an average SYMI iteration; 1 makes all latencies relative."""

    def __post_init__(self) -> None:
        for name in ("static", "flex_plain", "flex_factor", "symi_s"):
            arguments.positive_number(name, getattr(self, name))

    def flex_mean(self, interval: int) -> float:
        """Mean of one rebalancing and interval - 1 plain iterations, relative."""
        return self.flex_plain * (1.0 + (self.flex_factor - 1.0) / interval)

    def parts(
        self, policy: Policy, counts: NDArray[np.int64], _kept: FloatArray, /
    ) -> LatencyParts:
        """Parts ``iteration`` and ``rebalance``; predictors cost what SYMI costs."""
        length = len(counts)
        if isinstance(policy, FlexFull | FlexShift):
            due = np.arange(1, length + 1) % policy.interval == 0
            extra = self.flex_plain * (self.flex_factor - 1.0)
            return self._seconds(np.full(length, self.flex_plain), np.where(due, extra, 0.0))
        level = self.static if isinstance(policy, Static) else 1.0
        return self._seconds(np.full(length, level), np.zeros(length))

    def _seconds(self, plain: FloatArray, extra: FloatArray) -> LatencyParts:
        return {"iteration": self.symi_s * plain, "rebalance": self.symi_s * extra}


def calibrate(symi_s: float = 1.0) -> CalibratedLatency:
    """The latencies that the paper's minutes and iteration savings imply.

    lat(system) = (minutes / fraction) / (minutes / fraction of SYMI). FlexMoE-10 and FlexMoE-100
    give the two unknowns of lat(i) = plain (1 + (factor - 1)/i); FlexMoE-50 remains as a check.
    """
    relative = {
        system: minutes / iteration_fraction(system)
        for system, minutes in MINUTES_TO_LOSS_4.items()
    }
    often, seldom = (
        relative[f"flex({interval}, full)"] / relative["symi"] for interval in (10, 100)
    )
    extra = (often - seldom) / (1 / 10 - 1 / 100)
    plain = often - extra / 10
    return CalibratedLatency(
        static=relative["static"] / relative["symi"],
        flex_plain=plain,
        flex_factor=1.0 + extra / plain,
        symi_s=symi_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalLatency:
    """Latency from sizes, bandwidths and measured compute times."""

    layer: ExpertLayer
    links: Links
    dense_s: float
    """Everything outside the MoE layers, per iteration."""
    token_s: float
    """Expert computation per token, forward and backward."""
    token_bytes: float
    """One token's activation."""
    step_s: float
    """Optimizer step of one layer."""
    overhead_share: float = 0.0
    """Share of a whole iteration that SYMI's scheduler and metadata take."""
    variant: Variant = Variant.OFFLOAD

    def __post_init__(self) -> None:
        for name in ("dense_s", "token_s", "token_bytes", "step_s", "overhead_share"):
            arguments.non_negative_number(name, getattr(self, name))
        if self.overhead_share >= 1:
            raise arguments.refused(
                "overhead_share", self.overhead_share, "a share below 1", "give it as 0.0106"
            )

    def parts(self, policy: Policy, counts: NDArray[np.int64], kept: FloatArray, /) -> LatencyParts:
        """Parts dense, all_to_all, experts, gradients, weights, step, overhead, rebalance."""
        iterations, layers, _ = counts.shape
        layouts = self._layouts(policy, counts)
        moved = np.zeros((iterations, layers))
        experts = np.zeros((iterations, layers))
        for index in np.ndindex(iterations, layers):
            layout, tokens = layouts[index[0]][index[1]], kept[index]
            moved[index] = all_to_all_s(layout, tokens, self.layer, self.links, self.token_bytes)
            experts[index] = rank_tokens(layout, tokens, self.layer).max() * self.token_s
        tied = isinstance(policy, Static | FlexFull | FlexShift)
        phase = static_time_s if tied else symi_time_s
        flat = np.ones(iterations) * layers
        parts = {
            "dense": np.full(iterations, self.dense_s),
            "all_to_all": 4.0 * moved.sum(axis=1),
            "experts": experts.sum(axis=1),
            "gradients": flat
            * phase(self.layer, self.links, self.layer.gradient_bytes, self.variant),
            "weights": flat * phase(self.layer, self.links, self.layer.weight_bytes, self.variant),
            "step": flat * self.step_s,
        }
        # The share is of the whole iteration, itself included.
        share = 0.0 if tied else self.overhead_share
        total = np.sum(list(parts.values()), axis=0)
        parts["overhead"] = total * share / (1.0 - share)
        parts["rebalance"] = self._rebalancing(policy, layouts)
        return parts

    def _layouts(self, policy: Policy, counts: NDArray[np.int64]) -> list[list[list[int]]]:
        lay = interleaved if isinstance(policy, Static) else contiguous
        return [[lay(row) for row in iteration] for iteration in counts.tolist()]

    def _rebalancing(self, policy: Policy, layouts: list[list[list[int]]]) -> FloatArray:
        """Blocking moves at the end of the iteration before which the placement changes."""
        seconds = np.zeros(len(layouts))
        if isinstance(policy, FlexFull | FlexShift):
            for index, (before, after) in enumerate(itertools.pairwise(layouts)):
                seconds[index] = sum(
                    rebalance_s(old, new, self.layer, self.links)
                    for old, new in zip(before, after, strict=True)
                )
        return seconds


def rank_tokens(layout: Sequence[int], kept: FloatArray, layer: ExpertLayer) -> FloatArray:
    """Tokens computed on each rank, ``[N]``: kept_e / r_e for every slot of expert e."""
    per_slot = _slot_tokens(layout, kept)
    return np.asarray(per_slot.reshape(layer.ranks, layer.slots_per_rank).sum(axis=1))


def all_to_all_s(
    layout: Sequence[int], kept: FloatArray, layer: ExpertLayer, links: Links, token_bytes: float
) -> float:
    """max over ranks of max(sent, received) bytes / BW_net, for one direction.

    A rank keeps 1/N of what its slots receive at home: those tokens started on it.
    """
    received = rank_tokens(layout, kept, layer)
    local = received / layer.ranks
    sent = kept.sum() / layer.ranks - local
    busiest = float(np.maximum(sent, received - local).max())
    return busiest * token_bytes / links.network_bytes_per_s


def rebalance_s(
    before: Sequence[int], after: Sequence[int], layer: ExpertLayer, links: Links
) -> float:
    """FlexMoE: sum over newly hosted (rank, expert) of (W + O) / BW_net."""
    newly_hosted = sum(incoming_experts(before, after, layer.slots_per_rank))
    size = layer.weight_bytes + layer.optimizer_bytes
    return newly_hosted * size / links.network_bytes_per_s


def _slot_tokens(layout: Sequence[int], kept: FloatArray) -> FloatArray:
    slots = np.asarray(layout)
    replicas = np.bincount(slots, minlength=len(kept))
    return np.asarray((kept / replicas)[slots])
