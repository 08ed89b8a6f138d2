"""What a real training run is to do: the model, the steps, and who is killed and joins when."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from workflows.recycle.errors import InvalidArgument, InvalidWorker
from workflows.recycle.job import Job, Worker, whole

__all__ = [
    "ADDRESS_FILE",
    "CONTROL_FILE",
    "SOURCES_FOLDER",
    "SPEC_FILE",
    "STEPS_FILE",
    "Join",
    "Kill",
    "TrainingSpec",
]

# What the processes of one run share in its directory.
SPEC_FILE = "spec.json"
CONTROL_FILE = "control.json"
ADDRESS_FILE = "address.json"
STEPS_FILE = "steps.jsonl"
SOURCES_FOLDER = "sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The worker sends itself SIGKILL in this step, before this operation of its schedule."""

    worker: Worker
    step: int
    operation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A new process takes part under this name from this step on."""

    worker: Worker
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    """A small multi-layer perceptron in float64, trained by P*S processes on this machine."""

    pipelines: int = 2
    stages: int = 2
    micro_batches: int = 4
    steps: int = 10
    width: int = 64
    layers_per_stage: int = 2
    samples_per_micro_batch: int = 4
    learning_rate: float = 1e-3
    seed: int = 1
    kills: tuple[Kill, ...] = ()
    joins: tuple[Join, ...] = ()
    kill_controller: Literal["before_activate", "after_activate"] | None = None
    """A controller that was never restarted kills itself there, at its first switch of plans."""
    patience_s: float = 60.0
    """How long a process waits for another before it gives up."""

    def __post_init__(self) -> None:
        for name in ("width", "layers_per_stage", "samples_per_micro_batch", "steps"):
            whole(name, getattr(self, name), 1)
        job = self.job
        changes = [(c.worker, c.step) for c in self.kills] + [
            (c.worker, c.step) for c in self.joins
        ]
        for (k, i), step in changes:
            if not (0 <= k < job.pipelines and 0 <= i < job.stages):
                raise InvalidWorker(f"no worker ({k}, {i}) to kill or join", pipeline=k, stage=i)
            if not 0 <= step < self.steps:
                raise InvalidArgument(f"step {step}: expected one of 0..{self.steps - 1}")

    @property
    def job(self) -> Job:
        """The job to plan: all operations count the same."""
        return Job.uniform(self.pipelines, self.stages, self.micro_batches)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TrainingSpec:
        """The specification that `to_json` wrote."""
        kills = tuple(Kill(**(k | {"worker": Worker(*k["worker"])})) for k in data["kills"])
        joins = tuple(Join(**(j | {"worker": Worker(*j["worker"])})) for j in data["joins"])
        return cls(**(data | {"kills": kills, "joins": joins}))
