"""Children: derived ids, found again after a crash, joined by policy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from apiary.errors import LeaseLost
from apiary.execution.starting import RunOptions
from tests.integration.workflows.conftest import Lab, Running
from tests.integration.workflows.test_leases import claimed


def test_the_analysis_says_that_a_child_leaves_the_database(lab: Lab) -> None:
    rows = lab.query("SELECT in_database, reasons FROM apiary.workflow WHERE name = 'w.parent'")
    assert rows[0]["in_database"] is False
    assert "it calls the workflow w.child" in [each["reason"] for each in rows[0]["reasons"]]


def test_children_have_derived_ids_and_run_where_they_can(lab: Lab, running: Running) -> None:
    lab.start_with("parent", {"run_id": "p"}, n=3)
    assert lab.output("p") == 3
    rows = lab.query("SELECT run_id, parent_run_id, parent_seq, in_database FROM apiary.run"
                     " WHERE run_id <> 'p' ORDER BY 1")  # fmt: skip
    assert [tuple(row.values()) for row in rows] == [
        (f"p/{seq}", "p", seq, True) for seq in (1, 2, 3)
    ]
    assert [op[1] for op in lab.operations("p")] == ["workflow"] * 3


def test_children_are_found_again_after_a_crash(lab: Lab) -> None:
    first = lab.executor(lease_s=1.0)
    lab.start_with("waiting_parent", {"run_id": "p"}, topic="go")
    lab.wait("p/1", "WAITING")
    first.crash()
    second = lab.executor(lease_s=1.0)
    lab.wait("p", "WAITING")
    second.crash()
    lab.executor(lease_s=1.0)
    lab.ask(lab.store.send("p/1", "go", "there", None))
    assert lab.output("p") == "there"
    assert lab.query("SELECT count(*) AS n FROM apiary.run")[0]["n"] == 2


@pytest.mark.campaign
def test_a_fan_out_of_a_thousand(lab: Lab, tmp_path: Path, record_property: Any) -> None:
    _fan_out(lab, tmp_path, 1000, record_property)


def test_a_fan_out_does_not_replay_its_parent_per_child(
    lab: Lab, tmp_path: Path, record_property: Any
) -> None:
    _fan_out(lab, tmp_path, 60, record_property)


def _fan_out(lab: Lab, tmp_path: Path, count: int, record_property: Any) -> None:
    lab.executor()
    lab.executor()
    for need in (0, 1, count // 2):
        path = tmp_path / f"replays-{need}"
        begun = time.monotonic()
        run_id = lab.start("fan", n=count, need=need, path=str(path))
        assert _finished(lab, run_id)["output"] == (need or count)
        record_property(f"fan_out_{count}_need_{need}_s", time.monotonic() - begun)
        assert len(path.read_text().splitlines()) <= 4


def _finished(lab: Lab, run_id: str) -> dict[str, Any]:
    lab.until(lambda: lab.row(run_id)["finished_at"], 170)
    return lab.row(run_id)


@pytest.mark.parametrize(
    ("numbers", "need", "error"), [([1, -1, 2], 2, None), ([-1, 1, -2], 2, "child -")]
)
def test_some_may_fail(
    lab: Lab, running: Running, tmp_path: Path, numbers: list[int], need: int, error: str | None
) -> None:
    run_id = lab.start("any_of", numbers=numbers, need=need, path=str(tmp_path / "replays"))
    if error is None:
        assert lab.output(run_id) == [0, 2]
    else:
        assert error in str(lab.error(run_id))


def test_a_childs_failure_is_raised_in_its_parent(lab: Lab, running: Running) -> None:
    assert lab.output(lab.start("catching_parent", numbers=[1, -1, 2])) == [1, "ValueError", 2]


def test_a_childs_cancellation_is_raised_in_its_parent(lab: Lab, running: Running) -> None:
    lab.start_with("waiting_parent", {"run_id": "p"}, topic="go")
    lab.wait("p/1", "WAITING")
    assert lab.ask(lab.store.cancel("p/1", None, cascade=False)) == ["p/1"]
    assert lab.output("p") == "Cancelled"


def test_deep_nesting_keeps_ids_within_their_limit(lab: Lab, running: Running) -> None:
    root = "r" * 250
    lab.start_with("nested", {"run_id": root}, depth=5)
    assert lab.output(root) == 5
    ids = [row["run_id"] for row in lab.query("SELECT run_id FROM apiary.run")]
    assert len(ids) == 6
    assert max(map(len, ids)) <= 255


def test_a_cancelled_parent_starts_no_more_children(lab: Lab) -> None:
    run_id = lab.start("parent", n=1)
    run = claimed(lab, run_id)
    lab.ask(lab.store.cancel(run_id, None, cascade=True))
    request = lab.ask(
        lab.starter.prepare("kvapp", "w.child", {"n": 1}, "test", RunOptions(run_id="c"))
    )
    with pytest.raises(LeaseLost):
        lab.ask(lab.starter.start_child(request, run_id, 1, run.epoch))
    assert lab.query("SELECT * FROM apiary.run WHERE run_id = 'c'") == []
