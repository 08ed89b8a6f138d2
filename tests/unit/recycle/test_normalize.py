"""Counts for f failures: the worked table, and brute force on small jobs."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.recycle.errors import InvalidArgument, NoLiveStage
from workflows.recycle.job import Job, StageTimes
from workflows.recycle.normalize import best_counts, move_pays, near_counts, value_of


@pytest.mark.parametrize(
    ("failures", "staggered", "synchronous", "counts"),
    [
        (0, 18, 21, "0000"),
        (1, 27, 27, "1000"),
        (2, 27, 28, "1100"),
        (3, 27, 29, "1110"),
        (4, 27, 30, "1111"),
        (5, 54, 54, "2111"),
        (6, 54, 55, "2211"),
        (7, 54, 56, "2221"),
        (8, 54, 57, "2222"),
    ],
)
def test_the_worked_table(
    example: Job, failures: int, staggered: int, synchronous: int, counts: str
) -> None:
    best = best_counts(example, failures)
    assert (best.staggered_us, best.synchronous_us) == (staggered, synchronous)
    assert "".join(map(str, best.counts)) == counts


def test_too_many_failures(example: Job) -> None:
    with pytest.raises(NoLiveStage):
        best_counts(example, 9)
    with pytest.raises(InvalidArgument):
        best_counts(example, -1)


def test_no_move_is_worthwhile_where_staggering_hides_the_failure(example: Job) -> None:
    best = best_counts(example, 1, current=(0, 0, 1, 0))
    assert (best.counts, best.moves, best.staggered_us) == ((0, 0, 1, 0), 0, 27)


def test_a_move_spreads_two_failures_of_one_stage(example: Job) -> None:
    best = best_counts(example, 2, current=(0, 0, 2, 0))
    assert (best.counts, best.moves, best.staggered_us) == ((0, 1, 1, 0), 1, 27)
    stay_us = value_of(example, (0, 0, 2, 0)).staggered_us
    gain = {"stay_us": stay_us, "moved_us": best.staggered_us}
    assert move_pays(**gain, expected_iterations=100, copy_us=2699)
    assert not move_pays(**gain, expected_iterations=100, copy_us=2700)


def test_neighbours_are_one_failure_apart(example: Job) -> None:
    best = best_counts(example, 2)
    near = near_counts(example, best)
    assert near[0] == best
    assert all(sum(n.counts) == 2 for n in near)
    assert (0, 1, 1, 0) in {n.counts for n in near}


@st.composite
def questions(draw: st.DrawFn) -> tuple[Job, int, tuple[int, ...]]:
    pipelines, stages = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    times = tuple(
        StageTimes(
            forward_us=draw(st.integers(1, 5)),
            input_grad_us=draw(st.integers(1, 5)),
            transfer_us=draw(st.integers(0, 2)),
            optimizer_us=draw(st.integers(0, 9)),
        )
        for _ in range(stages)
    )
    job = Job(
        pipelines=pipelines, stages=stages, micro_batches=draw(st.integers(1, 5)), times=times
    )
    current = tuple(draw(st.integers(0, pipelines - 1)) for _ in range(stages))
    return job, draw(st.integers(0, stages * (pipelines - 1))), current


@settings(max_examples=200, deadline=None)
@given(questions(), st.sampled_from(["sync", "stagger"]))
def test_it_equals_brute_force(question: tuple[Job, int, tuple[int, ...]], objective: str) -> None:
    job, failures, current = question
    every = product(range(job.pipelines), repeat=job.stages)
    values = [value_of(job, x, current) for x in every if sum(x) == failures]
    expected = min(values, key=lambda value: value.rank(objective))  # type: ignore[arg-type]
    found = best_counts(job, failures, objective=objective, current=current)  # type: ignore[arg-type]
    assert found == expected
