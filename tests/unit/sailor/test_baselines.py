"""Baseline planners: AMP's exact answers, and the others' own rules."""

from __future__ import annotations

import pytest

from workflows.sailor.baseline_dtfm import dtfm_plans
from workflows.sailor.baseline_others import atlas_plans, varuna_plans
from workflows.sailor.comparison import compare, run_planner
from workflows.sailor.errors import BadPlan, UnknownName
from workflows.sailor.plan import check_available
from workflows.sailor.search_result import Goal
from workflows.sailor.simulator import simulate

Z, W = "us-central1-a", "us-west1-b"


def cluster(a100: int, v100: int = 0) -> dict[tuple[str, str], int]:
    return {("A100-40", Z): a100} | ({("V100-16", Z): v100} if v100 else {})


@pytest.mark.parametrize(
    ("gpus", "shape", "iteration_s", "skipped"),
    [
        ((32, 96), (1, 64, 2, 1), 7.60068, 4),
        ((80, 240), (1, 128, 2, 1), 4.84951, 3),
        ((128, 384), (2, 256, 1, 1), 3.20050, 0),
        ((16, 0), (1, 16, 1, 1), 14.99467, 0),
    ],
)
def test_amp_gives_its_published_answers(published, gpus, shape, iteration_s, skipped):
    row = run_planner("amp", published(), cluster(*gpus), mode="published")
    assert row.answer is not None
    plan, estimate = row.answer.plan, row.answer.estimate
    degree = plan.stages[0].replicas[0].degree
    assert (degree, plan.width, plan.depth, plan.microbatch) == shape
    assert estimate.iteration_s == pytest.approx(iteration_s, abs=1e-5)
    assert row.oom_plans == skipped


@pytest.mark.parametrize(
    ("gpus", "iterations_per_s", "usd"),
    [((32, 96), 0.1316, 0.8279), ((80, 240), 0.2062, 1.0739), ((128, 384), 0.3125, 1.3944)],
)
def test_amp_figures_of_the_paper_to_four_digits(published, gpus, iterations_per_s, usd):
    answer = run_planner("amp", published(), cluster(*gpus), mode="published").answer
    assert answer is not None
    assert round(answer.estimate.iterations_per_s, 4) == iterations_per_s
    assert round(answer.estimate.cost_usd, 4) == usd


@pytest.mark.parametrize(("gpus", "iterations_per_s"), [(32, 0.1166), (80, 0.2050), (128, 0.3238)])
def test_amp_on_one_gpu_type(published, gpus, iterations_per_s):
    answer = run_planner("amp", published(), cluster(gpus), mode="published").answer
    assert answer is not None
    assert round(answer.estimate.iterations_per_s, 4) == iterations_per_s


def test_amp_plans_for_one_zone_only(published):
    with pytest.raises(BadPlan, match="one zone"):
        run_planner("amp", published(), {("A100-40", Z): 8, ("A100-40", W): 8})


def test_varuna_never_uses_tensor_parallelism_and_overcommits_memory(published):
    problem = published("GPT-Neo-2.7")
    plans = varuna_plans(problem, cluster(32), Goal())
    assert {r.degree for plan in plans for s in plan.stages for r in s.replicas} == {1}
    assert all(problem.job.layers % plan.depth == 0 for plan in plans)
    row = run_planner("varuna", problem, cluster(32))
    assert row.oom_plans > 0


def test_atlas_uses_whole_nodes_and_keeps_a_stage_in_one_region(published):
    available = {("A100-40", Z): 8, ("A100-40", W): 8}
    plans = atlas_plans(published(global_batch=64), available, Goal())
    assert {r.degree for plan in plans for s in plan.stages for r in s.replicas} == {4}
    for plan in plans:
        check_available(plan, available)
        for stage in plan.stages:
            assert len({r.zone for r in stage.replicas}) == 1


def test_dtfm_is_seeded_and_uses_all_devices(published):
    problem, available = published(), cluster(8)
    first = dtfm_plans(problem, available, Goal(), seed=3)
    assert first == dtfm_plans(problem, available, Goal(), seed=3)
    assert all(sum(plan.gpus_used().values()) == 8 for plan in first)


def test_dtfm_keeps_heavy_traffic_off_the_slow_link(published):
    """Its cheapest placement on two regions has no stage in both."""
    plans = dtfm_plans(published(), {("A100-40", Z): 4, ("A100-40", W): 4}, Goal())
    assert plans
    assert all(len({r.zone for r in s.replicas}) == 1 for s in plans[0].stages)


def test_ours_is_at_least_as_fast_as_every_baseline(published):
    rows = compare(published(), cluster(16))
    ours = rows[0].answer
    assert rows[0].planner == "sailor"
    assert ours is not None
    for row in rows[1:]:
        assert row.answer is not None, row.planner
        assert ours.estimate.iteration_s <= row.answer.estimate.iteration_s, row.planner
        assert row.inside_cluster


def test_rows_are_plain_values_of_the_simulator(published):
    problem = published()
    row = run_planner("atlas", problem, cluster(16))
    assert row.answer is not None
    assert row.to_json()["iteration_s"] == simulate(problem, row.answer.plan).iteration_s


def test_an_unknown_planner_is_named(published):
    with pytest.raises(UnknownName, match="piper"):
        run_planner("piper", published(), cluster(8))
