"""What is done to the database, the executors and the clients while runs are under way."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from apiary.engine.postgres import PostgresEngine, PostgresSettings
from apiary.engine.runs import RunOutcome, RunStore
from apiary.errors import Cancelled, UnavailableError
from apiary.execution.verifying import verify
from tests.chaos.clocks import set_clock
from tests.chaos.conftest import Place
from tests.chaos.driving import PATIENCE_S, Driver, Job
from tests.chaos.processes import LEASE_S, ClientProcess, executors
from tests.chaos.proxy import lossy_proxy
from tests.chaos.watching import AT_THE_GATE, closed_gate, query, until

MIXED = Job(run_id="run", workflow="flows.mixed", input={"number": 1})
FIVE = Job(run_id="run", workflow="flows.five", input={"me": "run", "number": 1})
HELD = Job(run_id="run", workflow="flows.held", input={"me": "run", "number": 1})
HELD_OUTSIDE = Job(run_id="run", workflow="flows.held", input=HELD.input, executor_only=True)


def start(url: str, *jobs: Job) -> None:
    async def work() -> None:
        async with PostgresEngine(url) as engine:
            for job in jobs:
                await Driver(engine).start(job)

    asyncio.run(work())


def finish(url: str, job: Job, within_s: float = PATIENCE_S) -> RunOutcome:
    async def work() -> RunOutcome:
        async with PostgresEngine(url, PostgresSettings(acquire_timeout_s=5.0)) as engine:
            return await Driver(engine).finish(job, within_s)

    try:
        return asyncio.run(work())
    except AssertionError as error:  # say where it hangs
        hanging = query(
            url,
            "SELECT to_json(r) || '' FROM (SELECT run_id, status, executor, epoch, adoptions,"
            " waiting_for, waiting_left, ready_at, ready_at - apiary.clock() AS ready_in,"
            " (SELECT max(seq) FROM apiary.operation o WHERE o.run_id = u.run_id) AS operations"
            " FROM apiary.run u WHERE finished_at IS NULL) r",
        )
        raise AssertionError("\n".join([str(error), *hanging])) from error


def in_background(work: Callable[[], RunOutcome]) -> Future[RunOutcome]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


def wait_at_the_gate(place: Place, backends: int = 1) -> list[int]:
    found: list[int] = []

    def there() -> bool:
        with suppress(psycopg.OperationalError):
            found[:] = query(place.url, AT_THE_GATE)
        return len(found) == backends

    until(there, f"{backends} backends at the gate")
    return found


def epoch(place: Place) -> int:
    return int(query(place.url, "SELECT epoch FROM apiary.run WHERE run_id = 'run'")[0])


# The database.


@pytest.mark.parametrize("job", [HELD, HELD_OUTSIDE], ids=["in the database", "in an executor"])
@pytest.mark.parametrize("fault", ["terminate", "kill the backend", "kill the server", "immediate"])
def test_the_database_dies_in_a_function(place: Place, job: Job, fault: str) -> None:
    with (
        executors(place.url, place.side, place.log, ["a", "b"]),
        closed_gate(place.url) as open_gate,
    ):
        asked = in_background(lambda: finish(place.url, job))
        [backend] = wait_at_the_gate(place)
        if fault == "terminate":
            query(place.url, "SELECT pg_terminate_backend(%s)", backend)
            open_gate()
        elif fault == "kill the backend":
            os.kill(backend, signal.SIGKILL)
        elif fault == "kill the server":
            place.cluster.kill()
            place.cluster.start()
        else:
            place.cluster.restart("immediate")
        answer = asked.result()
    assert answer.status == "SUCCEEDED"
    assert finish(place.url, job) == answer
    place.check()


def test_the_server_restarts_under_everything(place: Place) -> None:
    jobs = [Job(run_id=f"m{i}", workflow="flows.mixed", input={"number": i}) for i in range(4)]
    with executors(place.url, place.side, place.log, ["a", "b"]):
        start(place.url, *jobs)
        until(
            lambda: query(place.url, "SELECT count(*) FROM apiary.operation")[0] > 10,
            "runs under way",
        )
        place.cluster.restart("immediate")
        answers = [finish(place.url, job) for job in jobs]
    assert {answer.status for answer in answers} == {"SUCCEEDED"}
    place.check()


# The network: the reply to a commit is lost.

LOST = {
    "the start": b"flows.mixed",
    "a claim": b"apiary.claim_runs",
    "a function": b"effects.note",
    "a function after a read": b"effects.bump",
    "a step's record": b'"kind": "step"',
    "a child's start": b"flows.leaf",
    "a wait": b'"kind": "time"',
    "a message": b'"kind": "recv"',
    "an event": b"heard",
    "the end": b"apiary.finish_run",
}


@pytest.mark.parametrize("what", LOST)
def test_a_reply_to_an_executor_is_lost(place: Place, what: str) -> None:
    with lossy_proxy(place.url) as proxy:
        proxy.lose(LOST[what])
        with executors(proxy.url(), place.side, place.log, ["behind"]):
            if what == "the start":
                start(
                    proxy.url(), Job(run_id="warm", workflow="flows.napping", input={"seconds": 0})
                )
                answer = finish(proxy.url(), MIXED)
            else:
                answer = finish(place.url, MIXED)
        assert proxy.lost == 1
    assert answer.status == "SUCCEEDED"
    assert finish(place.url, MIXED) == answer
    place.check()


def test_a_reply_is_lost_of_a_function_that_recorded_reads(place: Place) -> None:
    outside = Job(run_id="run", workflow="flows.five", input=FIVE.input, executor_only=True)
    with lossy_proxy(place.url) as proxy:
        proxy.lose(b"effects.bump")
        with executors(proxy.url(), place.side, place.log, ["behind"]):
            assert finish(place.url, outside).status == "SUCCEEDED"
        assert proxy.lost == 1
    place.check()


def test_the_reply_to_a_whole_run_is_lost(place: Place) -> None:
    with lossy_proxy(place.url) as proxy:
        proxy.lose(b'"run_id": "run"')
        with pytest.raises(UnavailableError):
            start(proxy.url(), FIVE)
        assert proxy.lost == 1
    answer = finish(place.url, FIVE)
    assert answer.status == "SUCCEEDED"
    assert len(query(place.url, "SELECT 1 FROM effects.effect")) == 5
    place.check()


# Clients.


@pytest.mark.parametrize("job", [HELD, HELD_OUTSIDE], ids=["in the database", "in an executor"])
def test_a_client_dies_while_it_waits(place: Place, job: Job) -> None:
    with (
        executors(place.url, place.side, place.log, ["a"]),
        closed_gate(place.url) as open_gate,
    ):
        client = ClientProcess(place.url, [job])
        wait_at_the_gate(place)
        client.kill()
        open_gate()
        answer = finish(place.url, job)
    assert answer.status == "SUCCEEDED"
    place.check()


# Executors.


def test_a_paused_executor_changes_nothing_when_it_comes_back(place: Place) -> None:
    with (
        executors(place.url, place.side, place.log, ["paused"]) as [paused],
        closed_gate(place.url) as open_gate,
    ):
        start(place.url, HELD_OUTSIDE)
        [backend] = wait_at_the_gate(place)
        paused.signal(signal.SIGSTOP)
        with executors(place.url, place.side, place.log, ["other"]):
            # The lease ends, and yet nobody takes the run while its function may still commit.
            [held_until] = query(place.url, "SELECT ready_at FROM apiary.run WHERE run_id = 'run'")
            looked = "SELECT 1 FROM apiary.run WHERE ready_at > %s AND now() > %s"
            until(lambda: query(place.url, looked, held_until, held_until), "a look at the run")
            assert epoch(place) == 1
            assert query(place.url, AT_THE_GATE) == [backend]
            open_gate()
            answer = finish(place.url, HELD_OUTSIDE)
            assert epoch(place) == 2
            paused.signal(signal.SIGCONT)
            paused.signal(signal.SIGTERM)
            assert paused.wait() == 0
        assert finish(place.url, HELD_OUTSIDE) == answer
    assert answer.status == "SUCCEEDED"
    place.check()


def test_a_function_that_outlasts_its_lease_is_executed_once(place: Place) -> None:
    with executors(place.url, place.side, place.log, ["a", "b"]):
        with closed_gate(place.url) as open_gate:
            start(place.url, HELD_OUTSIDE)
            backends = wait_at_the_gate(place)
            over = "SELECT now() > started_at + %s * interval '1 second' FROM apiary.run"
            until(lambda: query(place.url, over, 3 * LEASE_S)[0], "three leases")
            assert query(place.url, AT_THE_GATE) == backends
            open_gate()
        assert finish(place.url, HELD_OUTSIDE).status == "SUCCEEDED"
    assert epoch(place) == 1  # renewed all the time
    assert query(place.url, "SELECT 1 FROM apiary.attempt") == []
    place.check()


def test_what_a_dead_executor_was_running_is_taken_over_while_it_hangs(place: Place) -> None:
    """The backend notices that nobody waits for it, and lets go."""
    with executors(place.url, place.side, place.log, ["dies", "lives"]) as [one, two]:
        with closed_gate(place.url) as open_gate:
            start(place.url, HELD_OUTSIDE)
            [backend] = wait_at_the_gate(place)
            holder = query(place.url, "SELECT executor FROM apiary.run WHERE run_id = 'run'")[0]
            (one if holder.startswith("dies") else two).kill()
            until(lambda: query(place.url, AT_THE_GATE) not in ([backend], []), "another backend")
            assert epoch(place) == 2
            open_gate()
        assert finish(place.url, HELD_OUTSIDE).status == "SUCCEEDED"
    place.check()


def test_two_executors_of_one_name(place: Place) -> None:
    jobs = [Job(run_id=f"m{i}", workflow="flows.mixed", input={"number": i}) for i in range(3)]
    with executors(place.url, place.side, place.log, ["twin", "twin"]) as [one, _]:
        start(place.url, *jobs)
        until(lambda: query(place.url, "SELECT 1 FROM apiary.operation WHERE seq > 3"), "progress")
        one.kill()
        assert {finish(place.url, job).status for job in jobs} == {"SUCCEEDED"}
    place.check()


@pytest.mark.parametrize("point", ["renewed", "draining"])
def test_an_executor_dies_while_a_function_runs(place: Place, point: str) -> None:
    with closed_gate(place.url) as open_gate:
        start(place.url, HELD_OUTSIDE)
        with executors(place.url, place.side, place.log, ["dies"], crash_point=point) as [dies]:
            if point == "draining":
                wait_at_the_gate(place)
                dies.signal(signal.SIGTERM)
            assert dies.wait() == -signal.SIGKILL
        open_gate()
        with executors(place.url, place.side, place.log, ["lives"]):
            assert finish(place.url, HELD_OUTSIDE).status == "SUCCEEDED"
    place.check()


def test_an_executor_that_drains_gives_its_runs_to_others(place: Place) -> None:
    jobs = [Job(run_id=f"m{i}", workflow="flows.mixed", input={"number": i}) for i in range(4)]
    with executors(place.url, place.side, place.log, ["drains", "stays"]) as [drains, _]:
        with closed_gate(place.url) as open_gate:
            start(place.url, *jobs)
            held = [
                Job(run_id=f"h{i}", workflow="flows.held", input={"me": f"h{i}", "number": i},
                    executor_only=True)
                for i in range(4)
            ]  # fmt: skip
            start(place.url, *held)
            wait_at_the_gate(place, 4)
            drains.signal(signal.SIGTERM)
            assert drains.wait() == 0
            open_gate()
        assert {finish(place.url, job).status for job in [*jobs, *held]} == {"SUCCEEDED"}
    assert query(place.url, "SELECT sum(adoptions) FROM apiary.run") == [0]  # given, not lost
    place.check()


# Conflicts.


def test_a_deadlock_is_tried_again_in_place(place: Place) -> None:
    pair = [
        Job(
            run_id=me, workflow="flows.crossing", input={"me": me, "first": first, "second": second}
        )
        for me, first, second in [("one", "hot", "cold"), ("two", "cold", "hot")]
    ]
    with closed_gate(place.url) as open_gate:
        asked = [in_background(lambda job=job: finish(place.url, job)) for job in pair]  # type: ignore[misc]
        wait_at_the_gate(place, 2)
        open_gate()
        assert {future.result().status for future in asked} == {"SUCCEEDED"}
    states = query(place.url, "SELECT error #>> '{platform,metadata,sqlstate}' FROM apiary.attempt")
    assert "40P01" in states, query(place.url, "SELECT error FROM apiary.attempt")
    place.check()


@pytest.mark.parametrize("executor_only", [False, True], ids=["in the database", "in an executor"])
def test_serialization_failures_are_tried_again(place: Place, executor_only: bool) -> None:
    async def all_at_once(turn: int) -> set[str]:
        jobs = [
            Job(run_id=me, workflow="flows.five", input={"me": me, "number": turn},
                executor_only=executor_only)
            for me in (f"f{turn}-{i}" for i in range(12))
        ]  # fmt: skip
        async with PostgresEngine(place.url) as engine:
            driver = Driver(engine)
            answers = await asyncio.gather(*(driver.finish(job, PATIENCE_S) for job in jobs))
        return {answer.status for answer in answers}

    retried = "SELECT 1 FROM apiary.attempt WHERE status = 'RETRIED'"
    with executors(place.url, place.side, place.log, ["a", "b"]):
        for turn in range(10):
            assert asyncio.run(all_at_once(turn)) == {"SUCCEEDED"}
            if query(place.url, retried):
                break
        else:
            pytest.fail("120 runs that write one row never met")
    place.check()


# Clocks.


@pytest.mark.parametrize("offset", ["1 hour", "-1 hour"])
def test_the_clock_jumps(place: Place, offset: str) -> None:
    with executors(place.url, place.side, place.log, ["a", "b"]):
        start(place.url, MIXED, Job(run_id="n", workflow="flows.napping", input={"seconds": 0.5}))
        until(lambda: query(place.url, "SELECT 1 FROM apiary.operation WHERE seq > 2"), "progress")
        set_clock(place.url, offset)
        after = Job(run_id="after", workflow="flows.mixed", input={"number": 2})
        assert finish(place.url, after).status == "SUCCEEDED"
        set_clock(place.url, "0")
        assert finish(place.url, MIXED).status == "SUCCEEDED"
    query(place.url, "SELECT apiary.cancel_run('n', 'it may sleep for an hour now')")
    place.check(all_succeeded=False)


# Control.


@pytest.mark.parametrize("job", [HELD, HELD_OUTSIDE], ids=["in the database", "in an executor"])
def test_a_cancelled_run_leaves_what_had_committed_and_nothing_else(place: Place, job: Job) -> None:
    with (
        executors(place.url, place.side, place.log, ["a"]),
        closed_gate(place.url),
    ):
        asked = in_background(lambda: finish(place.url, job))
        wait_at_the_gate(place)
        assert query(place.url, "SELECT apiary.cancel_run('run', 'enough')") == [True]
        until(lambda: query(place.url, AT_THE_GATE) == [], "the end of the function", 10.0)
        try:
            assert asked.result().status == "CANCELLED"
        except Cancelled:
            assert not job.executor_only
    assert finish(place.url, job).status == "CANCELLED"
    assert query(place.url, "SELECT tag FROM effects.effect") == ["1"]
    place.check(all_succeeded=False)


def test_a_run_is_resumed_when_nothing_of_it_is_under_way(place: Place) -> None:
    start(place.url, HELD_OUTSIDE)
    query(place.url, "SELECT apiary.cancel_run('run', 'enough')")
    lock = "SELECT pg_advisory_lock_shared(apiary.in_database_lock('run'))"
    with place.connect() as function, place.connect() as control:
        function.execute(lock)  # as a function does that was not interrupted yet
        control.execute("SET lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            control.execute("SELECT apiary.resume_run('run', NULL)")
        function.execute("SELECT pg_advisory_unlock_all()")
        control.execute("SELECT apiary.resume_run('run', NULL)")
    with executors(place.url, place.side, place.log, ["a"]):
        assert finish(place.url, HELD_OUTSIDE).status == "SUCCEEDED"
    place.check()


def test_a_deletion_that_dies_halfway_can_be_repeated(place: Place) -> None:
    assert finish(place.url, FIVE).status == "SUCCEEDED"
    assert query(place.url, "SELECT apiary.delete_run('run', 2)") == [False]  # and then it died

    async def go_on() -> None:
        async with PostgresEngine(place.url) as engine:
            assert (await verify(engine)).sound
            await RunStore(engine).delete("run")
            assert (await verify(engine)).sound

    asyncio.run(go_on())
    assert query(place.url, "SELECT 1 FROM apiary.operation") == []
