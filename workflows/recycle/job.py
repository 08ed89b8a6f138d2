"""A training job: its shape, the times of its stages, and their memory.

Times are whole microseconds, so that an optimum is exact. Memory is whole bytes; a cap on the
number of micro-batches held is the same model with one "byte" for each (`activation_cap`).

Standard library only: this also runs inside the database process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from workflows.recycle.errors import InfeasibleMemory, InvalidArgument

__all__ = ["Job", "Objective", "StageMemory", "StageTimes", "Worker", "activation_cap"]

Objective = Literal["sync", "stagger"]
"""An iteration with one global barrier, or with a staggered optimizer."""


class Worker(NamedTuple):
    """One worker (a tensor-parallel group): the pipeline and the stage it serves."""

    pipeline: int
    stage: int


def whole(name: str, value: object, minimum: int) -> int:
    """``value`` if it is an int of at least ``minimum``; `InvalidArgument` if not."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(
            f"{name} = {value!r}: expected a whole number; scale times to whole microseconds",
            argument=name,
            given=repr(value),
        )
    if value < minimum:
        raise InvalidArgument(
            f"{name} = {value}: expected at least {minimum}", argument=name, given=repr(value)
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Measured times of one stage for one micro-batch, in whole microseconds."""

    forward_us: int = 1
    """t_F"""
    input_grad_us: int = 1
    """t_I: the backward pass for the input."""
    weight_grad_us: int = 1
    """t_W: the backward pass for the weights."""
    transfer_us: int = 0
    """t_C: one tensor between this stage and the next, either way."""
    optimizer_us: int = 0
    """t_Opt: all-reduce among the stage's peers and the optimizer step."""

    def __post_init__(self) -> None:
        whole("forward_us", self.forward_us, 1)
        whole("input_grad_us", self.input_grad_us, 1)
        whole("weight_grad_us", self.weight_grad_us, 1)
        whole("transfer_us", self.transfer_us, 0)
        whole("optimizer_us", self.optimizer_us, 0)

    @property
    def backward_us(self) -> int:
        """t_B = t_I + t_W, the fused backward pass."""
        return self.input_grad_us + self.weight_grad_us

    @property
    def total_us(self) -> int:
        """t = t_F + t_I + t_W, all the work of one micro-batch."""
        return self.forward_us + self.backward_us


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of one worker of a stage, in bytes; the three deltas of a micro-batch sum to 0."""

    limit_bytes: int
    """What the device has."""
    static_bytes: int = 0
    """Mem_0: parameters, gradients and optimizer state."""
    forward_bytes: int = 1
    """a_F, added when a forward ends."""
    input_grad_bytes: int = 0
    """a_I, added (usually negative) when a backward for the input ends."""
    weight_grad_bytes: int = -1
    """a_W, added (negative) when a backward for the weights ends."""

    def __post_init__(self) -> None:
        whole("limit_bytes", self.limit_bytes, 0)
        whole("static_bytes", self.static_bytes, 0)
        whole("forward_bytes", self.forward_bytes, 0)
        total = self.forward_bytes + self.input_grad_bytes + self.weight_grad_bytes
        if total != 0 or self.held_after_input_grad_bytes < 0:
            raise InvalidArgument(
                f"memory deltas F {self.forward_bytes}, I {self.input_grad_bytes}, "
                f"W {self.weight_grad_bytes} bytes: they must sum to 0 and never hold less than 0",
                total=total,
            )

    @property
    def budget_bytes(self) -> int:
        """What is left for micro-batches."""
        return self.limit_bytes - self.static_bytes

    @property
    def held_after_input_grad_bytes(self) -> int:
        """a_F + a_I, what a micro-batch holds between its I and its W."""
        return self.forward_bytes + self.input_grad_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that one micro-batch ever holds."""
        return max(self.forward_bytes, self.held_after_input_grad_bytes)


def activation_cap(cap: int) -> StageMemory:
    """At most ``cap`` micro-batches held on a worker, each from its F to its W."""
    return StageMemory(limit_bytes=whole("cap", cap, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """P pipelines of S stages, M micro-batches in each per iteration.

    ``times`` has one entry per stage. ``memory`` has one entry per stage, or is None where memory
    is not modelled. Raises `InvalidArgument`, and `InfeasibleMemory` if a stage cannot hold one
    micro-batch.
    """

    pipelines: int
    stages: int
    micro_batches: int
    times: tuple[StageTimes, ...]
    memory: tuple[StageMemory, ...] | None = None

    def __post_init__(self) -> None:
        whole("pipelines", self.pipelines, 1)
        whole("stages", self.stages, 1)
        whole("micro_batches", self.micro_batches, 1)
        for name, rows in (("times", self.times), ("memory", self.memory)):
            if rows is not None and len(rows) != self.stages:
                raise InvalidArgument(
                    f"{name} has {len(rows)} entries; expected one for each of the "
                    f"{self.stages} stages",
                    argument=name,
                )
        for stage, memory in enumerate(self.memory or ()):
            if memory.budget_bytes < memory.peak_bytes:
                raise InfeasibleMemory(
                    f"stage {stage} has {memory.budget_bytes} bytes for activations and one "
                    f"micro-batch needs {memory.peak_bytes}: raise the limit, or cut the model "
                    "or the micro-batch smaller",
                    stage=stage,
                    budget_bytes=memory.budget_bytes,
                    needed_bytes=memory.peak_bytes,
                )

    @classmethod
    def uniform(
        cls,
        pipelines: int,
        stages: int,
        micro_batches: int,
        *,
        times: StageTimes | None = None,
        cap: int | Sequence[int] | None = None,
    ) -> Job:
        """A job whose stages all have the same times; ``cap`` is for all stages or one for each."""
        whole("stages", stages, 1)
        if isinstance(cap, int):
            cap = [cap] * stages
        return cls(
            pipelines=pipelines,
            stages=stages,
            micro_batches=micro_batches,
            times=(times or StageTimes(),) * stages,
            memory=None if cap is None else tuple(activation_cap(c) for c in cap),
        )

    @property
    def workers(self) -> int:
        """P*S"""
        return self.pipelines * self.stages

    @property
    def batch(self) -> int:
        """P*M, the micro-batches of one iteration."""
        return self.pipelines * self.micro_batches

    @property
    def optimizer_us(self) -> int:
        """The optimizer step of a synchronous iteration: that of the slowest stage."""
        return max(t.optimizer_us for t in self.times)

    def replace(self, **changes: Any) -> Job:
        """The same job with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Job:
        """The job that `to_json` wrote; also accepts hand-written JSON with defaults left out."""
        memory = data.get("memory")
        return cls(
            pipelines=data["pipelines"],
            stages=data["stages"],
            micro_batches=data["micro_batches"],
            times=tuple(StageTimes(**t) for t in data["times"]),
            memory=None if memory is None else tuple(StageMemory(**m) for m in memory),
        )
