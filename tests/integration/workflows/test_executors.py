"""Executors: drain, the listener, bounded recovery, many waiters."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from apiary.execution.listening import Listener
from apiary.execution.topics import Topic, Topics
from apiary.execution.watching import FINISHED
from apiary.local import PrivateCluster
from apiary.testing import FAST_SETTINGS
from tests.integration.workflows.conftest import Lab
from tests.integration.workflows.proxy import Proxy


def test_a_drain_lets_running_steps_finish(lab: Lab, tmp_path: Path) -> None:
    executor = lab.executor()
    run_id = lab.start("holds", path=str(tmp_path / "go"))
    lab.until((tmp_path / "go.begun").exists)
    (tmp_path / "go").touch()
    executor.drain(10.0)
    assert lab.status(run_id) in ("SUCCEEDED", "QUEUED")
    assert [op[2] for op in lab.operations(run_id)] == ["kv.effect", "w.hold"]
    lab.executor()
    assert lab.output(run_id) == "held"
    assert lab.effects() == ["holds"]


def test_what_does_not_finish_within_the_grace_is_given_back(lab: Lab, tmp_path: Path) -> None:
    executor = lab.executor()
    run_id = lab.start("holds", path=str(tmp_path / "go"))
    lab.until((tmp_path / "go.begun").exists)
    executor.drain(0.2)
    row = lab.row(run_id)
    assert (row["status"], row["executor"], row["adoptions"]) == ("QUEUED", None, 0)
    assert lab.query("SELECT * FROM apiary.executor") == []
    (tmp_path / "go").touch()
    lab.executor()
    assert lab.output(run_id) == "held"


def test_who_registers_clears_away_executors_that_were_killed(lab: Lab) -> None:
    lab.query(
        "INSERT INTO apiary.executor (name, host, pid, version, seen_at) SELECT name, 'h', 1, 'v',"
        " apiary.clock() - age FROM (VALUES ('killed', interval '25 hours'),"
        " ('quiet', interval '23 hours'), ('back', interval '2 days')) AS e (name, age)"
    )
    for _ in range(2):  # under the name that one of them had, and had again
        lab.ask(lab.store.register_executor("back", "host", 2, "v"))
    rows = lab.query("SELECT name, pid FROM apiary.executor ORDER BY name")
    assert [(row["name"], row["pid"]) for row in rows] == [("back", 2), ("quiet", 1)]


def test_a_draining_executor_takes_nothing(lab: Lab, tmp_path: Path) -> None:
    executor = lab.executor()
    executor.drain(1.0)
    run_id = lab.start("nothing")
    assert lab.ask(lab.store.look()).ready_at is not None
    assert lab.status(run_id) == "QUEUED"


def test_the_listener_comes_back_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, record_property: Any
) -> None:
    folder = tmp_path_factory.getbasetemp()
    folder.parent.chmod(0o755)
    folder.chmod(0o755)
    cluster = PrivateCluster(folder / "restarted", settings=FAST_SETTINGS)
    cluster.start()
    lab = Lab(cluster.url())
    try:
        listener = Listener(lab.url)
        heard: list[str] = []

        async def listen() -> None:
            listener.subscribe("apiary_changed", heard.append)
            await listener.start()

        lab.ask(listen())
        lab.until(lambda: listener.works)
        heard.clear()
        cluster.stop("immediate")
        cluster.start()
        begun = time.monotonic()
        lab.until(lambda: listener.reconnects == 1 and listener.works)
        record_property("listener_back_s", time.monotonic() - begun)
        assert "" in heard  # something may have been missed
        lab.query("NOTIFY apiary_changed, 'x'")
        lab.until(lambda: "x" in heard)
        lab.ask(listener.close())
    finally:
        lab.close()
        cluster.destroy()


def test_where_notifications_do_not_arrive_polling_does_the_work(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Proxy(lab.url, notifications=False) as proxy:
        executor = lab.executor(listener_url=proxy.url, poll_s=0.2)
        to = lab.start("receiver", topic="a")
        lab.wait(to, "WAITING")
        lab.ask(lab.store.send(to, "a", "x", None))
        assert lab.output(to) == "x"
        lab.until(lambda: "listener_unusable" in caplog.text)
        assert executor.listener.works is False
        executor.drain()
    assert caplog.text.count("listener_unusable") == 1


@pytest.mark.campaign
def test_the_full_recovery(lab: Lab, record_property: Any) -> None:
    _recover(lab, 500, 2000, 170.0, record_property)


def test_recovery_is_bounded_and_fails_nothing(lab: Lab, record_property: Any) -> None:
    _recover(lab, 20, 500, 60.0, record_property)


def _recover(lab: Lab, runs: int, calls: int, patience_s: float, record_property: Any) -> None:
    """Runs that died after so many operations are replayed, and go on to their end."""
    pattern = lab.start("many", n=calls)
    executor = lab.executor()
    lab.until(lambda: lab.row(pattern)["finished_at"], patience_s)
    assert lab.output(pattern) == calls * (calls - 1)
    executor.crash()
    lab.query(
        "INSERT INTO apiary.run (run_id, application, workflow, deployment, principal, status,"
        " in_database, input, input_digest, epoch, started_at, ready_at, executor)"
        " SELECT 'r' || g, application, workflow, deployment, principal, 'RUNNING', false, input,"
        " input_digest, 1, now(), now(), 'dead' FROM apiary.run, generate_series(1, %s) g"
        " WHERE run_id = %s",
        runs, pattern,
    )  # fmt: skip
    lab.query(
        "INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal,"
        " status, input, input_digest, output, started_at, finished_at)"
        " SELECT 'r' || g, seq, kind, name, application, deployment, principal, status, input,"
        " input_digest, output, started_at, finished_at FROM apiary.operation,"
        " generate_series(1, %s) g WHERE run_id = %s AND seq BETWEEN 1 AND %s",
        runs, pattern, calls - 1,
    )  # fmt: skip
    begun, before_bytes = time.monotonic(), _peak_bytes(reset=True)
    executor = lab.executor(concurrency=8)
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, len(executor.executor._driving))
        left = "SELECT 1 AS one FROM apiary.run WHERE finished_at IS NULL LIMIT 1"
        return not lab.query(left)

    lab.until(ended, patience_s)
    took_s, more_bytes = time.monotonic() - begun, _peak_bytes() - before_bytes
    record_property("recovery_s", took_s)
    record_property("recovery_bytes", more_bytes)
    logging.getLogger(__name__).info(
        "recovered in %.1f s, with %.0f MB more at most", took_s, more_bytes / 1e6
    )
    assert most <= 8
    # Each was adopted once, and succeeded: none failed, got stuck, or was taken over again.
    rows = lab.query(
        "SELECT status, output #>> '{}' AS output, epoch, adoptions, count(*) AS n"
        " FROM apiary.run GROUP BY 1, 2, 3, 4 ORDER BY epoch"
    )
    output = str(calls * (calls - 1))
    assert [tuple(row.values()) for row in rows] == [
        ("SUCCEEDED", output, 1, 0, 1),
        ("SUCCEEDED", output, 2, 1, runs),
    ]


def _peak_bytes(*, reset: bool = False) -> int:
    """The most memory that this process has had at once; with ``reset`` counted from now on."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) * 1024


@pytest.mark.campaign
def test_ten_thousand_waiters(lab: Lab, record_property: Any) -> None:
    _many_waiters(lab, 10_000, record_property)


def test_many_waiters_leave_connections_for_others(lab: Lab, record_property: Any) -> None:
    _many_waiters(lab, 1_000, record_property)


def _many_waiters(lab: Lab, count: int, record_property: Any) -> None:
    pattern = lab.start("receiver", topic="x")
    lab.query(
        "INSERT INTO apiary.run (run_id, application, workflow, deployment, principal, status,"
        " in_database, input, input_digest)"
        " SELECT 'w' || g, application, workflow, deployment, principal, 'WAITING', false, input,"
        " input_digest FROM apiary.run, generate_series(1, %s) g WHERE run_id = %s",
        count, pattern,
    )  # fmt: skip

    async def measure() -> tuple[list[float], list[str]]:
        listener = Listener(lab.url)
        topics = Topics(lab.engine, listener)
        await topics.start()

        async def end_of(run_id: str) -> str:
            async with topics.watch(Topic("run", run_id)) as watch:
                while True:
                    async with topics.reading:
                        status = (await lab.store.status([run_id]))[run_id].status
                    if status in FINISHED:
                        return status
                    await watch.changed()

        waiting = [asyncio.create_task(end_of(f"w{g}")) for g in range(1, count + 1)]
        latencies = []
        for _ in range(200):
            begun = time.perf_counter()
            await lab.store.event("nobody", "k")
            latencies.append(time.perf_counter() - begun)
            await asyncio.sleep(0.01)
        async with lab.engine.connection() as connection:
            await connection.execute(
                "UPDATE apiary.run SET status = 'CANCELLED', finished_at = now(), ready_at = NULL,"
                " waiting_left = NULL WHERE status = 'WAITING'"
            )
        ended = await asyncio.gather(*waiting)
        await topics.close()
        await listener.close()
        return sorted(latencies), ended

    latencies, statuses = lab.ask(measure())
    assert set(statuses) == {"CANCELLED"}
    p99_ms = latencies[int(len(latencies) * 0.99)] * 1000
    record_property("unrelated_call_p99_ms", p99_ms)
    logging.getLogger(__name__).info("%d waiters: an unrelated call's p99 %.1f ms", count, p99_ms)
