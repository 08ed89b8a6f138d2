"""Workflows, queues, schedules and deployments over gRPC; replays of running runs with new code."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from apiary.client import Client, Queue, Schedule, StartOptions
from apiary.errors import BadArgument, NotFound, PermissionDenied, WrongState
from apiary.server.authentication import Tokens
from tests.integration.server.workflow_application import WORKFLOWS, ledger_bundle
from tests.integration.server.workflow_world import World

Eventually = Callable[..., None]


def test_workflows_say_where_they_run_and_why(running: Client) -> None:
    found = {each.name: each for each in running.workflows()}
    assert found["books.fill"].in_database
    assert found["books.fill"].reasons == ()
    squares = running.explain_workflow("books.squares")
    assert not squares.in_database
    assert any(
        reason.startswith("workflows/books/__init__.py:") and "square" in reason
        for reason in squares.reasons
    )
    assert "books.square" not in found  # a step
    assert found["books.nap"].signature["parameters"][0]["name"] == "seconds"
    with pytest.raises(NotFound, match=r"books\.fil\b") as missing:
        running.explain_workflow("books.fil")
    assert missing.value.hint == "did you mean books.fill?"
    assert running.workflows("elsewhere") == []


def test_a_queue_s_limits_hold_and_it_is_counted(running: Client, eventually: Eventually) -> None:
    made = running.put_queue(Queue(name="pair", concurrency=2, rate_limit=100, rate_period_s=60))
    assert (made.concurrency, made.rate_limit, made.rate_period_s, made.paused) == (
        2, 100, 60.0, False,
    )  # fmt: skip
    options = StartOptions(queue="pair")
    handles = [running.start("books.greet", topic="pair", options=options) for _ in range(3)]

    def counted() -> tuple[int, int]:
        (queue,) = [each for each in running.queues() if each.name == "pair"]
        return queue.waiting, queue.active

    eventually(lambda: counted() == (1, 2))
    with pytest.raises(WrongState, match="3 unfinished runs"):
        running.delete_queue("pair")
    assert running.pause_queue("pair").paused
    for handle in handles:
        running.cancel(handle.run_id)
    assert counted() == (0, 0)
    waiting = running.start("books.fill", key="paused", amounts=[1], options=options)
    assert waiting.status() == "QUEUED"
    assert not running.pause_queue("pair", paused=False).paused
    assert waiting.result(20) == 1
    running.delete_queue("pair")
    assert running.get_run(waiting.run_id).queue == "pair"  # it is history
    for refused in (
        lambda: running.delete_queue("pair"),
        lambda: running.pause_queue("pair"),
        lambda: running.start("books.fill", key="x", amounts=[], options=options),
    ):
        with pytest.raises(NotFound):
            refused()


@pytest.mark.parametrize(
    ("queue", "path"),
    [
        (Queue(name=""), "name"),
        (Queue(name="x" * 256), "name"),
        (Queue(name="x", concurrency=0), "concurrency"),
        (Queue(name="x", rate_limit=1), "rate_limit"),
    ],
)
def test_a_queue_that_cannot_be_is_refused(running: Client, queue: Queue, path: str) -> None:
    with pytest.raises(BadArgument) as refused:
        running.put_queue(queue)
    assert refused.value.path == path


def test_a_schedule_fires_and_can_be_filled_up(running: Client, eventually: Eventually) -> None:
    stored = running.put_schedule(
        Schedule(
            name="often", workflow="books.fill", input={"key": "often", "amounts": [1]}, every_s=1
        )
    )
    assert (stored.every_s, stored.application, len(stored.next)) == (1.0, "ledgers", 1)
    eventually(
        lambda: any(run.status == "SUCCEEDED" for run in running.list_runs(run_id_prefix="often@"))
    )
    assert running.pause_schedule("often").next == ()
    cron = running.put_schedule(
        Schedule(
            name="nightly",
            workflow="books.fill",
            input={"key": "nightly", "amounts": []},
            cron="30 2 * * *",
            zone="Europe/Berlin",
        )
    )
    assert cron.cron == "30 2 * * *"
    found = {each.name: each for each in running.schedules(3)}
    assert len(found["nightly"].next) == 3
    assert found["often"].paused
    since = dt.datetime(2026, 10, 24, 12, tzinfo=dt.UTC)
    run_ids = running.backfill_schedule("nightly", since, since + dt.timedelta(days=2))
    assert len(run_ids) == 2  # once a day, also on the day that has 2:30 twice
    assert running.backfill_schedule("nightly", since, since + dt.timedelta(days=2)) == []
    assert running.handle(run_ids[0]).result(20) == 0
    resumed = running.pause_schedule("often", paused=False)
    assert resumed.next[0] > dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    for name in ("often", "nightly"):
        running.delete_schedule(name)
    for refused in (
        lambda: running.delete_schedule("often"),
        lambda: running.pause_schedule("often"),
        lambda: running.backfill_schedule("often", since, since + dt.timedelta(days=1)),
    ):
        with pytest.raises(NotFound):
            refused()


@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": "61 * * * *"},
        {"cron": "* * * *"},
        {"cron": "* * * * *", "zone": "Europe/Nowhere"},
        {"cron": "* * * * *", "every_s": 5.0},
        {},
        {"every_s": 5.0, "missed": "some"},
        {"cron": "* * * * *", "input": {"key": "x"}},
    ],
)
def test_a_schedule_that_cannot_be_is_refused(running: Client, wrong: dict[str, Any]) -> None:
    values = {"input": {"key": "x", "amounts": []}, **wrong}
    with pytest.raises(BadArgument):
        running.put_schedule(Schedule(name="wrong", workflow="books.fill", **values))
    with pytest.raises(NotFound):
        running.put_schedule(
            Schedule(name="wrong", workflow="books.fill", cron="* * * * *", queue="none",
                     input={"key": "x", "amounts": []})
        )  # fmt: skip
    assert "wrong" not in [each.name for each in running.schedules()]


def test_a_deployment_is_removed_only_when_nothing_needs_it(
    world: World, ledgers: Client, tmp_path: Path
) -> None:
    (first,) = ledgers.deployments()
    assert (first.application, first.current, first.live_runs) == ("ledgers", True, 0)
    old = ledgers.start("books.greet", run_id="old", topic="t")
    second = ledgers.deploy(ledger_bundle(tmp_path / "a", workflows=WORKFLOWS + "\n# second\n"))
    found = {each.id: each for each in ledgers.deployments("ledgers")}
    assert found[first.id].live_runs == 1
    assert not found[first.id].current
    assert found[second.deployment].current
    with pytest.raises(WrongState, match="1 runs that have not ended"):
        ledgers.remove_deployment("ledgers", first.id)
    with pytest.raises(WrongState, match="current"):
        ledgers.remove_deployment("ledgers", second.deployment)
    old.cancel()
    ledgers.remove_deployment("ledgers", first.id)
    assert [each.id for each in ledgers.deployments()] == [second.deployment]
    for refused in (
        lambda: ledgers.remove_deployment("ledgers", first.id),
        lambda: ledgers.deployments("elsewhere"),
        lambda: ledgers.rollback("ledgers"),
    ):
        with pytest.raises(NotFound):
            refused()
    assert ledgers.start("books.fill", key="k", amounts=[1]).result() == 1
    ledgers.resume("old")
    assert f"deployment {first.id} is not in the database any more" in ledgers.explain("old")


def test_a_check_lists_the_runs_that_new_code_would_break(
    world: World, ledgers: Client, tmp_path: Path, eventually: Eventually
) -> None:
    world.start_executor()
    ledgers.start("books.nap", run_id="nap", seconds=600)
    ledgers.start("books.greet", run_id="greet", topic="t")
    ledgers.start("books.count", run_id="count", up_to=2)
    ledgers.start("books.parent", run_id="parent", key="p")
    handles = [ledgers.handle(run_id) for run_id in ("nap", "greet", "count", "parent")]
    eventually(lambda: all(handle.status() == "WAITING" for handle in handles))

    def check(*changes: tuple[str, str]) -> dict[str, Any]:
        source = WORKFLOWS
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        done = ledgers.deploy(ledger_bundle(place, workflows=source), check_only=True)
        assert done.replay is not None
        assert done.replay.live_runs == done.replay.checked == 6
        return {problem.run_id: problem for problem in done.replay.problems}

    before = ledgers.deployments()
    assert check() == {}
    later = check(('return f"hello {name}"', 'return f"bye {name}"'))
    assert later == {}  # behind what is recorded
    found = check(("    apiary.sleep(seconds)", "    square(2)\n    apiary.sleep(seconds)"))
    assert set(found) == {"nap"}
    assert "sleep" in found["nap"].recorded
    assert "step books.square" in found["nap"].now
    found = check(('apiary.write_stream("numbers", number)', 'apiary.write_stream("n", number)'))
    assert set(found) == {"count"}
    found = check(('greet.start(f"{key}-b")', 'greet.start(f"{key}-c")'))
    assert set(found) == {"parent"}
    found = check(("def greet(topic: str, ", "def greet(subject: str, "),
                  ("apiary.recv(topic, ", "apiary.recv(subject, "))  # fmt: skip
    assert set(found) == {"greet", "parent", "parent/1", "parent/2"}
    assert "does not take the run's input" in found["greet"].reason
    found = check(("def nap(", "def slumber("))
    assert found["nap"].reason == "the new code has no such workflow"
    assert ledgers.deployments() == before


def test_each_call_needs_a_role(world: World) -> None:
    tokens = Tokens.parse("t-invoke ada invoke\nt-query bo query\nt-deploy cy deploy", "tokens")
    address = world.servers.start(tokens=tokens).address
    now = dt.datetime.now(dt.UTC)
    with (
        Client(address, token="t-invoke") as invoker,
        Client(address, token="t-query") as reader,
        Client(address, token="t-deploy") as deployer,
    ):
        handle = invoker.start("books.fill", key="k", amounts=[1])
        assert handle.wait(20).principal == "ada"
        deployer.put_queue(Queue(name="q"))
        assert [queue.name for queue in reader.queues()] == ["q"]
        for client, refused in (
            (reader, lambda c: c.start("books.fill", key="k", amounts=[1])),
            (reader, lambda c: c.cancel(handle.run_id)),
            (invoker, lambda c: c.put_queue(Queue(name="r"))),
            (invoker, lambda c: c.delete_runs(ended_before=now)),
            (invoker, lambda c: c.remove_deployment("ledgers", "x")),
            (invoker, lambda c: c.schedules()),
        ):
            with pytest.raises(PermissionDenied):
                refused(client)


def test_a_server_without_a_deploy_url_removes_nothing(world: World) -> None:
    address = world.servers.start(deploy_url=None).address
    with Client(address) as client, pytest.raises(PermissionDenied):
        client.remove_deployment("ledgers", client.deployments()[0].id)


def test_reflection_and_health_know_the_service(running: Client) -> None:
    with grpc.insecure_channel(running.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
        answer = health.Check(health_pb2.HealthCheckRequest(service="apiary.v1.Workflows"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[no-untyped-call]
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (listed,) = reflection.ServerReflectionInfo(iter([request]))
        names = [service.name for service in listed.list_services_response.service]
        assert "apiary.v1.Workflows" in names


def test_a_start_takes_the_deployment_that_serves_now(
    world: World, ledgers: Client, tmp_path: Path
) -> None:
    def start(run_id: str, **arguments: Any) -> str | None:
        ledgers.start("books.greet", run_id=run_id, **arguments)
        return ledgers.get_run(run_id).deployment

    first = start("first", topic="t")
    assert start("second", topic="t") == first  # as known from the first
    changed = WORKFLOWS.replace("def greet(topic: str, ", "def greet(topic: str, n: int = 1, ")
    assert changed != WORKFLOWS
    second = ledgers.deploy(ledger_bundle(tmp_path / "a", workflows=changed)).deployment
    assert second != first
    assert start("third", topic="t") == second
    # What the version before would refuse, this one takes; and the other way round.
    assert start("fourth", topic="t", n=2) == second
    third = ledgers.deploy(ledger_bundle(tmp_path / "b", workflows=WORKFLOWS + "\n# third\n"))
    with pytest.raises(BadArgument):
        start("fifth", topic="t", n=2)
    assert start("sixth", topic="t") == third.deployment
    found = world.rows("SELECT run_id, input FROM apiary.run ORDER BY created_at")
    assert [row["run_id"] for row in found] == ["first", "second", "third", "fourth", "sixth"]
    assert found[2]["input"] == {
        "topic": "t",
        "n": 1,
        "timeout_s": None,
    }  # with the new version's defaults


def test_a_run_in_the_database_has_the_deployment_that_serves_now(
    ledgers: Client, tmp_path: Path
) -> None:
    def fill(run_id: str) -> str | None:
        ledgers.start("books.fill", key="k", amounts=[1], run_id=run_id).result(30)  # no executor
        return ledgers.get_run(run_id).deployment

    first = fill("first")
    assert fill("second") == first  # as known from the first
    changed = ledger_bundle(tmp_path / "a", workflows=WORKFLOWS + "\n# another\n")
    second = ledgers.deploy(changed).deployment
    assert second != first
    assert fill("third") == second
    assert fill("second") == first  # it is there already
