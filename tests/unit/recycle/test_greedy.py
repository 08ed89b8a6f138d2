"""Greedy schedules: the worked examples, and rules that hold for every job."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.recycle.bounds import lower_bound_us
from workflows.recycle.check import check_schedule
from workflows.recycle.failures import canonical_failures, failure_counts
from workflows.recycle.greedy import greedy_schedule
from workflows.recycle.job import Job, StageMemory, StageTimes


def test_the_smallest_example_start_by_start() -> None:
    schedule = greedy_schedule(Job.uniform(2, 2, 2), [(1, 1)])
    starts = {
        (row.worker.stage, row.op, row.home, row.micro_batch): row.start_us
        for row in schedule.ops()
    }
    expected = {
        (0, "F", 0, 0): 0, (0, "F", 0, 1): 1, (0, "F", 1, 0): 0, (0, "F", 1, 1): 1,
        (0, "I", 0, 0): 3, (0, "W", 0, 0): 4, (0, "I", 0, 1): 7, (0, "W", 0, 1): 8,
        (0, "I", 1, 0): 5, (0, "W", 1, 0): 6, (0, "I", 1, 1): 9, (0, "W", 1, 1): 10,
        (1, "F", 0, 0): 1, (1, "I", 0, 0): 2, (1, "F", 1, 0): 3, (1, "I", 1, 0): 4,
        (1, "F", 0, 1): 5, (1, "I", 0, 1): 6, (1, "F", 1, 1): 7, (1, "I", 1, 1): 8,
        (1, "W", 0, 0): 9, (1, "W", 1, 0): 10, (1, "W", 0, 1): 11, (1, "W", 1, 1): 12,
    }  # fmt: skip
    assert starts == expected
    assert schedule.makespan_us == 13
    assert schedule.windows_us() == ((0, 11), (1, 13))
    assert schedule.period_us == 12


@pytest.mark.parametrize(
    ("stages", "failed", "sync", "stagger"),
    [
        (3, None, 20, 18), (3, 0, 27, 27), (3, 1, 28, 27), (3, 2, 29, 27),
        (4, None, 21, 19), (4, 0, 27, 27), (4, 1, 28, 27), (4, 2, 29, 27), (4, 3, 30, 27),
    ],
)  # fmt: skip
def test_one_failure_reaches_the_known_optimum(
    stages: int, failed: int | None, sync: int, stagger: int
) -> None:
    dead = [] if failed is None else [(1, failed)]
    schedule = greedy_schedule(Job.uniform(3, stages, 6), dead)
    assert (schedule.makespan_us, schedule.period_us) == (sync, stagger)
    assert check_schedule(schedule) == []


@pytest.mark.parametrize(
    ("cap", "stage", "period"),
    [(4, 0, 34), (5, 0, 30), (6, 0, 29), (4, 2, 30), (5, 2, 29), (6, 2, 28)],
)
def test_under_a_memory_cap(cap: int, stage: int, period: int) -> None:
    schedule = greedy_schedule(Job.uniform(3, 4, 6, cap=cap), [(1, stage)])
    assert schedule.period_us == period
    assert check_schedule(schedule) == []


def test_uneven_times(uneven: Job) -> None:
    schedule = greedy_schedule(uneven, [(1, 2)])
    assert (schedule.makespan_us, schedule.period_us) == (301, 279)
    assert greedy_schedule(uneven).period_us == 216


@pytest.mark.parametrize(
    ("shape", "period", "makespan", "bound"),
    [((4, 4, 8), 34, 37, 33), ((4, 8, 16), 66, 73, 66), ((8, 4, 16), 58, 61, 57)],
)
def test_larger_jobs(shape: tuple[int, int, int], period: int, makespan: int, bound: int) -> None:
    job = Job.uniform(*shape)
    schedule = greedy_schedule(job, [(1, job.stages - 1), (2, 1)])
    assert schedule.period_us <= period
    assert schedule.makespan_us <= makespan
    counts = failure_counts(job, schedule.failed)
    assert lower_bound_us(job, counts, objective="stagger") == bound


@pytest.mark.parametrize(
    ("counts", "period", "makespan"),
    [
        ((1, 1, 1, 1), 27, 30),
        ((2, 1, 1, 1), 54, 54),
        ((2, 2, 1, 1), 54, 55),
        ((2, 2, 2, 2), 54, 57),
    ],
)
def test_normalized_counts_are_realised(
    example: Job, counts: tuple[int, ...], period: int, makespan: int
) -> None:
    schedule = greedy_schedule(example, canonical_failures(example, counts))
    assert (schedule.period_us, schedule.makespan_us) == (period, makespan)


@st.composite
def jobs_with_failures(draw: st.DrawFn) -> tuple[Job, tuple[tuple[int, int], ...], bool]:
    pipelines, stages = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    times = []
    memory = []
    for _ in range(stages):
        f, i, w = (draw(st.integers(1, 9)) for _ in range(3))
        transfer, step = draw(st.integers(0, 3)), draw(st.integers(0, 5))
        times.append(
            StageTimes(
                forward_us=f,
                input_grad_us=i,
                weight_grad_us=w,
                transfer_us=transfer,
                optimizer_us=step,
            )
        )
        held, between = draw(st.integers(1, 5)), draw(st.integers(0, 7))
        memory.append(
            StageMemory(
                limit_bytes=10 + max(held, between) + draw(st.integers(0, 20)),
                static_bytes=10,
                forward_bytes=held,
                input_grad_bytes=between - held,
                weight_grad_bytes=-between,
            )
        )
    job = Job(
        pipelines=pipelines,
        stages=stages,
        micro_batches=draw(st.integers(1, 5)),
        times=tuple(times),
        memory=draw(st.sampled_from([None, tuple(memory)])),
    )
    failed = tuple(
        (k, i)
        for i in range(stages)
        for k in draw(st.sets(st.integers(0, pipelines - 1), max_size=pipelines - 1))
    )
    return job, failed, draw(st.booleans())


@settings(max_examples=150, deadline=None)
@given(jobs_with_failures())
def test_every_schedule_is_valid_and_not_under_its_bound(
    case: tuple[Job, tuple[tuple[int, int], ...], bool],
) -> None:
    job, failed, split = case
    schedule = greedy_schedule(job, failed, split=split)
    assert check_schedule(schedule) == []
    counts = failure_counts(job, schedule.failed)
    for objective in ("sync", "stagger"):
        bound = lower_bound_us(job, counts, objective=objective, split=split)
        assert schedule.iteration_us(objective) >= bound
