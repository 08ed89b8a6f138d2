"""The checker finds what is wrong, all of it, and names the operations."""

from dataclasses import replace

import numpy as np
import pytest

from workflows.recycle.check import check_figures, check_schedule
from workflows.recycle.greedy import greedy_schedule
from workflows.recycle.job import Job, Worker
from workflows.recycle.one_f_one_b import one_f_one_b
from workflows.recycle.schedule import Schedule


@pytest.fixture
def schedule(example: Job) -> Schedule:
    return greedy_schedule(example, [(1, 2)])


def rules(schedule: Schedule) -> set[str]:
    return {violation.rule for violation in check_schedule(schedule)}


def test_swapping_two_starts_breaks_several_rules(schedule: Schedule) -> None:
    first, last = (0, 0, 0), (0, 3, 5)
    starts = schedule.forward_start_us
    starts[first], starts[last] = starts[last], starts[first]
    found = check_schedule(schedule)
    broken = {(violation.rule, violation.ops) for violation in found}
    assert ("forward", ("F(k=0,i=2,j=5)", "F(k=0,i=3,j=5)")) in broken
    assert ("forward", ("F(k=0,i=0,j=0)", "F(k=0,i=1,j=0)")) in broken
    assert ("input-grad-own", ("F(k=0,i=0,j=0)", "I(k=0,i=0,j=0)")) in broken
    assert all("k=" in op for violation in found for op in violation.ops)


def test_two_operations_at_once(schedule: Schedule) -> None:
    schedule.forward_start_us[0, 0, 1] = schedule.forward_start_us[0, 0, 0]
    found = [v for v in check_schedule(schedule) if v.rule == "overlap"]
    assert [v.ops for v in found] == [("F(k=0,i=0,j=0)", "F(k=0,i=0,j=1)")]


@pytest.mark.parametrize(
    ("array", "cell", "value", "rule"),
    [
        ("forward_start_us", (0, 0, 0), -1, "start"),
        ("weight_grad_start_us", (0, 0, 0), 0, "weight-grad"),
        ("input_grad_start_us", (0, 0, 0), 0, "input-grad"),
        ("executor", (1, 2, 0), 1, "executor-dead"),
        ("executor", (1, 2, 0), 7, "executor-unknown"),
        ("executor", (0, 0, 0), 1, "executor-not-home"),
    ],
)
def test_each_rule(
    schedule: Schedule, array: str, cell: tuple[int, int, int], value: int, rule: str
) -> None:
    getattr(schedule, array)[cell] = value
    assert rule in rules(schedule)


def test_wrong_shape(schedule: Schedule) -> None:
    cut = replace(schedule, executor=np.zeros((1, 1, 1), dtype=np.int64))
    assert rules(cut) == {"shape"}


def test_memory_is_counted_in_the_order_of_the_worker(example: Job) -> None:
    free = greedy_schedule(example)
    capped = replace(free, job=Job.uniform(3, 4, 6, cap=[4, 3, 2, 1]))
    assert rules(capped) == {"memory"}


def test_a_coupled_schedule_keeps_i_and_w_together(example: Job) -> None:
    schedule = one_f_one_b(example)
    assert check_schedule(schedule) == []
    schedule.weight_grad_start_us[0, 0, 5] += 1
    assert rules(schedule) == {"coupled"}


def test_false_figures(schedule: Schedule) -> None:
    found = check_figures(
        schedule, objective="stagger", iteration_us=26, makespan_us=28, lower_bound_us=26
    )
    assert [v.rule for v in found] == ["iteration", "makespan", "bound"]


def test_true_figures(schedule: Schedule) -> None:
    assert schedule.failed == (Worker(1, 2),)
    found = check_figures(
        schedule, objective="sync", iteration_us=29, makespan_us=29, lower_bound_us=29
    )
    assert found == []
