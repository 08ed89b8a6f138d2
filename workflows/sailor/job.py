"""The training job: what is trained and with which global batch. Nothing here depends on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Literal

from workflows.sailor.errors import BadJob

Precision = Literal["fp32", "fp16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A transformer training job. The global batch is never changed by a plan."""

    model: str
    global_batch: int
    """G, sequences per iteration"""
    layers: int
    """L in the profile sense: embedding + blocks (+ final norm) + head"""
    hidden: int
    sequence_length: int
    vocabulary: int
    heads: int
    blocks: int
    optimizer: str = "Adam"
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        for name in (
            "global_batch",
            "layers",
            "hidden",
            "sequence_length",
            "vocabulary",
            "heads",
            "blocks",
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadJob(f"job {self.model}: {name} is {value!r}, expected an integer >= 1")
        if self.precision not in ("fp32", "fp16"):
            raise BadJob(f"job {self.model}: precision is {self.precision!r}, not fp32 or fp16")

    @property
    def float_bytes(self) -> int:
        """Bytes of one activation or weight on the wire and in activation memory."""
        return 4 if self.precision == "fp32" else 2

    @property
    def model_bytes_per_parameter(self) -> int:
        """24 with Adam: moments 8, weights, gradients, communication, copies 4 each; 20 for SGD"""
        return 16 + self.optimizer_bytes_per_parameter

    @property
    def optimizer_bytes_per_parameter(self) -> int:
        """Optimizer state: two moments for Adam, one copy for SGD."""
        return 4 if self.optimizer.lower() == "sgd" else 8

    def microbatches(self, microbatch: int, replicas: int) -> int:
        """N_b = ceil(G / (m·D)): microbatches that one pipeline runs per iteration."""
        if microbatch < 1:
            raise BadJob(f"microbatch is {microbatch}, expected at least 1 sequence")
        if replicas < 1:
            raise BadJob(f"D is {replicas}, expected at least 1 replica per stage")
        return ceil(self.global_batch / (microbatch * replicas))

    def to_json(self) -> dict[str, Any]:
        """The record as a plain dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Job:
        """The inverse of `to_json`."""
        return cls(**value)
