"""Profiles and plans ahead of failures: worked examples, errors, immutability, SQL, pictures."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from apiary.errors import FunctionError
from tests.integration.services.recycle.conftest import Service

UNIT = {"forward": [1.0], "input_grad": [1.0], "weight_grad": [1.0]}


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


def test_the_plans_of_3x4x6_are_those_of_the_normalization(planned: dict[str, Any]) -> None:
    by_failures = {sum(p["counts"]): p for p in planned["plans"]}
    assert {f: p["iteration_us"] for f, p in by_failures.items()} == {0: 19, 1: 27, 2: 27, 3: 27, 4: 27}
    assert by_failures[4]["counts"] == [1, 1, 1, 1]
    assert all(p["status"] in ("optimal", "optimal_in_order") for p in planned["plans"])
    assert planned["free_failures"] == 1


def test_each_plan_is_made_by_a_child_workflow(
    service: Service, planned: dict[str, Any]
) -> None:
    children = service.query(
        "SELECT name, status FROM apiary.run WHERE parent_run_id = %s", planned["plan_set_id"]
    )
    assert [(c["name"], c["status"]) for c in children] == [
        ("recycle.plan_counts", "SUCCEEDED")
    ] * 5
