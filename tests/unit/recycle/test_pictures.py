"""Pictures show what the results say."""

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from workflows.recycle.errors import InvalidArgument
from workflows.recycle.greedy import greedy_schedule
from workflows.recycle.job import Job
from workflows.recycle.one_f_one_b import one_f_one_b
from workflows.recycle.pictures import (
    gantt_svg,
    iteration_steps_svg,
    memory_svg,
    throughput_by_failures_svg,
    throughput_over_time_svg,
)
from workflows.recycle.plan_set import compute_plan
from workflows.recycle.plan_tasks import list_plan_tasks
from workflows.recycle.simulate import simulate
from workflows.recycle.traces import exponential_trace


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    return [e.text for e in root.iter() if e.tag.endswith("text") and e.text]


def test_timelines_before_and_after(example: Job) -> None:
    schedules = {
        "before": one_f_one_b(example),
        "after": greedy_schedule(example, [(1, 2)]),
    }
    svg = gantt_svg(schedules)
    shown = texts(svg)
    assert {"before", "after", "pipeline 1, stage 2", "re-routed"} <= set(shown)
    # 18 re-routed operations carry their home, pipeline 1; the axis ticks do not show it.
    assert shown.count("1") == 18
    assert svg == gantt_svg(schedules)


def test_memory_staircase(example: Job) -> None:
    capped = Job.uniform(3, 4, 6, cap=6)
    assert "(1, 2) dead" in texts(memory_svg(greedy_schedule(capped, [(1, 2)])))
    with pytest.raises(InvalidArgument, match="no memory model"):
        memory_svg(greedy_schedule(example))


def test_throughput(example: Job) -> None:
    trace = exponential_trace(example, mtbf_s=600, repair_s=1200, horizon_s=7200, seed=1)
    runs = simulate(example, trace, ["recycle", "oobleck"])
    shown = texts(throughput_over_time_svg(runs, batch=example.batch))
    assert any(text.startswith("oobleck (mean 0.") for text in shown)
    assert "ideal" in texts(throughput_by_failures_svg({"ideal": {0: 1.0, 1: 0.9}}))


def test_step_curve(example: Job) -> None:
    plans = [compute_plan(task) for task in list_plan_tasks(example, 3, engine="greedy")]
    assert "lower bound" in texts(iteration_steps_svg(plans))


def test_nothing_to_draw() -> None:
    with pytest.raises(InvalidArgument):
        gantt_svg({})
    with pytest.raises(InvalidArgument):
        iteration_steps_svg([])
    with pytest.raises(InvalidArgument):
        throughput_over_time_svg([], batch=1)


def test_planning_needs_no_heavy_package() -> None:
    modules = "planner plan_set transitions simulate control training_spec training_run"
    imports = "; ".join(f"import workflows.recycle.{name}" for name in modules.split())
    heavy = "{'torch', 'ortools', 'highspy', 'matplotlib', 'apiary'}"
    code = f"import sys; {imports}; print(*({heavy} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
