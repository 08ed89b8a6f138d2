"""The short form of the campaign."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.campaign import Plan, run_campaign
from tests.chaos.conftest import Place


def test_a_short_campaign(place: Place, tmp_path: Path) -> None:
    plan = Plan(runs=60, seed=7, clients=4, pause_s=0.8)
    result = run_campaign(plan, place.cluster, place.url, tmp_path)
    assert sum(result.runs.values()) == 60
    assert result.faults
    assert result.effects > 100
