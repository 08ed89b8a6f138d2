"""Real training under the platform: a worker and the executor are killed, and nothing is lost.

The executor is killed while the switch of plans waits for its `activate` event: the test holds a
lock that this event's transaction needs, so the kill is always in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apiary.errors import FunctionError
from tests.chaos.processes import ExecutorProcess
from tests.integration.services.recycle.conftest import ENDED, Service

pytest.importorskip("numpy", reason="the models need numpy: install the services extra")
pytest.importorskip("ortools", reason="plans need ortools: install the services extra")
pytest.importorskip("matplotlib", reason="pictures need matplotlib: install the services extra")
pytest.importorskip("torch", reason="training needs torch: install the services extra")

from workflows.recycle.training_reference import reference_losses
from workflows.recycle.training_spec import TrainingSpec

LOCK = 7001
VICTIM = {"pipeline": 1, "stage": 1}
SPEC = {
    "kills": [{"worker": VICTIM, "step": 4, "operation": 5}],
    "joins": [{"worker": VICTIM, "step": 7}],
}
HOLD_THE_SWITCH = f"""
CREATE FUNCTION recycle.hold_the_switch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock({LOCK});
    RETURN NEW;
END $$;
CREATE TRIGGER hold_the_switch BEFORE INSERT ON recycle.event
    FOR EACH ROW WHEN (NEW.kind = 'activate') EXECUTE FUNCTION recycle.hold_the_switch();
"""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A finished run with two kills in it."""

    run_id: str
    output: dict[str, Any]
    epoch_at_kill: int
    executors: int


@pytest.fixture(scope="module")
def trained(bare: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """A worker dies at step 4 and joins at 7; the executor dies in the middle of the switch."""
    place = tmp_path_factory.mktemp("executors")
    bare.query(HOLD_THE_SWITCH)
    first = ExecutorProcess(bare.url, "first", place, place / "first.log")
    second: ExecutorProcess | None = None
    try:
        first.wait_until_ready()
        with psycopg.connect(bare.url, autocommit=True) as holder:
            holder.execute("SELECT pg_advisory_lock(%s)", [LOCK])
            run_id = bare.start("recycle.train", spec=SPEC)
            bare.until(lambda: _is_waiting(bare) or _has_ended(bare, run_id))
            assert not _has_ended(bare, run_id), bare.row(run_id)["error"]
            (state,) = bare.query(
                "SELECT epoch, phase, iteration FROM recycle.job WHERE job_id = %s", run_id
            )
            assert state == {"epoch": 1, "phase": "switching", "iteration": 4}
            first.kill()
            # Its transaction is still waiting: it is ended as if it had never come.
            bare.query(
                "SELECT pg_terminate_backend(pid) FROM pg_locks"
                " WHERE locktype = 'advisory' AND objid = %s AND NOT granted",
                LOCK,
            )
            bare.until(lambda: not _is_waiting(bare))
        second = ExecutorProcess(bare.url, "second", place, place / "second.log")
        second.wait_until_ready()
        output = bare.output(run_id)
        yield Trained(run_id=run_id, output=output, epoch_at_kill=state["epoch"], executors=2)
    finally:
        for process in (first, second):
            if process is not None and process.alive:
                process.kill()


def _has_ended(service: Service, run_id: str) -> bool:
    return service.row(run_id)["status"] in ENDED


def _is_waiting(service: Service) -> bool:
    return bool(
        service.query(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted",
            LOCK,
        )
    )


def test_losses_are_those_of_one_process(bare: Service, trained: Trained) -> None:
    losses = [
        row["loss"]
        for row in bare.query(
            "SELECT loss FROM recycle.iteration WHERE job_id = %s ORDER BY iteration",
            trained.run_id,
        )
    ]
    assert losses == trained.output["losses"]
    assert losses == pytest.approx(reference_losses(TrainingSpec()), rel=0, abs=1e-10)
    assert trained.output["max_difference"] <= 1e-10


def test_every_iteration_is_committed_once(bare: Service, trained: Trained) -> None:
    rows = bare.query(
        "SELECT iteration, attempt FROM recycle.iteration WHERE job_id = %s ORDER BY iteration",
        trained.run_id,
    )
    assert [row["iteration"] for row in rows] == list(range(10))
    assert [row["attempt"] for row in rows] == [0] * 4 + [1] * 6
    assert trained.output["replayed"] == 1


def test_the_switch_was_finished_once_by_the_next_controller(
    bare: Service, trained: Trained
) -> None:
    rows = bare.query(
        "SELECT kind, epoch, plan_before, plan_after, plan_id FROM recycle.event"
        " WHERE job_id = %s AND kind <> 'commit' ORDER BY number",
        trained.run_id,
    )
    assert [(row["kind"], row["epoch"]) for row in rows] == [
        ("fail", 1), ("activate", 2), ("join", 3), ("activate", 4),
    ]  # fmt: skip
    assert rows[0]["plan_after"] == "stagger:split:0-1"
    assert rows[3]["plan_after"] == "stagger:split:0-0"
    stored = {
        row["plan_key"]: row["plan_id"]
        for row in bare.query("SELECT plan_key, plan_id FROM recycle.plan")
    }
    assert [row["plan_id"] for row in rows] == [stored[row["plan_after"]] for row in rows]


def test_the_second_executor_took_the_step_up(bare: Service, trained: Trained) -> None:
    (row,) = bare.query(
        "SELECT executor, adoptions FROM apiary.run WHERE run_id = %s", trained.run_id
    )
    assert row["adoptions"] >= 1
    assert row["executor"].startswith("second")


def test_all_workers_live_at_the_end(bare: Service, trained: Trained) -> None:
    rows = bare.query(
        "SELECT state, pipeline = role_pipeline AND stage = role_stage AS home"
        " FROM recycle.worker WHERE job_id = %s",
        trained.run_id,
    )
    assert [tuple(row.values()) for row in rows] == [("live", True)] * 4


def test_nothing_is_left_of_the_processes(bare: Service, trained: Trained) -> None:
    (row,) = bare.query("SELECT directory FROM recycle.training WHERE job_id = %s", trained.run_id)
    assert not Path(row["directory"]).exists()


def test_how_often_a_stage_stepped_and_rolled_back_in_sql(bare: Service, trained: Trained) -> None:
    (row,) = bare.query(
        "SELECT coalesce(sum(steps), 0) AS steps FROM recycle.step_rollback WHERE job_id = %s",
        trained.run_id,
    )
    assert row["steps"] == trained.output["rollbacks"]


def test_a_controller_may_not_be_killed_by_request(bare: Service, trained: Trained) -> None:
    bare.start_executor()
    with pytest.raises(FunctionError, match="kill_controller") as caught:
        bare.run("recycle.train", spec={"kill_controller": "before_activate"})
    assert caught.value.code == "INVALID_ARGUMENT"
