"""Sailor's workflows in a database, with an executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.services.conftest import Service

pytest.importorskip("numba", reason="planning needs the services extra")
pytest.importorskip("matplotlib", reason="pictures need the services extra")


def test_plan_works_on_a_fresh_machine_from_roofline_profiles(service: Service) -> None:
    report = service.run("sailor.plan")
    assert report["inputs"]["profile_source"] == "roofline"
    assert report["chosen"]["iteration_s"] >= report["bound_s"]
    assert set(report["pictures"]) == {"timeline", "memory"}
    (row,) = service.query(
        "SELECT source, rank FROM sailor.plan JOIN sailor.profile USING (profile_id)"
        " WHERE plan_id = %s",
        report["chosen"]["plan_id"],
    )
    assert row == {"source": "roofline", "rank": 0}
