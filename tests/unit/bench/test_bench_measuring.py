"""What is charged to whom: interleaved rounds, and loops without coordinated omission."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from apiary.bench.hosting import Running, SystemFailed
from apiary.bench.measuring import closed_loop, interleave, open_loop
from apiary.bench.workloads import Request

ASKED = Request(target="a.b", arguments={})


class Fake(Running):
    """A system that answers by a function of the number of the call."""

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.calls = 0
        self._answer = answer
        self._one_at_a_time = asyncio.Lock()

    async def call(self, request: Request) -> Any:
        self.calls += 1
        number = self.calls
        async with self._one_at_a_time:
            answer = self._answer(number)
            return await answer if asyncio.iscoroutine(answer) else answer

    async def close(self) -> None:
        return


def failing(number: int) -> int:
    if number == 3:
        raise SystemFailed("it broke")
    return 1


def test_every_system_gets_every_request_once() -> None:
    one, two = Fake(lambda number: 1), Fake(lambda number: 1)
    asked: list[int] = []

    def request(number: int) -> Request:
        asked.append(number)
        return ASKED

    done = asyncio.run(
        interleave({"one": one, "two": two}, request, first=40, seconds=0, at_least=5, warm_up=2)
    )
    assert asked == [40, 41, 42, 43, 44, 45, 46]
    assert (one.calls, two.calls, done.rounds) == (7, 7, 7)
    assert [block.latency().count for block in done.blocks.values()] == [5, 5]
    assert not done.mismatches
    assert not done.failed


def test_different_results_are_told() -> None:
    systems = {"one": Fake(lambda number: number), "two": Fake(lambda number: min(number, 2))}
    done = asyncio.run(
        interleave(systems, lambda number: ASKED, first=0, seconds=0, at_least=3, warm_up=0)
    )
    assert done.mismatches == ("a.b({}): one says 3; two says 2",)


def test_a_system_that_fails_is_left_out() -> None:
    systems = {"one": Fake(failing), "two": Fake(lambda number: 1)}
    done = asyncio.run(
        interleave(systems, lambda number: ASKED, first=0, seconds=0, at_least=6, warm_up=0)
    )
    assert done.failed == {"one": "SystemFailed: it broke"}
    assert systems["one"].calls == 3
    assert systems["two"].calls == 6


def test_a_stall_is_charged_to_all_that_were_due_meanwhile() -> None:
    async def stall(number: int) -> int:
        await asyncio.sleep(0.3 if number == 1 else 0)
        return 1

    latency = asyncio.run(
        open_loop(Fake(stall), lambda: ASKED, per_second=100, seconds=0.2)
    ).latency()
    # 20 requests, due over 0.19 s: the last of them has waited for 0.1 s, half for more than 0.2 s.
    assert latency.count == 20
    assert latency.p50_ms >= 200
    assert latency.p10_ms >= 100


def test_a_closed_loop_counts_its_failures() -> None:
    block = asyncio.run(closed_loop(Fake(failing), lambda: ASKED, clients=2, seconds=0.02))
    assert block.errors == 1
    assert block.first_error == "SystemFailed: it broke"
    assert block.latency().count > 2
