"""Waiting: parked runs, messages, events, streams."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from apiary.errors import NotFound
from tests.integration.workflows.conftest import Lab, Running


@pytest.mark.parametrize(("workflow", "document"), [("sleeper", {"seconds": 0.3}), ("until", {})])
def test_a_sleep_is_not_shorter_than_asked(
    lab: Lab, running: Running, workflow: str, document: dict[str, Any]
) -> None:
    run_id = lab.start(workflow, **document)
    assert lab.output(run_id) is True
    assert lab.row(run_id)["epoch"] == 2  # it was parked once


def test_each_time_out_is_recorded_once_whatever_dies(lab: Lab) -> None:
    run_id = lab.start("receives", n=5, timeout_s=0.2)
    for done in range(5):
        executor = lab.executor(lease_s=1.0)
        _recorded(lab, run_id, done + 1)
        executor.crash()
    lab.executor(lease_s=1.0)
    assert lab.output(run_id) == ["timed out"] * 5
    recorded = lab.operations(run_id)
    assert [(op[0], op[1], op[3]) for op in recorded] == [
        (i, "recv", "FAILED") for i in range(1, 6)
    ]


def _recorded(lab: Lab, run_id: str, count: int) -> None:
    """Wait until a run has so many operations."""
    lab.until(lambda: len(lab.operations(run_id)) >= count)


def test_a_null_message_is_no_time_out(lab: Lab, running: Running) -> None:
    run_id = lab.start("receives", n=2, timeout_s=5.0)
    lab.wait(run_id, "WAITING")
    lab.ask(lab.store.send(run_id, "t0", None, None))
    lab.ask(lab.store.send(run_id, "t1", {"b": 1, "a": 2}, None))
    assert lab.output(run_id) == [None, {"b": 1, "a": 2}]
    assert list(lab.operations(run_id)[1][4]["message"]) == ["b", "a"]  # the order is kept


def test_a_repeated_send_changes_nothing(lab: Lab, running: Running) -> None:
    run_id = lab.start("receives", n=2, timeout_s=0.3)
    for _ in range(3):
        lab.ask(lab.store.send(run_id, "t0", "one", "key"))
    lab.output(run_id)
    assert len(lab.query("SELECT * FROM apiary.mailbox")) == 1


def test_a_send_to_an_unknown_run_is_an_outcome(lab: Lab, running: Running) -> None:
    with pytest.raises(NotFound):
        lab.ask(lab.store.send("nobody", "", 1, None))
    run_id = lab.start("sends", to="nobody", message=1)
    assert lab.output(run_id) == "NotFound"
    assert [op[1:4] for op in lab.operations(run_id)] == [("send", "", "FAILED")]


def test_a_message_goes_from_run_to_run_once(lab: Lab, running: Running) -> None:
    to = lab.start("receiver", topic="a")
    lab.wait(to, "WAITING")
    assert lab.output(lab.start("sends", to=to, message=[1, "x"], topic="a")) == "sent"
    assert lab.output(to) == [1, "x"]


@pytest.mark.parametrize("first", ["set", "get"])
def test_an_event_is_seen_whichever_comes_first(lab: Lab, running: Running, first: str) -> None:
    setter = {"run_id": "setter"}
    if first == "get":
        run_id = lab.start("gets", other="setter", key="k")
        lab.wait(run_id, "WAITING")
        lab.start_with("sets", setter, key="k", value={"v": 1})
    else:
        lab.start_with("sets", setter, key="k", value={"v": 1})
        lab.wait("setter", "WAITING")
        run_id = lab.start("gets", other="setter", key="k")
    assert lab.output(run_id) == {"v": 1}
    assert lab.query("SELECT * FROM apiary.waiter") == []


def test_an_event_that_does_not_come_times_out(lab: Lab, running: Running) -> None:
    run_id = lab.start("gets", other="nobody", key="k", timeout_s=0.2)
    assert lab.output(run_id) == "timed out"


def test_a_stream_has_no_gaps_and_no_doubles(lab: Lab, running: Running) -> None:
    lab.output(run_id := lab.start("streams", n=6))
    rows = lab.query(
        'SELECT "offset", value FROM apiary.stream WHERE run_id = %s ORDER BY 1', run_id
    )
    assert [(row["offset"], row["value"]) for row in rows] == [(i, i) for i in range(6)]


def test_what_a_failed_attempt_wrote_to_a_stream_is_gone(
    lab: Lab, running: Running, tmp_path: Path
) -> None:
    run_id = lab.start("tries", path=str(tmp_path / "tries"), good=3)
    assert lab.output(run_id) == 3
    rows = lab.query("SELECT value FROM apiary.stream WHERE run_id = %s", run_id)
    assert [row["value"] for row in rows] == [3]


def test_a_finally_does_nothing_while_its_run_is_parked(lab: Lab, running: Running) -> None:
    run_id = lab.start("tidy")
    lab.wait(run_id, "WAITING")
    assert lab.effects() == []
    lab.ask(lab.store.send(run_id, "go", "there", None))
    assert lab.output(run_id) == "there"
    assert lab.effects() == ["tidied"]


@pytest.mark.parametrize("workflow", ["greedy", "greedy_loop"])
def test_code_that_swallows_everything_is_parked_all_the_same(
    lab: Lab, running: Running, workflow: str
) -> None:
    run_id = lab.start(workflow)
    lab.wait(run_id, "WAITING")
    lab.ask(lab.store.send(run_id, "go", "there", None))
    assert lab.output(run_id) == "there"


def test_code_that_is_left_behind_takes_neither_memory_nor_a_core(
    lab: Lab, running: Running, tmp_path: Path
) -> None:
    noted, stop = tmp_path / "noted", tmp_path / "stop"
    run_id = lab.start("greediest", path=str(noted), stop=str(stop))
    (thread,) = lab.until(lambda: _threads(run_id))
    try:
        lab.until(noted.exists)
        # What it swallows does not grow by being raised again.
        assert int(noted.read_text()) < 10
        lab.wait(run_id, "WAITING")
        assert thread.is_alive()
        lab.until(lambda: _pauses(thread))
    finally:
        stop.touch()
    lab.ask(lab.store.send(run_id, "go", "there", None))
    lab.wait(run_id)
    lab.until(lambda: not thread.is_alive())


def _threads(run_id: str) -> list[threading.Thread]:
    """The threads that run the code of a run."""
    return [each for each in threading.enumerate() if each.name == f"run {run_id}"]


def _pauses(thread: threading.Thread) -> bool:
    """Whether a thread has taken no time of the processor while this one took some."""
    before, began = _spent_s(thread), time.thread_time()
    while time.thread_time() - began < 0.2:
        pass
    return _spent_s(thread) - before < 0.02


def _spent_s(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def test_runs_that_wait_are_nowhere_but_in_the_database(lab: Lab, running: Running) -> None:
    pattern = lab.start("receiver", topic="x")
    lab.wait(pattern, "WAITING")
    lab.query(
        "INSERT INTO apiary.run (run_id, application, workflow, deployment, principal, status,"
        " in_database, input, input_digest, waiting_for, waiting_left, epoch, started_at)"
        " SELECT 'w' || g, application, workflow, deployment, principal, status, in_database,"
        " input, input_digest, waiting_for, waiting_left, 1, started_at"
        " FROM apiary.run, generate_series(1, 10000) g WHERE run_id = %s",
        pattern,
    )
    lab.ask(lab.store.send("w77", "x", "hello", None))
    assert lab.output("w77") == "hello"
    executor = running.executor
    lab.until(lambda: not executor._driving)
    assert executor._running == {}
    assert (
        lab.query("SELECT count(*) AS n FROM apiary.run WHERE status = 'WAITING'")[0]["n"] == 10000
    )
