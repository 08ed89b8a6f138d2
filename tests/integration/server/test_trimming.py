"""Trimming the log over gRPC: what it takes, what it tells, who may."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from apiary import AsyncClient, Client
from apiary.client.records import TrimmedLog
from apiary.client.requests import trim_log
from apiary.errors import ApiaryError, BadArgument, DeadlineExceeded, PermissionDenied
from apiary.proto.apiary.v1 import apiary_pb2 as pb
from apiary.server.authentication import Tokens
from tests.integration.server.workflow_world import World

DAY_S = 86400.0


def call_functions(client: Client, world: World, times: int) -> None:
    """Direct invocations of ten days ago."""
    for number in range(times):
        client.call("ledger.add", key="k", amount=number)
    world.rows(
        "UPDATE apiary.operation SET started_at = started_at - interval '10 days',"
        " finished_at = finished_at - interval '10 days'"
    )
    world.rows("UPDATE provenance.write_event SET at = at - interval '10 days'")


def counts(trimmed: TrimmedLog) -> tuple[int, int, int]:
    return trimmed.invocations, trimmed.attempts, trimmed.row_changes


def test_a_dry_run_counts_what_then_goes(ledgers: Client, world: World) -> None:
    call_functions(ledgers, world, 3)
    ledgers.call("ledger.add", key="new", amount=1)
    seen: list[TrimmedLog] = []
    counted = ledgers.trim_log(older_than_s=5 * DAY_S, dry_run=True, progress=seen.append)
    assert counts(counted) == (3, 0, 3)
    assert counts(seen[0]) == (0, 0, 0)
    assert seen[-1] == counted
    age = dt.datetime.now(dt.UTC) - counted.before
    assert abs(age.total_seconds() - 5 * DAY_S) < 600
    assert counts(ledgers.trim_log(before=counted.before)) == (3, 0, 3)
    assert counts(ledgers.trim_log(before=counted.before)) == (0, 0, 0)
    assert len(world.rows("SELECT 1 FROM provenance.data_event WHERE operation = 'I'")) == 1


def test_the_asynchronous_client_trims_as_well(ledgers: Client, world: World) -> None:
    call_functions(ledgers, world, 2)

    async def trim() -> TrimmedLog:
        async with AsyncClient(ledgers.address) as client:
            seen: list[TrimmedLog] = []
            done = await client.trim_log(older_than_s=DAY_S, progress=seen.append)
            assert seen[-1] == done
            return done

    assert counts(asyncio.run(trim())) == (2, 0, 2)


def test_runs_are_left_alone(ledgers: Client, world: World) -> None:
    handle = ledgers.start("books.fill", run_id="kept", key="k", amounts=[1, 2])
    assert handle.result(20) == 3
    ledgers.start("books.greet", run_id="waiting", topic="t")
    call_functions(ledgers, world, 1)
    assert counts(ledgers.trim_log(older_than_s=DAY_S)) == (1, 0, 3)
    assert [operation.name for operation in ledgers.get_run("kept").operations] == [
        "ledger.add", "ledger.add", "ledger.total",
    ]  # fmt: skip
    assert not ledgers.start("books.fill", run_id="kept", key="k", amounts=[1, 2]).created
    assert ledgers.get_run("waiting").status == "QUEUED"


def test_what_cannot_be_is_refused(ledgers: Client) -> None:
    now = dt.datetime.now(dt.UTC)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "before"),
        ({"before": now - dt.timedelta(days=2), "older_than_s": 5}, "before"),
        ({"before": now + dt.timedelta(days=1)}, "before"),
        ({"before": now.replace(tzinfo=None)}, "before"),
        ({"older_than_s": 0}, "older_than_s"),
        ({"older_than_s": 1e12}, "older_than_s"),
        ({"older_than_s": 3e11}, "older_than"),
        ({"older_than_s": 5, "timeout_s": -1}, "timeout_s"),
    )
    for arguments, path in wrong:
        with pytest.raises(BadArgument) as refused:
            ledgers.trim_log(**arguments)
        assert refused.value.path == path, arguments


def test_it_needs_the_role_that_deletes(world: World) -> None:
    tokens = Tokens.parse("t-invoke ada invoke,query\nt-deploy cy deploy", "tokens")
    address = world.servers.start(tokens=tokens).address
    with Client(address, token="t-invoke") as invoker, pytest.raises(PermissionDenied):
        invoker.trim_log(older_than_s=DAY_S, dry_run=True)
    with Client(address, token="t-deploy") as deployer:
        assert counts(deployer.trim_log(older_than_s=DAY_S)) == (0, 0, 0)


def test_a_deadline_ends_it(ledgers: Client, world: World) -> None:
    call_functions(ledgers, world, 2)
    with pytest.raises(DeadlineExceeded) as late:
        ledgers.trim_log(older_than_s=DAY_S, timeout_s=1e-6)
    assert "so far" in late.value.message
    assert counts(ledgers.trim_log(older_than_s=DAY_S, timeout_s=60)) == (2, 0, 2)


def test_who_goes_leaves_what_is_done(ledgers: Client, world: World) -> None:
    call_functions(ledgers, world, 2)

    class Enough(ApiaryError):
        """Raised where Ctrl-C would be."""

    def stop(so_far: TrimmedLog) -> None:
        if so_far.invocations:
            raise Enough("enough")

    with pytest.raises(Enough):
        ledgers.trim_log(older_than_s=DAY_S, progress=stop)
    assert world.rows("SELECT 1 FROM apiary.operation") == []
    assert ledgers.trim_log(older_than_s=DAY_S).invocations == 0


def test_the_sums_go_on_after_a_cut() -> None:
    feed = trim_log(None, DAY_S, None, dry_run=False)
    first = pb.TrimLogResponse(before={"seconds": 1000})
    feed.take(first)
    feed.take(pb.TrimLogResponse(before=first.before, invocations=4))
    # The server has gone; what is sent to the next one names the time that the first one had.
    assert not feed.request.message.HasField("older_than")
    assert feed.request.message.before == first.before
    feed.take(first)
    assert counts(feed.take(first)) == (4, 0, 0)
    assert counts(feed.take(pb.TrimLogResponse(before=first.before, row_changes=2))) == (4, 0, 2)
    counting = trim_log(None, DAY_S, None, dry_run=True)
    counting.take(pb.TrimLogResponse(before=first.before, invocations=4))
    assert counts(counting.take(first)) == (0, 0, 0)  # counted anew
