"""GPU types: published figures of the cards and what a platform takes of their memory.

Peak rates are the dense, non-sparse figures of the vendors' data sheets. `matmul_flops_per_s` is
what an fp32 training run of a recent PyTorch reaches for at best: TF32 tensor cores where the card
has them, plain fp32 otherwise. `fixed_bytes` is what the platform itself occupies (context, fused
kernels, fragmentation); it is not in the paper's formula and is a column to calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from workflows.sailor.errors import BadJob, UnknownName

GIB: Final = 2**30
GB: Final = 1e9
DEFAULT_FIXED_BYTES: Final = 3.0e9


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """One GPU type as the planner sees it."""

    name: str
    memory_bytes: float
    """capacity of one card"""
    gpus_per_node: int
    """cards of one machine; a tensor group never leaves it"""
    fixed_bytes: float = DEFAULT_FIXED_BYTES
    """platform overhead on every card"""
    matmul_flops_per_s: float = 0.0
    """peak of fp32 (or TF32) matrix products; 0 if unknown"""
    half_flops_per_s: float = 0.0
    """peak of fp16/bf16 matrix products; 0 if unknown"""
    memory_bytes_per_s: float = 0.0
    """peak of the card's memory; 0 if unknown"""
    peer_bytes_per_s: float = 0.0
    """one direction between two cards of a node; 0 if unknown"""

    def __post_init__(self) -> None:
        if self.memory_bytes <= 0 or self.gpus_per_node < 1 or self.fixed_bytes < 0:
            raise BadJob(
                f"GPU type {self.name}: memory_bytes={self.memory_bytes}, "
                f"gpus_per_node={self.gpus_per_node}, fixed_bytes={self.fixed_bytes}; expected "
                "positive memory, at least one GPU per node and no negative overhead"
            )

    def to_json(self) -> dict[str, Any]:
        """The record as a plain dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GpuType:
        """The inverse of `to_json`."""
        return cls(**value)


def _card(name: str, gib: int, per_node: int, rates: tuple[float, float, float, float]) -> GpuType:
    matmul_tflops, half_tflops, memory_gb_per_s, peer_gb_per_s = rates
    return GpuType(
        name=name,
        memory_bytes=gib * GIB,
        gpus_per_node=per_node,
        matmul_flops_per_s=matmul_tflops * 1e12,
        half_flops_per_s=half_tflops * 1e12,
        memory_bytes_per_s=memory_gb_per_s * GB,
        peer_bytes_per_s=peer_gb_per_s * GB,
    )


# name, GiB, cards per node, (fp32/TF32 TFLOPS, fp16 TFLOPS, memory GB/s, peer GB/s one direction)
GPU_TYPES: Final[Mapping[str, GpuType]] = {
    card.name: card
    for card in (
        _card("V100-16", 16, 4, (15.7, 125, 900, 150)),
        _card("A100-40", 40, 4, (156, 312, 1555, 300)),
        _card("A100-80", 80, 4, (156, 312, 2039, 300)),
        _card("H100-80", 80, 8, (495, 989, 3350, 450)),
        _card("GH-96", 96, 4, (495, 989, 4000, 450)),
        _card("Titan-RTX", 24, 8, (16.3, 130, 672, 12)),
        _card("RTX-2080", 11, 8, (13.4, 108, 616, 12)),
        _card("RTX-3090", 24, 8, (35.6, 142, 936, 12)),
    )
}


def gpu_type(name: str, table: Mapping[str, GpuType] = GPU_TYPES) -> GpuType:
    """The GPU type of that name, or `UnknownName` with the names that exist."""
    found = table.get(name)
    if found is None:
        raise UnknownName(
            f"unknown GPU type {name!r}; known are {', '.join(sorted(table))}",
            kind="gpu",
            name=name,
        )
    return found
