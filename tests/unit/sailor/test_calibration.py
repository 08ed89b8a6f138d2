"""Calibration: its leave-one-out errors on the committed measurements, and its interval."""

from __future__ import annotations

import pytest

from workflows.sailor.calibration import calibrate, parts_of
from workflows.sailor.errors import BadJob
from workflows.sailor.published import read_json
from workflows.sailor.validation import measured_from_published

SETS = {
    "gh200-opt": ("OPT-350", "clariden/OPT-350", (), 4.78),
    "gh200-neo": ("GPT-Neo-2.7", "clariden/GPT-NEO", ("N2_D1", "N4_D4"), 2.15),
    "rtx": ("OPT-350", "mit", ("N3_D1",), 7.97),
}


def measured(reference, folder, broken):
    paths = sorted((reference / "validation" / folder).rglob("*.json"))
    return [
        measured_from_published(path.stem, read_json(path))
        for path in paths
        if not any(name in path.stem for name in broken)
    ]


@pytest.mark.parametrize("platform", SETS)
def test_errors_of_predicting_a_plan_without_itself(published, reference, platform):
    model, folder, broken, percent = SETS[platform]
    result = calibrate(published(model), platform, measured(reference, folder, broken))
    assert 100 * result.error == pytest.approx(percent, abs=0.01)


def test_the_interval_covers_every_plan_when_it_was_left_out(published, reference):
    model, folder, broken, _ = SETS["gh200-neo"]
    rows = measured(reference, folder, broken)
    problem = published(model)
    result = calibrate(problem, "gh200-neo", rows)
    for row in rows:
        parts = parts_of(problem.with_global_batch(row.global_batch), row.plan)
        low, high = result.interval_s(parts)
        assert low < result.predict_s(parts) * 1.1
        assert low * 0.95 <= row.iteration_s <= high * 1.05


def test_too_few_plans_are_refused(published, reference):
    model, folder, broken, _ = SETS["rtx"]
    with pytest.raises(BadJob, match="more than 3 measured plans, got 2"):
        calibrate(published(model), "rtx", measured(reference, folder, broken)[:2])
