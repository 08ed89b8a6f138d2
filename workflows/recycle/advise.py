"""What if one more worker dies: the cost of the next failure in each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workflows.recycle.errors import NoLiveStage
from workflows.recycle.failures import canonical_failures, check_counts
from workflows.recycle.job import Job, Objective
from workflows.recycle.normalize import best_counts
from workflows.recycle.planner import make_plan

__all__ = ["NextFailure", "next_failures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextFailure:
    """One more dead worker in one stage."""

    stage: int
    stay_us: int | None
    """Iteration if nobody moves; None if the stage is then empty: restart from a checkpoint."""
    extra_us: int | None
    """Over the iteration now."""
    moved_us: int | None
    """Iteration after moving workers to the best counts; None if the stage is empty."""
    moves: int | None
    """Workers to move for that."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def next_failures(
    job: Job, counts: Sequence[int], *, objective: Objective = "stagger"
) -> tuple[NextFailure, ...]:
    """The cost of the next failure for every stage, by greedy plans."""
    now = check_counts(job, counts)
    now_us = _greedy_us(job, now, objective)
    return tuple(_next_in(job, now, stage, now_us, objective) for stage in range(job.stages))


def _next_in(
    job: Job, now: tuple[int, ...], stage: int, now_us: int, objective: Objective
) -> NextFailure:
    after = (*now[:stage], now[stage] + 1, *now[stage + 1 :])
    try:
        check_counts(job, after)
    except NoLiveStage:
        return NextFailure(stage=stage, stay_us=None, extra_us=None, moved_us=None, moves=None)
    stay_us = _greedy_us(job, after, objective)
    best = best_counts(job, sum(after), objective=objective, current=after)
    moved_us = _greedy_us(job, best.counts, objective) if best.moves else stay_us
    return NextFailure(
        stage=stage,
        stay_us=stay_us,
        extra_us=stay_us - now_us,
        moved_us=moved_us,
        moves=best.moves,
    )


def _greedy_us(job: Job, counts: tuple[int, ...], objective: Objective) -> int:
    failed = canonical_failures(job, counts)
    return make_plan(job, failed, objective=objective, engine="greedy").iteration_us
