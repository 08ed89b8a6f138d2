"""Policies: when and how replica counts change."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.symi import policies
from workflows.symi.errors import InvalidArgument, InvalidPlacement
from workflows.symi.placement import replica_counts
from workflows.symi.policies import advance, initial_state, parse_policy

ALL = ["static", "symi", "oracle", "ema(0.5)", "flex(50, full)", "flex(10, shift, 4, 100)"]


@pytest.mark.parametrize("text", ALL)
def test_policies_read_and_print_the_same(text: str) -> None:
    assert str(parse_policy(text)) == text


@pytest.mark.parametrize(
    "text", ["", "SYMI", "flex", "flex(10)", "flex(0, full)", "ema(1)", "ema(-1)", "ema(0.5, 1)"]
)
def test_unknown_policies_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_policy(text)


@pytest.mark.parametrize("text", ALL)
def test_every_policy_begins_uniform(text: str) -> None:
    assert initial_state(parse_policy(text), experts=16, slots=64).counts == [4] * 16


def test_uneven_slots_are_for_symi_only() -> None:
    assert initial_state(parse_policy("symi"), experts=3, slots=8).counts == [3, 3, 2]
    with pytest.raises(InvalidArgument, match="multiple"):
        initial_state(parse_policy("static"), experts=3, slots=8)
    with pytest.raises(InvalidPlacement):
        initial_state(parse_policy("symi"), experts=9, slots=8)


def test_symi_mimics_the_previous_iteration_and_static_never_moves() -> None:
    symi = initial_state(parse_policy("symi"), experts=4, slots=8)
    symi = advance(policies.Symi(), symi, completed=1, popularity=[70, 10, 10, 10])
    assert symi.counts == [5, 1, 1, 1]
    static = initial_state(parse_policy("static"), experts=4, slots=8)
    assert advance(policies.Static(), static, completed=1, popularity=[70, 10, 10, 10]) == static


def test_flex_waits_for_its_interval() -> None:
    policy = parse_policy("flex(3, full)")
    state = initial_state(policy, experts=4, slots=8)
    seen = []
    for completed in range(1, 7):
        tokens = [70, 10, 10, 10] if completed < 5 else [10, 70, 10, 10]
        state = advance(policy, state, completed=completed, popularity=tokens)
        seen.append(state.counts[0])
    assert seen == [2, 2, 5, 5, 5, 1]


def test_shifting_moves_single_replicas_while_it_pays() -> None:
    assert policies.shift_counts([2, 2, 2, 2], [70, 10, 10, 10], 1, 0) == [3, 1, 2, 2]
    assert policies.shift_counts([2, 2, 2, 2], [70, 10, 10, 10], 9, 0) == [5, 1, 1, 1]
    # The first move lowers the peak from 35 to 23.3, the second to 17.5 only.
    assert policies.shift_counts([2, 2, 2, 2], [70, 10, 10, 10], 9, 6) == [3, 1, 2, 2]
    assert policies.shift_counts([1, 1], [5, 9], 3, 0) == [1, 1]


def test_averaging_lags_and_without_weight_it_is_symi() -> None:
    state = initial_state(parse_policy("ema(0.5)"), experts=2, slots=10)
    state = advance(policies.Ema(beta=0.5), state, completed=1, popularity=[90, 10])
    state = advance(policies.Ema(beta=0.5), state, completed=2, popularity=[10, 90])
    assert (state.smoothed, state.counts) == ([50.0, 50.0], [5, 5])
    state = advance(policies.Ema(beta=0.0), state, completed=3, popularity=[10, 90])
    assert state.counts == replica_counts([10, 90], 10)


def test_the_oracle_cannot_be_run_forward() -> None:
    state = initial_state(parse_policy("oracle"), experts=2, slots=4)
    with pytest.raises(InvalidArgument, match="simulation only"):
        advance(policies.Oracle(), state, completed=1, popularity=[1, 1])


def test_popularity_of_other_experts_is_refused() -> None:
    state = initial_state(parse_policy("symi"), experts=2, slots=4)
    with pytest.raises(InvalidArgument, match="2 counts, one per expert"):
        advance(policies.Symi(), state, completed=1, popularity=[1, 1, 1])


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=8),
    st.integers(0, 20),
    st.integers(1, 8),
    st.sampled_from(["symi", "ema(0.7)", "flex(2, full)", "flex(1, shift, 3, 0)"]),
)
def test_slots_stay_full_and_experts_keep_one(
    tokens: list[int], spare: int, steps: int, text: str
) -> None:
    policy, slots = parse_policy(text), len(tokens) + spare
    state = initial_state(policy, experts=len(tokens), slots=slots)
    for completed in range(1, steps + 1):
        tokens = [*tokens[1:], tokens[0]]
        state = advance(policy, state, completed=completed, popularity=tokens)
        assert sum(state.counts) == slots
        assert min(state.counts) >= 1


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=8), st.integers(0, 20))
def test_shifting_never_raises_the_peak(tokens: list[int], spare: int) -> None:
    counts = replica_counts([0] * len(tokens), len(tokens) + spare)
    after = policies.shift_counts(counts, tokens, 5, 0)
    peak = [max(Fraction(t, c) for t, c in zip(tokens, x, strict=True)) for x in (counts, after)]
    assert peak[1] <= peak[0]
