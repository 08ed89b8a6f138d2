"""Starting, waiting for and watching runs over gRPC."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from apiary.client import Client, StartOptions
from apiary.errors import (
    BadArgument,
    DeadlineExceeded,
    FunctionError,
    IdempotencyMismatch,
    NotFound,
)
from tests.integration.server.workflow_fixtures import (  # noqa: F401
    World,
    ledger,
    running,
    running_world,
)


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
    names = [operation.name for operation in handle.operations()]
    assert names == ["ledger.add"] * 3 + ["ledger.total"]
    assert running_world.entries("a") == 3


def test_a_run_with_steps_is_done_by_an_executor(running: Client) -> None:
    handle = running.start("books.squares", key="b", values=[2, 3])
    assert handle.result(20) == [4, 9]
    run = running.get_run(handle.run_id)
    assert run.executor != "database"
    assert run.progress is not None
    assert (run.progress.done, run.progress.total) == (2, 2)
