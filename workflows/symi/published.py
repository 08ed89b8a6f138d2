"""Figures of the paper (arXiv 2504.19925v2) that the model takes as input or is compared with.

Testbed: 16 nodes with one A100 80 GB each, PCIe 4.0 at 32 GB/s, 100 Gbps; GPT-Small (125M), Medium
(350M) and Large (760M) with E = 16 experts, s = 4 slots per rank, 32,768 tokens per batch.
Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

__all__ = [
    "DROPS_FEWER_PERCENT",
    "ITERATIONS_FEWER",
    "LATENCY_LOWER_PERCENT",
    "MINUTES_TO_LOSS_4",
    "OVERHEAD_SHARE",
    "REBALANCING_FACTOR",
    "TABLE_1",
    "CapacityRow",
]

MINUTES_TO_LOSS_4 = MappingProxyType(
    {
        "static": 147.84,
        "flex(100, full)": 145.42,
        "flex(50, full)": 141.60,
        "flex(10, full)": 138.61,
        "symi": 102.68,
    }
)
"""Table 3, GPT-Small, by the policy that stands for the system; static is DeepSpeed."""

ITERATIONS_FEWER = MappingProxyType(
    {"static": 0.285, "flex(100, full)": 0.156, "flex(50, full)": 0.121, "flex(10, full)": 0.0}
)
"""By what part SYMI needs fewer iterations to loss 4.0 than each system."""

DROPS_FEWER_PERCENT = MappingProxyType(
    {"static": 69.0, "flex(100, full)": 64.0, "flex(50, full)": 62.0, "flex(10, full)": 43.0}
)
"""By how many percent SYMI drops fewer tokens than each system."""

LATENCY_LOWER_PERCENT = MappingProxyType({"125M": 2.8, "350M": 3.2, "760M": 9.3})
"""By how many percent SYMI's iteration is shorter than DeepSpeed's, by model."""

OVERHEAD_SHARE = MappingProxyType({"125M": 0.0106, "350M": 0.0082, "760M": 0.0070})
"""Share of an iteration that SYMI's new components take, by model."""

REBALANCING_FACTOR = 2.46
"""A rebalancing iteration of FlexMoE over one that does not rebalance (2.46 to 4.10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRow:
    """A row of Table 1: GPT-Small, 32 experts, 16 ranks, static replication."""

    capacity_factor: int
    survival_percent: float
    iterations: int
    forward_ms: float


TABLE_1 = (
    CapacityRow(capacity_factor=1, survival_percent=44.90, iterations=618, forward_ms=455.41),
    CapacityRow(capacity_factor=2, survival_percent=65.56, iterations=527, forward_ms=506.77),
    CapacityRow(capacity_factor=4, survival_percent=74.91, iterations=478, forward_ms=571.42),
)
