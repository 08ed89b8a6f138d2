"""Iteration times of the systems that ReCycle is compared with, for a set of dead workers.

Formulas of Bamboo, pipeline dropping, spare servers and the fault-scaled ideal; Oobleck's are in
`oobleck`. None means that the system cannot run in that state. Times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from workflows.recycle.bounds import fault_scaled_us, peak_activations_1f1b
from workflows.recycle.job import Job, Worker
from workflows.recycle.one_f_one_b import one_f_one_b
from workflows.recycle.oobleck import pipeline_us

__all__ = [
    "bamboo_fault_free_us",
    "bamboo_fits",
    "bamboo_lost_pipelines",
    "bamboo_us",
    "fault_free_us",
    "fault_scaled_ideal_us",
    "pipeline_drop_us",
    "spares_us",
]


def fault_free_us(job: Job) -> int:
    """T_1F1B of one iteration with all workers alive, exact also for uneven stages."""
    return one_f_one_b(job.replace(pipelines=1, memory=None)).sync_us


def fault_scaled_ideal_us(job: Job, failed: int) -> float | None:
    """T_1F1B * P*S/(P*S - f)."""
    return None if failed >= job.workers else fault_scaled_us(job, failed, fault_free_us(job))


def pipeline_drop_us(job: Job, dead: Iterable[Worker]) -> float | None:
    """Pipelines with a dead worker stop; the P' others take M' = ceil(P*M/P') each."""
    left = job.pipelines - len({worker.pipeline for worker in dead})
    if left == 0:
        return None
    return float(fault_free_us(job.replace(micro_batches=-(-job.batch // left))))


def spares_us(job: Job, failed: int, spares: int) -> float | None:
    """T_1F1B as long as there is a spare for every dead worker."""
    return float(fault_free_us(job)) if failed <= spares else None


def bamboo_fits(job: Job) -> bool:
    """Whether every stage can hold its successor's state too: 2*Mem_0 + activations <= limit."""
    if job.memory is None:
        return True
    for stage, memory in enumerate(job.memory):
        successor = job.memory[(stage + 1) % job.stages]
        activations = peak_activations_1f1b(job, stage) * memory.peak_bytes
        if memory.static_bytes + successor.static_bytes + activations > memory.limit_bytes:
            return False
    return True


def bamboo_fault_free_us(job: Job) -> float:
    """T_0 = T_1F1B + what of the M redundant forwards the bubbles cannot hide.

    max(0, M*t_F - (S-1)*t) with the times of the slowest stage (inferred).
    """
    slowest = max(job.times, key=lambda t: t.total_us)
    bubble = (job.stages - 1) * slowest.total_us
    return fault_free_us(job) + max(0, job.micro_batches * slowest.forward_us - bubble)


def bamboo_lost_pipelines(job: Job, dead: Set[Worker]) -> frozenset[int]:
    """Pipelines in which a dead worker's predecessor, who holds its copy, is dead too."""
    return frozenset(
        worker.pipeline
        for worker in dead
        if Worker(worker.pipeline, (worker.stage - 1) % job.stages) in dead
    )


def bamboo_us(job: Job, dead: Set[Worker]) -> float | None:
    """The slowest pipeline: a predecessor does its dead successor's work as well.

    Pipelines that lost a stage are out; the others share their micro-batches (inferred).
    """
    lost = bamboo_lost_pipelines(job, dead)
    left = job.pipelines - len(lost)
    if left == 0 or not bamboo_fits(job):
        return None
    shared = job.replace(micro_batches=-(-job.batch // left))
    dead_stages: dict[int, set[int]] = {}
    for worker in dead:
        if worker.pipeline not in lost:
            dead_stages.setdefault(worker.pipeline, set()).add(worker.stage)
    times = {_merged_us(shared, stages) for stages in map(frozenset, dead_stages.values())}
    if len(dead_stages) < left:
        times.add(bamboo_fault_free_us(shared))
    return max(times)


def _merged_us(job: Job, dead_stages: frozenset[int]) -> float:
    """A pipeline whose dead stages run on their predecessors, by Oobleck's pipeline time.

    The last worker takes over a dead first stage and keeps its place.
    """
    work = {i: float(t.total_us) for i, t in enumerate(job.times) if i not in dead_stages}
    for stage in dead_stages:
        work[(stage - 1) % job.stages] += job.times[stage].total_us
    return pipeline_us([work[i] for i in sorted(work)], job.micro_batches) + job.optimizer_us
