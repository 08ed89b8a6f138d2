"""Closed forms, against the schedules they describe."""

import numpy as np
import pytest

from workflows.recycle.bounds import (
    bubble_ratio_1f1b,
    fault_scaled_us,
    free_failures,
    lower_bound_us,
    peak_activations_1f1b,
    stage_load,
    uniform_1f1b_us,
    zero_bubble_size_us,
)
from workflows.recycle.check import check_schedule
from workflows.recycle.job import Job, StageTimes
from workflows.recycle.one_f_one_b import one_f_one_b, stage_order


def test_one_f_one_b_takes_27(example: Job) -> None:
    schedule = one_f_one_b(example)
    assert schedule.makespan_us == uniform_1f1b_us(example) == 27
    assert schedule.bubble_fraction("sync") == pytest.approx(bubble_ratio_1f1b(example))


def test_one_f_one_b_of_larger_jobs() -> None:
    for shape, expected in (((4, 8, 16), 69), ((8, 4, 16), 57)):
        assert one_f_one_b(Job.uniform(*shape)).makespan_us == expected


def test_one_f_one_b_order() -> None:
    order = stage_order(Job.uniform(1, 4, 4), 2)
    assert order == [
        ("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("F", 3), ("B", 2), ("B", 3),
    ]  # fmt: skip


def test_one_f_one_b_fits_its_own_memory() -> None:
    job = Job.uniform(3, 4, 6, cap=[4, 3, 2, 1])
    assert [peak_activations_1f1b(job, i) for i in range(4)] == [4, 3, 2, 1]
    assert check_schedule(one_f_one_b(job)) == []
    tight = job.replace(memory=Job.uniform(3, 4, 6, cap=[3, 3, 2, 1]).memory)
    assert {v.rule for v in check_schedule(one_f_one_b(tight))} == {"memory"}


def test_zero_bubble_sizes() -> None:
    times = StageTimes(forward_us=10, input_grad_us=12, weight_grad_us=9)
    assert zero_bubble_size_us(4, times, "1f1b") == 3 * 31
    assert zero_bubble_size_us(4, times, "zb-h1") == 3 * 13
    assert zero_bubble_size_us(4, times, "zb-h2") == 3 * 4


@pytest.mark.parametrize(
    ("counts", "stagger", "sync", "coupled"),
    [
        ((0, 0, 1, 0), 27, 29, 33),
        ((0, 0, 0, 1), 27, 30, 36),
        ((1, 0, 0, 0), 27, 27, 27),
        ((0, 0, 2, 0), 54, 56, 60),
    ],
)
def test_lower_bounds(
    example: Job, counts: tuple[int, ...], stagger: int, sync: int, coupled: int
) -> None:
    assert lower_bound_us(example, counts, objective="stagger") == stagger
    assert lower_bound_us(example, counts, objective="sync") == sync
    assert lower_bound_us(example, counts, objective="sync", split=False) == coupled


def test_loads_and_free_failures(example: Job) -> None:
    assert [stage_load(example, x) for x in range(3)] == [6, 9, 18]
    assert free_failures(example) == 1
    assert fault_scaled_us(example, 1, 27) == pytest.approx(29.4545, abs=5e-5)


def test_the_free_failures_are_free() -> None:
    job = Job.uniform(8, 8, 16)
    budget = free_failures(job)
    counts = np.full(job.stages, budget)
    bound = lower_bound_us(job, counts.tolist(), objective="stagger")
    assert budget == 2
    assert bound <= uniform_1f1b_us(job)
    over = lower_bound_us(job, (counts + 1).tolist(), objective="stagger")
    assert over > uniform_1f1b_us(job)
