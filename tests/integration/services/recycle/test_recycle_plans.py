"""Profiles and plans ahead of failures: worked examples, errors, immutability, SQL, pictures."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from apiary.errors import ApiaryError, FunctionError
from tests.integration.services.recycle.conftest import Service

pytest.importorskip("numpy", reason="the models need numpy: install the services extra")
pytest.importorskip("ortools", reason="plans need ortools: install the services extra")
pytest.importorskip("matplotlib", reason="pictures need matplotlib: install the services extra")

UNIT = {"forward": [1.0], "input_grad": [1.0], "weight_grad": [1.0]}

# The smallest full schedule, worker (1, 1) dead: (worker, op, home, micro-batch) -> start.
SMALLEST_STAGE_1 = [
    ("F", 0, 0, 1), ("I", 0, 0, 2), ("F", 1, 0, 3), ("I", 1, 0, 4), ("F", 0, 1, 5), ("I", 0, 1, 6),
    ("F", 1, 1, 7), ("I", 1, 1, 8), ("W", 0, 0, 9), ("W", 1, 0, 10), ("W", 0, 1, 11),
    ("W", 1, 1, 12),
]  # fmt: skip


@pytest.fixture(scope="module")
def profile(service: Service) -> str:
    """Four stages, one unit for each of F, I and W."""
    return str(service.run("recycle.profile", samples=[UNIT] * 4))


@pytest.fixture(scope="module")
def planned(service: Service, profile: str) -> dict[str, Any]:
    """All plans of 3x4x6 for 0 to 4 failures."""
    request = {"profile_id": profile, "pipelines": 3, "micro_batches": 6, "f_max": 4}
    summary: dict[str, Any] = service.run("recycle.plan", request=request)
    return summary


@pytest.fixture(scope="module")
def small(service: Service) -> str:
    """A plan set of 2x2x2 with a plan for every vector of counts."""
    profile_id = service.run("recycle.profile", samples=[UNIT] * 2)
    request = {
        "profile_id": profile_id,
        "pipelines": 2,
        "micro_batches": 2,
        "f_max": 2,
        "engine": "greedy",
        "scope": "counts",
        "cap": 4,
    }
    return str(service.run("recycle.plan", request=request)["plan_set_id"])


def test_the_plans_of_3x4x6_are_those_of_the_normalization(planned: dict[str, Any]) -> None:
    by_failures = {sum(p["counts"]): p for p in planned["plans"]}
    periods = {f: p["iteration_us"] for f, p in by_failures.items()}
    assert periods == {0: 19, 1: 27, 2: 27, 3: 27, 4: 27}
    assert by_failures[4]["counts"] == [1, 1, 1, 1]
    assert all(p["status"] in ("optimal", "optimal_in_order") for p in planned["plans"])
    assert planned["free_failures"] == 1


def test_each_plan_is_made_by_a_child_workflow(service: Service, planned: dict[str, Any]) -> None:
    children = service.query(
        "SELECT workflow, status FROM apiary.run WHERE parent_run_id = %s", planned["plan_set_id"]
    )
    expected = ("recycle.plan_counts", "SUCCEEDED")
    assert [(c["workflow"], c["status"]) for c in children] == [expected] * 5


def test_rows_name_the_run_that_wrote_them(service: Service, planned: dict[str, Any]) -> None:
    (row,) = service.query(
        "SELECT count(*) AS plans, count(DISTINCT p.run_id) AS runs, min(s.run_id) AS set_run,"
        " min(r.workflow) AS profile_workflow"
        " FROM recycle.plan p JOIN recycle.plan_set s USING (plan_set_id)"
        " JOIN recycle.profile f USING (profile_id) JOIN apiary.run r ON r.run_id = f.run_id"
        " WHERE s.plan_set_id = %s",
        planned["plan_set_id"],
    )
    assert (row["plans"], row["runs"]) == (5, 5)
    assert row["set_run"] == planned["plan_set_id"]
    assert row["profile_workflow"] == "recycle.profile"


def test_the_bubble_of_a_plan_in_sql(service: Service, planned: dict[str, Any]) -> None:
    rows = service.query(
        "SELECT p.failures, 1 - sum(o.end_us - o.start_us)::float8"
        "   / (p.iteration_us * count(DISTINCT (o.pipeline, o.stage))) AS bubble"
        " FROM recycle.plan p JOIN recycle.op o USING (plan_id) WHERE p.plan_set_id = %s"
        " GROUP BY p.plan_id ORDER BY p.failures",
        planned["plan_set_id"],
    )
    work = 3 * 4 * 6 * 3
    periods = [19, 27, 27, 27, 27]
    for row, period in zip(rows, periods, strict=True):
        assert row["bubble"] == pytest.approx(1 - work / (period * (12 - row["failures"])))


def test_pictures_of_a_plan_set_are_stored(service: Service, small: str) -> None:
    rows = service.query("SELECT name FROM recycle.picture WHERE run_id = %s ORDER BY 1", small)
    assert [row["name"] for row in rows] == ["iterations", "memory", "timeline"]
    svg = service.call("recycle.picture", run=small, name="timeline")
    assert svg.lstrip().startswith("<?xml")
    assert "fault-free 1F1B" in svg


@pytest.mark.parametrize(("dead", "executor"), [([1, 1], 0), ([0, 1], 1)])
def test_the_smallest_schedule(
    service: Service, small: str, dead: list[int], executor: int
) -> None:
    """Whichever of two peers is dead, the other one runs the same operations."""
    rows = service.run("recycle.schedule", plan_set_id=small, failed=[dead])
    stage_1 = sorted((row for row in rows if row[1] == 1), key=lambda row: row[5])
    assert [(op, home, j, start) for _, _, op, home, j, start, _ in stage_1] == SMALLEST_STAGE_1
    assert {row[0] for row in stage_1} == {executor}
    assert {row[0] for row in rows if row[1] == 0} == {0, 1}
    assert max(row[6] for row in rows) == 13


def test_a_schedule_is_read_in_portions(service: Service, planned: dict[str, Any]) -> None:
    plan_id = planned["plans"][1]["plan_id"]
    whole = service.run("recycle.schedule", plan_id=plan_id)
    assert len(whole) == 3 * 3 * 4 * 6
    assert whole == sorted(whole, key=lambda row: (row[1], row[3], row[4], row[2]))
    for first, rows in [(100, 50), (0, 1), (17, 2), (18, 18), (200, 50), (216, 1), (10**12, 1)]:
        part = service.run("recycle.schedule", plan_id=plan_id, first=first, rows=rows)
        assert part == whole[first : first + rows]


def test_counts_without_a_plan_are_planned_now(service: Service, planned: dict[str, Any]) -> None:
    rows = service.run(
        "recycle.schedule", plan_set_id=planned["plan_set_id"], failed=[[0, 2], [1, 2]]
    )
    assert {row[0] for row in rows if row[1] == 2} == {2}
    assert max(row[6] for row in rows) == 56


def test_stored_plans_are_valid(service: Service, planned: dict[str, Any]) -> None:
    assert service.run("recycle.validate", plan_id=planned["plans"][2]["plan_id"]) == []


def test_a_tampered_plan_is_found_out(service: Service, small: str) -> None:
    plan_id = service.call("recycle.find_plan", plan_set_id=small, counts=[0, 0])
    with psycopg.connect(service.url) as connection:
        connection.execute("SET session_replication_role = replica")  # the triggers sleep
        connection.execute(
            "UPDATE recycle.cells SET forward_start_us[1] = weight_grad_start_us[1],"
            " weight_grad_start_us[1] = forward_start_us[1]"
            " WHERE (plan_id, stage, home) = (%s, 0, 0)",
            [plan_id],
        )
    found = service.run("recycle.validate", plan_id=plan_id)
    assert {"forward", "input-grad-own", "weight-grad"} <= {v["rule"] for v in found}
    assert ["F(k=0,i=0,j=0)", "I(k=0,i=0,j=0)"] in [v["ops"] for v in found]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ("UPDATE recycle.cells SET input_grad_us = 2 WHERE {}", {"duration"}),
        ("DELETE FROM recycle.cells WHERE {}", {"start"}),
        (
            "UPDATE recycle.cells SET executor = executor[2:], forward_start_us ="
            " forward_start_us[2:], input_grad_start_us = input_grad_start_us[2:],"
            " weight_grad_start_us = weight_grad_start_us[2:] WHERE {}",
            {"start", "cells"},
        ),
        ("UPDATE recycle.cells SET home = 2 WHERE {}", {"start", "cells"}),
    ],
)
def test_a_row_that_does_not_fit_is_found_out(
    service: Service, small: str, change: str, rules: set[str]
) -> None:
    plan_id = service.call("recycle.find_plan", plan_set_id=small, counts=[1, 0])
    one = "(plan_id, stage, home) = (%s, 1, 1)"
    with psycopg.connect(service.url) as connection:
        connection.execute("SET session_replication_role = replica")  # the triggers sleep
        kept = connection.execute(f"SELECT * FROM recycle.cells WHERE {one}", [plan_id]).fetchone()
        connection.execute(change.format(one).encode(), [plan_id])
    try:
        found = service.run("recycle.validate", plan_id=plan_id)
    finally:
        with psycopg.connect(service.url) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(
                "DELETE FROM recycle.cells WHERE (plan_id, stage) = (%s, 1) AND home > 0", [plan_id]
            )
            connection.execute(f"INSERT INTO recycle.cells VALUES ({', '.join(['%s'] * 10)})", kept)
    assert rules <= {v["rule"] for v in found}
    assert service.run("recycle.validate", plan_id=plan_id) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE recycle.plan SET iteration_us = 1 WHERE plan_id = %s",
        "DELETE FROM recycle.plan WHERE plan_id = %s",
        "UPDATE recycle.cells SET forward_start_us[1] = 0 WHERE plan_id = %s",
        "DELETE FROM recycle.cells WHERE plan_id = %s",
        "INSERT INTO recycle.cells SELECT plan_id, 1000, home, 1, 1, 1, executor, forward_start_us,"
        " input_grad_start_us, weight_grad_start_us FROM recycle.cells WHERE plan_id = %s LIMIT 1",
    ],
)
def test_stored_plans_do_not_change(
    service: Service, planned: dict[str, Any], statement: str
) -> None:
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        service.query(statement, planned["plans"][0]["plan_id"])


def test_the_second_plan_of_the_same_counts_is_thrown_away(service: Service, small: str) -> None:
    """An attempt that was thought to be dead may still finish: the first one counts."""
    plan_id = service.call("recycle.find_plan", plan_set_id=small, counts=[1, 1])
    figures = {
        "iteration_us": 1, "makespan_us": 1, "lower_bound_us": 1, "in_order_bound_us": None,
        "status": "optimal", "engine": "greedy", "solver_seed": None, "wall_ms": 0,
    }  # fmt: skip
    draft = service.call("recycle.begin_plan", plan_set_id=small, counts=[1, 1], run="late")
    service.call("recycle.add_cells", plan_id=draft, rows=[cells(0, 0)])
    assert service.call("recycle.seal_plan", plan_id=draft, figures=figures) == plan_id
    assert service.query("SELECT 1 FROM recycle.cells WHERE plan_id = %s", draft) == []


def test_cells_that_a_plan_has_are_left_alone(service: Service, small: str) -> None:
    """A portion may be written again by one who does not know that it was."""
    draft = service.call("recycle.begin_plan", plan_set_id=small, counts=[1, 1], run="again")
    service.call("recycle.add_cells", plan_id=draft, rows=[cells(0, 0), cells(1, 0)])
    late = {**cells(1, 0), "executor": [0, 0]}
    service.call("recycle.add_cells", plan_id=draft, rows=[late, cells(0, 1)])
    rows = service.query(
        "SELECT stage, home, op, micro_batch, pipeline, start_us, end_us FROM recycle.op"
        " WHERE plan_id = %s ORDER BY stage, home, micro_batch, op",
        draft,
    )
    one = [("F", 0, 1, 0, 2), ("I", 0, 1, 4, 7), ("W", 0, 1, 8, 12)]
    other = [("F", 1, 0, 2, 4), ("I", 1, 0, 6, 9), ("W", 1, 0, 10, 14)]
    expected = [(*place, *op) for place in [(0, 0), (0, 1), (1, 0)] for op in one + other]
    assert [tuple(row.values()) for row in rows] == expected


def test_cells_of_another_length_are_refused(service: Service, small: str) -> None:
    draft = service.call("recycle.begin_plan", plan_set_id=small, counts=[1, 1], run="short")
    short = {**cells(0, 1), "weight_grad_start_us": [8]}
    with pytest.raises(FunctionError, match="has 1 of weight_grad_start_us: expected one for each"):
        service.call("recycle.add_cells", plan_id=draft, rows=[cells(0, 0), short])
    assert service.query("SELECT 1 FROM recycle.cells WHERE plan_id = %s", draft) == []
    with pytest.raises(FunctionError, match="no plan -1 was begun"):
        service.call("recycle.add_cells", plan_id=-1, rows=[cells(0, 0)])


def cells(stage: int, home: int) -> dict[str, Any]:
    """The cells of one pipeline in one stage, of a job with two micro-batches."""
    return {
        "stage": stage, "home": home,
        "forward_us": 2, "input_grad_us": 3, "weight_grad_us": 4, "executor": [1, 0],
        "forward_start_us": [0, 2], "input_grad_start_us": [4, 6], "weight_grad_start_us": [8, 10],
    }  # fmt: skip


def test_an_incomplete_plan_is_not_sealed(service: Service, planned: dict[str, Any]) -> None:
    figures = {
        "iteration_us": 1, "makespan_us": 1, "lower_bound_us": 1, "in_order_bound_us": None,
        "status": "optimal", "engine": "greedy", "solver_seed": None, "wall_ms": 0,
    }  # fmt: skip
    draft = service.call(
        "recycle.begin_plan", plan_set_id=planned["plan_set_id"], counts=[2, 0, 0, 0], run="x"
    )
    with pytest.raises(FunctionError, match="has 0 rows of cells, its job has 12"):
        service.call("recycle.seal_plan", plan_id=draft, figures=figures)
    with pytest.raises(FunctionError, match="no plan"):
        service.call("recycle.stored_plan", plan_id=draft)


GOOD = {"pipelines": 3, "micro_batches": 6, "f_max": 1}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"pipelines": 0}, "INVALID_ARGUMENT"),
        ({"micro_batches": 0}, "INVALID_ARGUMENT"),
        ({"micro_batches": 65_537}, "INVALID_ARGUMENT"),
        ({"f_max": 9}, "INVALID_ARGUMENT"),
        ({"f_max": -1}, "INVALID_ARGUMENT"),
        ({"stages": 3}, "INVALID_ARGUMENT"),
        ({"time_limit_s": 0.0}, "INVALID_ARGUMENT"),
        ({"cap": 0}, "INFEASIBLE_MEMORY"),
        ({"cap": [4, 3]}, "INVALID_ARGUMENT"),
        ({"profile_id": "none"}, "UNKNOWN_ID"),
    ],
)
def test_bad_plan_requests(
    service: Service, profile: str, change: dict[str, Any], code: str
) -> None:
    request = {"profile_id": profile, **GOOD, **change}
    with pytest.raises(FunctionError) as caught:
        service.call("recycle.open_plan_set", plan_set_id="bad", request=request, run="t")
    assert caught.value.code == code
    assert service.query("SELECT 1 FROM recycle.plan_set WHERE plan_set_id = 'bad'") == []


@pytest.mark.parametrize("change", [{"objective": "fast"}, {"engine": "magic"}])
def test_unknown_choices(service: Service, profile: str, change: dict[str, Any]) -> None:
    request = {"profile_id": profile, **GOOD, **change}
    with pytest.raises(ApiaryError, match=next(iter(change.values()))):
        service.call("recycle.open_plan_set", plan_set_id="bad", request=request, run="t")


@pytest.mark.parametrize(
    ("failed", "code", "message"),
    [
        ([[0, 0], [1, 0], [2, 0]], "NO_LIVE_STAGE", "stage 0"),
        ([[3, 0]], "INVALID_WORKER", r"\(3, 0\)"),
        ([[1, 2], [1, 2]], "DUPLICATE_FAILURE", "twice"),
    ],
)
def test_bad_failed_sets(
    service: Service, planned: dict[str, Any], failed: list[Any], code: str, message: str
) -> None:
    with pytest.raises(FunctionError, match=message) as caught:
        service.run("recycle.schedule", plan_set_id=planned["plan_set_id"], failed=failed)
    assert caught.value.code == code


def test_a_profile_from_layers(service: Service) -> None:
    layer = {
        "forward": 0.5, "input_grad": 0.25, "weight_grad": 0.25, "transfer": 0.1,
        "forward_bytes": 100, "input_grad_bytes": -40, "static_bytes": 1000,
    }  # fmt: skip
    profile_id = service.run(
        "recycle.profile",
        layers=[layer] * 3,
        stage_of_layer=[0, 0, 1],
        device_limit_bytes=[10_000, 10_000],
        unit="ms",
    )
    rows = service.query(
        "SELECT stage, operation, median_us FROM recycle.stage_profile WHERE profile_id = %s"
        " AND operation IN ('forward', 'transfer') ORDER BY 1, 2",
        profile_id,
    )
    assert [tuple(row.values()) for row in rows] == [
        (0, "forward", 1000), (0, "transfer", 100), (1, "forward", 500), (1, "transfer", 100),
    ]  # fmt: skip
    memory = service.query(
        "SELECT static_bytes, forward_bytes, input_grad_bytes, weight_grad_bytes"
        " FROM recycle.stage_memory WHERE profile_id = %s ORDER BY stage",
        profile_id,
    )
    assert tuple(memory[0].values()) == (2000, 200, -80, -120)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"layers": [{"forward": 1.5, "input_grad": 1, "weight_grad": 1}], "stage_of_layer": [0]},
        {"layers": [{"forward": 1, "input_grad": 1, "weight_grad": 1}], "stage_of_layer": [1]},
        {"samples": [{"forward": [1.0], "input_grad": [1.0]}]},
        {"samples": [{"forward": [0.1], "input_grad": [1.0], "weight_grad": [1.0]}]},
        {"samples": []},
    ],
)
def test_bad_profiles(service: Service, document: dict[str, Any]) -> None:
    with pytest.raises(FunctionError) as caught:
        service.run("recycle.profile", **document)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_a_profile_is_stored_once(service: Service) -> None:
    times = [
        {"stage": 0, "operation": name, "median_us": 5, "p95_us": 6, "samples": 9}
        for name in ("forward", "input_grad", "weight_grad")
    ]
    document = {"profile_id": "once", "source": "layers", "memory": [], "run": "t"}
    for _ in range(2):
        assert service.call("recycle.store_profile", **document, times=times) == "once"
    times[0]["median_us"] = 7
    with pytest.raises(FunctionError) as caught:
        service.call("recycle.store_profile", **document, times=times)
    assert caught.value.code == "CONFLICT"
