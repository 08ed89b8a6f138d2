"""Placement: Algorithm 1, layouts, hosts, sources and groups."""

from __future__ import annotations

import ast
import math
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.symi import placement
from workflows.symi.errors import Conflict, InvalidArgument, InvalidPlacement

STANDARD_LIBRARY_ONLY = (
    "arguments",
    "capacity",
    "control",
    "convergence",
    "costs",
    "errors",
    "invariants",
    "memory",
    "placement",
    "policies",
    "published",
    "training.config",
)


@pytest.mark.parametrize(
    ("popularity", "slots", "counts"),
    [
        ([10, 10, 10, 10], 8, [2, 2, 2, 2]),
        ([70, 10, 10, 10], 8, [5, 1, 1, 1]),
        ([97, 1, 1, 1], 8, [5, 1, 1, 1]),
        ([5, 3, 2, 0], 8, [4, 2, 1, 1]),
        ([0, 0, 0, 100], 4, [1, 1, 1, 1]),
        ([40, 30, 20, 10], 10, [4, 3, 2, 1]),
        ([1] * 7 + [993], 16, [1] * 7 + [9]),
        ([33, 33, 34], 7, [2, 2, 3]),
    ],
)
def test_worked_examples_of_algorithm_1(
    popularity: list[int], slots: int, counts: list[int]
) -> None:
    assert placement.replica_counts(popularity, slots) == counts


def test_no_tokens_at_all_means_a_uniform_goal() -> None:
    assert placement.replica_counts([0, 0, 0, 0], 8) == [2, 2, 2, 2]
    assert placement.replica_counts([0, 0, 0], 7) == [3, 2, 2]


def test_worked_example_of_hosts_and_sources() -> None:
    plan = placement.plan_layer([5, 1, 1, 1], ranks=4, slots_per_rank=2)
    assert plan.placement == [0, 0, 0, 0, 0, 1, 2, 3]
    assert placement.hosts_of(plan.placement, 2) == [[0, 1, 2], [2], [3], [3]]
    assert plan.sources == [[0, 1, 2, 0], [2, 2, 2, 2], [3, 3, 3, 3], [3, 3, 3, 3]]


def test_groups_are_all_runs_of_consecutive_ranks() -> None:
    assert placement.consecutive_groups(1) == []
    assert placement.consecutive_groups(3) == [(0, 1), (0, 1, 2), (1, 2)]
    assert len(placement.consecutive_groups(16)) == 16 * 15 // 2


def test_moved_slots_and_digest_tell_placements_apart() -> None:
    before = placement.contiguous([2, 2, 2, 2])
    plan = placement.plan_layer([5, 1, 1, 1], ranks=4, slots_per_rank=2, before=before)
    assert plan.moved == [2, 3, 4, 5, 6]
    assert plan.digest == placement.placement_digest(plan.placement)
    assert plan.digest != placement.placement_digest(before)
    assert placement.plan_layer([2, 2, 2, 2], ranks=4, slots_per_rank=2).moved == []


def test_interleaving_keeps_replicas_of_a_class_on_different_ranks() -> None:
    layout = placement.interleaved([2, 2, 2, 2])
    assert layout == [0, 1, 2, 3, 0, 1, 2, 3]
    assert all(len(hosts) == 2 for hosts in placement.hosts_of(layout, 2))


def test_fewer_slots_than_experts_is_refused_instead_of_looping() -> None:
    with pytest.raises(InvalidPlacement, match="5 experts on 4 slots"):
        placement.replica_counts([1, 2, 3, 4, 5], 4)
    with pytest.raises(InvalidPlacement):
        placement.uniform_counts(5, 4)


@pytest.mark.parametrize(
    "popularity", [[], [1, -1], [1.0, float("nan")], [1, float("inf")], [1, True], [1, "2"]]
)
def test_bad_popularity_is_refused(popularity: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="popularity"):
        placement.replica_counts(popularity, 8)


def test_static_replication_needs_a_multiple_of_the_experts() -> None:
    assert placement.uniform_counts(4, 8) == [2, 2, 2, 2]
    with pytest.raises(InvalidArgument, match="multiple of the 3 experts"):
        placement.uniform_counts(3, 8)
    assert sum(placement.replica_counts([1, 1, 1], 8)) == 8


@pytest.mark.parametrize("counts", [[], [2, 0], [2, True], [2, -1]])
def test_malformed_counts_are_refused(counts: list[int]) -> None:
    with pytest.raises(InvalidPlacement):
        placement.contiguous(counts)


def test_plans_that_do_not_fill_the_slots_are_refused() -> None:
    with pytest.raises(InvalidPlacement, match="counts sum to 7"):
        placement.plan_layer([4, 1, 1, 1], ranks=4, slots_per_rank=2)
    with pytest.raises(InvalidPlacement, match="whole number of ranks"):
        placement.hosts_of([0, 1, 2], 2)
    with pytest.raises(InvalidPlacement, match="expert 1 has 0"):
        placement.hosts_of([0, 2], 1)
    with pytest.raises(InvalidPlacement, match="same cluster"):
        placement.moved_slots([0, 1], [0, 0, 1])


popularities = st.lists(st.integers(0, 10**6), min_size=1, max_size=24)


@given(popularities, st.integers(0, 200))
def test_every_slot_is_used_and_every_expert_has_one(tokens: list[int], spare: int) -> None:
    counts = placement.replica_counts(tokens, len(tokens) + spare)
    assert sum(counts) == len(tokens) + spare
    assert min(counts) >= 1
    layout = placement.contiguous(counts)
    assert layout == sorted(layout)
    assert placement.counts_of(layout, len(tokens)) == counts


@given(popularities, st.integers(0, 200))
def test_it_is_algorithm_1_in_exact_arithmetic(tokens: list[int], spare: int) -> None:
    slots = len(tokens) + spare
    assert placement.replica_counts(tokens, slots) == _algorithm_1(tokens, slots)


@given(popularities, st.integers(0, 100), st.integers(1, 1000))
def test_only_proportions_matter(tokens: list[int], spare: int, factor: int) -> None:
    slots = len(tokens) + spare
    scaled = [count * factor for count in tokens]
    halves = [count / 2 for count in tokens]
    expected = placement.replica_counts(tokens, slots)
    assert placement.replica_counts(scaled, slots) == expected
    assert placement.replica_counts(halves, slots) == expected


@given(popularities, st.integers(0, 200))
def test_counts_are_within_one_of_a_goal_unless_the_minimum_binds(
    tokens: list[int], spare: int
) -> None:
    total, slots = sum(tokens), len(tokens) + spare
    if not total or any(count * slots < total for count in tokens):
        return
    for count, wanted in zip(placement.replica_counts(tokens, slots), tokens, strict=True):
        assert abs(count - Fraction(wanted * slots, total)) <= 1


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(1, 8))
def test_sources_host_the_expert_and_hosts_serve_themselves(
    counts: list[int], slots_per_rank: int
) -> None:
    layout = placement.contiguous(counts)
    layout += [len(counts) - 1] * (-len(layout) % slots_per_rank)
    hosts = placement.hosts_of(layout, slots_per_rank)
    ranks = len(layout) // slots_per_rank
    for holders, sources in zip(hosts, placement.sources_of(hosts, ranks), strict=True):
        assert holders == list(range(holders[0], holders[-1] + 1))
        assert len(holders) == 1 or tuple(holders) in placement.consecutive_groups(ranks)
        assert set(sources) <= set(holders)
        assert all(sources[rank] == rank for rank in holders)


def test_importing_the_package_brings_no_numerical_library() -> None:
    code = (
        "import sys, workflows.symi;"
        + "".join(f"import workflows.symi.{name};" for name in STANDARD_LIBRARY_ONLY)
        + "bad = {'numpy', 'torch', 'matplotlib', 'apiary'} & set(sys.modules); assert not bad, bad"
    )
    root = Path(placement.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


# What puts the library to work on the platform; everything else can be used without it.
SERVICE = {"drawings.py", "flows.py", "simulating.py", "stored.py"}


def test_no_module_of_the_library_imports_the_platform() -> None:
    package = Path(placement.__file__).parent
    for path in (each for each in package.rglob("*.py") if each.name not in SERVICE):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            assert not any(name.split(".")[0] in {"apiary", "functions"} for name in names), path


def test_errors_survive_pickling_with_their_facts() -> None:
    with pytest.raises(InvalidArgument) as caught:
        placement.uniform_counts(3, 8)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.given) == (InvalidArgument, str(caught.value), 8)
    assert pickle.loads(pickle.dumps(Conflict("x", key=1))).details == {"key": 1}


def _algorithm_1(tokens: list[int], slots: int) -> list[int]:
    """The published pseudocode, literally, over fractions."""
    total = sum(tokens)
    goals = [
        Fraction(count * slots, total) if total else Fraction(slots, len(tokens))
        for count in tokens
    ]
    counts = [max(1, math.floor(goal)) for goal in goals]
    diffs = [count - goal for count, goal in zip(counts, goals, strict=True)]
    while sum(counts) > slots:
        expert = diffs.index(max(diffs))
        if counts[expert] > 1:
            counts[expert] -= 1
        diffs[expert] -= 1
    while sum(counts) < slots:
        expert = diffs.index(min(diffs))
        counts[expert] += 1
        diffs[expert] += 1
    return counts
