"""The invariants of real training. (Fewer drops do not mean a lower loss here: not asserted.)"""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

from workflows.symi.control import Committed, MemoryControl
from workflows.symi.errors import InvalidArgument, InvalidPlacement
from workflows.symi.placement import counts_of, hosts_of, interleaved
from workflows.symi.policies import Symi
from workflows.symi.training.config import TrainConfig
from workflows.symi.training.launch import train
from workflows.symi.training.reference import largest_difference

if TYPE_CHECKING:
    from tests.unit.symi.conftest import Run, Trained

RUNS = [(1, "symi", 60), (2, "symi", 60), (2, "static", 60), (4, "symi", 8), (4, "static", 8)]
FULL = [(1, "static", 60), (4, "symi", 60), (4, "static", 60)]


@pytest.mark.parametrize(
    ("ranks", "policy", "steps"),
    [*RUNS, *(pytest.param(*run, marks=pytest.mark.campaign) for run in FULL)],
)
def test_losses_and_drops_are_those_of_one_process(
    trained: Trained, ranks: int, policy: str, steps: int
) -> None:
    run = trained(ranks, policy, steps)
    reference = trained(0, policy, 60)
    difference = largest_difference(run.records, reference.records[:steps])
    assert difference.loss <= 1e-12
    assert difference.steps_with_other_drops == 0
    assert difference.steps_with_other_popularity == 0


@pytest.mark.parametrize(("policy", "dropped"), [("symi", 5094), ("static", 9772)])
def test_drops_of_sixty_steps(trained: Trained, policy: str, dropped: int) -> None:
    records = trained(2, policy, 60).records
    assert sum(map(sum, (record.dropped for record in records))) == pytest.approx(dropped, rel=0.02)
    for record in records:
        assert [sum(layer) for layer in record.popularity] == [512, 512]


def test_losses_of_the_specified_run(trained: Trained) -> None:
    for policy, last in (("symi", 1.27854), ("static", 1.27362)):
        records = trained(2, policy, 60).records
        assert records[0].cross_entropy == pytest.approx(4.30516, abs=5e-6)
        assert mean(r.cross_entropy for r in records[-10:]) == pytest.approx(last, rel=0.02)
        assert records[0].loss > records[0].cross_entropy


@pytest.mark.parametrize(("ranks", "policy", "steps"), RUNS)
def test_bytes_of_weights_do_not_depend_on_the_placement(
    trained: Trained, ranks: int, policy: str, steps: int
) -> None:
    run = trained(ranks, policy, steps)
    expected = {1: 0, 2: 262_144, 4: 393_216}[ranks]
    assert {record.weight_bytes / 2 for record in run.records} == {expected}


@pytest.mark.parametrize(("ranks", "policy", "steps"), RUNS)
def test_bytes_of_gradients_are_those_of_the_placement(
    trained: Trained, ranks: int, policy: str, steps: int
) -> None:
    run = trained(ranks, policy, steps)
    for record, placements in zip(run.records, run.placements, strict=False):
        assert record.gradient_bytes == sum(_gradient_bytes(row, ranks) for row in placements)
        if policy == "static":
            assert record.gradient_bytes / 2 == {1: 0, 2: 131_072, 4: 196_608}[ranks]


def test_mean_bytes_of_symi_s_gradients(trained: Trained) -> None:
    # The placements do not depend on the number of ranks, so one run tells for both.
    placements = trained(2, "symi", 60).placements[:60]
    for ranks, expected in ((2, 123_290), (4, 183_774)):
        volumes = [_gradient_bytes(row, ranks) for iteration in placements for row in iteration]
        assert mean(volumes) == pytest.approx(expected, rel=0.002)


def test_placements_fill_the_slots_in_order(trained: Trained) -> None:
    run: Run = trained(2, "symi", 60)
    assert any(row != run.placements[0][0] for iteration in run.placements for row in iteration)
    for iteration in run.placements:
        for row in iteration:
            counts = counts_of(row, 8)
            assert (len(row), sum(counts)) == (16, 16)
            assert min(counts) >= 1
            assert row == sorted(row)


def test_control_state_of_another_shape_is_refused(tmp_path: Path) -> None:
    control = MemoryControl(Symi(), layers=1, experts=8, slots=16)
    with pytest.raises(InvalidArgument, match="create it for this run"):
        train(TrainConfig(), control, tmp_path)


class Interleaving(MemoryControl):
    """Control state that spreads replicas over distant ranks."""

    def begin(self) -> Committed:
        placements = [interleaved(counts_of(row, 8)) for row in super().begin().placements]
        return Committed(iteration=0, placements=placements)


def test_placements_over_distant_ranks_are_refused(tmp_path: Path) -> None:
    control = Interleaving(Symi(), layers=2, experts=8, slots=16)
    with pytest.raises(InvalidPlacement, match="ascending"):
        train(TrainConfig(), control, tmp_path)


def _gradient_bytes(placement: list[int], ranks: int) -> float:
    """E (N - hosts) PE / N * 8, summed over experts."""
    hosts = hosts_of(placement, 16 // ranks)
    return sum((ranks - len(holders)) * 4096 / ranks * 8 for holders in hosts)
