"""The example of the page on Sailor runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import workflows.sailor


def test_the_example_runs(capsys):
    page = Path(workflows.sailor.__file__).with_name("README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    result = names["result"]
    assert result.best.estimate.cost_usd <= 0.5
    assert "microbatch" in capsys.readouterr().out
