"""Plans: the ablation, status and gap, and every bad input with its error."""

import json
import pickle
from dataclasses import replace

import pytest

from workflows.recycle.check import check_schedule
from workflows.recycle.errors import (
    DuplicateFailure,
    InfeasibleMemory,
    InvalidArgument,
    InvalidWorker,
    NoLiveStage,
    RecycleError,
    SolverFailed,
)
from workflows.recycle.job import Job, StageMemory, StageTimes
from workflows.recycle.plan_tasks import SolverLimits
from workflows.recycle.planner import Plan, _require_valid, make_plan

LIMITS = SolverLimits(time_limit_s=120)


@pytest.mark.parametrize(("stage", "chain"), [(2, (33, 29, 27)), (3, (36, 30, 27))])
def test_each_technique_shortens_the_iteration(
    example: Job, stage: int, chain: tuple[int, int, int]
) -> None:
    failed = [(1, stage)]
    coupled = make_plan(example, failed, objective="sync", split=False, limits=LIMITS)
    split = make_plan(example, failed, objective="sync", limits=LIMITS)
    staggered = make_plan(example, failed, objective="stagger", limits=LIMITS)
    plans = (coupled, split, staggered)
    assert tuple(plan.iteration_us for plan in plans) == chain
    assert all(plan.status == "optimal" and plan.gap == 0 for plan in plans)


def test_a_third_of_the_workers_dead_costs_nothing(example: Job) -> None:
    failed = [(0, 0), (1, 1), (2, 2), (0, 3)]
    assert make_plan(example, failed, limits=LIMITS).iteration_us == 27


def test_two_of_three_dead_in_one_stage(example: Job) -> None:
    failed = [(1, 2), (2, 2)]
    assert make_plan(example, failed).iteration_us == 54
    assert make_plan(example, failed, objective="sync").iteration_us == 56


def test_fault_free_zero_bubble(example: Job) -> None:
    sync = make_plan(example, objective="sync")
    staggered = make_plan(example, limits=LIMITS)
    assert (sync.iteration_us, staggered.iteration_us) == (21, 19)
    # The load alone gives 18: it takes the solver to prove that 19 is the best.
    assert (staggered.status, staggered.lower_bound_us) == ("optimal", 19)


def test_an_order_bound_is_no_lower_bound(example: Job) -> None:
    limits = SolverLimits(time_limit_s=120, work_limit=2)
    plan = make_plan(example, [(1, 0)], split=False, limits=limits)
    assert (plan.iteration_us, plan.in_order_bound_us) == (29, 29)
    if plan.status == "optimal":
        assert plan.lower_bound_us == 29
    else:
        assert (plan.status, plan.lower_bound_us) == ("optimal_in_order", 27)
        assert plan.gap == pytest.approx(2 / 27)


def test_greedy_alone_is_honest_about_its_gap(example: Job) -> None:
    plan = make_plan(example, [(1, 2), (2, 3)], engine="greedy")
    assert (plan.iteration_us, plan.lower_bound_us, plan.status) == (28, 27, "heuristic")
    assert plan.gap == pytest.approx(1 / 27)
    assert plan.solver_seed is None


def test_without_room_one_f_one_b_is_a_candidate() -> None:
    job = Job.uniform(3, 4, 6, cap=[4, 3, 2, 1])
    plan = make_plan(job, objective="sync", split=False, engine="greedy")
    assert plan.iteration_us == 27


def test_capped_plans_are_as_good_as_the_best_known() -> None:
    job = Job.uniform(3, 4, 6, cap=6)
    plan = make_plan(job, [(1, 2)], engine="cpsat", limits=LIMITS)
    assert (plan.iteration_us, plan.engine, plan.status) == (27, "cpsat", "optimal")
    assert check_schedule(plan.schedule) == []


@pytest.mark.parametrize(
    ("cap", "stage", "best_known"),
    [(4, 0, 30), (5, 0, 29), (6, 0, 28), (4, 2, 29), (5, 2, 28), (6, 2, 27)],
)
def test_greedy_plans_under_a_cap_are_near_the_best_known(
    cap: int, stage: int, best_known: int
) -> None:
    plan = make_plan(Job.uniform(3, 4, 6, cap=cap), [(1, stage)], engine="greedy")
    assert best_known <= plan.iteration_us <= 1.05 * best_known


def test_highs_as_engine() -> None:
    plan = make_plan(Job.uniform(2, 2, 2), [(1, 1)], objective="sync", engine="highs")
    assert (plan.iteration_us, plan.status) == (13, "optimal")


def test_a_plan_survives_json(example: Job) -> None:
    plan = make_plan(example, [(1, 2)], objective="sync")
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_cannot_be_changed(example: Job) -> None:
    plan = make_plan(example, [(1, 2)])
    with pytest.raises(ValueError, match="read-only"):
        plan.schedule.forward_start_us[0, 0, 0] = 5


def test_a_plan_with_false_figures_is_refused(example: Job) -> None:
    plan = make_plan(example, [(1, 2)])
    with pytest.raises(SolverFailed, match="breaks 1 rules"):
        _require_valid(replace(plan, makespan_us=1))


def test_an_empty_stage(example: Job) -> None:
    with pytest.raises(NoLiveStage) as caught:
        make_plan(example, [(0, 0), (1, 0), (2, 0)])
    assert caught.value.details["stage"] == 0


@pytest.mark.parametrize("worker", [(3, 0), (0, 4), (-1, 0), (0,), ("0", 0)])
def test_no_such_worker(example: Job, worker: tuple[int, ...]) -> None:
    with pytest.raises(InvalidWorker):
        make_plan(example, [worker])


def test_listed_twice(example: Job) -> None:
    with pytest.raises(DuplicateFailure):
        make_plan(example, [(1, 2), (1, 2)])


@pytest.mark.parametrize(
    "shape", [(3, 4, 0), (0, 4, 6), (3, 0, 6), (3, 4, 1.5), (3, 4, True), (3, 4, -1)]
)
def test_bad_shapes(shape: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidArgument):
        Job.uniform(*shape)


@pytest.mark.parametrize(
    "times", [{"forward_us": 1.5}, {"input_grad_us": 0}, {"transfer_us": -1}, {"optimizer_us": "1"}]
)
def test_bad_times(times: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(times))):
        StageTimes(**times)


def test_one_entry_for_each_stage() -> None:
    with pytest.raises(InvalidArgument, match="one for each"):
        Job.uniform(3, 4, 6, cap=[1, 2])


def test_no_room_for_one_micro_batch() -> None:
    with pytest.raises(InfeasibleMemory) as caught:
        Job.uniform(3, 4, 6, cap=0)
    assert caught.value.details == {"stage": 0, "budget_bytes": 0, "needed_bytes": 1}


def test_memory_deltas_must_sum_to_nothing() -> None:
    with pytest.raises(InvalidArgument, match="sum to 0"):
        StageMemory(limit_bytes=9, forward_bytes=3, input_grad_bytes=-1, weight_grad_bytes=-1)


@pytest.mark.parametrize("choice", [{"engine": "gurobi"}, {"objective": "fast"}])
def test_unknown_choices(example: Job, choice: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="expected one of"):
        make_plan(example, **choice)  # type: ignore[arg-type]


def test_errors_survive_json_and_pickle() -> None:
    error = NoLiveStage("stage 0 is empty", stage=0, failed=3)
    for copy in (RecycleError.from_json(error.to_json()), pickle.loads(pickle.dumps(error))):
        assert type(copy) is NoLiveStage
        assert (copy.message, copy.details) == (error.message, error.details)
