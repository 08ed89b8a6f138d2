"""Taking runs in hand over gRPC: cancel, resume, restart, fork, delete, why; messages, streams."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest

from apiary.client import Client, Queue, StartOptions
from apiary.errors import (
    BadArgument,
    Cancelled,
    FunctionError,
    NotFound,
    UnavailableError,
    WaitTimedOut,
    WrongState,
)
from tests.integration.server.workflow_world import World

Eventually = Callable[..., None]


def waiting(client: Client, eventually: Eventually, topic: str, **options: Any) -> str:
    """A run that is parked for a message."""
    handle = client.start("books.greet", topic=topic, **options)
    eventually(lambda: handle.status() == "WAITING")
    return handle.run_id


def test_a_cancelled_run_says_so_and_can_be_resumed(
    running: Client, eventually: Eventually
) -> None:
    run_id = waiting(running, eventually, "cancelled")
    assert running.cancel(run_id, "no need") == [run_id]
    assert running.cancel(run_id) == []
    with pytest.raises(Cancelled, match="no need"):
        running.handle(run_id).result(10)
    assert running.resume(run_id).status in ("QUEUED", "RUNNING", "WAITING")
    running.send(run_id, "ada", "cancelled")
    assert running.handle(run_id).result(20) == "hello ada"
    with pytest.raises(WrongState) as ended:
        running.resume(run_id)
    assert ended.value.status == "SUCCEEDED"
    with pytest.raises(NotFound):
        running.cancel("nobody")
    with pytest.raises(NotFound):
        running.resume("nobody")


def test_cancelling_takes_children_along(running: Client, eventually: Eventually) -> None:
    handle = running.start("books.parent", key="family", run_id="family")
    eventually(lambda: handle.status() == "WAITING")
    cancelled = handle.cancel(cascade=True)
    assert set(cancelled) == {"family", "family/1", "family/2"}
    assert running.get_run("family/1").parent_run_id == "family"
    assert {running.get_run(run_id).status for run_id in cancelled} == {"CANCELLED"}


def test_a_restart_begins_anew_and_a_fork_takes_over(running: Client, running_world: World) -> None:
    first = running.start("books.squares", run_id="squares", key="forked", values=[2, 3])
    assert first.result(20) == [4, 9]
    assert running_world.entries("forked") == 2
    again = running.restart("squares", "squares-again")
    assert again.created
    assert again.result(20) == [4, 9]
    assert not running.restart("squares", "squares-again").created
    assert running_world.entries("forked") == 4
    fork = running.fork("squares", 3, "squares-fork")
    assert fork.result(20) == [4, 9]
    assert running_world.entries("forked") == 5
    assert not running.fork("squares", 3, "squares-fork").created
    replaced = running.fork_replacing("squares", 3, 10, "squares-replaced")
    assert replaced.result(20) == [4, 10]
    assert running.get_run("squares-replaced").forked_from == "squares"
    for refused in (
        lambda: running.fork("squares", 0),
        lambda: running.fork_replacing("squares", 99, 1),
        lambda: running.fork("nobody", 1),
        lambda: running.fork("squares", 1, deployment="nothing"),
        lambda: running.restart("nobody"),
    ):
        with pytest.raises((BadArgument, NotFound)):
            refused()
    with pytest.raises(WrongState):
        running.fork("squares", 1, "squares-again")


def test_ended_runs_are_deleted_and_others_are_not(
    running: Client, running_world: World, eventually: Eventually
) -> None:
    handle = running.start("books.fill", run_id="old", key="old", amounts=[1, 2])
    assert running.delete_runs(["old", "nobody"]) == 1
    with pytest.raises(NotFound):
        handle.status()
    assert running_world.rows("SELECT 1 FROM apiary.operation WHERE run_id = 'old'") == []
    alive = waiting(running, eventually, "alive")
    with pytest.raises(WrongState):
        running.delete_runs([alive])
    with pytest.raises(BadArgument):
        running.delete_runs()
    running.start("books.fill", run_id="older", key="older", amounts=[1])
    now = dt.datetime.now(dt.UTC)
    assert running.delete_runs(ended_before=now - dt.timedelta(days=1)) == 0
    assert running.delete_runs(ended_before=now + dt.timedelta(seconds=1)) >= 1
    assert running.get_run(alive).status == "WAITING"
    running.cancel(alive)


def test_messages_arrive_once(running: Client, eventually: Eventually) -> None:
    run_id = waiting(running, eventually, "once")
    running.send(run_id, {"name": "ada"}, "another")
    for _ in range(2):
        running.send(run_id, "ada", "once", idempotency_key="message-1")
    assert running.handle(run_id).result(20) == "hello ada"
    with pytest.raises(NotFound):
        running.send("nobody", "ada")
    with pytest.raises(BadArgument):
        running.send(run_id, object())


def test_an_event_is_waited_for(running: Client, eventually: Eventually) -> None:
    run_id = waiting(running, eventually, "event")
    with pytest.raises(NotFound):
        running.get_event(run_id, "greeted")
    with pytest.raises(WaitTimedOut):
        running.get_event(run_id, "greeted", 0.3)
    sender = threading.Timer(0.3, lambda: running.send(run_id, "bo", "event"))
    sender.start()
    assert running.get_event(run_id, "greeted", 20) == "bo"
    sender.join()
    running.handle(run_id).wait(20)
    with pytest.raises(NotFound):  # it cannot come any more
        running.get_event(run_id, "never", 20)
    with pytest.raises(NotFound):
        running.get_event("nobody", "greeted", 5)


def test_a_stream_is_followed_to_the_run_s_end(running: Client, eventually: Eventually) -> None:
    handle = running.start("books.count", up_to=3)
    eventually(lambda: handle.status() == "WAITING")
    assert list(running.read_stream(handle.run_id, "numbers")) == [(0, 0), (1, 1), (2, 2)]
    followed: list[Any] = []
    reader = threading.Thread(
        target=lambda: followed.extend(
            running.read_stream(handle.run_id, "numbers", 1, follow=True)
        )
    )
    reader.start()
    running.send(handle.run_id, None, "go")
    reader.join(20)
    assert followed == [(1, 1), (2, 2), (3, "end")]
    assert list(running.read_stream(handle.run_id, "nothing", follow=True)) == []
    with pytest.raises(NotFound):
        list(running.read_stream("nobody", "numbers"))
    with pytest.raises(BadArgument):
        list(running.read_stream(handle.run_id, "numbers", -1))


def test_why_a_run_does_not_move(world: World, ledgers: Client, eventually: Eventually) -> None:
    def why(run_id: str) -> str:
        return ledgers.explain(run_id)

    soon = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    ledgers.start("books.nap", run_id="at", seconds=1, options=StartOptions(start_at=soon))
    assert why("at").startswith("it waits for its start at 20")
    ledgers.start("books.nap", run_id="nap", seconds=600)
    assert "no executor is alive" in why("nap")
    ledgers.put_queue(Queue(name="narrow", concurrency=1, paused=True))
    for number in (1, 2):
        options = StartOptions(queue="narrow", queue_key="k")
        ledgers.start("books.nap", run_id=f"n{number}", seconds=600, options=options)
    assert "queue narrow is paused" in why("n1")
    world.start_executor(applications=["others"])
    eventually(lambda: "takes runs of application ledgers" in why("nap"))
    world.stop_executors()
    world.start_executor(queues=["narrow"])
    eventually(lambda: "starts runs that are in no queue" in why("nap"))
    ledgers.pause_queue("narrow", paused=False)
    eventually(lambda: "it sleeps until 20" in why("n1"))
    assert "queue narrow is full: 1 of 1 places are taken, by n1" in why("n2")
    ledgers.put_queue(Queue(name="narrow", key_concurrency=1))
    assert "runs at most 1 at once of key 'k', and these are n1" in why("n2")
    ledgers.put_queue(Queue(name="narrow", rate_limit=1, rate_period_s=3600))
    assert "starts at most 1 runs in 3600 s, and 1 have started" in why("n2")
    world.stop_executors()
    world.start_executor()
    eventually(lambda: "it sleeps until 20" in why("nap"))
    ledgers.start("books.greet", run_id="greet", topic="names", timeout_s=3600.0)
    eventually(lambda: "it waits for a message on topic 'names' until 20" in why("greet"))
    ledgers.start("books.parent", run_id="parent", key="p")
    eventually(lambda: "waits for 2 of its child runs: parent/1 (WAITING)" in why("parent"))
    ledgers.cancel("parent", cascade=True)
    assert why("parent").startswith("it has ended: CANCELLED at 20")
    assert "Cancelled: the run was cancelled" in why("parent")
    with pytest.raises(FunctionError):
        ledgers.start("books.fail", run_id="failed", key="f").result()
    assert "FAILED" in why("failed")
    assert "nothing left of f" in why("failed")
    with pytest.raises(NotFound):
        why("nobody")


def test_why_a_run_is_with_an_executor_that_is_gone(world: World, ledgers: Client) -> None:
    ledgers.start("books.nap", run_id="held", seconds=600)
    world.rows(
        "UPDATE apiary.run SET status = 'RUNNING', executor = 'dead#1', epoch = 1,"
        " started_at = clock_timestamp(), ready_at = clock_timestamp() + '1 minute'"
        " WHERE run_id = 'held'"
    )
    text = ledgers.explain("held")
    assert text.startswith("executor dead, which holds it, gives no sign of life; its lease ends")
    assert "no executor is alive" in text
    world.rows("UPDATE apiary.run SET ready_at = clock_timestamp() WHERE run_id = 'held'")
    assert ledgers.explain("held").startswith("the lease of executor dead ended at 20")
    world.rows(
        "UPDATE apiary.run SET status = 'STUCK', ready_at = NULL, adoptions = 50"
        " WHERE run_id = 'held'"
    )
    assert "stuck after 50 adoptions" in ledgers.explain("held")
    assert "apiary workflow resume held" in ledgers.explain("held")
    with pytest.raises(WrongState, match="STUCK"):
        ledgers.handle("held").result(10)


def test_waiting_goes_on_at_another_server(world: World, eventually: Eventually) -> None:
    first = world.servers.start()
    world.start_executor()
    with Client(first.address, retry_budget_s=20) as client:
        handle = client.start("books.greet", topic="moved")
        results: list[Any] = []
        waiter = threading.Thread(target=lambda: results.append(handle.result(30)))
        waiter.start()
        eventually(lambda: handle.status() == "WAITING")
        first.close()
        second = world.servers.start(address=first.address)
        with Client(second.address) as other:
            other.send(handle.run_id, "ada", "moved")
        waiter.join(30)
    assert results == ["hello ada"]


def test_a_stopping_server_sends_waiters_away_at_once(world: World, eventually: Eventually) -> None:
    server = world.servers.start()
    world.start_executor()
    with Client(server.address, retry_budget_s=0) as client:
        handle = client.start("books.greet", topic="away")
        eventually(lambda: handle.status() == "WAITING")
        told: list[Exception] = []

        def wait() -> None:
            try:
                handle.wait(60)
            except UnavailableError as error:
                told.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: len(server.server._gate._inside) > 0)  # type: ignore[union-attr]
        server.close(grace_s=60)
        waiter.join(20)
    assert len(told) == 1
