"""Memory of one rank and one MoE layer. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import arguments
from .costs import ExpertLayer
from .placement import hosts_of

__all__ = [
    "RankMemory",
    "device_expert_bytes",
    "flex_transient_bytes",
    "host_optimizer_bytes_static",
    "host_optimizer_bytes_symi",
    "incoming_experts",
    "rank_memory",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes of one rank for one layer."""

    device_bytes: float
    """Weights and gradients of the slots."""
    host_bytes: float
    """Optimizer shards; equal in both designs, because sN = rE."""
    flex_transient_bytes: float
    """What FlexMoE needs on top while experts move in and the old ones are still there."""


def device_expert_bytes(layer: ExpertLayer) -> float:
    """s (W + G)."""
    return layer.slots_per_rank * (layer.weight_bytes + layer.gradient_bytes)


def host_optimizer_bytes_symi(layer: ExpertLayer) -> float:
    """E O / N: every expert's state is split over all ranks."""
    return layer.experts * layer.optimizer_bytes / layer.ranks


def host_optimizer_bytes_static(layer: ExpertLayer) -> float:
    """s O / r: every slot keeps its part of its expert's state."""
    return layer.slots_per_rank * layer.optimizer_bytes / layer.replicas


def flex_transient_bytes(layer: ExpertLayer, incoming: int) -> float:
    """(W + O) / r for each incoming expert while the one that it replaces is still present."""
    if incoming:
        arguments.positive_int("incoming", incoming)
    return incoming * (layer.weight_bytes + layer.optimizer_bytes) / layer.replicas


def incoming_experts(before: Sequence[int], after: Sequence[int], slots_per_rank: int) -> list[int]:
    """Number of experts that each rank hosts after a re-placement and did not host before."""
    hosted_before, hosted_after = hosts_of(before, slots_per_rank), hosts_of(after, slots_per_rank)
    ranks = len(after) // slots_per_rank
    return [
        sum(
            rank in now and rank not in then
            for then, now in zip(hosted_before, hosted_after, strict=True)
        )
        for rank in range(ranks)
    ]


def rank_memory(layer: ExpertLayer, incoming: int = 0) -> RankMemory:
    """Memory of a rank into which ``incoming`` experts move at once under FlexMoE."""
    return RankMemory(
        device_bytes=device_expert_bytes(layer),
        host_bytes=host_optimizer_bytes_symi(layer),
        flex_transient_bytes=flex_transient_bytes(layer, incoming),
    )
