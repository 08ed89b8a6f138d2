"""Plans made ahead of failures."""

import json

import pytest

from workflows.recycle.errors import InvalidArgument, UnknownPlan
from workflows.recycle.failures import plan_key
from workflows.recycle.job import Job
from workflows.recycle.plan_set import PlanSet, compute_plan
from workflows.recycle.plan_tasks import PlanTask, list_plan_tasks


def test_one_plan_for_each_number_of_failures(example: Job) -> None:
    tasks = list_plan_tasks(example, 8, engine="greedy")
    plans = PlanSet.of(map(compute_plan, tasks))
    assert [plans.for_failures(f).iteration_us for f in range(9)] == [
        19, 27, 27, 27, 27, 54, 54, 54, 54,
    ]  # fmt: skip
    assert plans.lookup((1, 1, 0, 0)).makespan_us == 28
    again = PlanSet.from_json(json.loads(json.dumps(plans.to_json())))
    assert again.iterations_us() == plans.iterations_us()


def test_tasks_are_independent_and_plain_data(example: Job) -> None:
    tasks = list_plan_tasks(example, 3, engine="greedy")
    copies = [PlanTask.from_json(json.loads(json.dumps(task.to_json()))) for task in tasks]
    assert copies == tasks
    assert compute_plan(copies[2]).counts == (1, 1, 0, 0)


def test_every_count_vector(example: Job) -> None:
    tasks = list_plan_tasks(example, 2, engine="greedy", scope="counts")
    counts = [task.candidates[0] for task in tasks]
    assert len(counts) == 1 + 4 + 10
    assert len(set(counts)) == len(counts)


def test_a_tight_cap_changes_the_choice() -> None:
    job = Job.uniform(3, 4, 6, cap=4)
    bound_only = compute_plan(list_plan_tasks(job, 1, engine="greedy", candidates=1)[1])
    realised = compute_plan(list_plan_tasks(job, 1, engine="greedy", candidates=4)[1])
    assert (bound_only.counts, bound_only.iteration_us) == ((1, 0, 0, 0), 31)
    assert realised.counts != (1, 0, 0, 0)
    assert realised.iteration_us == 30


def test_what_is_not_stored(example: Job) -> None:
    plans = PlanSet.of(map(compute_plan, list_plan_tasks(example, 1, engine="greedy")))
    with pytest.raises(UnknownPlan, match="stagger:split:0-0-1-0"):
        plans.lookup((0, 0, 1, 0))
    with pytest.raises(UnknownPlan):
        plans.for_failures(2)


def test_more_failures_than_the_job_survives(example: Job) -> None:
    with pytest.raises(InvalidArgument, match="at most"):
        list_plan_tasks(example, 9)


def test_too_many_vectors() -> None:
    with pytest.raises(InvalidArgument, match="too many"):
        list_plan_tasks(Job.uniform(32, 16, 2), 8, scope="counts")


def test_a_set_is_of_one_kind(example: Job) -> None:
    task = list_plan_tasks(example, 0, engine="greedy")[0]
    other = list_plan_tasks(example, 0, engine="greedy", objective="sync")[0]
    with pytest.raises(InvalidArgument, match="one objective"):
        PlanSet.of([compute_plan(task), compute_plan(other)])
    assert plan_key((1, 0), "sync", split=False) == "sync:coupled:1-0"
