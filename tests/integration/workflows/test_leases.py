"""Leases: who holds a run may change it, and nobody else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apiary.engine.base import Invocation
from apiary.engine.runs import ClaimedRun
from apiary.errors import LeaseLost
from apiary.execution.invoking import Invoker
from apiary.execution.operations import operation_row
from tests.integration.workflows.conftest import Lab

LEASE = timedelta(seconds=1)


def claimed(lab: Lab, run_id: str, lease: timedelta = LEASE, executor: str = "me") -> ClaimedRun:
    """The run, claimed by hand."""
    (run,) = lab.ask(lab.store.claim(executor, 1, lease))
    assert run.run_id == run_id
    return run  # type: ignore[no-any-return]


def change(lab: Lab, run: ClaimedRun, what: str) -> Any:
    """One of the things that who holds a run may do."""
    store = lab.store
    row = operation_row(1, "step", "w.double", output=2)
    if what == "function":
        invocation = Invocation(
            run_id=run.run_id, seq=1, application="kvapp", deployment=run.deployment,
            function="kv.effect", input='{"name": "x"}', principal="test", keep=False,
            lease_until=run.lease_until,
        )  # fmt: skip
        return lab.ask(Invoker(lab.engine).invoke(invocation, fresh=True))
    works: dict[str, Any] = {
        "step": lambda: store.record(run.run_id, run.epoch, [row]),
        "park": lambda: store.park(run.run_id, run.epoch, {"kind": "time"}, None, []),
        "release": lambda: store.release(run.run_id, run.epoch, []),
        "finish": lambda: store.finish(run.run_id, run.epoch, "SUCCEEDED", "1", None, 0, []),
        "message": lambda: store.take_message(run.run_id, run.epoch, "", row, []),
        "event": lambda: store.set_event(run.run_id, run.epoch, "k", 1, [row]),
    }
    return lab.ask(works[what]())


CHANGES = ["function", "step", "park", "release", "finish", "message", "event"]


@pytest.mark.parametrize("what", CHANGES)
def test_an_expired_lease_is_refused_though_nobody_took_over(lab: Lab, what: str) -> None:
    run_id = lab.start("one_step", n=1)
    run = claimed(lab, run_id, timedelta(seconds=0.05))
    lab.query("SELECT pg_sleep(0.1)")
    with pytest.raises(LeaseLost):
        change(lab, run, what)
    assert lab.operations(run_id) == []
    assert lab.effects() == []
    assert lab.status(run_id) == "RUNNING"


@pytest.mark.parametrize("what", [change for change in CHANGES if change != "function"])
def test_the_epoch_of_an_old_owner_is_refused(lab: Lab, what: str) -> None:
    run_id = lab.start("one_step", n=1)
    old = claimed(lab, run_id, timedelta(seconds=0.05))
    lab.query("SELECT pg_sleep(0.1)")
    new = claimed(lab, run_id, timedelta(seconds=30), "other")
    assert new.epoch == old.epoch + 1
    with pytest.raises(LeaseLost):
        change(lab, old, what)
    change(lab, new, what)


def test_a_run_of_a_dead_executor_is_adopted(lab: Lab, tmp_path: Path) -> None:
    first = lab.executor(lease_s=1.0)
    run_id = lab.start("holds", path=str(tmp_path / "go"))
    lab.until((tmp_path / "go.begun").exists)
    first.crash()
    assert lab.row(run_id)["status"] == "RUNNING"  # nobody has said anything
    (tmp_path / "go").touch()
    lab.executor(lease_s=1.0)
    assert lab.output(run_id) == "held"
    assert lab.row(run_id)["adoptions"] == 1
    assert lab.effects() == ["holds"]


def test_a_living_executor_keeps_its_run_beyond_the_lease(lab: Lab, tmp_path: Path) -> None:
    lab.executor(lease_s=1.0)
    run_id = lab.start("holds", path=str(tmp_path / "go"))
    lab.until((tmp_path / "go.begun").exists)
    lab.executor(lease_s=1.0)
    lab.query("SELECT pg_sleep(1.5)")
    (tmp_path / "go").touch()
    assert lab.output(run_id) == "held"
    assert lab.row(run_id)["adoptions"] == 0


def test_a_function_may_take_longer_than_the_lease(lab: Lab) -> None:
    lab.executor(lease_s=1.0)
    run_id = lab.start("long_function", seconds=1.6)
    assert lab.output(run_id) == ["long", "done"]
    assert lab.effects() == ["long"]
    assert lab.row(run_id)["adoptions"] == 0


def test_two_executors_of_one_name_do_not_share_what_they_hold(lab: Lab, tmp_path: Path) -> None:
    one = lab.executor(name="twin", lease_s=1.0, concurrency=1)
    two = lab.executor(name="twin", lease_s=1.0, concurrency=1)
    runs = [lab.start("holds", path=str(tmp_path / name)) for name in ("a", "b")]
    for name in ("a", "b"):
        lab.until((tmp_path / f"{name}.begun").exists)
    owners = {lab.row(run_id)["executor"] for run_id in runs}
    assert owners == {one.identity, two.identity}
    one.crash()
    for name in ("a", "b"):
        (tmp_path / name).touch()
    assert [lab.output(run_id) for run_id in runs] == ["held", "held"]
    assert lab.effects() == ["holds", "holds"]


def test_a_run_that_was_adopted_too_often_is_put_aside_and_can_be_resumed(
    lab: Lab, tmp_path: Path
) -> None:
    run_id = lab.start("doomed", path=str(tmp_path / "go"))
    for _ in range(3):
        claimed(lab, run_id, timedelta(seconds=0.02))
        lab.query("SELECT pg_sleep(0.05)")
    assert lab.ask(lab.store.claim("me", 1, LEASE)) == []
    assert lab.status(run_id) == "STUCK"
    (tmp_path / "go").touch()
    assert lab.ask(lab.store.resume(run_id, None)) is True
    lab.executor()
    assert lab.output(run_id) == "held"


def test_losing_an_executors_row_loses_nothing(lab: Lab, tmp_path: Path) -> None:
    first = lab.executor(lease_s=1.0)
    run_id = lab.start("holds", path=str(tmp_path / "go"))
    lab.until((tmp_path / "go.begun").exists)
    lab.query("DELETE FROM apiary.executor")
    first.crash()
    (tmp_path / "go").touch()
    lab.executor(lease_s=1.0)
    assert lab.output(run_id) == "held"


def test_a_run_and_its_input_are_there_before_anything_runs(lab: Lab) -> None:
    run_id = lab.start("writes", n=3, k=4)
    row = lab.row(run_id)
    assert (row["status"], row["input"], row["started_at"]) == ("QUEUED", {"n": 3, "k": 4}, None)
