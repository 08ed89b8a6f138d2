"""Traces, replay with hysteresis, and what workers do at a change."""

from __future__ import annotations

import pytest

from workflows.sailor.errors import BadProfileFile
from workflows.sailor.plan import Plan, Replica, uniform_plan
from workflows.sailor.published import read_json
from workflows.sailor.reconfiguration import actions
from workflows.sailor.search_result import Candidate
from workflows.sailor.simulator import simulate
from workflows.sailor.switching import RECONFIGURATION_S, Policy, Segment
from workflows.sailor.trace import replay, segments_from_csv, segments_from_json, segments_of

Z = "us-central1-a"
KEY = ("A100-40", Z)


def plan_of(stages: int, replicas: int, degree: int = 4) -> Plan:
    return uniform_plan(
        layers=26,
        stages=stages,
        replicas=replicas,
        replica=Replica(gpu="A100-40", degree=degree, zone=Z),
        microbatch=4,
    )


def test_segments_of_the_published_csv(reference):
    text = (reference / "traces" / "gpu_trace_scaled.csv").read_text()
    segments = segments_from_csv(text)
    assert [s.available[KEY] for s in segments] == [32, 80, 128]
    assert [s.duration_s for s in segments] == pytest.approx([123.17371, 121.33041, 0.0], abs=1e-5)


def test_segments_of_the_published_json(reference):
    entries = read_json(reference / "traces" / "a100_trace_original.json")
    segments = segments_from_json(entries, *KEY)
    assert [s.available[KEY] for s in segments] == [16, 10, 9, 8, 9, 12, 15, 16, 15, 16, 15, 16]
    assert sum(s.duration_s for s in segments) == 5229


def test_equal_neighbours_are_one_segment_and_an_empty_start_is_dropped():
    rows = [(0.0, {KEY: 0}), (5.0, {KEY: 8}), (7.0, {KEY: 8}), (9.0, {KEY: 4}), (10.0, {KEY: 4})]
    segments = segments_of(rows)
    assert [(s.start_s, s.duration_s, s.available[KEY]) for s in segments] == [
        (5.0, 4.0, 8),
        (9.0, 1.0, 4),
    ]


def test_a_broken_trace_names_its_row():
    with pytest.raises(BadProfileFile, match="trace row 1"):
        segments_from_csv(",Timestamp,A100-40_z-1-a\n0,1.0,8\n1,soon,8\n")
    with pytest.raises(BadProfileFile, match="no row"):
        segments_from_csv(",Timestamp,A100-40_z-1-a\n")


def test_the_phases_of_a_reconfiguration_sum_to_the_published_time():
    assert sum(RECONFIGURATION_S.values()) == pytest.approx(11.35)


def segment(duration_s: float, gpus: int, start_s: float = 0.0) -> Segment:
    return Segment(start_s=start_s, duration_s=duration_s, available={KEY: gpus})


def by_size(problem, available, policy):
    """A planner for tests: all nodes as replicas of one stage."""
    replicas = available[KEY] // 4
    if not replicas:
        return None
    plan = plan_of(1, replicas)
    return Candidate(plan=plan, estimate=simulate(problem, plan))


def test_a_trace_is_replayed_segment_by_segment(published):
    problem = published(global_batch=64)
    result = replay(problem, [segment(100, 8), segment(100, 16, 100)], finder=by_size)
    first, second = result.steps
    assert first.iterations == pytest.approx(100 / first.chosen.estimate.iteration_s)
    assert second.iterations == pytest.approx((100 - 11.35) / second.chosen.estimate.iteration_s)
    assert (first.switched, second.switched, result.reconfigurations) == (False, True, 1)


def test_a_switch_that_does_not_pay_is_not_made(published):
    problem = published(global_batch=64)
    short = [segment(100, 8), segment(12, 16, 100)]
    patient = replay(problem, short, finder=by_size)
    eager = replay(problem, short, Policy(hysteresis=False), finder=by_size)
    assert patient.reconfigurations == 0
    assert eager.reconfigurations == 1
    assert patient.iterations > eager.iterations


def test_a_plan_whose_gpus_are_gone_is_replaced_at_any_price(published):
    result = replay(
        published(global_batch=64), [segment(100, 16), segment(5, 8, 100)], finder=by_size
    )
    assert result.steps[1].switched
    assert result.steps[1].iterations == 0.0
    assert result.steps[1].cost_usd > 0


def test_a_job_without_gpus_waits(published):
    result = replay(
        published(global_batch=64),
        [segment(10, 8), segment(10, 0, 10), segment(10, 8, 20)],
        finder=by_size,
    )
    assert [step.iterations > 0 for step in result.steps] == [True, False, False]
    assert result.steps[1].cost_usd == 0.0


def test_the_published_trace_is_replayed_with_our_planner(published, reference):
    entries = read_json(reference / "traces" / "a100_trace_original.json")[:4]
    result = replay(published(), segments_from_json(entries, *KEY))
    assert result.iterations > 0
    assert result.reconfigurations <= 3


def test_workers_keep_what_they_hold():
    old, new = plan_of(2, 2), plan_of(2, 3)
    todo = actions(old, new)
    assert [a.kind for a in todo].count("join") == 2
    assert all(a.load_layers == () for a in todo if a.kind != "join")
    assert {a.load_layers for a in todo if a.kind == "join"} == {
        tuple(range(13)),
        tuple(range(13, 26)),
    }


def test_a_shallower_pipeline_loads_the_layers_of_the_other_half():
    todo = actions(plan_of(2, 1), plan_of(1, 1))
    assert [(a.kind, a.load_layers) for a in todo] == [
        ("move", tuple(range(13, 26))),
        ("leave", ()),
    ]
    assert todo[1].drop_layers == tuple(range(13, 26))


def test_a_first_start_is_all_joining():
    assert {a.kind for a in actions(None, plan_of(2, 2))} == {"join"}
