"""Simulation: drops and latency by policy, and the paper's figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from workflows.symi import convergence, latency
from workflows.symi.costs import Variant
from workflows.symi.errors import InvalidArgument, InvalidPlacement
from workflows.symi.figures import TESTBED, TESTBED_LINKS, Figure, Kind, all_figures
from workflows.symi.latency import PhysicalLatency, calibrate
from workflows.symi.placement import contiguous, replica_counts
from workflows.symi.policies import parse_policy
from workflows.symi.simulation import PolicyResult, fewer_drops_percent, simulate
from workflows.symi.synthetic import synthesize
from workflows.symi.trace import Trace

NAMES = ["static", "flex(100, full)", "flex(50, full)", "flex(10, full)", "symi", "oracle"]


def replay(seed: int, names: list[str]) -> dict[str, PolicyResult]:
    trace = synthesize(experts=16, tokens=32768, iterations=600, seed=seed)
    results = simulate(
        trace,
        [parse_policy(name) for name in names],
        ranks=16,
        slots_per_rank=4,
        latency=calibrate(),
    )
    return {result.policy: result for result in results}


@pytest.fixture(scope="module")
def seeds() -> list[dict[str, PolicyResult]]:
    return [replay(seed, NAMES) for seed in range(6)]


def test_worked_drop_shares_of_seed_0(seeds: list[dict[str, PolicyResult]]) -> None:
    shares = [round(seeds[0][name].drop_share, 4) for name in NAMES[:5]]
    assert shares == [0.3225, 0.3232, 0.2854, 0.1778, 0.1011]
    fewer = [round(fewer_drops_percent(seeds[0]["symi"], seeds[0][name]), 1) for name in NAMES[:4]]
    assert fewer == [68.6, 68.7, 64.6, 43.1]


def test_worked_means_of_six_seeds(seeds: list[dict[str, PolicyResult]]) -> None:
    shares = [np.mean([seed[name].drop_share for seed in seeds]) for name in NAMES[:5]]
    assert [round(float(share), 3) for share in shares] == [0.312, 0.344, 0.297, 0.180, 0.101]
    fewer = np.array(
        [[fewer_drops_percent(seed["symi"], seed[name]) for name in NAMES[:4]] for seed in seeds]
    )
    assert fewer.mean(axis=0).round(1).tolist() == [67.7, 70.7, 66.1, 44.0]
    assert np.abs(fewer.mean(axis=0) - [69, 64, 62, 43]).max() <= 7


def test_the_oracle_bounds_every_policy(seeds: list[dict[str, PolicyResult]]) -> None:
    for seed in seeds:
        bound = seed["oracle"].drop_share
        assert all(bound <= seed[name].drop_share for name in NAMES)


def test_counts_follow_the_platform_independent_scheduler_and_numpy_alike() -> None:
    trace = synthesize(experts=16, tokens=32768, iterations=600, seed=0)
    for row in trace.tokens[:, 0]:
        assert replica_counts(row.tolist(), 64) == _numpy_algorithm(row, 64)
        assert replica_counts(list(row), 64) == _numpy_algorithm(row, 64)


def test_drops_by_hand_and_lag() -> None:
    tokens = np.array([[[70, 10, 10, 10]], [[70, 10, 10, 10]], [[10, 70, 10, 10]]])
    trace = Trace(run="r", first_iteration=0, tokens=tokens)
    result = simulate(
        trace, [parse_policy("symi")], ranks=4, slots_per_rank=2, latency=calibrate()
    )[0]
    assert result.dropped.sum(axis=(1, 2)).tolist() == [45, 7.5, 57.5]
    assert result.survival.tolist() == pytest.approx([0.55, 0.925, 0.425])
    assert result.counts[:, 0].tolist() == [[2, 2, 2, 2], [5, 1, 1, 1], [5, 1, 1, 1]]
    assert result.drop_share == pytest.approx(110 / 300)


def test_more_capacity_drops_less_and_none_is_refused() -> None:
    trace = synthesize(experts=4, tokens=100, iterations=20, seed=0)
    policies = [parse_policy("static")]

    def share(factor: float) -> float:
        return simulate(
            trace,
            policies,
            ranks=4,
            slots_per_rank=2,
            latency=calibrate(),
            capacity_factor=factor,
        )[0].drop_share

    assert share(1.0) > share(1.5) > share(4.0) == 0
    with pytest.raises(InvalidArgument, match="capacity_factor"):
        share(0.0)
    with pytest.raises(InvalidPlacement):
        simulate(trace, policies, ranks=1, slots_per_rank=2, latency=calibrate())
    with pytest.raises(InvalidArgument, match="at least one policy"):
        simulate(trace, [], ranks=4, slots_per_rank=2, latency=calibrate())


def test_calibration_of_latency_predicts_the_third_interval() -> None:
    model = calibrate()
    assert model.static == pytest.approx(1.0295, abs=5e-5)
    assert model.flex_plain == pytest.approx(1.178, abs=5e-4)
    assert model.flex_factor == pytest.approx(2.458, abs=5e-4)
    assert [round(model.flex_mean(interval), 3) for interval in (100, 50, 10)] == [
        1.195,
        1.212,
        1.350,
    ]
    assert model.flex_mean(50) == pytest.approx(1.2122, abs=5e-4)


def test_minutes_need_a_measured_system_and_a_line_fits_table_1() -> None:
    line = convergence.fit_survival_line()
    assert (round(line.intercept, 1), round(line.slope, 2)) == (826.6, -4.62)
    assert convergence.minutes_to_target(60, 2.0) == 2.0
    with pytest.raises(InvalidArgument, match="survival"):
        convergence.iteration_fraction("oracle")


def test_simulated_minutes_are_those_of_table_3(seeds: list[dict[str, PolicyResult]]) -> None:
    base = seeds[0]["static"].minutes(convergence.iteration_fraction("static"))
    for name, minutes in (("symi", 102.68), ("flex(10, full)", 138.61), ("flex(50, full)", 141.6)):
        ours = seeds[0][name].minutes(convergence.iteration_fraction(name))
        assert 147.84 * ours / base == pytest.approx(minutes, rel=0.005)


PHYSICAL = PhysicalLatency(
    layer=TESTBED,
    links=TESTBED_LINKS,
    dense_s=0.2,
    token_s=4e-6,
    token_bytes=1536,
    step_s=0.01,
    overhead_share=0.0106,
)


def test_balanced_all_to_all_by_hand() -> None:
    kept = np.full(16, 2048.0)
    layout = contiguous([4] * 16)
    assert latency.rank_tokens(layout, kept, TESTBED).tolist() == [2048] * 16
    expected = 2048 * 15 / 16 * 1536 / 12.5e9
    assert latency.all_to_all_s(layout, kept, TESTBED, TESTBED_LINKS, 1536) == pytest.approx(
        expected
    )


def test_a_rebalancing_moves_weights_and_optimizer_of_every_new_host() -> None:
    layer = replace(TESTBED, ranks=4, experts=4, slots_per_rank=2)
    before, after = contiguous([2, 2, 2, 2]), contiguous([5, 1, 1, 1])
    # New hosts: expert 0 on ranks 1 and 2, expert 1 on rank 2, expert 2 on rank 3.
    expected = 4 * (layer.weight_bytes + layer.optimizer_bytes) / 12.5e9
    assert latency.rebalance_s(before, after, layer, TESTBED_LINKS) == pytest.approx(expected)
    assert latency.rebalance_s(before, before, layer, TESTBED_LINKS) == 0


def test_parts_of_a_physical_iteration() -> None:
    trace = synthesize(experts=16, tokens=32768, iterations=30, seed=0, layers=2)
    policies = [parse_policy(name) for name in ("static", "symi", "flex(10, full)")]
    static, symi, flex = simulate(trace, policies, ranks=16, slots_per_rank=4, latency=PHYSICAL)
    assert static.latency["gradients"][0] == pytest.approx(2 * 5.11967e-3 / 2, rel=1e-6)
    assert symi.latency["gradients"][0] == pytest.approx(2 * 6.25213e-3 / 2, rel=1e-6)
    share = symi.latency["overhead"] / symi.latency_s
    assert share.tolist() == pytest.approx([0.0106] * 30)
    assert not static.latency["overhead"].any()
    rebalanced = np.flatnonzero(flex.latency["rebalance"])
    assert rebalanced.tolist() == [9, 19]
    assert not symi.latency["rebalance"].any()
    assert (static.latency_s > 0.2).all()


def test_physical_parameters_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="overhead_share"):
        replace(PHYSICAL, overhead_share=1.0)
    with pytest.raises(InvalidArgument, match="token_s"):
        replace(PHYSICAL, token_s=-1.0)
    assert replace(PHYSICAL, variant=Variant.HBM).variant is Variant.HBM


FIGURES = all_figures()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.number} {figure.what}")
def test_figures_of_the_paper(figure: Figure) -> None:
    assert figure.agrees in {True, None}, figure


def test_all_figures_are_there_and_calibrated_ones_say_so() -> None:
    assert {figure.number for figure in FIGURES} == {f"S{number}" for number in range(1, 12)}
    kinds = {(figure.number, figure.kind) for figure in FIGURES}
    assert ("S1", Kind.CALIBRATED) in kinds
    assert ("S4", Kind.CALIBRATED) in kinds
    assert ("S10", Kind.INDEPENDENT) in kinds
    unclaimed = [figure.what for figure in FIGURES if figure.tolerance is None]
    assert unclaimed == [
        "tokens dropped by DeepSpeed",
        "the same formula on the paper's own testbed",
    ]


def _numpy_algorithm(tokens: NDArray[np.int64], slots: int) -> list[int]:
    """The direct floating-point implementation."""
    goal = tokens / tokens.sum() * slots
    counts = np.floor(np.maximum(goal, 1)).astype(int)
    diff = counts - goal
    while counts.sum() > slots:
        expert = diff.argmax()
        counts[expert] -= counts[expert] > 1
        diff[expert] -= 1
    while counts.sum() < slots:
        expert = diff.argmin()
        counts[expert] += 1
        diff[expert] += 1
    return [int(count) for count in counts]
