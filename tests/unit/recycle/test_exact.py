"""Exact solvers: proven optima of the worked examples, and agreement of the two."""

import pytest

from workflows.recycle.check import check_schedule
from workflows.recycle.cpsat import solve_cpsat
from workflows.recycle.errors import InvalidArgument
from workflows.recycle.greedy import greedy_schedule
from workflows.recycle.highs import solve_highs
from workflows.recycle.job import Job, Objective
from workflows.recycle.plan_tasks import SolverLimits

LIMITS = SolverLimits(time_limit_s=120)


def optimum(
    job: Job, failed: list[tuple[int, int]], objective: Objective, *, split: bool = True
) -> int:
    hint = greedy_schedule(job, failed, split=split)
    answer = solve_cpsat(hint, objective=objective, limits=LIMITS)
    assert answer.proved
    assert answer.schedule is not None
    assert check_schedule(answer.schedule) == []
    assert answer.bound_us == answer.schedule.iteration_us(objective)
    return answer.bound_us


@pytest.mark.parametrize(
    ("stages", "failed", "sync", "stagger"),
    [
        (3, 0, 27, 27), (3, 1, 30, 30), (3, 2, 33, 33),
        (4, 0, 29, 29), (4, 1, 30, 30), (4, 2, 33, 33), (4, 3, 36, 36),
    ],
)  # fmt: skip
def test_coupled_backward(stages: int, failed: int, sync: int, stagger: int) -> None:
    job = Job.uniform(3, stages, 6)
    assert optimum(job, [(1, failed)], "sync", split=False) == sync
    assert optimum(job, [(1, failed)], "stagger", split=False) == stagger


@pytest.mark.parametrize(
    ("stages", "coupled", "sync", "stagger"), [(3, 24, 20, 18), (4, 27, 21, 19)]
)
def test_fault_free(stages: int, coupled: int, sync: int, stagger: int) -> None:
    job = Job.uniform(3, stages, 6)
    assert optimum(job, [], "sync", split=False) == coupled
    assert optimum(job, [], "sync") == sync
    assert optimum(job, [], "stagger") == stagger


@pytest.mark.parametrize(
    ("failed", "sync", "stagger"),
    [
        ([(1, 2), (2, 3)], 30, 27),
        ([(0, 3), (1, 2), (2, 1), (0, 0)], 30, 27),
        ([(1, 2), (2, 2)], 56, 54),
    ],
)
def test_several_failures(
    example: Job, failed: list[tuple[int, int]], sync: int, stagger: int
) -> None:
    assert optimum(example, failed, "sync") == sync
    assert optimum(example, failed, "stagger") == stagger


def test_uneven_times(uneven: Job) -> None:
    assert optimum(uneven, [], "stagger") == 213


def test_the_fault_free_optimum_needs_no_order_assumption(example: Job) -> None:
    hint = greedy_schedule(example)
    answer = solve_cpsat(hint, objective="stagger", limits=LIMITS, in_order=False)
    assert (answer.proved, answer.bound_us) == (True, 19)


def test_a_loose_cap_is_improved_to_the_bound() -> None:
    job = Job.uniform(3, 4, 6, cap=6)
    assert optimum(job, [(1, 2)], "stagger") == 27


def test_one_f_one_b_is_optimal_under_its_own_memory() -> None:
    job = Job.uniform(3, 4, 6, cap=[4, 3, 2, 1])
    assert optimum(job, [], "sync", split=False) == 27


@pytest.mark.parametrize(
    ("objective", "split", "expected"),
    [("sync", True, 13), ("sync", False, 15), ("stagger", True, 12)],
)
def test_both_solvers_agree(objective: Objective, split: bool, expected: int) -> None:
    job = Job.uniform(2, 2, 2)
    assert optimum(job, [(1, 1)], objective, split=split) == expected
    hint = greedy_schedule(job, [(1, 1)], split=split)
    answer = solve_highs(hint, objective=objective, limits=LIMITS)
    assert (answer.proved, answer.bound_us) == (True, expected)
    assert answer.schedule is not None
    assert check_schedule(answer.schedule) == []


def test_highs_without_the_bound_cut_proves_the_same() -> None:
    hint = greedy_schedule(Job.uniform(1, 2, 3))
    answer = solve_highs(hint, objective="stagger", limits=LIMITS, bound_cut=False)
    assert answer.proved
    assert answer.bound_us == optimum(Job.uniform(1, 2, 3), [], "stagger")


def test_highs_respects_memory() -> None:
    hint = greedy_schedule(Job.uniform(1, 2, 3, cap=[2, 1]))
    answer = solve_highs(hint, objective="sync", limits=LIMITS)
    assert answer.schedule is not None
    assert check_schedule(answer.schedule) == []
    assert answer.bound_us == optimum(Job.uniform(1, 2, 3, cap=[2, 1]), [], "sync")


def test_highs_refuses_what_it_cannot_solve() -> None:
    hint = greedy_schedule(Job.uniform(3, 2, 40), [(0, 0)])
    with pytest.raises(InvalidArgument, match="use the engine cpsat"):
        solve_highs(hint, objective="sync")


@pytest.mark.parametrize(
    "limits", [{"time_limit_s": 0}, {"threads": 0}, {"seed": -1}, {"work_limit": 0}]
)
def test_bad_limits(limits: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        SolverLimits(**limits)
