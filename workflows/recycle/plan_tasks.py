"""Which plans to make ahead of failures, as independent tasks.

Standard library only: this also runs inside the database process. `plan_set` does the tasks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal

from workflows.recycle.errors import InvalidArgument
from workflows.recycle.job import Job, Objective, whole
from workflows.recycle.normalize import best_counts, near_counts

__all__ = ["ENGINES", "OBJECTIVES", "Engine", "PlanTask", "SolverLimits", "list_plan_tasks"]

Engine = Literal["auto", "greedy", "cpsat", "highs"]
ENGINES: tuple[Engine, ...] = ("auto", "greedy", "cpsat", "highs")
OBJECTIVES: tuple[Objective, ...] = ("sync", "stagger")

MAX_COUNT_VECTORS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverLimits:
    """How long and how a solver may search.

    A search ended by the wall-clock is not reproducible; one ended by ``work_limit`` on one thread
    is (CP-SAT only).
    """

    time_limit_s: float = 10.0
    """10 s suits an interactive question, 120 s an offline one."""
    work_limit: float | None = None
    """CP-SAT's own unit of work; on these models one is of the order of ten seconds of a core."""
    threads: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        no_work = self.work_limit is not None and self.work_limit <= 0
        if no_work or self.time_limit_s <= 0 or self.threads < 1 or self.seed < 0:
            raise InvalidArgument(
                f"solver limits {self}: expected limits over 0, a thread or more, a seed >= 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTask:
    """One plan to be made."""

    job: Job
    failures: int
    candidates: tuple[tuple[int, ...], ...]
    """Counts to realise, best bound first; the shortest realised plan is kept."""
    objective: Objective = "stagger"
    split: bool = True
    engine: Engine = "auto"
    limits: SolverLimits = field(default_factory=SolverLimits)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return asdict(self) | {"candidates": [list(c) for c in self.candidates]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PlanTask:
        """The task that `to_json` wrote."""
        changed = {
            "job": Job.from_json(data["job"]),
            "candidates": tuple(tuple(c) for c in data["candidates"]),
            "limits": SolverLimits(**data["limits"]),
        }
        return cls(**(data | changed))


def list_plan_tasks(
    job: Job,
    f_max: int,
    *,
    objective: Objective = "stagger",
    split: bool = True,
    engine: Engine = "auto",
    limits: SolverLimits | None = None,
    scope: Literal["normalized", "counts"] = "normalized",
    candidates: int = 3,
) -> list[PlanTask]:
    """The plans for 0..f_max failures.

    ``normalized``: one plan for each f, the best of the ``candidates`` best count vectors.
    ``counts``: one plan for every count vector, so that a failure finds its plan whether or not a
    worker is moved. Raises `InvalidArgument` if f_max > S*(P-1) or there are too many vectors.
    """
    whole("f_max", f_max, 0)
    whole("candidates", candidates, 1)
    most = job.stages * (job.pipelines - 1)
    if f_max > most:
        raise InvalidArgument(
            f"f_max = {f_max}: this job survives at most S*(P-1) = {most} failures", f_max=f_max
        )
    if scope == "normalized":
        groups = [_candidates(job, f, objective, candidates) for f in range(f_max + 1)]
    else:
        groups = [(counts,) for counts in _count_vectors(job, f_max)]
    return [
        PlanTask(
            job=job,
            failures=sum(group[0]),
            candidates=group,
            objective=objective,
            split=split,
            engine=engine,
            limits=limits or SolverLimits(),
        )
        for group in groups
    ]


def _candidates(
    job: Job, failures: int, objective: Objective, limit: int
) -> tuple[tuple[int, ...], ...]:
    best = best_counts(job, failures, objective=objective)
    near = near_counts(job, best, objective=objective)
    return tuple(n.counts for n in near[:limit])


def _count_vectors(job: Job, f_max: int) -> list[tuple[int, ...]]:
    per_stage = min(job.pipelines - 1, f_max) + 1
    if per_stage**job.stages > MAX_COUNT_VECTORS:
        raise InvalidArgument(
            f"up to {per_stage}^{job.stages} count vectors are too many to plan ahead: "
            "use the scope normalized, or a smaller f_max",
            f_max=f_max,
        )
    vectors = [v for v in product(range(per_stage), repeat=job.stages) if sum(v) <= f_max]
    return sorted(vectors, key=lambda v: (sum(v), v))
