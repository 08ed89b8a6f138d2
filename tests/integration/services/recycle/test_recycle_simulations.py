"""Systems on failure traces, stored with their intervals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from apiary.errors import FunctionError
from tests.integration.services.recycle.conftest import Service

pytest.importorskip("numpy", reason="the models need numpy: install the services extra")
pytest.importorskip("ortools", reason="plans need ortools: install the services extra")
pytest.importorskip("matplotlib", reason="pictures need matplotlib: install the services extra")

MS = {"forward": [30.0], "input_grad": [30.0], "weight_grad": [30.0]}
README = Path(__file__).parents[4] / "workflows" / "recycle" / "README.md"
SYSTEMS = ["recycle", "oobleck", "bamboo"]


@pytest.fixture(scope="module")
def plan_set(service: Service) -> str:
    """A job of 4x4x8 with 30 ms for each operation."""
    profile_id = service.run("recycle.profile", samples=[MS] * 4, unit="ms")
    request = {
        "profile_id": profile_id, "pipelines": 4, "micro_batches": 8, "f_max": 1,
        "engine": "greedy",
    }  # fmt: skip
    return str(service.run("recycle.plan", request=request)["plan_set_id"])


def simulate(service: Service, plan_set: str, trace: dict[str, Any], **more: Any) -> Any:
    return service.run("recycle.simulate", plan_set_id=plan_set, trace=trace, **more)


def test_systems_on_a_drawn_trace(service: Service, plan_set: str) -> None:
    trace = {"horizon_s": 86_400.0, "mtbf_s": 7200.0, "seed": 3}
    figures = simulate(service, plan_set, trace, systems=SYSTEMS)
    by_system = {f["system"]: f["normalised"] for f in figures}
    assert 1.0 >= by_system["recycle"] > by_system["oobleck"] > by_system["bamboo"] > 0
    assert simulate(service, plan_set, trace, systems=SYSTEMS) == figures


def test_a_given_trace_interval_by_interval(service: Service, plan_set: str) -> None:
    events = [
        {"time_s": 1000.0, "worker": {"pipeline": 1, "stage": 2}, "kind": "fail"},
        {"time_s": 3000.0, "worker": {"pipeline": 1, "stage": 2}, "kind": "join"},
    ]
    trace = {"horizon_s": 4000.0, "events": events}
    run_id = service.start(
        "recycle.simulate", plan_set_id=plan_set, trace=trace, systems=["recycle"]
    )
    (figures,) = service.output(run_id)
    rows = service.query(
        "SELECT start_s, end_s, failed, downtime_s, iterations FROM recycle.sim_interval"
        " WHERE simulation_id = %s ORDER BY number",
        run_id,
    )
    assert [(r["start_s"], r["end_s"], r["failed"]) for r in rows] == [
        (0.0, 1000.0, 0), (1000.0, 3000.0, 1), (3000.0, 4000.0, 0),
    ]  # fmt: skip
    assert sum(r["iterations"] for r in rows) == pytest.approx(figures["iterations"])
    # What the failure costs: hours lost per event, as the README asks in SQL.
    assert rows[1]["downtime_s"] > 0
    names = service.query("SELECT name FROM recycle.picture WHERE run_id = %s ORDER BY 1", run_id)
    assert [n["name"] for n in names] == ["throughput by failures", "throughput over time"]


def test_the_best_system_per_mtbf_in_sql(service: Service, plan_set: str) -> None:
    trace = {"horizon_s": 86_400.0, "mtbf_s": 1800.0, "seed": 1}
    simulate(service, plan_set, trace, systems=SYSTEMS)
    rows = service.query(
        "SELECT DISTINCT ON (mtbf_s) mtbf_s, system, avg(normalised) AS normalised"
        " FROM recycle.sim_run WHERE mtbf_s IS NOT NULL"
        " GROUP BY mtbf_s, system ORDER BY mtbf_s, normalised DESC"
    )
    assert (1800.0, "recycle") in [(row["mtbf_s"], row["system"]) for row in rows]


@pytest.mark.parametrize(
    ("trace", "more", "code"),
    [
        ({"horizon_s": 10.0}, {}, "INVALID_ARGUMENT"),
        ({"horizon_s": 10.0, "mtbf_s": 5.0, "events": []}, {}, "INVALID_ARGUMENT"),
        ({"horizon_s": 10.0, "mtbf_s": 0.0}, {}, "INVALID_ARGUMENT"),
        ({"horizon_s": 10.0, "mtbf_s": 5.0}, {"systems": ["magic"]}, "INVALID_ARGUMENT"),
        ({"horizon_s": 10.0, "mtbf_s": 5.0}, {"costs": {"coffee_s": 1.0}}, "INVALID_ARGUMENT"),
        (
            {
                "horizon_s": 10.0,
                "events": [{"time_s": 1.0, "worker": {"pipeline": 9, "stage": 0}, "kind": "fail"}],
            },
            {},
            "INVALID_WORKER",
        ),
    ],
)
def test_bad_simulations(
    service: Service, plan_set: str, trace: dict[str, Any], more: dict[str, Any], code: str
) -> None:
    with pytest.raises(FunctionError) as caught:
        simulate(service, plan_set, trace, **more)
    assert caught.value.code == code


def test_an_unknown_plan_set(service: Service) -> None:
    with pytest.raises(FunctionError) as caught:
        simulate(service, "none", {"horizon_s": 10.0, "mtbf_s": 5.0})
    assert caught.value.code == "UNKNOWN_ID"


def test_the_queries_of_the_readme_run(service: Service, plan_set: str) -> None:
    """Those that need a run of the names used there only have to be valid."""
    blocks = re.findall(r"```sql\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    first = service.query(blocks[0].replace("'s4'", f"'{plan_set}'"))
    assert [row["failures"] for row in first] == [0, 1]
    assert all(0 <= row["bubble"] < 0.5 for row in first)
    for statement in "".join(blocks[1:]).split(";"):
        service.query(statement)
