"""Peak memory of one worker (paper section 4.3.1).

    M_peak = 24·Σ prm[t][l] + fsize·m·(microbatches in flight)·Σ act[t][l] + M_fixed

24 bytes a parameter are Adam's moments 8, fp32 weights 4, gradients 4, communication 4 and the
copies that the framework makes at start-up 4 (20 with SGD). In 1F1B stage i of P holds P - i
microbatches, but never more than there are: min(N_b, P - i). The published simulator does not cap
it, checks with 2e9 (t = 1) or 3e9 bytes of overhead, and reports with 5.06e9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from workflows.sailor.plan import Plan, Replica, Stage
from workflows.sailor.problem import Problem

PUBLISHED_CHECK_BYTES_DEGREE_1: Final = 2.0e9
PUBLISHED_CHECK_BYTES: Final = 3.0e9
PUBLISHED_REPORT_BYTES: Final = 5.06e9
WEIGHT_BYTES: Final = 4
GRADIENT_BYTES: Final = 4
COMMUNICATION_BYTES: Final = 4
STARTUP_COPY_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMemory:
    """Peak memory of the GPUs of equal replicas of one stage, in bytes."""

    stage: int
    gpu: str
    degree: int
    replicas: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    buffers_bytes: float
    """communication buffers and start-up copies"""
    activations_bytes: float
    fixed_bytes: float
    """platform overhead that is reported"""
    check_bytes: float
    """platform overhead that the feasibility check uses (equal to `fixed_bytes` in exact mode)"""
    limit_bytes: float

    @property
    def model_bytes(self) -> float:
        """M_model + M_act, without the platform's overhead."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.buffers_bytes
            + self.activations_bytes
        )

    @property
    def peak_bytes(self) -> float:
        """The reported peak."""
        return self.model_bytes + self.fixed_bytes

    @property
    def needed_bytes(self) -> float:
        """What is compared with the card."""
        return self.model_bytes + self.check_bytes

    @property
    def fits(self) -> bool:
        """Whether the card is large enough."""
        return self.needed_bytes <= self.limit_bytes


def in_flight(stage: int, depth: int, microbatches: int) -> int:
    """Microbatches whose activations stage i of P holds at once in 1F1B: min(N_b, P - i)."""
    return min(microbatches, depth - stage)


def worker_memory(
    problem: Problem,
    *,
    stage: int,
    layers: range,
    gpu: str,
    degree: int,
    microbatch: int,
    flight: int,
    replicas: int = 1,
    published: bool = False,
) -> WorkerMemory:
    """Peak memory of a worker with these layers that holds `flight` microbatches."""
    job, card = problem.job, problem.gpu(gpu)
    sizes = problem.profile.size_of(degree)
    parameters = sum(sizes[layer].parameters for layer in layers)
    kept = sum(sizes[layer].kept_floats for layer in layers)
    if published:
        fixed = PUBLISHED_REPORT_BYTES
        check = PUBLISHED_CHECK_BYTES_DEGREE_1 if degree == 1 else PUBLISHED_CHECK_BYTES
    else:
        fixed = check = card.fixed_bytes
    return WorkerMemory(
        stage=stage,
        gpu=gpu,
        degree=degree,
        replicas=replicas,
        weights_bytes=WEIGHT_BYTES * parameters,
        gradients_bytes=GRADIENT_BYTES * parameters,
        optimizer_bytes=job.optimizer_bytes_per_parameter * parameters,
        buffers_bytes=(COMMUNICATION_BYTES + STARTUP_COPY_BYTES) * parameters,
        activations_bytes=job.float_bytes * microbatch * flight * kept,
        fixed_bytes=fixed,
        check_bytes=check,
        limit_bytes=card.memory_bytes,
    )


def plan_memory(
    problem: Problem, plan: Plan, *, published: bool = False
) -> tuple[WorkerMemory, ...]:
    """Peak memory of every kind of worker of a plan, stage by stage."""
    microbatches = (
        max(plan.shares)
        if plan.shares is not None
        else problem.job.microbatches(plan.microbatch, plan.width)
    )
    out: list[WorkerMemory] = []
    for i, stage in enumerate(plan.stages):
        flight = plan.depth - i if published else in_flight(i, plan.depth, microbatches)
        for (gpu, degree), count in _kinds(stage).items():
            out.append(
                worker_memory(
                    problem,
                    stage=i,
                    layers=stage.layers,
                    gpu=gpu,
                    degree=degree,
                    microbatch=plan.microbatch,
                    flight=flight,
                    replicas=count,
                    published=published,
                )
            )
    return tuple(out)


def _kinds(stage: Stage) -> dict[tuple[str, int], int]:
    kinds: dict[tuple[str, int], int] = {}
    for replica in stage.replicas:
        key = _kind(replica)
        kinds[key] = kinds.get(key, 0) + 1
    return kinds


def _kind(replica: Replica) -> tuple[str, int]:
    return (replica.gpu, replica.degree)
