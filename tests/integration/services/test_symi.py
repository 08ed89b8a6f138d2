"""SYMI on the platform: its workflows on real input, its refusals, and what a crash leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="the steps compute with numpy")
pytest.importorskip("matplotlib", reason="the steps draw with matplotlib")

from apiary.errors import BadArgument, FunctionError
from apiary.testing import Platform
from functions import symi
from functions.symi.records import Cluster, Observed, TrainingShape
from tests.processes import is_alive
from workflows.symi.synthetic import synthesize

from .running import Service

REPOSITORY = Path(__file__).resolve().parents[3]
SHAPE = TrainingShape(
    layers=2,
    experts=4,
    cluster=Cluster(ranks=4, slots_per_rank=2),
    expert_parameters=10,
)
POPULARITY = [[70, 10, 10, 10], [10, 10, 10, 70]]
TRAINING = {"ranks": 2, "steps": 20}


@contextmanager
def refused(kind: str, match: str | None = None) -> Iterator[None]:
    """An error that the service declares, by the name of its class."""
    with pytest.raises(FunctionError, match=match) as failure:
        yield
    assert (failure.value.type, failure.value.declared) == (kind, True)


@pytest.fixture(scope="module")
def platform(deployed: Service) -> Iterator[Platform]:
    """Functions of the same database, called directly."""
    made = Platform(deployed.url, deployed.application)
    yield made
    made.close()


# The control state of training: symi.step.


def opened(platform: Platform, run: str, policy: str = "symi") -> str:
    platform.call(symi.open_training, run, SHAPE, policy, {"seed": 1}, "job")
    return run


def observed_of(dropped: list[int]) -> Observed:
    return Observed(
        loss=1.0,
        cross_entropy=1.0,
        dropped=dropped,
        gradient_bytes=5,
        weight_bytes=6,
        latency_s=0.1,
    )


def test_step_stores_popularity_and_returns_the_next_placement(platform: Platform) -> None:
    run = opened(platform, "steps")
    uniform = [0, 0, 1, 1, 2, 2, 3, 3]
    assert platform.call(symi.committed, run).placements == [uniform, uniform]
    placements = platform.call(symi.step, run, 1, POPULARITY, None, "job-1")
    assert placements == [[0, 0, 0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 3, 3, 3, 3]]
    done = platform.call(symi.committed, run)
    assert (done.iteration, done.placements) == (1, placements)
    (row,) = platform.query("SELECT * FROM symi.iter WHERE study = 'steps'")
    # 100 tokens on 8 slots: 12 each, so that the popular expert of a layer keeps 24 of 70.
    assert row["survival"] == 1 - 2 * 46 / 200
    assert row["run_id"] == "job-1"
    assert platform.query("SELECT DISTINCT version FROM symi.shard WHERE run = 'steps'") == [
        {"version": 1}
    ]
    assert platform.call(symi.violations, run) == []


def test_the_same_step_again_changes_nothing_and_other_data_is_a_conflict(
    platform: Platform,
) -> None:
    run = opened(platform, "again")
    first = platform.call(symi.step, run, 1, POPULARITY)
    second = platform.call(symi.step, run, 2, [[25, 25, 25, 25]] * 2)
    assert platform.call(symi.step, run, 1, POPULARITY) == first != second
    with refused("Conflict", "committed with other popularity"):
        platform.call(symi.step, run, 1, [[70, 10, 10, 10]] * 2)
    counts = platform.query(
        "SELECT (SELECT count(*) FROM symi.popularity WHERE run = 'again') AS cells,"
        " (SELECT count(*) FROM symi.iter WHERE study = 'again') AS iterations,"
        " (SELECT count(*) FROM symi.plan WHERE study = 'again') AS plans"
    )
    assert counts == [{"cells": 16, "iterations": 2, "plans": 6}]


def test_iterations_are_committed_in_order_and_whole(platform: Platform) -> None:
    run = opened(platform, "order")
    with refused("InvalidArgument", "iteration is 2; expected at most 1"):
        platform.call(symi.step, run, 2, POPULARITY)
    with refused("InvalidArgument", "1 layers.; expected 2 layers"):
        platform.call(symi.step, run, 1, POPULARITY[:1])
    with refused("InvalidArgument", "expected 4 counts"):
        platform.call(symi.step, run, 1, [[1, 2], [3, 4]])
    with refused("InvalidArgument", "at least 0"):
        platform.call(symi.step, run, 1, [[70, 10, 10, -1], [10, 10, 10, 70]])
    with refused("UnknownRun"):
        platform.call(symi.step, "nowhere", 1, POPULARITY)


def test_popularity_of_all_zero_is_followed_by_a_uniform_placement(platform: Platform) -> None:
    run = opened(platform, "zero")
    platform.call(symi.step, run, 1, POPULARITY)
    uniform = [0, 0, 1, 1, 2, 2, 3, 3]
    assert platform.call(symi.step, run, 2, [[0, 0, 0, 0]] * 2) == [uniform, uniform]
    assert platform.query("SELECT survival FROM symi.iter WHERE study = 'zero' AND iter = 2") == [
        {"survival": 1.0}
    ]
    assert platform.call(symi.violations, run) == []


def test_a_job_that_dropped_other_tokens_is_refused(platform: Platform) -> None:
    run = opened(platform, "drops")
    with refused("InvariantViolated", "46, 46"):
        platform.call(symi.step, run, 1, POPULARITY, observed_of([46, 45]))
    assert platform.call(symi.committed, run).iteration == 0


@pytest.mark.parametrize(
    ("cluster", "policy", "error"),
    [
        (Cluster(ranks=1, slots_per_rank=3), "symi", "InvalidPlacement"),
        (Cluster(ranks=3, slots_per_rank=2), "static", "InvalidArgument"),
        (Cluster(ranks=4, slots_per_rank=2), "best", "InvalidArgument"),
        (Cluster(ranks=4, slots_per_rank=2), "oracle", "InvalidArgument"),
        (Cluster(ranks=4, slots_per_rank=2, capacity_factor=0), "symi", "InvalidArgument"),
    ],
)
def test_a_training_run_that_cannot_be_is_refused(
    platform: Platform, cluster: Cluster, policy: str, error: str
) -> None:
    shape = TrainingShape(layers=1, experts=4, cluster=cluster, expert_parameters=10)
    with refused(error):
        platform.call(symi.open_training, "refused", shape, policy, {}, "job")
    assert platform.query("SELECT * FROM symi.run WHERE run = 'refused'") == []


def test_a_run_is_gone_on_with_by_the_same_configuration_only(platform: Platform) -> None:
    run = opened(platform, "reopened")
    platform.call(symi.step, run, 1, POPULARITY)
    platform.call(symi.close_training, run, "FAILED")
    assert platform.call(symi.open_training, run, SHAPE, "symi", {"seed": 1}, "2").iteration == 1
    assert platform.call(symi.describe_run, run).state == "OPEN"
    with refused("Conflict", "exists and is another one"):
        platform.call(symi.open_training, run, SHAPE, "symi", {"seed": 2}, "job")
    with refused("Conflict", "exists and is another one"):
        platform.call(symi.open_training, run, SHAPE, "ema(0.5)", {"seed": 1}, "job")


def test_a_policy_that_remembers_goes_on_from_its_stored_state(platform: Platform) -> None:
    run = opened(platform, "memory", "ema(0.5)")
    platform.call(symi.step, run, 1, POPULARITY)
    platform.call(symi.step, run, 2, POPULARITY[::-1])
    rows = platform.query(
        "SELECT smoothed FROM symi.plan WHERE study = 'memory' AND iter = 3 ORDER BY layer"
    )
    assert [row["smoothed"] for row in rows] == [[40, 10, 10, 40], [40, 10, 10, 40]]
    assert platform.call(symi.violations, run) == []


# Traces.


def test_a_synthetic_trace_is_stored_and_profiled(service: Service) -> None:
    stored = service.run("symi.synth", run="small", experts=4, tokens=100, iterations=3, seed=0)
    assert (stored["iterations"], stored["state"]) == (3, "COMPLETE")
    rows = service.query(
        "SELECT array_agg(tokens ORDER BY expert) AS tokens FROM symi.popularity"
        " WHERE run = 'small' GROUP BY iter ORDER BY iter"
    )
    assert [row["tokens"] for row in rows] == [
        [22, 18, 36, 24],
        [32, 17, 34, 17],
        [28, 15, 35, 22],
    ]
    # The same trace again is the same trace; another of this name is refused.
    assert service.run("symi.synth", run="small", experts=4, tokens=100, iterations=3, seed=0)
    with refused("Conflict"):
        service.run("symi.synth", run="small", experts=4, tokens=100, iterations=3, seed=1)
    run_id = service.start("symi.profile", run="small")
    profile = service.wait(run_id)["output"]
    assert profile["layers"][0]["mean_tokens"] == 100
    assert profile["pictures"] == ["popularity, layer 0"]
    assert service.query("SELECT run_id FROM symi.layer_statistics WHERE run = 'small'") == [
        {"run_id": run_id}
    ]
    (picture,) = service.query("SELECT svg FROM symi.picture WHERE run_id = %s", run_id)
    assert "<svg" in picture["svg"]


def csv_of(path: Path, *, run: str, iterations: int, seed: int = 0) -> Path:
    trace = synthesize(experts=8, tokens=512, iterations=iterations, seed=seed, layers=2, run=run)
    lines = ["run,iter,layer,expert,tokens", *(",".join(map(str, row)) for row in trace.rows())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_file_of_popularity_is_ingested_once(service: Service, tmp_path: Path) -> None:
    path = csv_of(tmp_path / "popularity.csv", run="job", iterations=20)
    profile = service.run("symi.profile", path=str(path), pictures=False)
    assert profile["trace"]["iterations"] == 20
    assert len(profile["layers"]) == 2
    # A longer file of the same run adds what is new; a file that differs is refused.
    csv_of(path, run="job", iterations=25)
    assert service.run("symi.profile", path=str(path), pictures=False)["trace"]["iterations"] == 25
    csv_of(path, run="job", iterations=25, seed=1)
    with refused("Conflict", "is stored with"):
        service.run("symi.profile", path=str(path), pictures=False)
    with refused("InvalidArgument", "a readable CSV file"):
        service.run("symi.profile", path=str(tmp_path / "absent.csv"))


def test_rows_are_refused_where_they_contradict_or_leave_a_gap(service: Service) -> None:
    rows = [["inline", 0, 0, 0, 5], ["inline", 0, 0, 1, 7]]
    assert service.run("symi.profile", rows=rows, pictures=False)["trace"]["experts"] == 2
    with refused("InvalidArgument", "is missing"):
        service.run("symi.profile", rows=[*rows, ["inline", 1, 0, 0, 5]])
    with refused("Conflict", "5 tokens and again 6"):
        service.run("symi.profile", rows=[*rows, ["inline", 0, 0, 0, 6]])


# Plans and costs, which run inside the database.


def test_a_plan_follows_the_iterations_before_it(service: Service) -> None:
    rows = [["vectors", 0, 0, expert, count] for expert, count in enumerate([70, 10, 10, 10])]
    service.run("symi.profile", rows=rows, pictures=False)
    asked = {"run": "vectors", "layer": 0, "ranks": 4, "slots_per_rank": 2}
    plan = service.run("symi.plan", iteration=1, **asked)
    assert plan["counts"] == [5, 1, 1, 1]
    assert plan["placement"] == [0, 0, 0, 0, 0, 1, 2, 3]
    assert plan["sources"] == [[0, 1, 2, 0], [2, 2, 2, 2], [3, 3, 3, 3], [3, 3, 3, 3]]
    assert plan["moved"] == [2, 3, 4, 5, 6]
    first = service.run("symi.plan", iteration=0, **asked)
    assert (first["counts"], first["moved"]) == ([2, 2, 2, 2], [])
    for wrong in ({"iteration": 2}, {"iteration": 1, "policy": "best"}):
        with refused("InvalidArgument"):
            service.run("symi.plan", **{**asked, **wrong})
    with refused("InvalidPlacement"):
        service.run("symi.plan", iteration=1, **{**asked, "ranks": 1})


LAYER = {
    "ranks": 2048,
    "experts": 64,
    "slots_per_rank": 2,
    "gradient_bytes": 3.375e9,
    "weight_bytes": 3.375e9,
    "optimizer_bytes": 27e9,
}
LINKS = {"pci_bytes_per_s": 64e9, "network_bytes_per_s": 50e9}


def test_the_paper_s_cost_example_is_priced_and_stored(service: Service) -> None:
    run_id = service.start("symi.cost", layer=LAYER, links=LINKS)
    cost = service.wait(run_id)["output"]
    assert cost["communication"]["static_s"] == pytest.approx(0.2690771, abs=1e-7)
    assert cost["communication"]["overhead_percent"] == pytest.approx(1.51886, abs=1e-5)
    (row,) = service.query("SELECT * FROM symi.cost WHERE run_id = %s", run_id)
    assert row["symi_s"] == cost["communication"]["symi_s"]
    with refused("InvalidArgument", "variant"):
        service.run("symi.cost", layer=LAYER, links=LINKS, variant="cloud")
    with pytest.raises(BadArgument, match="network_bytes_per_s is 0"):
        service.start("symi.cost", layer=LAYER, links={**LINKS, "network_bytes_per_s": 0})


# Simulation.

SHARES = {
    "static": 0.3225,
    "flex(100, full)": 0.3232,
    "flex(50, full)": 0.2854,
    "flex(10, full)": 0.1778,
    "symi": 0.1011,
}


@pytest.fixture(scope="module")
def simulated(service: Service) -> dict[str, Any]:
    """The calibrated trace under the paper's systems, in the study ``paper``."""
    service.run("symi.synth", run="calibrated", experts=16, tokens=32768, iterations=600, seed=0)
    found: dict[str, Any] = service.run(
        "symi.simulate",
        run="calibrated",
        policies=list(SHARES),
        ranks=16,
        slots_per_rank=4,
        study="paper",
        pictures=False,
    )
    return found


def test_a_simulation_is_stored_with_drops_latency_and_minutes(
    service: Service, simulated: dict[str, Any]
) -> None:
    shares = {each["policy"]: each["drop_share"] for each in simulated["policies"]}
    assert shares == pytest.approx(SHARES, abs=1e-4)
    minutes = {each["policy"]: each["minutes_to_target"] for each in simulated["policies"]}
    assert minutes["symi"] == pytest.approx(102.68, rel=0.005)
    (symi_row,) = service.query(
        "SELECT count(*) AS iterations, avg(survival) AS survival, avg(latency_ms) AS latency"
        " FROM symi.iter WHERE study = 'paper' AND policy = 'symi'"
    )
    assert symi_row["iterations"] == 600
    assert symi_row["survival"] == pytest.approx(1 - SHARES["symi"], abs=1e-4)
    assert symi_row["latency"] == pytest.approx(1000)
    assert service.run("symi.validate", run="calibrated") == []


def test_a_study_answers_the_same_question_only(
    service: Service, simulated: dict[str, Any]
) -> None:
    asked = {"run": "calibrated", "ranks": 16, "slots_per_rank": 4, "study": "paper"}
    again = service.run("symi.simulate", policies=["symi"], pictures=False, **asked)
    assert again["policies"] == [each for each in simulated["policies"] if each["policy"] == "symi"]
    for wrong, kind in (
        ({"policies": ["symi"], "ranks": 8}, "Conflict"),
        ({"policies": ["symi"], "iterations": {"symi": 100.0}}, "Conflict"),
        ({"policies": ["symi", "symi"]}, "InvalidArgument"),
        ({"policies": ["unknown"]}, "InvalidArgument"),
        ({"policies": ["symi"], "run": "nowhere"}, "UnknownRun"),
        ({"policies": ["symi"], "study": "x", "ranks": 3}, "InvalidPlacement"),
        ({"policies": ["static"], "study": "y", "ranks": 5}, "InvalidArgument"),
        ({"policies": ["static"], "study": "z", "capacity_factor": 0.0}, "InvalidArgument"),
    ):
        with refused(kind):
            service.run("symi.simulate", pictures=False, **{**asked, **wrong})


def test_the_queries_of_the_page_are_answered(
    service: Service, platform: Platform, simulated: dict[str, Any]
) -> None:
    opened(platform, "job-1")
    platform.call(symi.step, "job-1", 1, POPULARITY, observed_of([46, 46]))
    page = (REPOSITORY / "workflows" / "symi" / "README.md").read_text(encoding="utf-8")
    queries = re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)
    assert len(queries) == 6
    survival, lagging, dropped, worst, sent, origin = (
        service.query(query.replace("'job'", "'job-1'")) for query in queries
    )
    assert [row["policy"] for row in survival][-1] == "symi"
    assert len(survival) == len(worst) == len(SHARES)
    assert lagging[0]["short_of"] > 0
    assert 0 < dropped[0]["share"] <= 1
    assert sent == [{"run_id": "job", "iterations": 1, "gradients": 5, "weights": 6}]
    assert origin[0]["ingested_by"]


def test_pictures_of_a_simulation_are_kept(service: Service) -> None:
    service.run("symi.synth", run="drawn", experts=4, tokens=100, iterations=12, seed=3)
    run_id = service.start(
        "symi.simulate", run="drawn", policies=["static", "symi"], ranks=4, slots_per_rank=2
    )
    names = service.wait(run_id)["output"]["pictures"]
    assert {"survival", "latency", "replicas, symi", "slots, static"} <= set(names)
    kept = service.query("SELECT name, svg FROM symi.picture WHERE run_id = %s", run_id)
    assert sorted(row["name"] for row in kept) == sorted(names)
    assert all("<svg" in row["svg"] for row in kept)


def test_validation_finds_what_was_tampered_with(service: Service) -> None:
    service.run("symi.synth", run="broken", experts=4, tokens=100, iterations=6, seed=3)
    service.run(
        "symi.simulate",
        run="broken",
        policies=["symi"],
        ranks=4,
        slots_per_rank=2,
        study="broken",
        pictures=False,
    )
    assert service.run("symi.validate", run="broken") == []
    for damage, complaint in (
        ("UPDATE symi.plan SET digest = 'x' WHERE study = 'broken' AND iter = 3", "digest"),
        ("UPDATE symi.iter SET survival = 0.5 WHERE study = 'broken' AND iter = 2", "survival"),
        ("UPDATE symi.dropped SET tokens = tokens + 1 WHERE study = 'broken'", "over capacity"),
        (
            "UPDATE symi.plan SET counts = '{2,2,2,2}', placement = '{0,0,1,1,2,2,3,3}'"
            " WHERE study = 'broken' AND iter = 4",
            "symi gives",
        ),
        ("DELETE FROM symi.popularity WHERE run = 'broken' AND iter = 5", "make the run whole"),
    ):
        service.query(damage)
        assert any(complaint in each for each in service.run("symi.validate", run="broken"))


# Training.


@pytest.fixture(scope="module")
def trained(service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An undisturbed training run, ``whole``, compared with one process."""
    pytest.importorskip("torch", reason="training needs torch")
    found: dict[str, Any] = service.run(
        "symi.train",
        run="whole",
        config=TRAINING,
        directory=str(tmp_path_factory.mktemp("whole")),
        reference=True,
    )
    return found


def losses(service: Service, run: str) -> list[tuple[int, str, list[int]]]:
    """Iterations with their losses to the last bit and their popularity."""
    rows = service.query(
        "SELECT i.iter, i.loss, (SELECT array_agg(p.tokens ORDER BY layer, expert)"
        "  FROM symi.popularity p WHERE p.run = i.study AND p.iter = i.iter) AS tokens"
        " FROM symi.iter i WHERE i.study = %s ORDER BY i.iter",
        run,
    )
    return [(row["iter"], row["loss"].hex(), row["tokens"]) for row in rows]


@pytest.mark.campaign
def test_training_equals_one_process_and_is_stored_whole(
    service: Service, trained: dict[str, Any]
) -> None:
    assert trained["reference"]["loss"] <= 1e-12
    assert trained["reference"]["steps_with_other_drops"] == 0
    report = trained["report"]
    assert report["iterations"] == TRAINING["steps"]
    assert report["first_cross_entropy"] == pytest.approx(4.30516, abs=1e-5)
    # sN (N - 1) / N experts of 4,096 parameters of 8 bytes, per layer and iteration.
    assert report["weight_bytes"] == 262_144 * 2 * TRAINING["steps"]
    assert set(trained["pictures"]) == {
        "loss",
        "popularity, layer 0",
        "popularity, layer 1",
        "slots, after the last iteration",
    }
    (run,) = service.query("SELECT state, iterations FROM symi.run WHERE run = 'whole'")
    assert run == {"state": "COMPLETE", "iterations": TRAINING["steps"]}
    states = service.query("SELECT DISTINCT state FROM symi.train_rank WHERE run = 'whole'")
    assert states == [{"state": "SUCCEEDED"}]
    ranges = service.query(
        "SELECT lo, hi FROM symi.shard WHERE run = 'whole' AND layer = 1 AND expert = 7"
        " ORDER BY rank"
    )
    assert ranges == [{"lo": 0, "hi": 2048}, {"lo": 2048, "hi": 4096}]
    assert service.run("symi.validate", run="whole") == []
    assert service.run("symi.compare", runs=["whole"]) == ["loss"]


@pytest.mark.campaign
def test_a_finished_run_is_not_trained_again(
    service: Service, trained: dict[str, Any], tmp_path: Path
) -> None:
    again = service.run(
        "symi.train", run="whole", config=TRAINING, directory=str(tmp_path), pictures=False
    )
    assert again["report"] == trained["report"]
    with refused("Conflict"):
        service.run("symi.train", run="whole", config={**TRAINING, "seed": 1})


def executor(url: str) -> subprocess.Popen[str]:
    """An executor in a process of its own, ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.services.executor_main", url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.campaign
def test_a_dead_rank_and_a_dead_executor_cost_no_committed_iteration(
    service: Service,
    trained: dict[str, Any],
    tmp_path: Path,
    apiary_server: Any,
    apiary_bundle: Any,
) -> None:
    name = apiary_server.create_database(apiary_bundle)
    crashed = Service(apiary_server.url(name), apiary_bundle.application)
    executors = [executor(crashed.url)]
    try:
        run_id = crashed.start(
            "symi.train", run="killed", config=TRAINING, directory=str(tmp_path), pictures=False
        )

        def reached(iteration: int) -> Any:
            return crashed.query(
                "SELECT 1 FROM symi.run WHERE run = 'killed' AND iterations >= %s", iteration
            )

        def ranks() -> list[int]:
            rows = crashed.query("SELECT pid FROM symi.train_rank WHERE run = 'killed'")
            return [row["pid"] for row in rows]

        crashed.until(lambda: reached(2))
        first = ranks()
        os.kill(first[1], signal.SIGKILL)
        (attempt,) = crashed.until(
            lambda: crashed.query("SELECT error FROM apiary.attempt WHERE run_id = %s", run_id)
        )
        assert attempt["error"]["type"] == "RunFailed"
        crashed.until(lambda: not any(map(is_alive, first)))
        crashed.until(lambda: not set(ranks()) & set(first))
        (row,) = crashed.query("SELECT iterations FROM symi.run WHERE run = 'killed'")
        crashed.until(lambda: reached(row["iterations"] + 2))
        second = ranks()
        end(executors[0])
        crashed.until(lambda: not any(map(is_alive, second)))
        assert crashed.row(run_id)["status"] == "RUNNING"

        executors.append(executor(crashed.url))
        done = crashed.wait(run_id)
        assert done["status"] == "SUCCEEDED", done["error"]
        assert losses(crashed, "killed") == losses(service, "whole")
        assert not set(ranks()) & {*first, *second}
        assert crashed.wait(crashed.start("symi.validate", run="killed"))["output"] == []
    finally:
        for process in executors:
            end(process)
        crashed.close()
        apiary_server.drop_database(name)
