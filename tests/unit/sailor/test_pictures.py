"""Pictures are SVG that show what they are asked to show."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from workflows.sailor.comparison import compare
from workflows.sailor.errors import BadJob
from workflows.sailor.pictures import (
    COLOURS,
    error_svg,
    memory_svg,
    replay_svg,
    scatter_svg,
    timeline_svg,
)
from workflows.sailor.plan import Replica, uniform_plan
from workflows.sailor.search_result import Goal
from workflows.sailor.simulator import simulate
from workflows.sailor.switching import Segment
from workflows.sailor.trace import replay

Z = "us-central1-a"


def plan(stages: int = 3):
    return uniform_plan(
        layers=26,
        stages=stages,
        replicas=2,
        replica=Replica(gpu="A100-40", degree=4, zone=Z),
        microbatch=4,
    )


def fills(svg: str, colour: str) -> int:
    """Shapes drawn in a colour."""
    ElementTree.fromstring(svg)
    return svg.count(f"fill: {colour}")


def test_the_timeline_has_every_operation(published):
    svg = timeline_svg(published(global_batch=64), plan())
    assert fills(svg, COLOURS["forward"]) >= 3 * 8
    assert fills(svg, COLOURS["backward"]) >= 3 * 8
    assert fills(svg, COLOURS["all-reduce"]) >= 3


def test_the_timeline_of_a_pipeline_that_is_not_there_is_refused(published):
    with pytest.raises(BadJob, match="pipeline 2 of 2"):
        timeline_svg(published(), plan(), pipeline=2)


def test_memory_bars_show_every_part_and_the_card(published):
    svg = memory_svg(simulate(published(global_batch=64), plan()))
    assert svg.count("#e45756") >= 1
    assert fills(svg, "#f58518") >= 3


def test_errors_per_set():
    ElementTree.fromstring(error_svg({"a": [0.1, 0.2, 0.3], "b": [0.05, 0.06]}))
    with pytest.raises(BadJob):
        error_svg({"a": []})


def test_cost_and_throughput_with_limits(published):
    rows = compare(published(), {("A100-40", Z): 16}, ("sailor", "amp"))
    svg = scatter_svg(rows, Goal(max_cost_usd=0.5, min_iterations_per_s=0.05))
    ElementTree.fromstring(svg)
    assert svg.count("#e45756") == 2


def test_a_replay(published):
    segments = [Segment(start_s=0, duration_s=60, available={("A100-40", Z): 8})]
    ElementTree.fromstring(replay_svg(replay(published(global_batch=64), segments)))


def test_importing_the_package_loads_neither_torch_nor_matplotlib():
    code = (
        "import sys, workflows.sailor, workflows.sailor.planner, workflows.sailor.comparison;"
        "print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
