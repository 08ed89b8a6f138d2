"""Control: cancel, resume, fork, delete, deadlines, retries, results that cannot be stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apiary.errors import NotFound, WrongState
from tests.integration.workflows.conftest import Lab, Running
from tests.integration.workflows.test_leases import claimed
from tests.processes import is_alive


def cancel(lab: Lab, run_id: str, *, cascade: bool = True) -> list[str]:
    """Cancel a run."""
    return lab.ask(lab.store.cancel(run_id, "enough", cascade=cascade))  # type: ignore[no-any-return]


def test_a_queued_run_is_cancelled(lab: Lab) -> None:
    run_id = lab.start("writes", n=1)
    assert cancel(lab, run_id) == [run_id]
    assert cancel(lab, run_id) == []
    assert lab.row(run_id)["error"]["type"] == "Cancelled"
    lab.executor()
    assert lab.output(lab.start("writes", n=1)) == 1


def test_a_run_that_does_not_exist_cannot_be_cancelled(lab: Lab) -> None:
    with pytest.raises(NotFound):
        cancel(lab, "nobody")


def test_a_cascade_reaches_all_descendants(lab: Lab, running: Running) -> None:
    lab.start_with("waiting_parent", {"run_id": "p"}, topic="go")
    lab.wait("p/1", "WAITING")
    lab.wait("p", "WAITING")
    assert cancel(lab, "p") == ["p", "p/1"]
    assert lab.query("SELECT * FROM apiary.waiter") == []


@pytest.mark.parametrize("workflow", ["holds", "pholds"])
def test_a_running_step_is_interrupted(
    lab: Lab, running: Running, tmp_path: Path, workflow: str
) -> None:
    path = tmp_path / "go"
    run_id = lab.start(workflow, path=str(path))
    begun = tmp_path / "go.begun"
    lab.until(begun.exists)
    cancel(lab, run_id)
    lab.until(lambda: not running.executor._driving, 5.0)
    assert lab.status(run_id) == "CANCELLED"
    if workflow == "pholds":
        lab.until(lambda: not is_alive(int(begun.read_text())))


def test_a_running_function_is_interrupted(lab: Lab, running: Running) -> None:
    run_id = lab.start("long_function", seconds=60.0)
    lab.until(
        lambda: lab.query("SELECT 1 AS one FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    )
    cancel(lab, run_id)
    lab.until(lambda: not running.executor._driving, 5.0)
    assert lab.effects() == []
    assert not lab.query("SELECT 1 AS one FROM pg_stat_activity WHERE wait_event = 'PgSleep'")


def test_code_that_loops_in_an_executor_is_interrupted(
    lab: Lab, running: Running, tmp_path: Path
) -> None:
    run_id = lab.start("spins", path=str(tmp_path / "begun"))
    lab.until((tmp_path / "begun").exists)
    cancel(lab, run_id)
    lab.until(lambda: not running.executor._driving, 8.0)
    assert lab.status(run_id) == "CANCELLED"


@pytest.mark.parametrize("how", ["FAILED", "CANCELLED", "TIMED_OUT"])
def test_an_ended_run_is_resumed_from_its_record(
    lab: Lab, running: Running, tmp_path: Path, how: str
) -> None:
    script = tmp_path / "script"
    script.write_text("effect:one wait:go" if how != "FAILED" else "effect:one incr:x")
    timeout_s = 1.5 if how == "TIMED_OUT" else None
    run_id = lab.start_with("switching", {"timeout_s": timeout_s}, path=str(script)).run_id
    if how == "CANCELLED":
        lab.wait(run_id, "WAITING")
        cancel(lab, run_id)
    assert lab.wait(run_id)["status"] == how
    script.write_text("effect:one effect:two")
    assert lab.ask(lab.store.resume(run_id, None)) is True
    assert lab.output(run_id) == ["one", "two"]
    assert lab.effects() == ["one", "two"]
    assert lab.ask(lab.store.resume(run_id, None)) is False


def test_a_failed_operation_is_tried_again_by_a_resume(
    lab: Lab, running: Running, tmp_path: Path
) -> None:
    path = tmp_path / "tries"
    run_id = lab.start("tries", path=str(path), good=6)
    assert lab.wait(run_id)["status"] == "FAILED"
    assert len(path.read_text().splitlines()) == 4
    lab.ask(lab.store.resume(run_id, None))
    assert lab.output(run_id) == 6  # with all its retries anew


@pytest.mark.parametrize("replaced", [False, True])
def test_a_fork_begins_with_what_was_recorded(lab: Lab, running: Running, replaced: bool) -> None:
    run_id = lab.start("writes", n=4)
    assert lab.output(run_id) == 4
    forked = lab.ask(
        lab.store.fork(run_id, 4, "fork", "test", replaced_output=40, replace_output=replaced)
    )
    assert lab.output(forked) == (40 if replaced else 5)
    assert lab.row("fork")["forked_from"] == run_id
    assert lab.value(1) == (4 if replaced else 5)
    again = lab.ask(
        lab.store.fork(run_id, 4, "fork", "test", replaced_output=40, replace_output=replaced)
    )
    assert again == "fork"
    with pytest.raises(NotFound):
        lab.ask(lab.store.fork(run_id, 9, "g", "test", replaced_output=1, replace_output=True))


def test_a_long_run_is_deleted_in_batches(lab: Lab) -> None:
    run_id = lab.run_inside("writes", n=1).run_id
    lab.query(
        "INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal,"
        " status, started_at, finished_at) SELECT %s, g, 'now', 'now', 'kvapp', 'd', 'test',"
        " 'SUCCEEDED', now(), now() FROM generate_series(2, 100000) g",
        run_id,
    )
    first = lab.query("SELECT apiary.delete_run(%s, 30000) AS gone", run_id)
    assert first[0]["gone"] is False
    with pytest.raises(WrongState):  # half of it is gone
        lab.ask(lab.store.fork(run_id, 1, "f", "test"))
    lab.ask(lab.store.delete(run_id, 30000))
    assert lab.query("SELECT 1 AS one FROM apiary.operation WHERE run_id = %s", run_id) == []
    assert lab.run_inside("writes", n=1).created


def test_a_run_that_is_being_deleted_cannot_be_resumed(lab: Lab, running: Running) -> None:
    run_id = lab.start("fails", k=1)
    lab.wait(run_id)
    lab.query("SELECT apiary.delete_run(%s, 1)", run_id)
    with pytest.raises(WrongState):
        lab.ask(lab.store.resume(run_id, None))


def test_an_unfinished_run_is_not_deleted(lab: Lab) -> None:
    with pytest.raises(WrongState):
        lab.ask(lab.store.delete(lab.start("writes", n=1)))


def test_retention_counts_from_the_end(lab: Lab) -> None:
    for run_id in ("old", "long"):
        lab.start_with("writes", {"run_id": run_id, "executor_only": False}, n=1)
    lab.query("UPDATE apiary.run SET created_at = now() - interval '3 days'")
    lab.query("UPDATE apiary.run SET finished_at = now() - interval '2 days' WHERE run_id = 'old'")
    before = datetime.now(UTC) - timedelta(days=1)
    assert lab.ask(lab.store.expired(before, 10)) == ["old"]


def test_a_runs_deadline_ends_it_and_its_children(lab: Lab, running: Running) -> None:
    lab.start_with("hurried_parent", {"run_id": "p"})
    assert lab.wait("p")["status"] == "TIMED_OUT"
    assert lab.wait("p/1")["status"] == "TIMED_OUT"
    assert lab.row("p/1")["deadline"] == lab.row("p")["deadline"]


def test_a_steps_time_out_is_an_outcome(lab: Lab, running: Running) -> None:
    assert lab.output(lab.start("lates")) == "DeadlineExceeded"


def test_a_time_out_kills_the_steps_process(lab: Lab, running: Running, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    assert lab.output(lab.start("plates", path=str(path))) == "DeadlineExceeded"
    lab.until(lambda: not is_alive(int(path.read_text())))


def test_a_crashed_process_is_a_failed_attempt(lab: Lab, running: Running, tmp_path: Path) -> None:
    run_id = lab.start("crashes", path=str(tmp_path / "tries"))
    assert lab.output(run_id) == 2
    (attempt,) = lab.query("SELECT error ->> 'type' AS type FROM apiary.attempt")
    assert attempt["type"] == "StepProcessDied"


def test_retries_are_logged_and_counted(lab: Lab, running: Running, tmp_path: Path) -> None:
    run_id = lab.start("tries", path=str(tmp_path / "tries"), good=3)
    assert lab.output(run_id) == 3
    attempts = lab.query("SELECT attempt, status FROM apiary.attempt ORDER BY attempt")
    assert [tuple(row.values()) for row in attempts] == [(1, "RETRIED"), (2, "RETRIED")]
    (row,) = lab.query("SELECT attempt FROM apiary.operation WHERE run_id = %s AND seq = 1", run_id)
    assert row["attempt"] == 3


def test_a_predicate_decides_what_is_tried_again(
    lab: Lab, running: Running, tmp_path: Path
) -> None:
    path = tmp_path / "tries"
    assert lab.wait(lab.start("choosy", path=str(path)))["status"] == "FAILED"
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("workflow", "code", "text"),
    [("unstored", "BAD_RESULT", "unstorable"), ("oversized", "PAYLOAD_TOO_LARGE", "huge")],
)
def test_a_result_that_cannot_be_stored_fails_at_once(
    lab: Lab, running: Running, tmp_path: Path, workflow: str, code: str, text: str
) -> None:
    path = tmp_path / "tries"
    row = lab.wait(lab.start(workflow, path=str(path)))
    assert (row["status"], row["error"]["code"]) == ("FAILED", code)
    assert text in row["error"]["message"]
    assert len(path.read_text().splitlines()) == 1


def test_a_workflow_that_returns_a_lambda_fails(lab: Lab, running: Running) -> None:
    row = lab.wait(lab.start("bad_result", k=1))
    assert (row["status"], row["error"]["code"]) == ("FAILED", "BAD_RESULT")


def test_progress_is_shown(lab: Lab, running: Running) -> None:
    run_id = lab.start("reports")
    lab.wait(run_id)
    shown: dict[str, Any] = lab.until(lambda: lab.row(run_id)["progress"])
    assert (shown["done"], shown["total"]) in ((1, 2), (2, 2))


def test_a_taken_over_step_keeps_count_of_its_attempts(lab: Lab, tmp_path: Path) -> None:
    run_id = lab.start("tries", path=str(tmp_path / "tries"), good=9)
    run = claimed(lab, run_id)
    row = {"seq": 1, "attempt": 1, "name": "w.flaky", "error": {"type": "X"}, "started_at": 0.0}
    lab.ask(lab.store.log_step_attempt(run, row))
    lab.ask(lab.store.release(run_id, run.epoch, []))
    lab.executor()
    assert lab.wait(run_id)["status"] == "FAILED"
    assert len((tmp_path / "tries").read_text().splitlines()) == 3
