"""Profiles from hardware figures: sizes by formula, sensible times, planning without data."""

from __future__ import annotations

import statistics

import pytest

from workflows.sailor.job import Job
from workflows.sailor.planner import search
from workflows.sailor.problem import Problem
from workflows.sailor.profile import Profile
from workflows.sailor.roofline import assumed_links, block_parameters, roofline_profile

JOB = Job(
    model="OPT-350",
    global_batch=256,
    layers=26,
    hidden=1024,
    sequence_length=2048,
    vocabulary=50272,
    heads=16,
    blocks=24,
)
ZONES = ("us-central1-a", "us-west1-b")


def own_problem() -> Problem:
    gpus = ("A100-40", "V100-16")
    return Problem(job=JOB, profile=roofline_profile(JOB, gpus), links=assumed_links(ZONES, gpus))


def test_a_block_has_twelve_h_squared_and_thirteen_h_parameters():
    assert block_parameters(JOB) == 12_596_224


def test_the_profile_is_marked_as_modelled():
    assert own_problem().profile.source == "roofline"


def test_planning_works_without_any_reference_data():
    result = search(own_problem(), {("A100-40", ZONES[0]): 8, ("V100-16", ZONES[0]): 8})
    assert result.complete
    assert result.best.estimate.feasible


def test_a_faster_card_and_a_larger_degree_take_less_time():
    profile = own_problem().profile
    slow, fast = (
        sum(x.forward_s for x in profile.time_of(gpu, 4, 2)) for gpu in ("V100-16", "A100-40")
    )
    assert fast < slow
    one, four = (sum(x.forward_s for x in profile.time_of("A100-40", 4, t)) for t in (1, 4))
    assert one / 4 < four < one


def test_backward_is_about_twice_forward():
    block = own_problem().profile.time_of("A100-40", 4, 1)[1]
    assert block.backward_s == pytest.approx(2 * block.forward_s)


def test_modelled_times_are_within_a_factor_of_three_of_published_ones(published):
    problem = published()
    modelled = roofline_profile(problem.job, ("A100-40", "V100-16", "GH-96"))
    ratios = []
    for (gpu, m, t), rows in problem.profile.times.items():
        if (gpu, m, t) in modelled.times:
            ours = modelled.time_of(gpu, m, t)[1]
            ratios.append(
                (ours.forward_s + ours.backward_s) / (rows[1].forward_s + rows[1].backward_s)
            )
    assert len(ratios) > 20
    assert 1 / 3 < statistics.median(ratios) < 3


def test_a_profile_survives_json():
    profile = own_problem().profile
    assert Profile.from_json(profile.to_json()) == profile
