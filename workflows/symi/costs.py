"""Bytes and seconds of keeping optimizer state apart from the experts (SYMI and its appendix).

Symbols: N ranks, E experts, s slots per rank; G, W, O bytes of gradient, weights and optimizer
state of one expert; X stands for G or W. All figures are of one iteration and one MoE layer.

``static`` shards an expert's optimizer over the r = sN/E ranks that host it; ``symi`` shards it
over all N ranks. The volume is equal; the time differs, because a static host keeps a part at home
more often. Three variants:

    offload     optimizer state in host memory: every byte also crosses PCIe
    hbm         optimizer state on the accelerator: no PCIe term
    allreduce   offload, with gradients synchronised by a full all-reduce, twice a reduce-scatter's
                volume, as existing frameworks do

Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from . import arguments

__all__ = [
    "OVERHEAD_WARNING_PERCENT",
    "CommunicationCost",
    "ExpertLayer",
    "Links",
    "Variant",
    "advice",
    "communication_cost",
    "expert_move_s",
    "gradient_volume_bytes",
    "group_time_bound_s",
    "overhead_ratio",
    "shard_length",
    "static_time_s",
    "symi_time_s",
    "weight_volume_bytes",
]

_PhaseTime = Callable[["ExpertLayer", "Links", float, "Variant"], float]

OVERHEAD_WARNING_PERCENT = 5.0
"""Above this extra communication time the decoupled optimizer deserves a second look."""


class Variant(StrEnum):
    """Where the optimizer lives and how gradients are synchronised."""

    OFFLOAD = "offload"
    HBM = "hbm"
    ALLREDUCE = "allreduce"

    @classmethod
    def named(cls, name: str) -> Variant:
        """The variant of this name; InvalidArgument for any other."""
        if name not in {variant.value for variant in cls}:
            raise arguments.refused(
                "variant", name, "offload, hbm or allreduce", "name one of these"
            )
        return cls(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayer:
    """One MoE layer on a cluster; bytes are those of one expert."""

    ranks: int
    """N."""
    experts: int
    """E."""
    slots_per_rank: int
    """s."""
    gradient_bytes: float
    """G: 2 bytes per parameter in half precision."""
    weight_bytes: float
    """W: 2 bytes per parameter in half precision."""
    optimizer_bytes: float
    """O: 16 bytes per parameter for mixed-precision Adam."""

    def __post_init__(self) -> None:
        arguments.positive_int("ranks", self.ranks)
        arguments.positive_int("experts", self.experts)
        arguments.positive_int("slots_per_rank", self.slots_per_rank)
        for name in ("gradient_bytes", "weight_bytes", "optimizer_bytes"):
            arguments.positive_number(name, getattr(self, name))
        arguments.fits(self.experts, self.slots)

    @property
    def slots(self) -> int:
        """sN."""
        return self.ranks * self.slots_per_rank

    @property
    def replicas(self) -> float:
        """r = sN / E, the static baseline's replicas."""
        return self.slots / self.experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Bandwidths of one rank."""

    pci_bytes_per_s: float
    """Host to accelerator."""
    network_bytes_per_s: float
    """Accelerator to accelerator."""

    def __post_init__(self) -> None:
        arguments.positive_number("pci_bytes_per_s", self.pci_bytes_per_s)
        arguments.positive_number("network_bytes_per_s", self.network_bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationCost:
    """What one iteration of one layer moves, and how long it takes in each design."""

    variant: Variant
    gradient_volume_bytes: float
    """D_G, equal in both designs."""
    weight_volume_bytes: float
    """D_W, equal in both designs."""
    static_s: float
    """T_G + T_W of the static design."""
    symi_s: float
    """T_G + T_W of SYMI."""
    overhead_percent: float
    """How much longer SYMI's communication takes."""
    move_weights_s: float
    """Moving one expert's weights, W / BW_net."""
    move_optimizer_s: float
    """Moving one expert's optimizer state, O / BW_net."""
    optimizer_total_bytes: float
    """E * O, equal in both designs."""


def gradient_volume_bytes(layer: ExpertLayer) -> float:
    """D_G = s N G: static E r (G/r) r; SYMI sum_i r_i (G/N) N."""
    return layer.slots * layer.gradient_bytes


def weight_volume_bytes(layer: ExpertLayer) -> float:
    """D_W = s N W, for any placement."""
    return layer.slots * layer.weight_bytes


def static_time_s(
    layer: ExpertLayer, links: Links, size_bytes: float, variant: Variant = Variant.OFFLOAD
) -> float:
    """T_X = E/N X/BW_pci + (sN - E)/N X/BW_net: each slot exchanges X/r with r - 1 others."""
    network = (layer.slots - layer.experts) / layer.ranks * size_bytes / links.network_bytes_per_s
    return _pci_time_s(layer, links, size_bytes, variant) + network


def symi_time_s(
    layer: ExpertLayer, links: Links, size_bytes: float, variant: Variant = Variant.OFFLOAD
) -> float:
    """T_X = E/N X/BW_pci + (sN - s)/N X/BW_net: a shard X/N for every remote instance."""
    remote = layer.slots - layer.slots_per_rank
    network = remote / layer.ranks * size_bytes / links.network_bytes_per_s
    return _pci_time_s(layer, links, size_bytes, variant) + network


def overhead_ratio(layer: ExpertLayer, links: Links, variant: Variant = Variant.OFFLOAD) -> float:
    """(T_symi - T_static) / T_static = (E - s) / (sN - E (1 - BW_net/BW_pci)), for G = W.

    Without offload the ratio of bandwidths is 0. 0 where the static design moves nothing and SYMI
    neither; infinite where only SYMI communicates (r = 1 without offload).
    """
    ratio = 0.0 if variant is Variant.HBM else links.network_bytes_per_s / links.pci_bytes_per_s
    extra = layer.experts - layer.slots_per_rank
    base = layer.slots - layer.experts * (1.0 - ratio)
    if variant is Variant.ALLREDUCE:
        # Over G and W together: the gradient's (sN - E) is counted twice.
        base += (layer.slots - layer.experts) / 2.0
    return _quotient(extra, base)


def expert_move_s(layer: ExpertLayer, links: Links) -> tuple[float, float]:
    """Seconds to move one expert for real: its weights W/BW_net, its optimizer state O/BW_net."""
    network = links.network_bytes_per_s
    return layer.weight_bytes / network, layer.optimizer_bytes / network


def shard_length(parameters: int, ranks: int) -> int:
    """ceil(parameters / N); the last shard is padded where N does not divide them."""
    return math.ceil(
        arguments.positive_int("parameters", parameters) / arguments.positive_int("ranks", ranks)
    )


def group_time_bound_s(layer: ExpertLayer, links: Links, size_bytes: float, groups: int) -> float:
    """E/N X/BW_pci + k (sN - s)/N X/BW_net: k groups of N/k ranks, each owning E/k experts.

    The bound is for the worst popularity and grows with k; k = 1 is SYMI.
    """
    arguments.positive_int("groups", groups)
    if layer.ranks % groups or layer.experts % groups:
        raise arguments.refused(
            "groups",
            groups,
            f"a divisor of {layer.ranks} ranks and of {layer.experts} experts",
            "every group needs the same number of ranks and of experts",
        )
    remote = layer.slots - layer.slots_per_rank
    network = groups * remote / layer.ranks * size_bytes / links.network_bytes_per_s
    return _pci_time_s(layer, links, size_bytes, Variant.OFFLOAD) + network


def communication_cost(
    layer: ExpertLayer, links: Links, variant: Variant = Variant.OFFLOAD
) -> CommunicationCost:
    """Volume, time and overhead of one iteration of one layer, gradients and weights together."""
    static = _both_phases_s(layer, links, variant, static_time_s)
    symi = _both_phases_s(layer, links, variant, symi_time_s)
    weights_s, optimizer_s = expert_move_s(layer, links)
    return CommunicationCost(
        variant=variant,
        gradient_volume_bytes=gradient_volume_bytes(layer),
        weight_volume_bytes=weight_volume_bytes(layer),
        static_s=static,
        symi_s=symi,
        overhead_percent=100.0 * _quotient(symi - static, static),
        move_weights_s=weights_s,
        move_optimizer_s=optimizer_s,
        optimizer_total_bytes=layer.experts * layer.optimizer_bytes,
    )


def advice(cost: CommunicationCost) -> str | None:
    """A warning where decoupling costs more than `OVERHEAD_WARNING_PERCENT`, else None."""
    if cost.overhead_percent <= OVERHEAD_WARNING_PERCENT:
        return None
    return (
        f"decoupling adds {cost.overhead_percent:.1f} % to the optimizer's communication "
        f"({1e3 * cost.static_s:.3g} ms to {1e3 * cost.symi_s:.3g} ms per layer): "
        "the small overhead needs far fewer experts than slots"
    )


def _pci_time_s(layer: ExpertLayer, links: Links, size_bytes: float, variant: Variant) -> float:
    """E/N X/BW_pci, the same in both designs; nothing crosses PCIe without offload."""
    if variant is Variant.HBM:
        return 0.0
    return layer.experts / layer.ranks * size_bytes / links.pci_bytes_per_s


def _allreduce_extra_s(layer: ExpertLayer, links: Links) -> float:
    """(sN - E)/N G/BW_net: what an all-reduce, 2 (r-1) G/r per slot, adds to a reduce-scatter.

    It is the same in SYMI: its (sN - s) is a reduce-scatter among replicas, sN - E, and the
    shards of the E - s experts that a rank does not host; only the first part doubles.
    """
    return (
        (layer.slots - layer.experts)
        / layer.ranks
        * layer.gradient_bytes
        / links.network_bytes_per_s
    )


def _both_phases_s(
    layer: ExpertLayer, links: Links, variant: Variant, phase_s: _PhaseTime
) -> float:
    gradients = phase_s(layer, links, layer.gradient_bytes, variant)
    weights = phase_s(layer, links, layer.weight_bytes, variant)
    extra = _allreduce_extra_s(layer, links) if variant is Variant.ALLREDUCE else 0.0
    return gradients + weights + extra


def _quotient(extra: float, base: float) -> float:
    if extra == 0:
        return 0.0
    return extra / base if base else math.inf
