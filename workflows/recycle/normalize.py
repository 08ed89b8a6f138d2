"""Failure normalization: which counts (x_0..x_{S-1}) to prefer for f failures.

Pipelines are interchangeable within a stage, so a failure set matters only through its counts. A
worker can also be moved to another stage by copying that stage's state from a peer, so the counts
themselves can be chosen.

A stage costs cost_i(x) = load_i(x)*t_i (staggered), plus the way to it (synchronous). The costs
never fall with x, so the smallest possible maximum is the smallest threshold under which the stages
together have room for f failures; no table over all f is needed.

Ties: fewest moves, then the smaller value of the other objective, then the lexicographically
smallest vector.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from workflows.recycle.bounds import stage_load
from workflows.recycle.errors import InvalidArgument, NoLiveStage
from workflows.recycle.failures import check_counts
from workflows.recycle.job import Job, Objective, whole

__all__ = ["Normalized", "best_counts", "move_count", "move_pays", "near_counts", "value_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalized:
    """Counts, and the bounds by which they were chosen."""

    counts: tuple[int, ...]
    staggered_us: int
    synchronous_us: int
    moves: int
    """Workers to move between stages to get there from the current counts."""

    def rank(self, objective: Objective) -> tuple[int, int, int, tuple[int, ...]]:
        """Smaller is better."""
        first, second = self.staggered_us, self.synchronous_us
        if objective == "sync":
            first, second = second, first
        return (first, self.moves, second, self.counts)


_Costs = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=256)
def _costs(job: Job, objective: Objective) -> _Costs:
    """cost_i(x) for x = 0..P-1 in every stage."""
    costs = []
    reach = 0
    loads = [stage_load(job, x) for x in range(job.pipelines)]
    for times in job.times:
        if objective == "stagger":
            costs.append(tuple(load * times.total_us + times.optimizer_us for load in loads))
        else:
            fixed = reach + job.optimizer_us
            costs.append(tuple(fixed + load * times.total_us for load in loads))
        reach += times.forward_us + times.transfer_us
    return tuple(costs)


@lru_cache(maxsize=256)
def _thresholds(costs: _Costs) -> tuple[int, ...]:
    return tuple(sorted({value for cost in costs for value in cost}))


def _room(costs: _Costs, threshold: int) -> list[int]:
    """The most failures of each stage with cost_i(x) <= threshold; -1 if not even 0."""
    return [bisect_right(cost, threshold) - 1 for cost in costs]


def _smallest_threshold(costs: _Costs, fits: _Fits) -> int:
    values = _thresholds(costs)
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(_room(costs, values[middle])):
            high = middle
        else:
            low = middle + 1
    return values[low]


class _Fits:
    """Whether f failures fit in the room of the stages with at most so many moves."""

    def __init__(self, current: Sequence[int], failures: int, moves: int, room: Sequence[int]):
        self.current, self.failures, self.moves, self.limit = current, failures, moves, room

    def __call__(self, room: Sequence[int]) -> bool:
        room = [min(a, b) for a, b in zip(room, self.limit, strict=True)]
        if min(room) < 0 or sum(room) < self.failures:
            return False
        return _fewest_moves(self.current, room, self.failures) <= self.moves


def _fewest_moves(current: Sequence[int], room: Sequence[int], failures: int) -> int:
    """min sum_i max(0, current_i - x_i) over x <= room with sum x = failures."""
    forced = sum(max(0, c - r) for c, r in zip(current, room, strict=True))
    return max(forced, sum(current) - failures)


def best_counts(
    job: Job,
    failures: int,
    *,
    objective: Objective = "stagger",
    current: Sequence[int] | None = None,
) -> Normalized:
    """The best counts for f failures; ``current`` are the counts before any move.

    Raises `NoLiveStage` if f > S*(P-1), `InvalidArgument` for a negative f.
    """
    whole("failures", failures, 0)
    if failures > job.stages * (job.pipelines - 1):
        raise NoLiveStage(
            f"{failures} failures leave some stage without a live worker; a job of {job.pipelines} "
            f"pipelines by {job.stages} stages survives at most "
            f"{job.stages * (job.pipelines - 1)}: restart from a checkpoint",
            stage=None,
            failed=failures,
        )
    current = check_counts(job, current) if current is not None else (0,) * job.stages
    unlimited = [job.pipelines - 1] * job.stages
    costs = _costs(job, objective)
    any_moves = sum(current) + failures
    best = _smallest_threshold(costs, _Fits(current, failures, any_moves, unlimited))
    room = _room(costs, best)
    moves = _fewest_moves(current, room, failures)
    other = _costs(job, "sync" if objective == "stagger" else "stagger")
    second = _smallest_threshold(other, _Fits(current, failures, moves, room))
    room = [min(a, b) for a, b in zip(room, _room(other, second), strict=True)]
    return value_of(job, _smallest_vector(current, room, failures, moves), current)


def _smallest_vector(
    current: Sequence[int], room: Sequence[int], failures: int, moves: int
) -> tuple[int, ...]:
    """The lexicographically smallest x <= room with sum x = failures and so many moves."""
    chosen: list[int] = []
    for stage in range(len(room)):
        rest_current, rest_room = current[stage + 1 :], room[stage + 1 :]
        for x in range(room[stage] + 1):
            left = failures - sum(chosen) - x
            spent = sum(max(0, c - y) for c, y in zip(current, [*chosen, x], strict=False))
            if 0 <= left <= sum(rest_room) and (
                spent + _fewest_moves(rest_current, rest_room, left) <= moves
            ):
                chosen.append(x)
                break
        else:
            raise InvalidArgument("no counts fit", room=list(room), failures=failures)
    return tuple(chosen)


def value_of(job: Job, counts: Sequence[int], current: Sequence[int] | None = None) -> Normalized:
    """The bounds of given counts, and the moves to them from ``current`` (none if not given)."""
    check_counts(job, counts)
    staggered, synchronous = _costs(job, "stagger"), _costs(job, "sync")
    return Normalized(
        counts=tuple(counts),
        staggered_us=max(staggered[i][x] for i, x in enumerate(counts)),
        synchronous_us=max(synchronous[i][x] for i, x in enumerate(counts)),
        moves=0 if current is None else move_count(current, counts),
    )


def move_count(current: Sequence[int], target: Sequence[int]) -> int:
    """sum_i max(0, current_i - target_i), the workers that change their stage."""
    return sum(max(0, c - t) for c, t in zip(current, target, strict=True))


def near_counts(
    job: Job,
    best: Normalized,
    *,
    objective: Objective = "stagger",
    current: Sequence[int] | None = None,
) -> list[Normalized]:
    """``best`` and all counts one failure apart from it, best first.

    The bounds do not see memory caps nor the shape of the schedule, so a planner realises a few
    of these and keeps the shortest.
    """
    found = [best]
    for source in range(job.stages):
        for target in range(job.stages):
            counts = list(best.counts)
            counts[source] -= 1
            counts[target] += 1
            if source != target and counts[source] >= 0 and counts[target] < job.pipelines:
                found.append(value_of(job, counts, current))
    return sorted(found, key=lambda n: n.rank(objective))


def move_pays(
    *, stay_us: float, moved_us: float, expected_iterations: float, copy_us: float
) -> bool:
    """Whether the saving until the next event is more than the copy costs."""
    return (stay_us - moved_us) * expected_iterations > copy_us
