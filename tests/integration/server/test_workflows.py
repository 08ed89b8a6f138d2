"""Starting, waiting for and watching runs over gRPC."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import pytest

from apiary.authoring.bundle import Bundle
from apiary.authoring.loader import DeploymentCode
from apiary.client import AsyncClient, Client, StartOptions
from apiary.engine.postgres import PostgresEngine
from apiary.engine.runs import RunStore
from apiary.errors import (
    BadArgument,
    DeadlineExceeded,
    FunctionError,
    IdempotencyMismatch,
    NotFound,
    PayloadTooLarge,
    UnavailableError,
)
from apiary.execution.code import CodeCache
from apiary.execution.starting import RunOptions, Starter
from apiary.proto.apiary.v1 import apiary_pb2, apiary_pb2_grpc
from tests.integration.server.workflow_world import World

REPOSITORY = Path(__file__).resolve().parents[3]
Eventually = Callable[..., None]


def test_a_run_in_the_database_has_ended_when_start_answers(
    running: Client, running_world: World
) -> None:
    handle = running.start("books.fill", key="a", amounts=[1, 2, 3])
    assert handle.created
    assert handle.result() == 6
    run = handle.wait()
    assert (run.status, run.kind, run.name, run.executor) == (
        "SUCCEEDED", "workflow", "books.fill", "database",
    )  # fmt: skip
    assert [operation.name for operation in handle.operations()] == [
        "ledger.add", "ledger.add", "ledger.add", "ledger.total",
    ]  # fmt: skip
    assert running_world.entries("a") == 3


def test_a_run_with_steps_is_done_by_an_executor(running: Client) -> None:
    handle = running.start("books.squares", key="b", values=[2, 3])
    assert handle.result(20) == [4, 9]
    run = running.get_run(handle.run_id)
    assert run.executor not in (None, "database")
    assert run.progress is not None
    assert (run.progress.done, run.progress.total) == (2, 2)


def test_a_workflow_decodes_its_result_and_takes_positions(running: Client, ledger: Bundle) -> None:
    code = DeploymentCode("client", ledger.modules)
    later: Any = code.find("workflows.books", "later")
    handle = running.start(later, dt.date(2026, 7, 1), price=Decimal("1.10"))
    assert handle.result(20) == (dt.date(2026, 7, 2), Decimal("2.20"))
    again = running.handle(handle.run_id, later)
    assert again.result(20) == (dt.date(2026, 7, 2), Decimal("2.20"))
    assert again.status() == "SUCCEEDED"


@pytest.mark.parametrize("executor_only", [False, True])
def test_an_error_of_a_run_is_raised_where_its_result_is_asked_for(
    running: Client, executor_only: bool
) -> None:
    options = StartOptions(executor_only=executor_only)
    handle = running.start("books.fail", key=f"fail{executor_only}", options=options)
    with pytest.raises(FunctionError) as failed:
        handle.result(20)
    assert (failed.value.type, failed.value.code) == ("SoldOut", "SOLD_OUT")
    assert handle.status() == "FAILED"


def test_what_cannot_be_started_is_refused_and_leaves_nothing(
    running: Client, running_world: World
) -> None:
    with pytest.raises(NotFound, match=r"books\.fil\b"):
        running.start("books.fil", key="x", amounts=[1])
    with pytest.raises(NotFound):
        running.start("ledger.add", key="x", amount=1)
    with pytest.raises(BadArgument) as wrong:
        running.start("books.fill", run_id="wrong", key="x", amounts=["one"])
    assert wrong.value.path == "args.amounts[0]"
    with pytest.raises(BadArgument):
        running.start("books.fill", run_id="a\0b", key="x", amounts=[])
    with pytest.raises(BadArgument):
        running.start("books.fill", run_id="x" * 256, key="x", amounts=[])
    with pytest.raises(PayloadTooLarge):
        running.start("books.fill", run_id="large", key="x" * 5_000_000, amounts=[])
    options = StartOptions(queue="none")
    with pytest.raises(NotFound):
        running.start("books.fill", run_id="unqueued", key="x", amounts=[], options=options)
    options = StartOptions(deployment="none")
    with pytest.raises(NotFound):
        running.start("books.fill", run_id="undeployed", key="x", amounts=[], options=options)
    assert running_world.rows("SELECT 1 FROM apiary.run WHERE input ->> 'key' = 'x'") == []


def test_the_same_id_finds_the_run_and_another_input_is_refused(
    running: Client, running_world: World
) -> None:
    first = running.start("books.fill", run_id="same", key="same", amounts=[1])
    again = running.start("books.fill", run_id="same", amounts=[1], key="same")
    assert (first.created, again.created) == (True, False)
    assert again.result() == first.result() == 1
    assert running_world.entries("same") == 1
    for name, arguments in (
        ("books.fill", {"key": "same", "amounts": [2]}),
        ("books.nap", {"seconds": 0.0}),
    ):
        with pytest.raises(IdempotencyMismatch) as taken:
            running.start(name, run_id="same", **arguments)
        digests = {taken.value.recorded_digest, taken.value.requested_digest}
        assert len(digests) == 2
        assert all(len(digest) >= 16 for digest in digests)


def test_fifty_starts_of_one_id_run_the_body_once(running_world: World, running: Client) -> None:
    clients = [Client(running.address) for _ in range(5)]
    gate = threading.Barrier(50)

    def start(number: int) -> tuple[bool, Any]:
        gate.wait()
        handle = clients[number % 5].start(
            "books.fill", run_id="fifty", key="fifty", amounts=[1, 2]
        )
        return handle.created, handle.result(30)

    with ThreadPoolExecutor(50) as threads:
        outcomes = list(threads.map(start, range(50)))
    for client in clients:
        client.close()
    assert [result for _, result in outcomes] == [3] * 50
    assert sum(created for created, _ in outcomes) == 1
    assert running_world.entries("fifty") == 2


def test_a_run_waits_for_its_start_and_is_timed_out(running: Client) -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    options = StartOptions(start_at=soon)
    handle = running.start("books.fill", key="soon", amounts=[1], options=options)
    assert handle.status() == "SCHEDULED"
    assert handle.result(20) == 1
    run = running.get_run(handle.run_id)
    assert run.started_at is not None
    assert run.started_at >= soon
    late = running.start("books.nap", seconds=60, options=StartOptions(timeout_s=0.5))
    with pytest.raises(DeadlineExceeded):
        late.result(20)
    assert late.status() == "TIMED_OUT"


def test_waiting_can_be_bounded_and_the_run_goes_on(running: Client) -> None:
    handle = running.start("books.nap", seconds=1.5)
    with pytest.raises(DeadlineExceeded, match="it goes on"):
        handle.result(0.3)
    assert handle.result(20) == "awake"
    with pytest.raises(NotFound):
        running.handle("nobody").wait()


def test_watching_tells_operations_in_order_and_the_end_last(running: Client) -> None:
    handle = running.start("books.squares", key="watched", values=list(range(5)))
    events = list(handle.events(30))
    assert events[0].run is not None
    assert events[-1].run is not None
    assert events[-1].run.status == "SUCCEEDED"
    assert events[-1].run.output == [0, 1, 4, 9, 16]
    numbers = [event.operation.seq for event in events if event.operation is not None]
    assert numbers == list(range(1, 11))
    statuses = [event.run.status for event in events if event.run is not None]
    assert statuses == sorted(set(statuses), key=statuses.index)
    shown = [event.progress.done for event in events if event.progress is not None]
    assert shown == sorted(shown)
    assert shown[-1] == 5
    ended = list(running.handle(handle.run_id).events(30))
    assert ended[0].run is not None
    assert ended[0].run.status == "SUCCEEDED"
    assert [e.operation.seq for e in ended if e.operation is not None] == numbers


def test_read_only_calls_that_nothing_depended_on_are_shown_too(running: Client) -> None:
    handle = running.start("books.fill", key="reads", amounts=[])
    assert handle.result() == 0
    (operation,) = handle.operations()
    assert (operation.name, operation.output, operation.xid) == ("ledger.total", 0, None)
    told = [event.operation for event in handle.events(30) if event.operation is not None]
    assert told == [operation]


def test_runs_of_workflows_are_listed_beside_invocations(running: Client) -> None:
    running.call("ledger.add", key="listed", amount=1, run_id="listed-f")
    running.start("books.fill", run_id="listed-w", key="listed", amounts=[1])
    found = {run.run_id: run for run in running.list_runs(run_id_prefix="listed-")}
    assert {run.kind for run in found.values()} == {"function", "workflow"}
    only = [run.run_id for run in running.list_runs(run_id_prefix="listed-", kind="workflow")]
    assert only == ["listed-w"]
    with pytest.raises(BadArgument):
        list(running.list_runs(kind="step"))


def test_a_run_in_the_database_ends_though_its_client_has_gone(
    running: Client, running_world: World, eventually: Eventually
) -> None:
    with grpc.insecure_channel(running.address) as channel:
        stub: Any = apiary_pb2_grpc.WorkflowsStub(channel)  # type: ignore[no-untyped-call]
        request = apiary_pb2.StartRunRequest(
            workflow="books.fill_slowly",
            input='{"key": "gone", "times": 4, "duration_s": 0.3}',
            run_id="gone",
        )
        call = stub.StartRun.future(request)
        eventually(lambda: running.get_run("gone").status == "RUNNING", (NotFound,))
        call.cancel()
    assert running.handle("gone").result(20) == 4
    assert running_world.entries("gone") == 4
    assert running.get_run("gone").executor == "database"


def test_what_a_killed_server_began_is_gone_on_with(world: World, eventually: Eventually) -> None:
    program = (
        "import sys\n"
        "from apiary.server import ServerSettings, serve\n"
        "settings = ServerSettings(database_url=sys.argv[1], address='127.0.0.1:0')\n"
        "serve(settings, lambda server: print(server.address, flush=True))\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", program, world.runtime_url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert server.stdout is not None
    with server.stdout, Client(server.stdout.readline().strip(), retry_budget_s=0.1) as client:
        failed: list[Exception] = []

        def start() -> None:
            try:
                client.start("books.fill_slowly", run_id="cut", key="cut", times=5, duration_s=0.4)
            except UnavailableError as error:
                failed.append(error)

        caller = threading.Thread(target=start)
        caller.start()
        eventually(lambda: world.entries("cut") >= 2)
        # The backend dies with its client's host in real life; here it would go on.
        server.send_signal(signal.SIGKILL)
        world.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'apiary server' AND datname = current_database()"
        )
        server.wait()
        caller.join()
    assert len(failed) == 1
    # Its lease of 30 s would have to end first.
    world.rows("UPDATE apiary.run SET ready_at = clock_timestamp() WHERE run_id = 'cut'")
    world.start_executor()
    with Client(world.servers.start().address) as client:
        handle = client.start("books.fill_slowly", run_id="cut", key="cut", times=5, duration_s=0.4)
        assert not handle.created
        assert handle.result(30) == 5
    assert world.entries("cut") == 5


def test_the_async_client_does_the_same(running: Client) -> None:
    async def use() -> None:
        async with AsyncClient(running.address) as client:
            handle = await client.start("books.squares", key="async", values=[3])
            events = [event async for event in handle.events(20)]
            assert events[-1].run is not None
            assert events[-1].run.status == "SUCCEEDED"
            assert await handle.result(20) == [9]
            waiting = await client.start("books.greet", topic="async")
            await client.send(waiting.run_id, "ada", "async")
            assert await waiting.result(20) == "hello ada"
            assert await client.get_event(waiting.run_id, "greeted") == "ada"
            with pytest.raises(DeadlineExceeded):
                await (await client.start("books.nap", seconds=60)).wait(0.3)
            assert "books.fill" in [each.name for each in await client.workflows()]

    asyncio.run(use())


def test_a_request_comes_to_the_same_by_grpc_and_in_process(
    running: Client, running_world: World
) -> None:
    running.put_queue(_queue("alike"))
    requests: list[dict[str, Any]] = [
        {},
        {"queue": "alike", "deduplication": "one", "queue_key": "k", "priority": 3},
        {"queue": "alike", "deduplication": "one", "queue_key": "k", "priority": 3},
        {"deduplication": "none"},
        {"queue_key": "k"},
        {"queue": "nowhere"},
        {"timeout_s": -1.0},
        {"deployment": "nothing"},
    ]

    def by_grpc(number: int, options: dict[str, Any]) -> Any:
        handle = running.start(
            "books.greet", topic="never", run_id=f"grpc-{number}", options=StartOptions(**options)
        )
        return handle.created, handle.status() in ("QUEUED", "RUNNING", "WAITING")

    async def in_process(number: int, options: dict[str, Any]) -> Any:
        async with PostgresEngine(running_world.url) as engine:
            store = RunStore(engine)
            starter = Starter(store, CodeCache(engine))
            request = await starter.prepare(
                "ledgers", "books.greet", {"topic": "never"}, "local",
                RunOptions(run_id=f"here-{number}", **options),
            )  # fmt: skip
            outcome = await starter.start(request)
            return outcome.created, outcome.status in ("QUEUED", "RUNNING", "WAITING")

    def outcome(attempt: Callable[[], Any]) -> Any:
        try:
            return attempt()
        except Exception as error:  # noqa: BLE001 - that is the outcome
            return type(error)

    remote = [outcome(lambda n=n, o=o: by_grpc(n, o)) for n, o in enumerate(requests)]
    for run in running.list_runs(kind="workflow", run_id_prefix="grpc-"):
        running.cancel(run.run_id)
    local = [
        outcome(lambda n=n, o=o: asyncio.run(in_process(n, o))) for n, o in enumerate(requests)
    ]
    for run in running.list_runs(kind="workflow", run_id_prefix="here-"):
        running.cancel(run.run_id)
    assert remote == local
    columns = "queue, queue_key, priority, deduplication, input::text, input_digest, status"
    for number in range(len(requests)):
        rows = [
            running_world.rows(f"SELECT {columns} FROM apiary.run WHERE run_id = %s", run_id)
            for run_id in (f"grpc-{number}", f"here-{number}")
        ]
        assert rows[0] == rows[1]


def _queue(name: str) -> Any:
    from apiary.client import Queue

    return Queue(name=name)
