"""Communication, memory and move costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.symi import costs, memory
from workflows.symi.costs import ExpertLayer, Links, Variant
from workflows.symi.errors import InvalidArgument, InvalidPlacement

LARGE = ExpertLayer(
    ranks=2048,
    experts=64,
    slots_per_rank=2,
    gradient_bytes=3.375e9,
    weight_bytes=3.375e9,
    optimizer_bytes=27e9,
)
LARGE_LINKS = Links(pci_bytes_per_s=64e9, network_bytes_per_s=50e9)
TESTBED = ExpertLayer(
    ranks=16,
    experts=16,
    slots_per_rank=4,
    gradient_bytes=2 * 2 * 768 * 3072,
    weight_bytes=2 * 2 * 768 * 3072,
    optimizer_bytes=16 * 2 * 768 * 3072,
)
TESTBED_LINKS = Links(pci_bytes_per_s=32e9, network_bytes_per_s=12.5e9)


def test_worked_example_of_the_large_cluster() -> None:
    cost = costs.communication_cost(LARGE, LARGE_LINKS)
    assert cost.static_s == pytest.approx(0.2690771, abs=5e-8)
    assert cost.symi_s == pytest.approx(0.2731641, abs=5e-8)
    assert cost.overhead_percent == pytest.approx(1.51886, abs=5e-6)
    assert cost.move_weights_s == pytest.approx(0.0675, rel=1e-12)
    assert cost.move_optimizer_s == pytest.approx(0.54, rel=1e-12)
    moved = cost.gradient_volume_bytes + cost.weight_volume_bytes
    assert moved == pytest.approx(27.648e12)
    assert cost.optimizer_total_bytes == pytest.approx(1.728e12)


def test_worked_example_of_the_testbed() -> None:
    cost = costs.communication_cost(TESTBED, TESTBED_LINKS)
    assert cost.static_s == pytest.approx(5.11967e-3, abs=5e-9)
    assert cost.symi_s == pytest.approx(6.25213e-3, abs=5e-9)
    assert cost.overhead_percent == pytest.approx(22.1198, abs=5e-5)
    assert "22.1 %" in (costs.advice(cost) or "")
    assert costs.advice(costs.communication_cost(LARGE, LARGE_LINKS)) is None


def test_worked_example_without_offload() -> None:
    cost = costs.communication_cost(LARGE, LARGE_LINKS, Variant.HBM)
    assert cost.overhead_percent == pytest.approx(100 * 62 / 4032, rel=1e-12)
    assert cost.overhead_percent == pytest.approx(1.5377, abs=5e-5)


def test_one_expert_per_slot_of_one_rank_costs_nothing_extra() -> None:
    layer = replace(TESTBED, experts=1, slots_per_rank=1)
    assert costs.communication_cost(layer, TESTBED_LINKS).overhead_percent == 0


def test_an_all_reduce_doubles_the_replicas_part_of_the_gradients() -> None:
    plain = costs.communication_cost(TESTBED, TESTBED_LINKS)
    full = costs.communication_cost(TESTBED, TESTBED_LINKS, Variant.ALLREDUCE)
    extra = 48 / 16 * TESTBED.gradient_bytes / 12.5e9
    assert full.static_s - plain.static_s == pytest.approx(extra)
    assert full.symi_s - plain.symi_s == pytest.approx(extra)
    assert full.overhead_percent < plain.overhead_percent


def test_all_static_replicas_at_home_makes_the_overhead_infinite() -> None:
    layer = replace(TESTBED, experts=64)
    assert costs.overhead_ratio(layer, TESTBED_LINKS, Variant.HBM) == math.inf


def test_more_groups_cost_more() -> None:
    bounds = [
        costs.group_time_bound_s(TESTBED, TESTBED_LINKS, TESTBED.weight_bytes, groups)
        for groups in (1, 2, 4)
    ]
    assert bounds == sorted(bounds)
    assert bounds[0] == costs.symi_time_s(TESTBED, TESTBED_LINKS, TESTBED.weight_bytes)
    with pytest.raises(InvalidArgument, match="divisor"):
        costs.group_time_bound_s(TESTBED, TESTBED_LINKS, 1.0, 3)


def test_shards_are_padded_and_not_refused() -> None:
    assert costs.shard_length(4096, 4) == 1024
    assert costs.shard_length(10, 4) == 3


def test_host_memory_is_the_same_in_both_designs() -> None:
    assert memory.host_optimizer_bytes_symi(TESTBED) == memory.host_optimizer_bytes_static(TESTBED)
    used = memory.rank_memory(TESTBED, incoming=2)
    assert used.device_bytes == 4 * 2 * 9437184
    assert used.host_bytes == TESTBED.optimizer_bytes
    assert used.flex_transient_bytes == 2 * (9437184 + 75497472) / 4
    assert memory.rank_memory(TESTBED).flex_transient_bytes == 0


def test_incoming_experts_are_counted_per_rank() -> None:
    before, after = [0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 0, 1, 2, 3]
    assert memory.incoming_experts(before, after, 2) == [0, 1, 2, 1]


@pytest.mark.parametrize("bad", [0, -1.0, math.inf, math.nan, "fast"])
def test_bandwidths_and_sizes_must_be_positive(bad: float) -> None:
    with pytest.raises(InvalidArgument, match="network_bytes_per_s"):
        Links(pci_bytes_per_s=1.0, network_bytes_per_s=bad)
    with pytest.raises(InvalidArgument, match="weight_bytes"):
        replace(TESTBED, weight_bytes=bad)


def test_layers_that_do_not_fit_and_unknown_variants_are_refused() -> None:
    with pytest.raises(InvalidPlacement):
        replace(TESTBED, experts=65)
    with pytest.raises(InvalidArgument, match="offload, hbm or allreduce"):
        Variant.named("nvlink")
    assert Variant.named("hbm") is Variant.HBM


@given(
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(1, 64),
    st.builds(
        Links, pci_bytes_per_s=st.floats(1e9, 1e12), network_bytes_per_s=st.floats(1e9, 1e12)
    ),
    st.sampled_from(list(Variant)),
)
def test_the_closed_form_of_the_overhead_agrees_with_the_times(
    ranks: int, slots_per_rank: int, experts: int, links: Links, variant: Variant
) -> None:
    if experts > ranks * slots_per_rank:
        return
    layer = replace(TESTBED, ranks=ranks, slots_per_rank=slots_per_rank, experts=experts)
    percent = costs.communication_cost(layer, links, variant).overhead_percent
    closed = 100 * costs.overhead_ratio(layer, links, variant)
    assert percent == pytest.approx(closed, rel=1e-9, abs=1e-9)
