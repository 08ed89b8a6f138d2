"""`make demo`, as far as it is the product's: the tour by the real commands."""

from __future__ import annotations

from pathlib import Path

from .conftest import apiary


def test_the_tour_shows_one_effect_for_two_calls_and_leaves_nothing(tmp_path: Path) -> None:
    done = apiary(tmp_path, "demo", TMPDIR="/tmp")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"replayed": true' in done.stdout
    assert "made one reservation" in done.stdout
    assert "provenance.data_event" in done.stdout
    assert list(tmp_path.iterdir()) == []
