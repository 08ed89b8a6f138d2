"""Our planner: never worse than the published one, optimal on small cases, honest limits."""

from __future__ import annotations

import itertools
import pickle

import pytest

from tests.unit.sailor.cases import goal_of
from workflows.sailor.errors import BadJob, NoFeasiblePlan, UnknownName
from workflows.sailor.plan import (
    Plan,
    Replica,
    check_available,
    even_split,
    parse_availability,
    stages_from_split,
    uniform_plan,
)
from workflows.sailor.planner import search
from workflows.sailor.search_result import Goal
from workflows.sailor.simulator import simulate

Z = "us-central1-a"
INFEASIBLE = {"S7": "memory", "S8": "budget"}


def published_plan(case) -> Plan:
    rows = [
        [
            Replica(gpu=r["gpu"], degree=r["tp"], zone=r["zone"])
            for r in stage
            for _ in range(r["replicas"])
        ]
        for stage in case["stages"]
    ]
    return Plan(microbatch=case["mbs"], stages=stages_from_split(case["stage_sizes"], rows))


@pytest.mark.parametrize("index", range(18))
def test_never_worse_than_the_published_planner(published, vectors, index):
    case = vectors[index]
    problem = published(case["model"], case["gbs"])
    cluster, goal = parse_availability(case["cluster"]), goal_of(case)
    if "result" in case:
        with pytest.raises(NoFeasiblePlan) as caught:
            search(problem, cluster, goal)
        assert caught.value.reason == INFEASIBLE[case["id"].split()[0]]
        return
    result = search(problem, cluster, goal)
    assert result.complete
    check_available(result.best.plan, cluster)
    theirs = simulate(problem, published_plan(case))
    assert goal.key(result.best.estimate)[0] <= goal.key(theirs)[0] * (1 + 1e-12)
    assert goal.met_by(result.best.estimate)


def test_the_estimate_is_the_simulated_value(published):
    problem = published()
    result = search(problem, {("A100-40", Z): 16, ("V100-16", Z): 16})
    for candidate in result.candidates:
        assert simulate(problem, candidate.plan) == candidate.estimate


@pytest.mark.parametrize(
    ("gpus", "goal", "iteration_s", "usd"),
    [
        (16, Goal(), 14.4211, None),
        (32, Goal(), 7.7097, None),
        (32, Goal(max_cost_usd=0.25), 9.3842, 0.24896),
        (32, Goal(objective="cost", min_iterations_per_s=0.05), 1 / 0.05349, 0.22892),
    ],
)
def test_the_uniform_optimum_is_found(published, gpus, goal, iteration_s, usd):
    result = search(published(), {("A100-40", Z): gpus}, goal)
    assert result.best.estimate.iteration_s <= iteration_s + 1e-3
    if usd is not None:
        assert result.best.estimate.cost_usd == pytest.approx(usd, abs=1e-5)


def test_a_budget_row_is_more_than_twice_as_fast_as_published(published, vectors):
    case = next(c for c in vectors if c["id"].startswith("S11"))
    result = search(published(), parse_availability(case["cluster"]), goal_of(case))
    assert case["simulator"]["iter_s"] / result.best.estimate.iteration_s > 2


@pytest.mark.parametrize("prefix", ["S12", "S4"])
def test_uneven_work_saves_at_least_five_percent_on_mixed_clusters(published, vectors, prefix):
    case = next(c for c in vectors if c["id"].startswith(prefix + " "))
    problem = published(case["model"], case["gbs"])
    result = search(problem, parse_availability(case["cluster"]))
    theirs = simulate(problem, published_plan(case)).iteration_s
    assert result.best.estimate.iteration_s < 0.95 * theirs


@pytest.mark.parametrize("objective", ["throughput", "cost"])
def test_no_uniform_plan_beats_the_search_on_a_small_cluster(published, objective):
    problem = published(global_batch=64)
    goal = Goal(objective=objective)
    best = goal.key(search(problem, {("A100-40", Z): 8}, goal).best.estimate)[0]
    tried = 0
    for depth, degree, m in itertools.product(range(1, 9), (1, 2, 4), (1, 2, 4, 8)):
        for width in range(1, 8 // (depth * degree) + 1):
            plan = uniform_plan(
                layers=26,
                stages=depth,
                replicas=width,
                replica=Replica(gpu="A100-40", degree=degree, zone=Z),
                microbatch=m,
            )
            estimate = simulate(problem, plan)
            if estimate.feasible:
                tried += 1
                assert best <= goal.key(estimate)[0] * (1 + 1e-12)
    assert tried > 50


def test_no_even_mix_of_two_types_beats_the_search(published):
    problem = published(global_batch=64)
    cluster = {("A100-40", Z): 2, ("V100-16", Z): 4}
    best = search(problem, cluster).best.estimate.iteration_s
    kinds = [("A100-40", 1), ("A100-40", 2), ("V100-16", 1), ("V100-16", 2), ("V100-16", 4)]
    tried = 0
    for depth, m in itertools.product((1, 2), (1, 2, 4)):
        for chosen in itertools.product(kinds, repeat=depth):
            for other in [None, *itertools.product(kinds, repeat=depth)]:
                chains = [chosen] if other is None else [chosen, other]
                rows = [
                    [Replica(gpu=c[i][0], degree=c[i][1], zone=Z) for c in chains]
                    for i in range(depth)
                ]
                plan = Plan(microbatch=m, stages=stages_from_split(even_split(26, depth), rows))
                used = plan.gpus_used()
                if any(n > cluster[key] for key, n in used.items()):
                    continue
                estimate = simulate(problem, plan)
                if estimate.feasible:
                    tried += 1
                    assert best <= estimate.iteration_s * (1 + 1e-12)
    assert tried > 20


def test_no_plan_is_faster_than_the_relaxed_bound(published):
    result = search(published(), {("A100-40", Z): 16, ("V100-16", Z): 16})
    assert result.bound_s is not None
    assert result.bound_s <= result.best.estimate.iteration_s
    assert 0 <= result.gap < 1


def test_plans_are_ranked_and_within_the_limits(published):
    goal = Goal(max_cost_usd=0.25)
    result = search(published(), {("A100-40", Z): 32}, goal, keep=4)
    keys = [goal.key(c.estimate) for c in result.candidates]
    assert keys == sorted(keys)
    assert all(c.estimate.cost_usd <= 0.25 for c in result.candidates)


def test_a_time_limit_returns_the_best_plan_so_far(published):
    cluster = {(gpu, Z): 64 for gpu in ("A100-40", "V100-16", "GH-96")}
    result = search(published(), cluster, time_limit_s=1.5)
    assert not result.complete
    assert result.best.estimate.feasible
    check_available(result.best.plan, cluster)


def test_the_shortest_time_limit_still_gives_a_plan_and_says_that_it_was_cut(published):
    result = search(published(), {("A100-40", Z): 32}, time_limit_s=1e-9)
    assert not result.complete
    assert result.best.estimate.feasible


def test_the_nearest_plan_comes_with_a_limit_that_cannot_be_kept(published):
    cluster = {("A100-40", Z): 16}
    with pytest.raises(NoFeasiblePlan, match=r"0\.01 USD") as budget:
        search(published(), cluster, Goal(max_cost_usd=0.01))
    assert budget.value.reason == "budget"
    assert Plan.from_json(budget.value.best["plan"]).gpus_used()
    with pytest.raises(NoFeasiblePlan, match="with at least 5") as floor:
        search(published(), cluster, Goal(objective="cost", min_iterations_per_s=5))
    assert floor.value.reason == "throughput"
    assert pickle.loads(pickle.dumps(floor.value)).best == floor.value.best


def test_a_model_that_fits_no_card_names_stage_need_and_room(published):
    with pytest.raises(NoFeasiblePlan, match="no plan fits memory") as caught:
        search(published("LLAMA-3-8"), {("GH-96", Z): 8})
    assert caught.value.reason == "memory"
    assert caught.value.needed_bytes > caught.value.available_bytes


def test_limits_of_zero_and_unknown_gpus_are_refused(published):
    with pytest.raises(BadJob, match="max_cost_usd is 0"):
        Goal(max_cost_usd=0)
    with pytest.raises(BadJob, match="time_limit_s"):
        search(published(), {("A100-40", Z): 8}, time_limit_s=0)
    with pytest.raises(UnknownName, match="TPU-9"):
        search(published(), {("TPU-9", Z): 8})


def test_cross_region_traffic_is_avoided_when_money_matters(published):
    cluster = {("A100-40", Z): 16, ("A100-40", "us-west1-b"): 16}
    result = search(published(), cluster, Goal(objective="cost", min_iterations_per_s=0.05))
    assert result.best.estimate.cost.communication_usd == 0.0
