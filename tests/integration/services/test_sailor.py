"""Sailor's workflows in a database, with an executor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.services.conftest import Service

pytest.importorskip("numba", reason="planning needs the services extra")
pytest.importorskip("matplotlib", reason="pictures need the services extra")

ZONE, WEST = "us-central1-a", "us-west1-b"
A8 = {f"A100-40_{ZONE}": 8}


@pytest.fixture(scope="module")
def published(service: Service, spec_data: Path) -> Path:
    """The published profiles, imported."""
    folder = spec_data / "sailor"
    imported = service.run("sailor.import_profile", folder=str(folder))
    assert [row["kind"] for row in imported] == ["profile", "profile", "network", "prices"]
    return folder


def uniform(stages: int, replicas: int, degree: int, microbatch: int, *zones: str) -> Any:
    """A plan for OPT-350 with the planner's split; one zone a stage."""
    sizes = {1: [26], 2: [13, 13]}[stages]
    firsts = [0, *[sum(sizes[: i + 1]) for i in range(stages)]]
    return {
        "microbatch": microbatch,
        "stages": [
            {
                "first_layer": firsts[i],
                "last_layer": firsts[i + 1] - 1,
                "replicas": [
                    {
                        "gpu": "A100-40",
                        "degree": degree,
                        "zone": zones[i % len(zones)],
                        "count": replicas,
                    }
                ],
            }
            for i in range(stages)
        ],
    }


def failure(service: Service, workflow: str, /, **document: Any) -> dict[str, Any]:
    """The recorded error of a run that fails."""
    row = service.wait(service.start(workflow, **document))
    assert row["status"] == "FAILED"
    error: dict[str, Any] = row["error"]
    assert error["declared"], error
    return error


def test_plan_works_on_a_fresh_machine_from_roofline_profiles(service: Service) -> None:
    report = service.run("sailor.plan", time_limit_s=5)
    assert report["inputs"]["profile_source"] == "roofline"
    assert report["chosen"]["iteration_s"] >= report["bound_s"]
    assert set(report["pictures"]) == {"timeline", "memory"}
    (row,) = service.query(
        "SELECT source, rank, (SELECT sum(count) FROM sailor.availability a"
        " WHERE a.version = p.version)::int AS gpus, svg LIKE '%%</svg>%%' AS drawn"
        " FROM sailor.plan p JOIN sailor.profile USING (profile_id)"
        " JOIN sailor.picture i ON i.run_id = p.run_id AND i.name = 'timeline'"
        " WHERE plan_id = %s",
        report["chosen"]["plan_id"],
    )
    assert row == {"source": "roofline", "rank": 0, "gpus": 32, "drawn": True}


def test_an_import_is_stored_once(service: Service, published: Path) -> None:
    again = service.run("sailor.import_profile", folder=str(published))
    assert not any(row["stored"] for row in again)
    assert {row["name"] for row in again if row["kind"] == "profile"} == {"OPT-350", "GPT-Neo-2.7"}
    (count,) = service.query(
        "SELECT count(*) FROM sailor.layer_time JOIN sailor.profile USING (profile_id)"
        " WHERE source = 'published' AND model_id = 'OPT-350'"
    )
    assert count == {"count": 129 * 26}


def test_a_plan_in_mind_gets_the_published_figures(service: Service, published: Path) -> None:
    found = service.run("sailor.simulate", layout=uniform(1, 8, 2, 2, ZONE), mode="published")
    assert found["iteration_s"] == pytest.approx(15.156157803065867, rel=1e-12)
    assert found["estimate"]["cost"]["compute_usd"] == pytest.approx(0.247441790, abs=1e-9)
    (row,) = service.query(
        "SELECT p.planner, compute_s, sync_s FROM sailor.plan p JOIN sailor.sim_part USING"
        " (plan_id) WHERE plan_id = %s",
        found["plan_id"],
    )
    assert row["planner"] == "given"
    assert row["compute_s"] == pytest.approx(0.224684, abs=1e-6)
    assert row["sync_s"] == pytest.approx(0.774871, abs=1e-6)


def test_simulating_runs_inside_the_database(service: Service, published: Path) -> None:
    run = service.start("sailor.simulate", layout=uniform(2, 2, 4, 4, ZONE, WEST))
    row = service.wait(run)
    assert row["status"] == "SUCCEEDED"
    assert row["in_database"]
    assert row["output"]["estimate"]["cost"]["communication_usd"] > 0


def test_a_search_with_published_profiles_finds_the_exhaustive_optimum(
    service: Service, published: Path
) -> None:
    report = service.run("sailor.plan", available={f"A100-40_{ZONE}": 16}, pictures=False)
    assert report["inputs"]["profile_source"] == "published"
    assert report["version"] is None
    assert report["chosen"]["iteration_s"] <= 14.4212
    assert report["others"]
    within = service.run(
        "sailor.plan", available={f"A100-40_{ZONE}": 32}, max_cost_usd=0.25, pictures=False
    )
    assert within["chosen"]["iteration_s"] <= 9.3843
    assert within["chosen"]["cost_usd"] <= 0.25


def test_planners_are_compared_by_child_runs(service: Service, published: Path) -> None:
    run = service.start(
        "sailor.compare",
        available=A8,
        planners=["sailor", "amp", "atlas"],
        max_cost_usd=1.0,
    )
    answers = service.wait(run)["output"]
    assert [answer["planner"] for answer in answers] == ["sailor", "amp", "atlas"]
    times = [answer["chosen"]["iteration_s"] for answer in answers]
    assert times[0] == min(times)
    table = service.query(
        "SELECT s.planner, p.iteration_s FROM sailor.search s JOIN sailor.plan p USING (plan_id)"
        " WHERE s.run_id = %s",
        run,
    )
    assert {row["planner"]: row["iteration_s"] for row in table} == dict(
        zip(["sailor", "amp", "atlas"], times, strict=True)
    )


def test_the_simulator_is_validated_and_calibrated_on_measured_plans(
    service: Service, published: Path
) -> None:
    files = str(published / "validation" / "mit" / "**" / "*.json")
    imported = service.run("sailor.import_measured", files=files, platform="mit")
    assert imported["rows"] == 9
    result = service.run("sailor.validate", platform="mit", mode="published")
    assert result["plans"] == 9
    assert result["mean"] == pytest.approx(0.1030, abs=1e-4)
    assert result["median"] == pytest.approx(0.1061, abs=1e-4)
    factors = service.run("sailor.calibrate", platform="mit", leave_out=["N3_D1"])
    assert factors["plans"] == 8
    assert factors["error"] == pytest.approx(0.0797, abs=0.003)
    by_depth = service.query(
        "SELECT stages, avg(time_error) AS mean FROM sailor.validation JOIN sailor.measured_plan"
        " USING (platform, name) WHERE mode = 'published' GROUP BY stages ORDER BY stages"
    )
    assert by_depth


def test_a_trace_is_replayed_by_child_runs(service: Service, published: Path) -> None:
    run = service.start(
        "sailor.replay",
        segments=[
            {"start_s": 0.0, "duration_s": 600.0, "available": A8},
            {"start_s": 600.0, "duration_s": 600.0, "available": {f"A100-40_{ZONE}": 4}},
            {"start_s": 1200.0, "duration_s": 60.0, "available": A8},
        ],
    )
    report = service.wait(run)["output"]
    assert [row["switched"] for row in report["segments"]] == [False, True, True]
    assert report["reconfigurations"] == 2
    first = report["segments"][0]
    assert first["iterations"] == pytest.approx(600 * first["iterations_per_s"])
    children = service.query(
        "SELECT count(*) FROM apiary.run WHERE parent_run_id = %s"
        " AND workflow = 'sailor.plan_segment'",
        run,
    )
    assert children == [{"count": 2}]


REFUSED = [
    ("simulate", {"model": "none", "layout": uniform(1, 1, 1, 1, ZONE)}, "UnknownName", "none"),
    (
        "simulate",
        {"layout": uniform(1, 1, 8, 1, ZONE)},
        "BadPlan",
        "tensor degree 8 exceeds 4",
    ),
    ("simulate", {"layout": uniform(1, 2, 1, 64, ZONE)}, "MissingProfile", "m=64/t=1"),
    ("simulate", {"layout": uniform(1, 0, 1, 1, ZONE)}, "BadJob", "D = 0"),
    ("simulate", {"layout": uniform(1, 1, 1, 0, ZONE)}, "BadJob", "microbatch is 0"),
    (
        "simulate",
        {"layout": uniform(1, 9, 1, 1, ZONE), "available": A8},
        "NotAvailable",
        "uses 9 A100-40",
    ),
    ("plan", {"available": {f"X-1_{ZONE}": 4}}, "UnknownName", "X-1"),
    ("plan", {"available": {"A100": 4}}, "BadJob", "A100"),
    ("plan", {"available": A8, "max_cost_usd": 0.0}, "BadJob", "max_cost_usd is 0.0"),
    ("plan", {"available": A8, "max_cost_usd": 0.001}, "NoFeasiblePlan", "budget"),
    ("plan", {"available": A8, "min_iterations_per_s": 50.0}, "NoFeasiblePlan", "throughput"),
    (
        "plan",
        {"model": "GPT-Neo-2.7", "available": {f"V100-16_{ZONE}": 2}},
        "NoFeasiblePlan",
        "memory",
    ),
    ("compare", {"available": A8, "planners": ["piper"]}, "UnknownName", "piper"),
    ("validate", {"platform": "moon"}, "UnknownName", "moon"),
    ("import_profile", {"folder": "/nowhere"}, "BadProfileFile", "profiles_sim.json"),
    ("availability_changed", {"changes": {f"A100-40_{ZONE}": -1}}, "BadJob", "-1"),
    ("reconfigure", {"job_id": "none", "version": 1}, "UnknownName", "none"),
]


@pytest.mark.parametrize(("workflow", "document", "kind", "culprit"), REFUSED)
def test_what_is_refused_names_the_culprit(
    service: Service,
    published: Path,
    workflow: str,
    document: dict[str, Any],
    kind: str,
    culprit: str,
) -> None:
    error = failure(service, f"sailor.{workflow}", **document)
    assert error["type"] == kind
    told = f"{error['message']} {error['details'].get('reason', '')}"
    assert culprit in told


def test_layers_that_are_no_partition_are_refused(service: Service, published: Path) -> None:
    layout = uniform(2, 1, 1, 1, ZONE)
    layout["stages"][1]["first_layer"] = 14
    error = failure(service, "sailor.simulate", layout=layout)
    assert (error["type"], "layer 13 missing" in error["message"]) == ("BadPlan", True)


def test_replicas_of_a_stage_stay_in_one_region(service: Service, published: Path) -> None:
    layout = uniform(1, 1, 1, 1, ZONE)
    layout["stages"][0]["replicas"].append({"gpu": "A100-40", "degree": 1, "zone": WEST})
    assert failure(service, "sailor.simulate", layout=layout)["type"] == "BadPlan"


def test_a_model_is_registered_once(service: Service) -> None:
    job = {
        "model": "mine",
        "global_batch": 64,
        "layers": 6,
        "blocks": 4,
        "hidden": 256,
        "heads": 4,
        "sequence_length": 512,
        "vocabulary": 1000,
    }
    assert service.run("sailor.register", job=job) == "mine"
    assert service.run("sailor.register", job=job) == "mine"
    error = failure(service, "sailor.register", job=job | {"hidden": 512})
    assert error["code"] == "CONFLICT"
