"""The published planner, reproduced: its eighteen reference cases and the figures of the paper."""

from __future__ import annotations

import pytest

from tests.unit.sailor.cases import goal_of
from workflows.sailor.plan import parse_availability, runs, within
from workflows.sailor.reference_planner import reference_search
from workflows.sailor.search_result import Goal, SearchResult

# the second case, two types with 512 GPUs, takes half a minute by itself
CASES = [pytest.param(i, marks=[pytest.mark.campaign] if i == 1 else []) for i in range(18)]


def reference(published, case) -> SearchResult | None:
    problem = published(case["model"], case["gbs"])
    return reference_search(problem, parse_availability(case["cluster"]), goal_of(case))


@pytest.mark.parametrize("index", CASES)
def test_the_published_plan_is_found(published, vectors, index):
    case = vectors[index]
    result = reference(published, case)
    if "result" in case:
        assert result is None
        return
    assert result is not None
    plan, estimate = result.best.plan, result.best.estimate
    stages = [
        [{"gpu": r.gpu, "tp": r.degree, "zone": r.zone, "replicas": n} for r, n in runs(s.replicas)]
        for s in plan.stages
    ]
    assert (plan.microbatch, list(plan.split), stages) == (
        case["mbs"],
        case["stage_sizes"],
        case["stages"],
    )
    assert estimate.iteration_s == pytest.approx(case["simulator"]["iter_s"], rel=1e-12)
    assert estimate.cost_usd == pytest.approx(case["simulator"]["total_usd"], rel=1e-12)
    assert result.skipped_oom == case["skipped_oom"]


@pytest.mark.parametrize(
    ("a100", "v100", "iterations_per_s", "usd"),
    [
        (32, 96, 0.1700, 0.6288),
        (80, 240, 0.3609, 0.7545),
        (80, 0, 0.27224, 0.2998),
        (128, 0, 0.41753, 0.3128),
    ],
)
def test_figures_of_the_paper_to_four_digits(published, a100, v100, iterations_per_s, usd):
    zone = "us-central1-a"
    result = reference_search(
        published(), {("A100-40", zone): a100, ("V100-16", zone): v100}, Goal()
    )
    assert result is not None
    estimate = result.best.estimate
    digits = 4 if v100 else 5
    assert round(estimate.iterations_per_s, digits) == iterations_per_s
    assert round(estimate.cost_usd, 4) == usd


def test_ratios_of_the_first_figure(published, vectors):
    time = {c["id"]: c["simulator"]["iter_s"] for c in vectors if "simulator" in c}
    ours = {}
    for case in vectors:
        if case["id"].startswith(("S0", "S12", "S13")):
            ours[case["id"]] = reference(published, case).best.estimate.iteration_s
    alone, more, elsewhere = (
        next(v for k, v in ours.items() if k.startswith(p)) for p in ("S0", "S12", "S13")
    )
    assert alone / more == pytest.approx(1.166, abs=0.001)
    assert alone / elsewhere == pytest.approx(1.896, abs=0.001)
    assert set(ours) <= set(time)


def test_the_planner_of_the_constraint_figure(published):
    zones = ("us-central1-a", "us-central1-b")
    cluster = {(gpu, z): 128 for gpu in ("A100-40", "V100-16") for z in zones}
    result = reference_search(published(), cluster, Goal(max_cost_usd=1.2))
    assert result is not None
    plan, estimate = result.best.plan, result.best.estimate
    assert sum(plan.gpus_used().values()) == 256
    assert (plan.width, plan.microbatch) == (64, 8)
    assert round(estimate.iterations_per_s, 4) == 0.6629
    assert round(estimate.cost_usd, 4) == 0.4582


def test_a_published_plan_can_exceed_its_cluster(published, vectors):
    case = next(c for c in vectors if c["id"] == "F10 geo 128/zone")
    result = reference(published, case)
    assert result is not None
    assert not within(result.best.plan, parse_availability(case["cluster"]))
