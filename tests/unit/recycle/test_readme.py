"""The example of the README runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[3] / "workflows" / "recycle" / "README.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block[1], names)
    assert names["plan"].gap < 0.02
    assert (tmp_path / "recycle.svg").read_text().startswith("<?xml")
