"""Replay: what is recorded is given back, and code that takes another path is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.workflows.conftest import Lab, Running


def test_an_error_is_recorded_and_raised_again_with_its_class(lab: Lab, running: Running) -> None:
    run_id = lab.start("catches", k=3)
    assert lab.output(run_id) == {"class": "SoldOut", "left": 4, "then": 1}
    assert [op[3] for op in lab.operations(run_id)] == ["FAILED", "SUCCEEDED"]
    assert lab.effects() == []


def test_an_error_that_is_not_caught_is_the_runs_outcome(lab: Lab, running: Running) -> None:
    error = lab.wait(lab.start("fails", k=3))["error"]
    assert error["type"] == "SoldOut"
    assert error["details"] == {"k": 3, "left": 4}


@pytest.mark.parametrize(
    ("before", "after", "recorded", "now"),
    [
        ("incr:1 wait:go", "effect:1 wait:go", "operation 1 = function kv.incr",
         "operation 1 = function kv.effect"),
        ("incr:1 wait:go", "incr:2 wait:go", "operation 1 = function kv.incr, input",
         "operation 1 = function kv.incr, input"),
        ("incr:1 incr:2 wait:go", "incr:1", "operation 2 = function kv.incr",
         "the end of the workflow"),
        ("incr:1 incr:2 wait:go", "incr:1 effect:x incr:2 wait:go",
         "operation 2 = function kv.incr", "operation 2 = function kv.effect"),
        ("incr:1 wait:go", "insist:2", "operation 1 = function kv.incr",
         "operation 1 = function kv.incr"),
        ("incr:1 wait:go", "swallow:2 incr:1 wait:go", "operation 1 = function kv.incr",
         "operation 1 = function kv.incr"),
    ],
)  # fmt: skip
def test_code_that_takes_another_path_is_told_what_was_recorded(
    lab: Lab, running: Running, tmp_path: Path, before: str, after: str, recorded: str, now: str
) -> None:
    script = tmp_path / "script"
    script.write_text(before)
    run_id = lab.start("switching", path=str(script))
    lab.wait(run_id, "WAITING")
    script.write_text(after)
    lab.ask(lab.store.send(run_id, "go", None, None))
    error: Any = lab.error(run_id)
    assert type(error).__name__ == "NonDeterminismError"
    assert error.recorded.startswith(recorded)
    assert error.now.startswith(now)
    assert recorded in str(error)
    assert f"apiary workflow fork {run_id}" in str(error)


def test_random_values_are_the_same_in_every_replay(lab: Lab, running: Running) -> None:
    first = lab.output(lab.start_with("values", {"run_id": "v1"}, k=1).run_id)
    inside = lab.run_inside("values", k=1)
    assert first[2] == "v1"
    assert inside.output[:2] != first[:2]  # of another run
    forked = lab.ask(lab.store.fork("v1", 2, "v2", "test"))
    again = lab.output(forked)
    assert again[:2] == first[:2]
    assert again[2] == "v2"
    assert lab.effects().count(first[1]) == 1


def test_async_code_is_numbered_alike_whatever_ends_first(lab: Lab, running: Running) -> None:
    run_id = lab.start("pipelines", n=6)
    assert lab.output(run_id) == [4 * i for i in range(6)]
    inputs = lab.query(
        "SELECT input ->> 'n' AS n FROM apiary.operation WHERE run_id = %s AND seq > 0"
        " ORDER BY seq",
        run_id,
    )
    # The second round is in the order of the first, not in that in which it ended.
    assert [int(row["n"]) for row in inputs] == [0, 1, 2, 3, 4, 5, 0, 2, 4, 6, 8, 10]
