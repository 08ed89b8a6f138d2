"""The state machine: the table of transitions, the trigger, and a model of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from apiary.engine.runs import ClaimedRun
from apiary.errors import LeaseLost
from apiary.testing import TestServer
from tests.integration.workflows.conftest import Lab

STATUSES = [
    "QUEUED", "SCHEDULED", "RUNNING", "WAITING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT",
    "STUCK",
]  # fmt: skip
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")


@pytest.fixture(scope="module")
def shared(apiary_server: TestServer, workflow_bundle: Any) -> Iterator[Lab]:
    """One database for all tests of this module."""
    name = apiary_server.create_database(workflow_bundle)
    lab = Lab(apiary_server.url(name))
    yield lab
    lab.close()
    apiary_server.drop_database(name)


@pytest.fixture(scope="module")
def connection(shared: Lab) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shared.url, autocommit=True) as opened:
        yield opened


@pytest.mark.parametrize(("before", "after"), list(product(STATUSES, STATUSES)))
def test_a_run_goes_only_where_the_table_says(
    connection: psycopg.Connection[Any], before: str, after: str
) -> None:
    allowed = connection.execute(
        "SELECT 1 AS one FROM apiary.transition WHERE from_status = %s AND to_status = %s",
        [before, after],
    ).fetchone()
    with connection.transaction(force_rollback=True):
        connection.execute(
            "INSERT INTO apiary.run (run_id, application, workflow, deployment, principal, status,"
            " in_database, input, input_digest, ready_at, finished_at)"
            " VALUES ('t', 'a', 'w', 'd', 'p', %s, false, '{}', 'x', %s, %s)",
            [before, *_times(before)],
        )
        change = "UPDATE apiary.run SET status = %s, ready_at = %s, finished_at = %s"
        if allowed is not None or before == after:
            connection.execute(change, [after, *_times(after)])
        else:
            with pytest.raises(psycopg.Error) as raised:
                connection.execute(change, [after, *_times(after)])
            assert raised.value.sqlstate == "AP005"


def _times(status: str) -> list[str | None]:
    return [None, "now"] if status in FINAL else [None if status == "STUCK" else "now", None]


class RunsMachine(RuleBasedStateMachine):
    """Random operations on runs, compared with a model: {run id: status, epoch}."""

    lab: Lab
    counter = 0
    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, tuple[str, int]] = {}
        self.held: dict[str, list[ClaimedRun]] = {}

    @rule(target=runs)
    def start(self) -> str:
        type(self).counter += 1
        run_id = f"m{self.counter}"
        self.lab.start_with("receiver", {"run_id": run_id}, topic="go")
        self.model[run_id] = ("QUEUED", 0)
        return run_id

    @rule()
    def claim(self) -> None:
        for run in self.lab.ask(self.lab.store.claim("me", 100, timedelta(hours=1))):
            status, epoch = self.model[run.run_id]
            assert status == "QUEUED"
            self.model[run.run_id] = ("RUNNING", epoch + 1)
            self.held.setdefault(run.run_id, []).append(run)

    @rule(run_id=runs, which=st.integers(0, 3), what=st.sampled_from(["park", "release", "finish"]))
    def act(self, run_id: str, which: int, what: str) -> None:
        claims = self.held.get(run_id, [])
        if not claims:
            return
        run = claims[which % len(claims)]
        store = self.lab.store
        waiting = {"kind": "message", "topic": "go"}
        works: dict[str, tuple[Any, str]] = {
            "park": (lambda: store.park(run_id, run.epoch, waiting, None, []), "WAITING"),
            "release": (lambda: store.release(run_id, run.epoch, []), "QUEUED"),
            "finish": (
                lambda: store.finish(run_id, run.epoch, "FAILED", None, {}, 0, []),
                "FAILED",
            ),
        }
        work, then = works[what]
        status, epoch = self.model[run_id]
        if status == "RUNNING" and epoch == run.epoch:
            self.lab.ask(work())
            unread = self.lab.query(
                "SELECT 1 AS one FROM apiary.mailbox WHERE run_id = %s AND taken_by_seq IS NULL",
                run_id,
            )
            self.model[run_id] = ("QUEUED" if then == "WAITING" and unread else then, epoch)
        else:
            with pytest.raises(LeaseLost):
                self.lab.ask(work())

    @rule(run_id=runs)
    def send(self, run_id: str) -> None:
        self.lab.ask(self.lab.store.send(run_id, "go", 1, None))
        status, epoch = self.model[run_id]
        if status == "WAITING":
            self.model[run_id] = ("QUEUED", epoch)

    @rule(run_id=runs)
    def cancel(self, run_id: str) -> None:
        cancelled = self.lab.ask(self.lab.store.cancel(run_id, None, cascade=True))
        status, epoch = self.model[run_id]
        assert cancelled == ([] if status in FINAL else [run_id])
        if cancelled:
            self.model[run_id] = ("CANCELLED", epoch + 1)

    @rule(run_id=runs)
    def resume(self, run_id: str) -> None:
        resumed = self.lab.ask(self.lab.store.resume(run_id, None))
        status, epoch = self.model[run_id]
        assert resumed is (status in ("FAILED", "CANCELLED", "TIMED_OUT", "STUCK"))
        if resumed:
            self.model[run_id] = ("QUEUED", epoch)

    @invariant()
    def agrees(self) -> None:
        rows = self.lab.query(
            "SELECT run_id, status, epoch FROM apiary.run WHERE run_id = ANY (%s)", list(self.model)
        )
        assert {row["run_id"]: (row["status"], row["epoch"]) for row in rows} == self.model

    def teardown(self) -> None:
        self.lab.query("DELETE FROM apiary.run")


def test_runs_behave_like_their_model(shared: Lab) -> None:
    RunsMachine.lab = shared
    run_state_machine_as_test(
        RunsMachine,
        settings=settings(
            max_examples=int(os.environ.get("APIARY_STATEFUL_EXAMPLES", "8")),
            stateful_step_count=20,
            phases=[Phase.explicit, Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
