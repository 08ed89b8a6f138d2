"""Invoking: exactly once, whatever happens to the call, the body, or the database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from apiary.authoring.failures import rebuild_exception
from apiary.engine.base import Invocation, Outcome
from apiary.errors import (
    BadArgument,
    FunctionError,
    IdempotencyMismatch,
    NotFound,
    PayloadTooLarge,
    TransactionConflict,
    UniqueViolation,
)
from apiary.execution.invoking import Invoker, RetryPolicy
from apiary.testing import Platform

MakeApp = Callable[..., Platform]

FILES = {
    "functions/bank/sql/001_tables.sql": """
        CREATE TABLE bank.account (id int PRIMARY KEY, balance bigint NOT NULL);
        CREATE TABLE bank.doctor (id int PRIMARY KEY, on_call boolean NOT NULL);
        CREATE TABLE bank.pair (
            id int PRIMARY KEY,
            other int REFERENCES bank.pair DEFERRABLE INITIALLY DEFERRED
        );
        CREATE FUNCTION bank.note() RETURNS int LANGUAGE sql VOLATILE AS
            $$ INSERT INTO bank.account VALUES (-1, 0) ON CONFLICT (id) DO UPDATE
               SET balance = bank.account.balance + 1 RETURNING 1 $$;
        CREATE VIEW bank.noted AS SELECT bank.note() AS n;
    """,
    "functions/bank/__init__.py": """
        from typing import Any
        from apiary import ApplicationError, Database, UniqueViolation, function
        from workflows.bank import notify, transfer

        class Empty(ApplicationError):
            code = "EMPTY"

            def __init__(self, account: int) -> None:
                super().__init__(f"account {account} is empty")
                self.account = account

        class E(Exception):
            def __init__(self, *, code: int) -> None:
                super().__init__(f"code {code}")
                self.code = code

        @function
        def deposit(db: Database, id: int, amount: int = 1) -> int:
            return db.value(
                "INSERT INTO bank.account VALUES ($1, $2) ON CONFLICT (id) DO UPDATE"
                " SET balance = bank.account.balance + excluded.balance RETURNING balance",
                id, amount,
            )

        @function
        def balance(db: Database, id: int) -> int | None:
            return db.value("SELECT balance FROM bank.account WHERE id = $1", id)

        @function
        def other(db: Database, v: Any) -> Any:
            return [v]

        @function
        def double(db: Database, v: str) -> str:
            return v + v

        @function
        def same(db: Database, v: Any) -> Any:
            return v

        @function
        def fail(db: Database, id: int) -> None:
            deposit(id)
            raise Empty(id)

        @function
        def keyword_only(db: Database) -> None:
            raise E(code=7)

        @function
        def returns_lambda(db: Database) -> Any:
            return lambda: 1

        @function
        def insert(db: Database, id: int) -> str:
            try:
                db.execute("INSERT INTO bank.account VALUES ($1, 0)", id)
            except UniqueViolation as error:
                return f"{error.sqlstate} {error.constraint}"
            return "inserted"

        @function
        def insert_plainly(db: Database, id: int) -> None:
            db.execute("INSERT INTO bank.account VALUES ($1, 0)", id)

        @function
        def dangling(db: Database, id: int, other: int) -> None:
            db.execute("INSERT INTO bank.pair VALUES ($1, $2)", id, other)

        @function
        def go_off_call(db: Database, id: int) -> bool:
            others = db.value("SELECT count(*) FROM bank.doctor WHERE on_call AND id <> $1", id)
            db.value("SELECT pg_advisory_xact_lock_shared(1)")
            if others < 1:
                return False
            db.execute("UPDATE bank.doctor SET on_call = false WHERE id = $1", id)
            return True

        @function(isolation="repeatable read")
        def go_off_call_weakly(db: Database, id: int) -> bool:
            others = db.value("SELECT count(*) FROM bank.doctor WHERE on_call AND id <> $1", id)
            db.value("SELECT pg_advisory_xact_lock_shared(1)")
            if others < 1:
                return False
            db.execute("UPDATE bank.doctor SET on_call = false WHERE id = $1", id)
            return True

        @function
        def isolation(db: Database) -> str:
            return db.value("SELECT current_setting('transaction_isolation')")

        @function(isolation="read committed")
        def isolation_weak(db: Database) -> str:
            return db.value("SELECT current_setting('transaction_isolation')")

        @function
        def swallow(db: Database, id: int, how: str) -> str:
            db.value("SELECT balance FROM bank.account WHERE id = $1", id)
            db.value("SELECT pg_advisory_xact_lock_shared(1)")
            kinds = {"bare": BaseException, "exception": Exception, "base": BaseException}
            try:
                db.execute("UPDATE bank.account SET balance = balance + 1 WHERE id = $1", id)
            except kinds[how]:
                return "swallowed"
            return "done"

        @function
        def swallow_deadlock(db: Database, first: int, second: int) -> str:
            statement = "UPDATE bank.account SET balance = balance + 1 WHERE id = $1"
            db.execute(statement, first)
            db.value("SELECT pg_advisory_xact_lock_shared(1)")
            try:
                db.execute(statement, second)
            except BaseException:
                return "swallowed"
            return "done"

        @function
        def twice(db: Database, id: int) -> list[str]:
            ids = [db.value("SELECT pg_current_xact_id()::text")]
            deposit(id)
            deposit(id, amount=2)
            return [*ids, db.value("SELECT pg_current_xact_id()::text")]

        @function
        def calls_step(db: Database) -> None:
            notify()

        @function
        def calls_workflow(db: Database) -> None:
            transfer()

        @function
        def writes_unseen(db: Database) -> int:
            return db.value("SELECT n FROM bank.noted")
    """,
    "workflows/bank/__init__.py": """
        from apiary import step, workflow

        @step
        def notify() -> None: ...

        @workflow
        def transfer() -> None: ...
    """,
}


@pytest.fixture(scope="module")
def shared(make_shared_app: MakeApp) -> Platform:
    return make_shared_app(FILES)


@pytest.fixture
def bank(shared: Platform) -> Platform:
    """The application with empty tables and an empty log."""
    shared.query(
        "TRUNCATE bank.account, bank.doctor, bank.pair, apiary.operation, apiary.attempt,"
        " provenance.write_event"
    )
    shared.query("TRUNCATE provenance.write_event")
    return shared


def balances(app: Platform) -> dict[int, int]:
    return {r["id"]: r["balance"] for r in app.query("SELECT id, balance FROM bank.account")}


def attempts(app: Platform) -> list[tuple[str, str, str]]:
    rows = app.query(
        "SELECT name, status, error->'details'->>'sqlstate' AS state FROM apiary.attempt"
        " ORDER BY id"
    )
    return [(row["name"], row["status"], row["state"]) for row in rows]


# Idempotency


def test_effects_and_record_are_one_transaction(bank: Platform) -> None:
    outcome = bank.invoke("bank.deposit", id=1, amount=5)
    assert (outcome.output, outcome.replayed) == (5, False)
    [record] = bank.query("SELECT * FROM apiary.operation")
    [event] = bank.query("SELECT xid::text FROM provenance.write_event")
    assert str(record["xid"]) == event["xid"] == outcome.xid
    assert (record["name"], record["status"], record["output"]) == ("bank.deposit", "SUCCEEDED", 5)
    assert (record["input"], record["principal"]) == ({"id": 1, "amount": 5}, "test")


def test_a_repeated_call_runs_nothing(bank: Platform) -> None:
    first = bank.invoke("bank.deposit", run_id="k", id=1)
    again = bank.invoke("bank.deposit", run_id="k", id=1)
    with_default = bank.invoke("bank.deposit", run_id="k", id=1, amount=1)
    assert [first.replayed, again.replayed, with_default.replayed] == [False, True, True]
    assert [again.output, again.xid] == [first.output, first.xid]
    assert balances(bank) == {1: 1}


def test_the_same_id_with_another_input_or_function_is_refused(bank: Platform) -> None:
    bank.invoke("bank.same", run_id="k", v={"v": 1, "w": [1]})
    for function, v in [("same", {"v": 2}), ("same", {"v": 1.0, "w": [1]}), ("other", {"v": 1})]:
        with pytest.raises(IdempotencyMismatch) as caught:
            bank.invoke(f"bank.{function}", run_id="k", v=v)
        assert caught.value.recorded == "app/bank.same"
        assert caught.value.requested_digest != caught.value.recorded_digest
        assert caught.value.grpc_code == "ALREADY_EXISTS"
    assert bank.invoke("bank.same", run_id="k", v={"w": [1], "v": 1}).replayed
    with pytest.raises(IdempotencyMismatch):
        bank.invoke("bank.same", run_id="k", other=1)


@pytest.mark.parametrize("run_id", ["", "a\0b", "a\nb", "a\x7fb", "x" * 256, "\ud800"])
def test_a_bad_id_is_refused_with_nothing_stored(bank: Platform, run_id: str) -> None:
    with pytest.raises(BadArgument) as caught:
        bank.invoke("bank.deposit", run_id=run_id, id=1)
    assert caught.value.path == "run_id"
    assert balances(bank) == {}


@pytest.mark.parametrize("run_id", ["x", "é" * 255, "trip 42/ä", "🐝" * 255])
def test_a_good_id_is_taken_as_it_is(bank: Platform, run_id: str) -> None:
    bank.invoke("bank.deposit", run_id=run_id, id=1)
    assert bank.query("SELECT run_id FROM apiary.operation") == [{"run_id": run_id}]


_STARTS = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from apiary.engine.postgres import PostgresSettings
from apiary.testing import Platform
app = Platform(sys.argv[1], "app", PostgresSettings(pool_size=5))
with ThreadPoolExecutor(25) as pool:
    work = [pool.submit(app.invoke, "bank.deposit", run_id="one", id=1) for _ in range(25)]
    print(json.dumps([[w.result().output, w.result().xid] for w in work]))
app.close()
"""


def test_fifty_concurrent_starts_from_two_processes_take_effect_once(bank: Platform) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _STARTS, bank.url], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    results = [pair for p in processes for pair in json.loads(p.communicate(timeout=60)[0])]
    assert len(results) == 50
    assert len({tuple(pair) for pair in results}) == 1
    assert balances(bank) == {1: 1}
    assert len(bank.query("SELECT 1 FROM apiary.operation")) == 1


# Errors of the body


def test_an_exception_rolls_back_is_recorded_and_raised_again(bank: Platform) -> None:
    for _ in range(2):
        outcome = bank.invoke("bank.fail", run_id="f", id=3)
        error = outcome.error
        assert error is not None
        assert [error[k] for k in ("type", "message", "code", "details", "declared")] == [
            "Empty", "account 3 is empty", "EMPTY", {"account": 3}, True,
        ]  # fmt: skip
        with pytest.raises(FunctionError, match="account 3 is empty") as caught:
            raise rebuild_exception(error, lambda module, name: None)
        assert (caught.value.type, caught.value.code) == ("Empty", "EMPTY")
    assert outcome.replayed
    assert balances(bank) == {}
    assert bank.query("SELECT 1 FROM provenance.data_event") == []
    assert [r["status"] for r in bank.query("SELECT * FROM provenance.invocation")] == ["FAILED"]


def test_an_error_with_a_keyword_only_constructor_is_recorded_whole(bank: Platform) -> None:
    error = bank.invoke("bank.keyword_only").error
    assert error is not None
    assert (error["type"], error["message"], error["details"]) == ("E", "code 7", {"code": 7})
    with pytest.raises(FunctionError) as caught:
        bank.call("bank.keyword_only")
    assert (caught.value.type, caught.value.details) == ("E", {"code": 7})


def test_a_result_that_cannot_be_stored_is_the_outcome(bank: Platform) -> None:
    error = bank.invoke("bank.returns_lambda").error
    assert error is not None
    assert (error["type"], error["code"]) == ("BadResult", "BAD_RESULT")
    assert error["details"]["path"] == "result"
    assert [r["status"] for r in bank.query("SELECT status FROM apiary.operation")] == ["FAILED"]


def test_a_failed_statement_can_be_caught_and_the_transaction_goes_on(bank: Platform) -> None:
    assert bank.call("bank.insert", id=1) == "inserted"
    assert bank.call("bank.insert", id=1) == "23505 account_pkey"
    with pytest.raises(UniqueViolation) as caught:
        bank.call("bank.insert_plainly", id=1)
    assert caught.value.constraint == "account_pkey"


def test_a_deferred_constraint_is_an_outcome(bank: Platform) -> None:
    error = bank.invoke("bank.dangling", run_id="d", id=1, other=2).error
    assert error is not None
    assert (error["type"], error["details"]["sqlstate"]) == ("IntegrityError", "23503")
    assert bank.invoke("bank.dangling", run_id="d", id=1, other=2).replayed
    assert bank.query("SELECT * FROM bank.pair") == []


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({}, "args.id"),
        ({"id": "one"}, "args.id"),
        ({"id": 1.0}, "args.id"),
        ({"id": True}, "args.id"),
        ({"id": 1, "amoumt": 2}, "args.amoumt"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_stored(
    bank: Platform, document: dict[str, Any], path: str
) -> None:
    with pytest.raises(BadArgument) as caught:
        bank.invoke("bank.deposit", **document)
    assert caught.value.path == path
    assert bank.query("SELECT 1 FROM apiary.operation") == []


def test_what_does_not_exist_is_not_found(bank: Platform) -> None:
    with pytest.raises(NotFound, match=r"bank\.deposits") as caught:
        bank.invoke("bank.deposits", id=1)
    assert caught.value.hint == "did you mean bank.deposit?"
    elsewhere = Invocation(
        run_id="x", application="nowhere", function="bank.deposit", input="{}", principal="test"
    )
    with pytest.raises(NotFound, match="nowhere"):
        bank.loop.run(bank.invoker.invoke(elsewhere, fresh=True))


def test_the_size_limit_holds_both_ways(bank: Platform) -> None:
    fits = "x" * (4 * 1024 * 1024 - len('{"v":""}') - 1)
    assert bank.call("bank.same", v=fits) == fits
    with pytest.raises(PayloadTooLarge) as caught:
        bank.call("bank.same", v=fits + "xx")
    assert (caught.value.path, caught.value.limit_bytes) == ("args", 4 * 1024 * 1024)
    with pytest.raises(PayloadTooLarge) as caught:
        bank.call("bank.double", v="é" * (1024 * 1024))
    assert caught.value.path == "result"
    rows = bank.query("SELECT status FROM apiary.operation ORDER BY started_at")
    assert [row["status"] for row in rows] == ["SUCCEEDED", "FAILED"]


# Isolation and conflicts


class Gate:
    """Holds calls that wait for the advisory lock, until a number of them are there."""

    def __init__(self, app: Platform) -> None:
        self._app = app
        self._holder = psycopg.connect(app.url, autocommit=True)
        self._holder.execute("SELECT pg_advisory_lock(1)")

    def open_when(self, waiting: int, wait_until: Callable[..., None]) -> None:
        wait_until(
            lambda: (
                len(
                    self._app.query(
                        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                        " AND database = (SELECT oid FROM pg_database"
                        "                  WHERE datname = current_database())"
                    )
                )
                >= waiting
            )
        )
        self._holder.close()


def together(
    app: Platform, gate: Gate, wait_until: Callable[..., None], *calls: tuple[str, dict[str, Any]]
) -> list[Outcome]:
    with ThreadPoolExecutor(len(calls)) as pool:
        work = [pool.submit(app.invoke, name, **arguments) for name, arguments in calls]
        gate.open_when(len(calls), wait_until)
        return [each.result() for each in work]


@pytest.mark.parametrize(
    ("function", "left"), [("bank.go_off_call", 1), ("bank.go_off_call_weakly", 0)]
)
def test_write_skew_is_possible_at_repeatable_read_only(
    bank: Platform, wait_until: Callable[..., None], function: str, left: int
) -> None:
    bank.query("INSERT INTO bank.doctor VALUES (1, true), (2, true)")
    calls = [(function, {"id": 1}), (function, {"id": 2})]
    outcomes = together(bank, Gate(bank), wait_until, *calls)
    assert sorted(outcome.output for outcome in outcomes) == [left == 0, True]
    assert len(bank.query("SELECT 1 FROM bank.doctor WHERE on_call")) == left
    assert attempts(bank) == [(function, "RETRIED", "40001")] * left


def test_isolation_is_chosen_per_function(bank: Platform) -> None:
    assert bank.call("bank.isolation") == "serializable"
    assert bank.call("bank.isolation_weak") == "read committed"
    assert bank.call("bank.isolation") == "serializable"
    rows = bank.query("SELECT isolation FROM provenance.invocation ORDER BY started_at")
    assert [r["isolation"] for r in rows] == ["serializable", "read committed", "serializable"]


@pytest.mark.parametrize("how", ["bare", "exception", "base"])
def test_a_swallowed_serialization_failure_does_not_commit_and_is_retried(
    bank: Platform, wait_until: Callable[..., None], how: str
) -> None:
    bank.call("bank.deposit", id=1, amount=0)
    call = ("bank.swallow", {"id": 1, "how": how})
    outcomes = together(bank, Gate(bank), wait_until, call, call, call)
    assert [outcome.output for outcome in outcomes] == ["done"] * 3
    assert balances(bank) == {1: 3}
    assert {status for _, status, _ in attempts(bank)} == {"RETRIED"}
    assert {state for _, _, state in attempts(bank)} == {"40001"}


def test_a_swallowed_deadlock_does_not_commit_and_is_retried(
    bank: Platform, wait_until: Callable[..., None]
) -> None:
    bank.call("bank.deposit", id=1, amount=0)
    bank.call("bank.deposit", id=2, amount=0)
    calls = [
        ("bank.swallow_deadlock", {"first": 1, "second": 2}),
        ("bank.swallow_deadlock", {"first": 2, "second": 1}),
    ]
    outcomes = together(bank, Gate(bank), wait_until, *calls)
    assert [outcome.output for outcome in outcomes] == ["done", "done"]
    assert balances(bank) == {1: 2, 2: 2}
    assert ("bank.swallow_deadlock", "RETRIED", "40P01") in attempts(bank)


def test_conflicts_until_the_budget_is_spent_are_an_error_with_their_count(
    bank: Platform,
) -> None:
    bank.call("bank.deposit", id=1, amount=0)
    invoker = Invoker(bank.engine, RetryPolicy(budget_s=0.2, max_delay_s=0.02))
    with psycopg.connect(bank.url, autocommit=True) as connection:
        # Always in conflict: the trigger says so.
        connection.execute(
            "CREATE FUNCTION bank.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; END $$;"
            "CREATE TRIGGER conflict BEFORE UPDATE ON bank.account"
            " FOR EACH ROW EXECUTE FUNCTION bank.conflict()"
        )
        invocation = Invocation(
            run_id="c", application="app", function="bank.deposit", input='{"id": 1}',
            principal="test",
        )  # fmt: skip
        with pytest.raises(TransactionConflict) as caught:
            bank.loop.run(invoker.invoke(invocation, fresh=False))
        connection.execute("DROP TRIGGER conflict ON bank.account")
        connection.execute("DROP FUNCTION bank.conflict")
    rows = bank.query("SELECT attempt, status FROM apiary.attempt ORDER BY id")
    assert caught.value.attempts == len(rows) > 1
    assert [row["attempt"] for row in rows] == list(range(1, len(rows) + 1))
    assert bank.query("SELECT 1 FROM apiary.operation WHERE run_id = 'c'") == []
    assert bank.loop.run(bank.invoker.invoke(invocation, fresh=False)).output == 1


# Calls inside calls


def test_a_function_called_by_a_function_is_in_its_transaction(bank: Platform) -> None:
    first, last = bank.call("bank.twice", id=1)
    assert first == last
    assert balances(bank) == {1: 3}
    [row] = bank.query("SELECT xid::text, calls FROM provenance.invocation")
    assert row["xid"] == first
    assert [call["function"] for call in row["calls"]] == ["bank.deposit", "bank.deposit"]
    assert len(bank.query("SELECT 1 FROM provenance.write_event WHERE xid::text = %s", first)) == 2


@pytest.mark.parametrize("name", ["bank.calls_step", "bank.calls_workflow"])
def test_a_function_cannot_call_a_step_or_a_workflow(bank: Platform, name: str) -> None:
    error = bank.invoke(name).error
    assert error is not None
    assert error["type"] == "UsageError"
    assert "a function cannot call the" in error["message"]


# What is recorded, and what it costs


def invoke_unkept(app: Platform, function: str, **arguments: Any) -> Outcome:
    invocation = Invocation(
        run_id=f"unkept-{function}-{arguments}", application="app", function=function,
        input=json.dumps(arguments), principal="test", keep=False,
    )  # fmt: skip
    return app.loop.run(app.engine.invoke(invocation))


def test_a_function_that_writes_what_no_analysis_sees_is_recorded(bank: Platform) -> None:
    [row] = bank.query("SELECT read_only FROM apiary.function WHERE name = 'bank.writes_unseen'")
    outcome = invoke_unkept(bank, "bank.writes_unseen")
    assert outcome.xid is not None
    assert bank.query("SELECT read_only FROM apiary.operation") == [{"read_only": False}]
    assert row["read_only"], "the analysis does not look into views"
    assert invoke_unkept(bank, "bank.same", v=1).xid is None


def test_a_fresh_call_is_one_statement_and_one_commit(bank: Platform) -> None:
    for number in range(20):  # every connection of the pool has loaded the code
        bank.invoke("bank.deposit", id=number)
    with psycopg.connect(bank.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        before = counts(connection)
        for number in range(10):
            bank.invoke("bank.deposit", id=number)
        fresh = counts(connection)
        bank.invoke("bank.deposit", run_id="mine", id=1)
        own = counts(connection)
        bank.invoke("bank.deposit", run_id="mine", id=1)
        repeated = counts(connection)
    assert fresh - before == 10
    assert own - fresh == 2
    assert repeated - own == 1


def counts(connection: psycopg.Connection[Any]) -> int:
    """Top-level statements of the engine's sessions so far."""
    row = connection.execute(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s"
        " JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database() AND toplevel"
        " AND query !~ 'pg_stat_statements'"
    ).fetchone()
    assert row is not None
    return int(row[0])
