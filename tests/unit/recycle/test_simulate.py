"""Traces, baselines, and the systems compared on them."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.recycle.baselines import (
    bamboo_fault_free_us,
    bamboo_fits,
    bamboo_us,
    fault_free_us,
    fault_scaled_ideal_us,
    pipeline_drop_us,
    spares_us,
)
from workflows.recycle.errors import InvalidArgument, InvalidWorker
from workflows.recycle.job import Job, StageMemory, StageTimes, Worker
from workflows.recycle.oobleck import Template, assign_nodes, make_template, pipeline_us
from workflows.recycle.planner import make_plan
from workflows.recycle.simulate import SimulationRun, simulate, throughput_by_failures
from workflows.recycle.systems import SYSTEM_NAMES, Costs, RecycleOptions, make_system
from workflows.recycle.traces import Trace, TraceEvent, exponential_trace, read_trace


def test_one_failure_in_every_system(example: Job) -> None:
    dead = {Worker(1, 2)}
    recycle = make_plan(example, dead).iteration_us
    templates = [make_template(None, 12, nodes) for nodes in (3, 4)]
    oobleck = assign_nodes(templates, 11, example.batch)
    ideal = fault_scaled_ideal_us(example, 1)
    assert bamboo_us(example, dead) == 39
    assert pipeline_drop_us(example, dead) == 36
    assert oobleck is not None
    assert ideal is not None
    assert (oobleck.time_us, oobleck.nodes, sum(oobleck.micro_batches)) == (30, (4, 4, 3), 18)
    assert ideal == pytest.approx(29.4545, abs=5e-5)
    assert recycle == 27
    assert [round(x / recycle, 2) for x in (39, 36, oobleck.time_us)] == [1.44, 1.33, 1.11]


def test_oobleck_pipeline_times() -> None:
    assert pipeline_us([3, 6, 3], 6) == 39
    assert [pipeline_us([3] * 4, 7), pipeline_us([3] * 4, 6), pipeline_us([4] * 3, 5)] == [
        30, 27, 28,
    ]  # fmt: skip
    assert pipeline_us([3] * 4, 16) == 57


def test_oobleck_splits_eight_layers() -> None:
    template = make_template([1.5] * 8, 12, 3)
    assert template.stage_us == (4.5, 4.5, 3.0)
    assert template.time_us(5) == 28.5
    four = make_template([1.5] * 8, 12, 4)
    assigned = assign_nodes([template, four], 11, 18)
    assert assigned is not None
    assert assigned.time_us == 30


def compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    found = product(range(1, total + 1), repeat=parts)
    return [sizes for sizes in found if sum(sizes) == total]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=3, max_size=7), st.integers(1, 3))
def test_the_split_equals_brute_force(layers: list[int], nodes: int) -> None:
    best = None
    for sizes in compositions(len(layers), nodes):
        at, stages = 0, []
        for size in sizes:
            stages.append(float(sum(layers[at : at + size])))
            at += size
        time_us = pipeline_us(stages, 4 * nodes)
        best = time_us if best is None else min(best, time_us)
    found = make_template([float(x) for x in layers], float(sum(layers)), nodes)
    assert found.time_us(4 * nodes) == best


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 14), st.integers(1, 12), st.sets(st.integers(1, 5), min_size=1, max_size=3))
def test_the_assignment_equals_brute_force(nodes: int, batch: int, sizes: set[int]) -> None:
    templates = [make_template(None, 60.0, n) for n in sorted(sizes)]
    found = assign_nodes(templates, nodes, batch)
    times = sorted({t.time_us(m) for t in templates for m in range(1, batch + 1)})
    reachable = [limit for limit in times if most(templates, nodes, limit, batch) >= batch]
    if found is None:
        assert min(sizes) > nodes
    else:
        assert found.time_us <= reachable[0] * (1 + 1e-9)
        assert sum(found.micro_batches) == batch
        assert sum(found.nodes) <= nodes
        used = zip(found.nodes, found.micro_batches, strict=True)
        by_size = {t.nodes: t for t in templates}
        assert found.time_us == max(by_size[n].time_us(m) for n, m in used)


def most(templates: list[Template], nodes: int, limit: float, batch: int) -> int:
    value = [0] * (nodes + 1)
    for room in range(1, nodes + 1):
        for template in templates:
            if template.nodes <= room:
                can = max((m for m in range(batch + 1) if template.time_us(m) <= limit), default=0)
                value[room] = max(value[room], value[room - template.nodes] + can)
    return value[nodes]


def test_bamboo_limits(example: Job) -> None:
    assert bamboo_fault_free_us(example) == 27
    assert bamboo_fault_free_us(Job.uniform(3, 4, 20)) == 69 + (20 - 9)
    # Two neighbours of one pipeline dead: it stops, the other two share 18 micro-batches.
    assert bamboo_us(example, {Worker(1, 1), Worker(1, 2)}) == 36
    assert bamboo_us(Job.uniform(1, 4, 6), {Worker(0, 0), Worker(0, 3)}) is None


def test_bamboo_needs_memory_for_two_stages(example: Job) -> None:
    memory = StageMemory(limit_bytes=100, static_bytes=60, forward_bytes=1)
    tight = example.replace(memory=(memory,) * 4)
    assert not bamboo_fits(tight)
    assert bamboo_us(tight, set()) is None
    roomy = StageMemory(limit_bytes=130, static_bytes=60, forward_bytes=1)
    assert bamboo_fits(example.replace(memory=(roomy,) * 4))


def test_spares_and_dropping(example: Job) -> None:
    assert (spares_us(example, 2, 2), spares_us(example, 3, 2)) == (27, None)
    everywhere = [Worker(0, 0), Worker(1, 0), Worker(2, 1)]
    assert pipeline_drop_us(example, everywhere) is None
    assert fault_scaled_ideal_us(example, 12) is None


@pytest.fixture
def seconds(example: Job) -> Job:
    """The example with operations of one second."""
    times = StageTimes(forward_us=10**6, input_grad_us=10**6, weight_grad_us=10**6)
    return example.replace(times=(times,) * 4)


def one_failure(at_s: float = 270.0, horizon_s: float = 2700.0) -> Trace:
    event = TraceEvent(time_s=at_s, worker=Worker(1, 2), kind="fail")
    return Trace(events=(event,), horizon_s=horizon_s)


def test_throughput_by_hand(seconds: Job) -> None:
    costs = Costs(detection_s=5, reconfigure_s=60, copy_s=10)
    runs = {r.system: r for r in simulate(seconds, one_failure(), SYSTEM_NAMES, costs=costs)}
    # 10 iterations of 27 s, then what is left of 2430 s after the downtime.
    expected = {
        "recycle": 10 + (2430 - 5 - 27) / 27,
        "oobleck": 10 + (2430 - 60 - 10 - 27 - 5) / 30,
        "bamboo": 10 + (2430 - 5 - 27) / 39,
        "pipeline-drop": 10 + (2430 - 5 - 27) / 36,
        "fault-scaled": 10 + 2430 / (27 * 12 / 11),
        "spares": 10,
    }
    for name, iterations in expected.items():
        assert runs[name].iterations == pytest.approx(iterations)
        assert runs[name].normalised == pytest.approx(iterations / 100)
        assert runs[name].micro_batches_per_s == pytest.approx(18 * iterations / 2700)


def test_throughput_by_failures(example: Job) -> None:
    order = [Worker(1, 2), Worker(0, 0), Worker(2, 2)]
    series = throughput_by_failures(example, order, ["recycle", "pipeline-drop", "bamboo"])
    assert series["recycle"] == {0: 1, 1: 1, 2: 1, 3: 1}
    assert series["pipeline-drop"] == {0: 1, 1: 0.75, 2: pytest.approx(27 / 63), 3: 0}
    assert series["bamboo"][1] == pytest.approx(27 / 39)
    fixed = RecycleOptions(allow_moves=False)
    unmoved = throughput_by_failures(example, order, ["recycle"], recycle=fixed)
    assert unmoved["recycle"][3] == 0.5


def test_a_zero_bubble_plan_is_shown_only_on_request(seconds: Job) -> None:
    quiet = Trace(events=(), horizon_s=2700)
    (plain,) = simulate(seconds, quiet, ["recycle"])
    options = RecycleOptions(floor_at_1f1b=False)
    (split,) = simulate(seconds, quiet, ["recycle"], recycle=options)
    assert plain.normalised == pytest.approx(1)
    assert split.normalised == pytest.approx(27 / 19)


def test_an_empty_stage_stands_still_until_a_worker_is_back(seconds: Job) -> None:
    events = [
        TraceEvent(time_s=100.0 * (n + 1), worker=Worker(k, 0), kind="fail")
        for n, k in enumerate(range(3))
    ]
    events.append(TraceEvent(time_s=1000, worker=Worker(1, 0), kind="join"))
    trace = Trace(events=tuple(events), horizon_s=4000)
    options = RecycleOptions(allow_moves=False)
    (run,) = simulate(seconds, trace, ["recycle"], recycle=options)
    assert run.restarts == 1
    assert run.intervals[3].iteration_us is None
    assert run.intervals[3].downtime_s == 700
    assert run.intervals[4].downtime_s == Costs().full_restart_s
    (moved,) = simulate(seconds, trace, ["recycle"])
    assert moved.restarts == 0


def test_traces_are_deterministic_and_valid(example: Job) -> None:
    options = {"mtbf_s": 600.0, "repair_s": 1800.0, "horizon_s": 50_000.0}
    trace = exponential_trace(example, **options, seed=3)
    assert trace == exponential_trace(example, **options, seed=3)
    assert trace != exponential_trace(example, **options, seed=4)
    assert trace.validate(example) is trace
    assert Trace.from_json(trace.to_json()) == trace
    failures = sum(event.kind == "fail" for event in trace.events)
    assert failures == pytest.approx(50_000 / 600, rel=0.3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([100.0, 1000.0, 5000.0]))
def test_no_system_beats_what_it_could(seed: int, mtbf_s: float) -> None:
    job = Job.uniform(3, 3, 4, times=StageTimes(forward_us=10**5))
    trace = exponential_trace(job, mtbf_s=mtbf_s, repair_s=3000, horizon_s=20_000, seed=seed)
    for run in simulate(job, trace, SYSTEM_NAMES):
        assert 0 <= run.normalised <= 1 + 1e-9
        assert run.intervals[0].start_s == 0
        assert run.intervals[-1].end_s == trace.horizon_s
        assert all(row.downtime_s <= row.end_s - row.start_s for row in run.intervals)
        assert SimulationRun.from_json(run.to_json()) == run


def test_a_trace_from_a_file(tmp_path: Path, example: Job) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("time_s,pipeline,stage,kind\n10,1,2,fail\n20.5,1,2,join\n")
    trace = read_trace(path, example, horizon_s=30)
    assert trace.events[1] == TraceEvent(time_s=20.5, worker=Worker(1, 2), kind="join")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("time,worker\n", "header"),
        ("time_s,pipeline,stage,kind\n1,1,2,explode\n", "neither fail nor join"),
        ("time_s,pipeline,stage,kind\n1,1,2,join\n", "live worker"),
        ("time_s,pipeline,stage,kind\n1,1,2,fail\n2,1,2,fail\n", "dead worker"),
        ("time_s,pipeline,stage,kind\n5,1,2,fail\n2,1,3,fail\n", "the event before"),
        ("time_s,pipeline,stage,kind\n99,1,2,fail\n", "horizon"),
        ("time_s,pipeline,stage,kind\nx,1,2,fail\n", "line 2"),
    ],
)
def test_bad_trace_files(tmp_path: Path, example: Job, text: str, error: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=error):
        read_trace(path, example, horizon_s=30)


def test_bad_questions(example: Job) -> None:
    with pytest.raises(InvalidArgument, match="recycle, oobleck"):
        make_system("magic", example, Costs())
    with pytest.raises(InvalidArgument, match="copy_s"):
        Costs(copy_s=-1)
    with pytest.raises(InvalidArgument, match="over 0"):
        exponential_trace(example, mtbf_s=0, repair_s=1, horizon_s=1, seed=1)
    stranger = TraceEvent(time_s=1, worker=Worker(3, 0), kind="fail")
    with pytest.raises(InvalidWorker):
        simulate(example, Trace(events=(stranger,), horizon_s=2), ["bamboo"])
    with pytest.raises(InvalidArgument, match="3 layers"):
        make_template([1.0] * 3, 3.0, 4)


def test_uneven_stages_have_an_exact_fault_free_time() -> None:
    times = (StageTimes(), StageTimes(forward_us=4), StageTimes())
    job = Job(pipelines=2, stages=3, micro_batches=2, times=times)
    # The middle stage works 2*6; before it F takes 1, after it B takes 2; its first B waits for
    # the last stage.
    assert fault_free_us(job) == make_plan(job, objective="sync", split=False).iteration_us
