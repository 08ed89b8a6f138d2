"""Dead workers: validation, counts per stage, and the keys of the plans for them.

Standard library only: this also runs inside the database process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workflows.recycle.errors import DuplicateFailure, InvalidArgument, InvalidWorker, NoLiveStage
from workflows.recycle.job import Job, Objective, Worker

__all__ = [
    "canonical_failures",
    "check_counts",
    "check_failures",
    "failure_counts",
    "plan_key",
]


def check_failures(job: Job, failed: Iterable[Sequence[int]]) -> tuple[Worker, ...]:
    """The dead workers, sorted.

    Raises `InvalidWorker`, `DuplicateFailure`, or `NoLiveStage` if a stage has none left.
    """
    workers: set[Worker] = set()
    for item in failed:
        pair = tuple(item)
        if len(pair) != 2 or not all(type(n) is int for n in pair):
            raise InvalidWorker(f"worker {item!r}: expected a pair (pipeline, stage)")
        worker = Worker(*pair)
        if not (0 <= worker.pipeline < job.pipelines and 0 <= worker.stage < job.stages):
            raise InvalidWorker(
                f"worker ({worker.pipeline}, {worker.stage}) does not exist: pipelines are "
                f"0..{job.pipelines - 1} and stages 0..{job.stages - 1}",
                pipeline=worker.pipeline,
                stage=worker.stage,
            )
        if worker in workers:
            raise DuplicateFailure(
                f"worker ({worker.pipeline}, {worker.stage}) is listed as failed twice",
                pipeline=worker.pipeline,
                stage=worker.stage,
            )
        workers.add(worker)
    check_counts(job, failure_counts(job, workers))
    return tuple(sorted(workers))


def failure_counts(job: Job, failed: Iterable[Worker]) -> tuple[int, ...]:
    """x_i, the failures in each stage."""
    counts = [0] * job.stages
    for worker in failed:
        counts[worker.stage] += 1
    return tuple(counts)


def check_counts(job: Job, counts: Sequence[int]) -> tuple[int, ...]:
    """``counts`` if 0 <= x_i <= P-1 in every stage; `NoLiveStage` or `InvalidArgument` if not."""
    if len(counts) != job.stages or any(type(x) is not int or x < 0 for x in counts):
        raise InvalidArgument(
            f"failure counts {list(counts)}: expected {job.stages} whole numbers of at least 0",
            given=list(counts),
        )
    for stage, count in enumerate(counts):
        if count >= job.pipelines:
            raise NoLiveStage(
                f"stage {stage} has no live worker left of {job.pipelines}: "
                "restart from a checkpoint",
                stage=stage,
                failed=count,
            )
    return tuple(counts)


def canonical_failures(job: Job, counts: Sequence[int]) -> tuple[Worker, ...]:
    """The failed set that stands for all sets with these counts.

    Peers of a stage are interchangeable, so the dead ones can be renamed to the last pipelines.
    """
    check_counts(job, counts)
    dead = [
        Worker(job.pipelines - 1 - n, stage)
        for stage, count in enumerate(counts)
        for n in range(count)
    ]
    return tuple(sorted(dead))


def plan_key(counts: Sequence[int], objective: Objective, *, split: bool = True) -> str:
    """The key of a plan within the set of its job, for example ``stagger:split:0-0-1-0``."""
    return f"{objective}:{'split' if split else 'coupled'}:{'-'.join(map(str, counts))}"
