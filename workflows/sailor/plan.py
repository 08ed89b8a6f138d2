"""A plan: pipeline stages, the replicas of each, and the microbatch.

Replica j of stage i talks to replica j mod D of the neighbour stages, so the order of replicas is
part of the plan. Replica j of all stages together are pipeline (or chain) j.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workflows.sailor.errors import BadJob, BadPlan, NotAvailable
from workflows.sailor.hardware import GpuType, gpu_type
from workflows.sailor.job import Job
from workflows.sailor.prices import region_of

Availability = Mapping[tuple[str, str], int]
"""(GPU type, zone) -> number of GPUs"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica of a stage: t GPUs of one node."""

    gpu: str
    degree: int
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A contiguous run of layers and the replicas that hold it."""

    first_layer: int
    last_layer: int
    """inclusive"""
    replicas: tuple[Replica, ...]

    @property
    def layers(self) -> range:
        """The layers of the stage."""
        return range(self.first_layer, self.last_layer + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a job is laid out on GPUs."""

    microbatch: int
    """m, sequences"""
    stages: tuple[Stage, ...]
    shares: tuple[int, ...] | None = None
    """microbatches of each pipeline per iteration; None: ceil(G / (m·D)) for all of them"""

    @property
    def depth(self) -> int:
        """P, the number of stages."""
        return len(self.stages)

    @property
    def width(self) -> int:
        """D, the replicas of the first stage."""
        return len(self.stages[0].replicas)

    @property
    def split(self) -> tuple[int, ...]:
        """Layers per stage."""
        return tuple(len(stage.layers) for stage in self.stages)

    def gpus_used(self) -> dict[tuple[str, str], int]:
        """(GPU type, zone) -> GPUs that the plan occupies."""
        used: Counter[tuple[str, str]] = Counter()
        for stage in self.stages:
            for replica in stage.replicas:
                used[(replica.gpu, replica.zone)] += replica.degree
        return dict(used)

    def to_json(self) -> dict[str, Any]:
        """Plain values; equal neighbouring replicas are counted, not repeated."""
        return {
            "microbatch": self.microbatch,
            "shares": None if self.shares is None else list(self.shares),
            "stages": [
                {
                    "first_layer": stage.first_layer,
                    "last_layer": stage.last_layer,
                    "replicas": [asdict(r) | {"count": n} for r, n in runs(stage.replicas)],
                }
                for stage in self.stages
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        """The inverse of `to_json`."""
        stages = tuple(
            Stage(
                first_layer=int(stage["first_layer"]),
                last_layer=int(stage["last_layer"]),
                replicas=tuple(
                    Replica(gpu=r["gpu"], degree=int(r["degree"]), zone=r["zone"])
                    for r in stage["replicas"]
                    for _ in range(int(r.get("count", 1)))
                ),
            )
            for stage in value["stages"]
        )
        shares = value.get("shares")
        return cls(
            microbatch=int(value["microbatch"]),
            stages=stages,
            shares=None if shares is None else tuple(int(n) for n in shares),
        )


def runs(replicas: Sequence[Replica]) -> list[tuple[Replica, int]]:
    """Neighbouring equal replicas with their number."""
    out: list[tuple[Replica, int]] = []
    for replica in replicas:
        if out and out[-1][0] == replica:
            out[-1] = (replica, out[-1][1] + 1)
        else:
            out.append((replica, 1))
    return out


def even_split(layers: int, stages: int, *, extra_first: bool = False) -> tuple[int, ...]:
    """Layers per stage: q = L div P, and one more for the last (or first) L mod P stages.

    The planner gives the extra layers to the last stages, which hold fewer activations; the short
    form of uniform plans gives them to the first.
    """
    if not 1 <= stages <= layers:
        raise BadPlan(f"cannot split {layers} layers over {stages} stages")
    each, extra = divmod(layers, stages)
    small, large = [each] * (stages - extra), [each + 1] * extra
    return tuple(large + small if extra_first else small + large)


def stages_from_split(
    split: Sequence[int], replicas: Sequence[Sequence[Replica]]
) -> tuple[Stage, ...]:
    """Stages of consecutive layers with the given replicas."""
    out: list[Stage] = []
    start = 0
    for size, workers in zip(split, replicas, strict=True):
        out.append(Stage(first_layer=start, last_layer=start + size - 1, replicas=tuple(workers)))
        start += size
    return tuple(out)


def uniform_plan(
    *, layers: int, stages: int, replicas: int, replica: Replica, microbatch: int
) -> Plan:
    """P stages of D equal replicas with the planner's even split."""
    if replicas < 1 or microbatch < 1:
        raise BadJob(f"D is {replicas} and m is {microbatch}, expected at least 1 of each")
    split = even_split(layers, stages)
    return Plan(
        microbatch=microbatch, stages=stages_from_split(split, [[replica] * replicas] * stages)
    )


def check_layer_lists(lists: Sequence[Sequence[int]], layers: int) -> tuple[int, ...]:
    """Sizes of the stages, if the lists hold the layers 0 … L-1 in order; else `BadPlan`."""
    expected = 0
    for i, stage in enumerate(lists):
        if not stage:
            raise BadPlan(f"stage {i} is empty; every stage needs at least one layer")
        for layer in stage:
            if layer > expected:
                raise BadPlan(f"layer {expected} missing: stage {i} goes on with layer {layer}")
            if layer < expected:
                raise BadPlan(f"layer {layer} of stage {i} is repeated or out of order")
            expected += 1
    if expected < layers:
        raise BadPlan(f"layer {expected} missing: the plan ends there, the model has {layers}")
    if expected > layers:
        raise BadPlan(f"layer {layers} does not exist: the model has {layers} layers")
    return tuple(len(stage) for stage in lists)


def check_plan(plan: Plan, job: Job, cards: Mapping[str, GpuType]) -> None:
    """Raise the error of the first rule that the plan breaks."""
    if plan.microbatch < 1:
        raise BadJob(f"microbatch is {plan.microbatch}, expected at least 1 sequence")
    if not plan.stages:
        raise BadPlan("the plan has no stage")
    check_layer_lists([stage.layers for stage in plan.stages], job.layers)
    for i, stage in enumerate(plan.stages):
        _check_stage(i, stage, cards)
    if plan.shares is not None:
        _check_shares(plan, job)


def _check_stage(i: int, stage: Stage, cards: Mapping[str, GpuType]) -> None:
    if not stage.replicas:
        raise BadJob(f"stage {i} has D = 0 replicas, expected at least 1")
    for replica in dict.fromkeys(stage.replicas):
        per_node = gpu_type(replica.gpu, cards).gpus_per_node
        if replica.degree < 1:
            raise BadPlan(f"stage {i}: tensor degree is {replica.degree}, expected at least 1")
        if replica.degree > per_node:
            raise BadPlan(
                f"stage {i}: tensor degree {replica.degree} exceeds {per_node}, the GPUs of one "
                f"{replica.gpu} node"
            )
    regions = sorted({region_of(replica.zone) for replica in stage.replicas})
    if len(regions) > 1:
        raise BadPlan(
            f"stage {i} has replicas in the regions {' and '.join(regions)}; keep the replicas of "
            "one stage in one region"
        )


def _check_shares(plan: Plan, job: Job) -> None:
    shares = plan.shares or ()
    if len(shares) != plan.width or min(shares) < 1:
        raise BadPlan(f"{len(shares)} shares {shares} for {plan.width} pipelines, each at least 1")
    if sum(shares) * plan.microbatch < job.global_batch:
        raise BadPlan(
            f"the shares sum to {sum(shares)} microbatches of {plan.microbatch}, less than the "
            f"global batch of {job.global_batch} sequences"
        )


def check_available(plan: Plan, available: Availability) -> None:
    """`NotAvailable` if the plan uses more GPUs of some type and zone than there are."""
    for (gpu, zone), used in sorted(plan.gpus_used().items()):
        have = available.get((gpu, zone), 0)
        if used > have:
            raise NotAvailable(f"the plan uses {used} {gpu} in {zone}, available are {have}")


def within(plan: Plan, available: Availability) -> bool:
    """Whether a plan stays inside its cluster; published plans do not always."""
    try:
        check_available(plan, available)
    except NotAvailable:
        return False
    return True


def parse_availability(value: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """{"A100-40_us-central1-a": 32} -> {("A100-40", "us-central1-a"): 32}."""
    out: dict[tuple[str, str], int] = {}
    for key, count in value.items():
        gpu, separator, zone = key.partition("_")
        if not separator or not gpu or not zone:
            raise BadJob(f"availability key {key!r}, expected <gpu>_<zone>")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise BadJob(f"availability of {key} is {count!r}, expected an integer >= 0")
        out[(gpu, zone)] = count
    return out
