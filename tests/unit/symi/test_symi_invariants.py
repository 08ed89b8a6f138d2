"""Checks of stored runs find what is wrong and nothing else."""

from __future__ import annotations

from dataclasses import asdict

from workflows.symi.capacity import drops
from workflows.symi.invariants import drop_violations, plan_violations, replay_violations
from workflows.symi.placement import contiguous, placement_digest, plan_layer
from workflows.symi.policies import parse_policy
from workflows.symi.simulation import policy_counts
from workflows.symi.synthetic import synthesize


def test_a_sound_plan_has_no_violation() -> None:
    plan = asdict(plan_layer([5, 1, 1, 1], ranks=4, slots_per_rank=2))
    stored = {name: plan[name] for name in ("counts", "placement", "digest")}
    assert plan_violations(**stored, slots=8) == []


def test_each_fault_of_a_plan_is_named() -> None:
    good = contiguous([5, 1, 1, 1])
    digest = placement_digest(good)
    assert plan_violations(counts=[5, 1, 1, 1], placement=good, digest="0", slots=8) == [
        "the digest is not that of the placement"
    ]
    found = plan_violations(counts=[6, 0, 1, 1], placement=good, digest=digest, slots=9)
    assert found == [
        "counts sum to 8, not to 9 slots",
        "expert 1 has 0 replicas",
        "the placement is not the experts in order, each as often as its count",
    ]


def test_drops_are_exactly_what_is_over_capacity() -> None:
    popularity, counts = [70, 10, 10, 10], [5, 1, 1, 1]
    dropped = drops(popularity, counts, 12.5)
    check = {"popularity": popularity, "counts": counts, "slot_capacity": 12.5}
    assert drop_violations(**check, dropped=dropped) == []  # type: ignore[arg-type]
    found = drop_violations(**check, dropped=[0, 0, 0, 1])  # type: ignore[arg-type]
    assert found == [
        "expert 0 dropped 0 of 70 tokens over 62.5",
        "expert 3 dropped 1 of 10 tokens over 12.5",
    ]


def test_a_replay_finds_the_iteration_that_ran_on_another_placement() -> None:
    trace = synthesize(experts=4, tokens=100, iterations=20, seed=0)
    popularity = trace.tokens[:, 0].tolist()
    for text in ("symi", "flex(5, full)", "ema(0.5)"):
        policy = parse_policy(text)
        counts = policy_counts(trace, policy, 8)[:, 0].tolist()
        placements = [contiguous(row) for row in counts]
        assert replay_violations(policy, popularity=popularity, placements=placements) == []
        placements[6] = contiguous([5, 1, 1, 1])
        found = replay_violations(policy, popularity=popularity, placements=placements)
        assert len(found) == 1
        assert found[0].startswith("iteration 7 ran on")
    assert replay_violations(parse_policy("symi"), popularity=[], placements=[]) == []
