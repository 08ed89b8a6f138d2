"""Everything that fixes a training run. Standard library only."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from .. import arguments
from ..capacity import whole_slot_capacity

__all__ = ["TrainConfig"]

_COUNTS = (
    "ranks",
    "slots",
    "steps",
    "vocabulary",
    "width",
    "heads",
    "hidden",
    "layers",
    "experts",
    "sequence",
    "batch",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A run: the model, the task, the optimizer and the cluster; the defaults are the reference."""

    ranks: int = 1
    """N processes."""
    slots: int = 16
    """sN slots per layer, slots / ranks on each."""
    steps: int = 60
    vocabulary: int = 64
    width: int = 32
    """D."""
    heads: int = 4
    hidden: int = 64
    """FF, of an expert."""
    layers: int = 2
    experts: int = 8
    """E."""
    sequence: int = 32
    """T, tokens per row."""
    batch: int = 16
    """B, rows of the global batch."""
    capacity_factor: float = 1.0
    learning_rate: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    auxiliary: float = 1e-2
    """Weight of the load-balancing loss."""
    seed: int = 0
    """0 is the reference; any other shifts the seeds of parameters and data."""
    audit_every: int = 0
    """Compare all copies after every this many iterations; 0 audits the last iteration only."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            arguments.positive_int(name, getattr(self, name))
        for name in ("learning_rate", "epsilon"):
            arguments.positive_number(name, getattr(self, name))
        arguments.fits(self.experts, self.slots)
        for name, parts in (("slots", self.ranks), ("batch", self.ranks), ("width", self.heads)):
            if getattr(self, name) % parts:
                raise arguments.refused(
                    name,
                    getattr(self, name),
                    f"a multiple of {parts}",
                    "every rank and every head gets the same share",
                )
        whole_slot_capacity(self.tokens, self.slots, self.capacity_factor)

    @property
    def slots_per_rank(self) -> int:
        """s."""
        return self.slots // self.ranks

    @property
    def tokens(self) -> int:
        """Tokens per iteration and layer, all ranks."""
        return self.batch * self.sequence

    @property
    def slot_capacity(self) -> int:
        """Tokens that a slot takes."""
        return whole_slot_capacity(self.tokens, self.slots, self.capacity_factor)

    @property
    def expert_parameters(self) -> int:
        """PE: w1 [D, FF] and w2 [FF, D], flat, row-major, in this order."""
        return 2 * self.width * self.hidden

    @property
    def digest(self) -> str:
        """SHA-256 of what a checkpoint depends on: all but the number of steps and audits."""
        fixed = {
            name: value
            for name, value in asdict(self).items()
            if name not in {"steps", "audit_every"}
        }
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode("ascii")).hexdigest()
