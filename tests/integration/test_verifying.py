"""`verify` finds nothing in a sound database, and each thing that is made unsound in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from apiary.authoring.application import Application
from apiary.authoring.bundle import build_bundle
from apiary.engine.consistency import CHECKS
from apiary.engine.postgres import PostgresEngine
from apiary.execution.executor import Executor, ExecutorSettings
from apiary.execution.listening import Listener
from apiary.execution.verifying import Report, verify
from apiary.testing import TestServer
from tests.chaos.driving import Driver, Job
from tests.integration.cli.conftest import apiary

APPLICATION = Path(__file__).parent.parent / "chaos" / "application"


async def _make_runs(url: str) -> None:
    """One run of each kind that has ended, and one that sleeps for long."""
    async with PostgresEngine(url) as engine:
        listener = Listener(url)
        executor = Executor(engine, listener, ExecutorSettings(poll_s=0.1))
        await executor.start()
        driver = Driver(engine)
        await driver.start(Job(run_id="naps", workflow="flows.napping", input={"seconds": 9e5}))
        await driver.finish(
            Job(run_id="stays", workflow="flows.five", input={"me": "stays", "number": 1}), 60
        )
        await driver.finish(Job(run_id="mixed", workflow="flows.mixed", input={"number": 1}), 60)
        await _until_parked(driver, "naps")
        await executor.drain()
        await listener.close()


async def _until_parked(driver: Driver, run_id: str) -> None:
    while (await driver.store.status([run_id]))[run_id].status != "WAITING":
        await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def sound(apiary_server: TestServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a database with sound runs."""
    name = apiary_server.create_database(build_bundle(Application.read(APPLICATION)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APIARY_CHAOS_SIDE", str(tmp_path_factory.mktemp("side") / "side"))
        asyncio.run(_make_runs(apiary_server.url(name)))
    yield name
    apiary_server.drop_database(name)


@pytest.fixture
def url(apiary_server: TestServer, sound: str) -> Iterator[str]:
    """The URL of a copy of it."""
    name = f"apiary_verify_{uuid4().hex[:12]}"
    with psycopg.connect(apiary_server.admin_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(sound)
            )
        )
    yield apiary_server.url(name)
    apiary_server.drop_database(name)


def verified(url: str, run_id: str | None = None, limit: int = 100) -> Report:
    async def look() -> Report:
        async with PostgresEngine(url) as engine:
            return await verify(engine, run_id=run_id, patience=timedelta(seconds=60), limit=limit)

    return asyncio.run(look())


def corrupt(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # no trigger, no foreign key
        for statement in statements:
            connection.execute(statement.encode())


CORRUPTIONS = {
    "an operation of an aborted transaction": (
        "operation-committed", "stays",
        "UPDATE apiary.operation SET xid = '{aborted}' WHERE run_id = 'stays' AND seq = 1",
    ),
    "two functions in one transaction": (
        "operation-transaction", "stays",
        "UPDATE apiary.operation SET xid = (SELECT xid FROM apiary.operation"
        " WHERE run_id = 'stays' AND seq = 1) WHERE run_id = 'stays' AND seq = 4",
    ),
    "a run without its guard": (
        "run-guard", "stays", "DELETE FROM apiary.operation WHERE run_id = 'stays' AND seq = 0",
    ),
    "a guard of another input": (
        "run-guard", "stays",
        "UPDATE apiary.operation SET input_digest = 'other' WHERE run_id = 'stays' AND seq = 0",
    ),
    "a guard without its run": (
        "guard-run", "stays", "DELETE FROM apiary.run WHERE run_id = 'stays'",
    ),
    "a success without an output": (
        "run-outcome", "stays", "UPDATE apiary.run SET output = NULL WHERE run_id = 'stays'",
    ),
    "a success with an error": (
        "run-outcome", "stays", "UPDATE apiary.run SET error = '{{}}' WHERE run_id = 'stays'",
    ),
    "a failure without an error": (
        "run-outcome", "stays", "UPDATE apiary.run SET status = 'FAILED' WHERE run_id = 'stays'",
    ),
    "an operation after the last call": (
        "run-calls", "stays", "UPDATE apiary.run SET calls = 4 WHERE run_id = 'stays'",
    ),
    "a missing operation": (
        "run-operations", "stays",
        "DELETE FROM apiary.operation WHERE run_id = 'stays' AND seq = 2",
    ),
    "an ended run that waits": (
        "run-waiters", "stays",
        "INSERT INTO apiary.waiter (awaited_run_id, run_id) VALUES ('naps', 'stays')",
    ),
    "an ended run that is waited for": (
        "run-waiters", "stays",
        "INSERT INTO apiary.waiter (awaited_run_id, run_id) VALUES ('stays', 'naps')",
    ),
    "a child that failed after all": (
        "child-outcome", "mixed/6",
        "UPDATE apiary.run SET status = 'FAILED', output = NULL, error = '{{}}'"
        " WHERE run_id = 'mixed/6'",
    ),
    "a lease that nobody adopts": (
        "lease-expired", "naps",
        "UPDATE apiary.run SET status = 'RUNNING', ready_at = now() - interval '2 minutes'"
        " WHERE run_id = 'naps'",
    ),
    "a run that nobody starts": (
        "run-overdue", "naps",
        "INSERT INTO apiary.executor (name, host, pid, version) VALUES ('idle', 'h', 1, 'v')",
        "UPDATE apiary.run SET status = 'QUEUED', ready_at = now() - interval '2 minutes'"
        " WHERE run_id = 'naps'",
    ),
    "a timer that nobody sees": (
        "run-overdue", "naps",
        "INSERT INTO apiary.executor (name, host, pid, version) VALUES ('idle', 'h', 1, 'v')",
        "UPDATE apiary.run SET ready_at = now() - interval '2 minutes' WHERE run_id = 'naps'",
    ),
    "a sleep without a timer": (
        "waiting-in-vain", "naps", "UPDATE apiary.run SET ready_at = NULL WHERE run_id = 'naps'",
    ),
    "a wait for nothing": (
        "waiting-in-vain", "naps",
        "UPDATE apiary.run SET waiting_for = NULL WHERE run_id = 'naps'",
    ),
    "a wait for a message that is there": (
        "waiting-in-vain", "naps",
        """UPDATE apiary.run SET ready_at = NULL,
            waiting_for = '{{"kind": "message", "topic": "t"}}'
            WHERE run_id = 'naps'""",
        "INSERT INTO apiary.mailbox (run_id, topic, message) VALUES ('naps', 't', '1')",
    ),
    "a wait for an event that is there": (
        "waiting-in-vain", "naps",
        """UPDATE apiary.run SET ready_at = NULL,
            waiting_for = '{{"kind": "event", "run_id": "mixed", "key": "heard"}}'
            WHERE run_id = 'naps'""",
        "INSERT INTO apiary.waiter VALUES ('mixed', 'event heard', 'naps')",
    ),
    "a wait for an event that nobody will tell of": (
        "waiting-in-vain", "naps",
        """UPDATE apiary.run SET ready_at = NULL,
            waiting_for = '{{"kind": "event", "run_id": "mixed", "key": "other"}}'
            WHERE run_id = 'naps'""",
    ),
    "a wait for runs that have ended": (
        "waiting-in-vain", "naps",
        """UPDATE apiary.run SET ready_at = NULL, waiting_left = 1,
            waiting_for = '{{"kind": "run", "runs": ["stays", "gone"], "need": 1}}'
            WHERE run_id = 'naps'""",
    ),
    "a deadline that nobody keeps": (
        "deadline-missed", "naps",
        "UPDATE apiary.run SET deadline = now() - interval '2 minutes' WHERE run_id = 'naps'",
    ),
    "a run whose code is gone": (
        "deployment-missing", "naps",
        "UPDATE apiary.run SET deployment = 'other' WHERE run_id = 'naps'",
    ),
    "a message taken by nothing": (
        "message-taken", "mixed",
        "UPDATE apiary.mailbox SET taken_by_seq = 99 WHERE run_id = 'mixed' AND taken_by_seq ="
        " (SELECT min(taken_by_seq) FROM apiary.mailbox)",
    ),
    "a message taken by a step": (
        "message-taken", "mixed",
        "UPDATE apiary.operation SET kind = 'step' WHERE run_id = 'mixed' AND kind = 'recv'",
    ),
    "two messages taken at once": (
        "message-taken", "mixed",
        "UPDATE apiary.mailbox SET taken_by_seq = (SELECT min(taken_by_seq) FROM apiary.mailbox)",
    ),
    "a message for no run": (
        "message-run", "gone",
        "INSERT INTO apiary.mailbox (run_id, topic, message) VALUES ('gone', '', '1')",
    ),
    "a gap in a stream": (
        "stream-offsets", "mixed",
        """UPDATE apiary.stream SET "offset" = 5 WHERE run_id = 'mixed'""",
    ),
    "a stream that nobody wrote": (
        "stream-operation", "mixed", "UPDATE apiary.stream SET seq = 99 WHERE run_id = 'mixed'",
    ),
}  # fmt: skip


def test_a_sound_database_has_no_findings(url: str) -> None:
    report = verified(url)
    assert report.findings == ()
    assert report.sound
    assert report.counted["runs"] == 6  # three, and three children
    assert report.counted["messages"] == 2
    assert report.counted["stream_values"] == 1
    assert json.loads(json.dumps(report.to_json()))["sound"] is True


def test_every_check_has_a_corruption() -> None:
    assert {check.name for check in CHECKS} == {name for name, *_ in CORRUPTIONS.values()}


@pytest.mark.parametrize("case", CORRUPTIONS)
def test_a_corruption_is_found(url: str, case: str) -> None:
    name, run_id, *statements = CORRUPTIONS[case]
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.transaction(force_rollback=True):
            row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
        # Later transactions, so that the aborted one is in no snapshot's future.
        connection.execute("SELECT pg_current_xact_id()")
    assert row is not None
    corrupt(url, *(statement.format(aborted=row[0]) for statement in statements))
    found = [f for f in verified(url).findings if f.check == name]
    assert [f.run_id for f in found][:1] == [run_id], verified(url).findings
    assert found[0].message
    assert found[0].advice
    assert "{" not in found[0].advice
    assert {f.run_id for f in verified(url, run_id=run_id).findings} == {run_id}


def test_what_cannot_move_for_a_good_reason_is_not_stranded(url: str) -> None:
    corrupt(
        url,
        "INSERT INTO apiary.executor (name, host, pid, version) VALUES ('idle', 'h', 1, 'v')",
        "INSERT INTO apiary.queue (name, paused) VALUES ('paused', true)",
        "UPDATE apiary.run SET status = 'QUEUED', ready_at = now() - interval '2 minutes',"
        " started_at = NULL, queue = 'paused' WHERE run_id = 'naps'",
    )
    assert verified(url).findings == ()


def test_an_account_without_privileges_of_its_own_may_verify(url: str) -> None:
    name = f"verifier_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p' IN ROLE apiary_runtime".encode())
        try:
            own = psycopg.conninfo.make_conninfo(url, user=name, password="p")
            assert verified(own).findings == ()
        finally:
            connection.execute(f"DROP ROLE {name}".encode())


def test_findings_are_bounded_and_counted(url: str) -> None:
    corrupt(
        url,
        "INSERT INTO apiary.event (run_id, key, value) SELECT 'gone', n::text, '1'"
        " FROM generate_series(1, 12) n",
    )
    report = verified(url, limit=10)
    assert len(report.findings) == 10
    assert report.left_out == {"message-run": 2}


def test_the_command_says_what_is_wrong_and_ends_with_1(url: str, tmp_path: Path) -> None:
    sound = apiary(tmp_path, "verify", APIARY_DATABASE_URL=url)
    assert sound.returncode == 0, sound.stderr
    assert "nothing is wrong" in sound.stderr
    corrupt(url, "DELETE FROM apiary.operation WHERE run_id = 'stays' AND seq = 2")
    unsound = apiary(tmp_path, "verify", APIARY_DATABASE_URL=url)
    assert unsound.returncode == 1, unsound.stderr
    assert "run-operations" in unsound.stdout
    assert "backup" in unsound.stdout
    written = apiary(tmp_path, "verify", "stays", "--output", "json", APIARY_DATABASE_URL=url)
    assert written.returncode == 1
    report = json.loads(written.stdout)
    assert report["sound"] is False
    assert [finding["run_id"] for finding in report["findings"]] == ["stays"]
