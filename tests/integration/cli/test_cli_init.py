"""`apiary init`: what it makes works as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import apiary, environment


def test_the_generated_tests_pass(tmp_path: Path) -> None:
    made = apiary(tmp_path, "init", "shelf")
    assert made.returncode == 0, made.stderr
    assert "shelf/functions/shelf/__init__.py" in made.stdout.splitlines()
    ran = subprocess.run(
        # Registered by its entry point where the package is installed; named twice does not hurt.
        [sys.executable, "-m", "pytest", "-q", "-p", "apiary.testing", "-p", "no:cacheprovider"],
        cwd=tmp_path / "shelf",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf/mine.txt").write_text("mine")
    assert apiary(tmp_path, "init", "shelf").returncode == 4
    assert [each.name for each in (tmp_path / "shelf").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "name", ["Shelf", "1shelf", "my-shelf", "class", "order", "pg_shelf", "../x"]
)
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    refused = apiary(tmp_path, "init", name)
    assert refused.returncode == 2
    assert not list(tmp_path.iterdir())
