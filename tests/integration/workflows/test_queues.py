"""Queues: priority, limits, deduplication, delay, pause, fairness."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apiary.errors import NotFound
from tests.integration.workflows.conftest import Lab

LEASE = timedelta(seconds=30)


def queue(lab: Lab, name: str, **limits: Any) -> None:
    """Create a queue."""
    columns = ", ".join(["name", *limits])
    marks = ", ".join(["%s"] * (1 + len(limits)))
    lab.query(f"INSERT INTO apiary.queue ({columns}) VALUES ({marks})", name, *limits.values())


def put(lab: Lab, run_id: str, queue_name: str | None = "q", **options: Any) -> str:
    """Start a run in a queue."""
    chosen = {"run_id": run_id, "queue": queue_name, **options}
    return lab.start_with("receiver", chosen, topic="go").run_id


def claim(lab: Lab, limit: int = 10, executor: str = "me", **where: Any) -> list[str]:
    """Claim by hand."""
    return [run.run_id for run in lab.ask(lab.store.claim(executor, limit, LEASE, **where))]


def test_a_queue_has_to_exist(lab: Lab) -> None:
    with pytest.raises(NotFound):
        put(lab, "a", "nowhere")


def test_a_lower_number_goes_first(lab: Lab) -> None:
    queue(lab, "q")
    for run_id, priority in (("a", 5), ("b", 0), ("c", 5), ("d", -1)):
        put(lab, run_id, priority=priority)
    assert [claim(lab, 1)[0] for _ in range(4)] == ["d", "b", "a", "c"]


def test_concurrency_counts_runs_until_they_end(lab: Lab) -> None:
    queue(lab, "q", concurrency=2)
    for run_id in "abcd":
        put(lab, run_id)
    assert len(claim(lab)) == 2
    assert claim(lab) == []
    (run,) = lab.query("SELECT run_id, epoch FROM apiary.run WHERE status = 'RUNNING' LIMIT 1")
    waiting = {"kind": "message", "topic": "go"}
    lab.ask(lab.store.park(run["run_id"], run["epoch"], waiting, None, []))
    assert claim(lab) == []  # it holds its place while it waits
    lab.ask(lab.store.cancel(run["run_id"], None, cascade=False))
    assert len(claim(lab)) == 1


def test_concurrency_per_executor(lab: Lab) -> None:
    queue(lab, "q", executor_concurrency=1)
    for run_id in "abc":
        put(lab, run_id)
    assert len(claim(lab, executor="one")) == 1
    assert claim(lab, executor="one") == []
    assert len(claim(lab, executor="two")) == 1


def test_concurrency_per_key(lab: Lab) -> None:
    queue(lab, "q", key_concurrency=1)
    for run_id, key in (("a", "x"), ("b", "x"), ("c", "y"), ("d", None), ("e", None)):
        put(lab, run_id, queue_key=key)
    assert sorted(claim(lab)) == ["a", "c", "d", "e"]
    assert claim(lab) == []
    lab.ask(lab.store.cancel("a", None, cascade=False))
    assert claim(lab) == ["b"]


def test_a_rate_limit(lab: Lab) -> None:
    queue(lab, "q", rate_limit=2, rate_period=timedelta(seconds=0.5))
    for run_id in "abcde":
        put(lab, run_id)
    assert len(claim(lab)) == 2
    assert claim(lab) == []
    look = lab.ask(lab.store.look())
    assert 0 < look.wait_s(5.0) <= 0.5
    lab.until(lambda: claim(lab))
    assert (
        lab.query("SELECT count(*) AS n FROM apiary.run WHERE started_at IS NOT NULL")[0]["n"] == 4
    )


@pytest.mark.parametrize("queue_name", ["q", None])
def test_deduplication(lab: Lab, queue_name: str | None) -> None:
    queue(lab, "q")
    assert put(lab, "a", queue_name, deduplication="k") == "a"
    assert put(lab, "b", queue_name, deduplication="k") == "a"
    lab.ask(lab.store.cancel("a", None, cascade=False))
    assert put(lab, "c", queue_name, deduplication="k") == "c"


def test_a_delayed_start(lab: Lab) -> None:
    lab.executor()
    start_at = datetime.now(UTC) + timedelta(seconds=0.7)
    lab.start_with("nothing", {"run_id": "d", "start_at": start_at})
    assert lab.status("d") == "SCHEDULED"
    assert lab.wait("d")["started_at"] >= start_at


def test_a_paused_queue_and_no_other_stands_still(lab: Lab) -> None:
    queue(lab, "q", paused=True)
    put(lab, "a")
    put(lab, "b", None)
    assert claim(lab) == ["b"]
    lab.query("UPDATE apiary.queue SET paused = false")
    assert claim(lab) == ["a"]


@pytest.mark.parametrize("backlog", ["big", None])
def test_a_backlog_delays_no_other_queue(lab: Lab, backlog: str | None) -> None:
    queue(lab, "big")
    queue(lab, "small")
    pattern = put(lab, "pattern", "small")
    lab.query(
        "INSERT INTO apiary.run (run_id, application, workflow, deployment, principal, status,"
        " in_database, input, input_digest, queue, ready_at)"
        " SELECT 'b' || g, application, 'w.nothing', deployment, principal, 'QUEUED', false,"
        " '{}', 'x', %s, now() - interval '1 hour'"
        " FROM apiary.run, generate_series(1, 100000) g WHERE run_id = %s",
        backlog,
        pattern,
    )
    lab.query("ANALYZE apiary.run")
    assert len(claim(lab, 32)) == 32
    assert lab.row(pattern)["started_at"] is not None
    late = put(lab, "late", "small")
    assert late in claim(lab, 8)


def test_a_place_is_freed_when_its_run_ends_elsewhere(lab: Lab, tmp_path: Path) -> None:
    queue(lab, "q", concurrency=1)
    first = lab.executor(lease_s=1.0)
    path = str(tmp_path / "go")
    lab.start_with("holds", {"run_id": "a", "queue": "q"}, path=path)
    lab.until((tmp_path / "go.begun").exists)
    lab.start_with("nothing", {"run_id": "b", "queue": "q"})
    first.crash()
    (tmp_path / "go").touch()
    lab.executor(lease_s=1.0)
    assert lab.output("a") == "held"
    assert lab.wait("b")["status"] == "SUCCEEDED"
    assert lab.row("b")["started_at"] >= lab.row("a")["finished_at"]


def test_an_executor_takes_only_what_it_is_for(lab: Lab) -> None:
    queue(lab, "q")
    queue(lab, "other")
    put(lab, "a", "q")
    put(lab, "b", "other")
    put(lab, "c", None)
    assert claim(lab, applications=["another"]) == []
    assert claim(lab, queues=["other"]) == ["b"]
    lab.query("UPDATE apiary.run SET ready_at = now() - interval '1 s' WHERE run_id = 'b'")
    assert claim(lab, queues=["q"]) == ["a"]
    assert sorted(claim(lab)) == ["b", "c"]
