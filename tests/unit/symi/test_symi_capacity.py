"""Capacity and drops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.symi import capacity
from workflows.symi.errors import InvalidArgument
from workflows.symi.placement import replica_counts, uniform_counts


def test_worked_example_of_drops() -> None:
    slot = capacity.real_slot_capacity(100, 8)
    assert slot == 12.5
    static, placed = uniform_counts(4, 8), replica_counts([70, 10, 10, 10], 8)
    assert sum(capacity.drops([70, 10, 10, 10], static, slot)) == 45
    assert sum(capacity.drops([70, 10, 10, 10], placed, slot)) == 7.5
    assert sum(capacity.drops([10, 70, 10, 10], placed, slot)) == 57.5


def test_static_capacity_is_the_share_of_an_expert() -> None:
    slot = capacity.real_slot_capacity(32768, 64)
    assert slot == 512
    assert capacity.class_capacities(slot, [4] * 16) == [32768 / 16] * 16


def test_real_execution_rounds_down_and_needs_a_token_per_slot() -> None:
    assert capacity.whole_slot_capacity(100, 8) == 12
    with pytest.raises(InvalidArgument, match="at least slots / capacity_factor = 8"):
        capacity.whole_slot_capacity(7, 8)


@pytest.mark.parametrize("factor", [0, -1.0, float("nan")])
def test_capacity_factor_must_be_positive(factor: float) -> None:
    with pytest.raises(InvalidArgument, match="capacity_factor"):
        capacity.real_slot_capacity(100, 8, factor)


def test_popularity_must_have_one_count_per_expert() -> None:
    with pytest.raises(InvalidArgument, match="3 were given"):
        capacity.drops([1, 2, 3], [2, 2, 2, 2], 12.5)


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=12), st.integers(0, 40))
def test_drops_never_exceed_the_demand(tokens: list[int], spare: int) -> None:
    slots = len(tokens) + spare
    counts = replica_counts(tokens, slots)
    slot = capacity.real_slot_capacity(max(1, sum(tokens)), slots)
    dropped = capacity.drops(tokens, counts, slot)
    assert all(0 <= lost <= count for lost, count in zip(dropped, tokens, strict=True))
    assert 0 <= capacity.survival(tokens, dropped) <= 1
