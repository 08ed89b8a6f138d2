"""The cost of one more failure."""

from workflows.recycle.advise import NextFailure, next_failures
from workflows.recycle.job import Job


def test_one_more_failure(example: Job) -> None:
    costs = next_failures(example, (0, 0, 1, 0))
    assert [cost.stay_us for cost in costs] == [27, 27, 54, 27]
    assert [cost.extra_us for cost in costs] == [0, 0, 27, 0]
    assert (costs[2].moved_us, costs[2].moves) == (27, 1)


def test_the_last_worker_of_a_stage(example: Job) -> None:
    costs = next_failures(example, (2, 0, 0, 0))
    assert costs[0] == NextFailure(stage=0, stay_us=None, extra_us=None, moved_us=None, moves=None)
    assert costs[1].stay_us == 54
