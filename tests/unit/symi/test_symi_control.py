"""Control state of a run: idempotent commits, conflicts, and going on from a journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.symi.control import Committed, FileControl, IterationRecord, MemoryControl
from workflows.symi.errors import Conflict, InvalidArgument, InvalidPlacement
from workflows.symi.policies import Oracle, parse_policy

UNIFORM = [0, 0, 1, 1, 2, 2, 3, 3]
SKEWED = [0, 0, 0, 0, 0, 1, 2, 3]


def record(iteration: int, *popularity: list[int]) -> IterationRecord:
    return IterationRecord(
        iteration=iteration,
        popularity=list(popularity),
        loss=1.0,
        cross_entropy=0.9,
        dropped=[0] * len(popularity),
        gradient_bytes=0,
        weight_bytes=0,
        latency_s=0.1,
    )


def memory(policy: str = "symi") -> MemoryControl:
    return MemoryControl(parse_policy(policy), layers=2, experts=4, slots=8)


def journal(path: Path) -> FileControl:
    return FileControl(path, parse_policy("symi"), layers=2, experts=4, slots=8)


SKEW = record(1, [70, 10, 10, 10], [10, 10, 10, 10])


def test_a_commit_returns_the_placements_of_the_next_iteration() -> None:
    control = memory()
    assert control.begin() == Committed(iteration=0, placements=[UNIFORM, UNIFORM])
    assert control.step(SKEW) == [SKEWED, UNIFORM]
    assert control.begin() == Committed(iteration=1, placements=[SKEWED, UNIFORM])


def test_the_same_commit_again_changes_nothing_and_answers_the_same() -> None:
    control = memory()
    first = control.step(SKEW)
    control.step(record(2, [10, 70, 10, 10], [10, 10, 10, 10]))
    assert control.step(replace(SKEW, latency_s=9.9)) == first
    assert control.begin().iteration == 2
    assert control.records[0] == SKEW


def test_other_data_for_a_committed_iteration_is_a_conflict() -> None:
    control = memory()
    control.step(SKEW)
    with pytest.raises(Conflict, match="iteration 1 is committed with other popularity"):
        control.step(record(1, [69, 11, 10, 10], [10, 10, 10, 10]))
    assert control.records == [SKEW]


def test_iterations_are_committed_in_order_and_with_all_layers() -> None:
    control = memory()
    with pytest.raises(InvalidArgument, match="in order"):
        control.step(record(2, [1, 1, 1, 1], [1, 1, 1, 1]))
    with pytest.raises(InvalidArgument, match="1 layers"):
        control.step(record(1, [1, 1, 1, 1]))
    with pytest.raises(InvalidArgument, match="4 counts"):
        control.step(record(1, [1, 1, 1], [1, 1, 1]))
    assert control.begin().iteration == 0


def test_policies_that_cannot_run_are_refused() -> None:
    with pytest.raises(InvalidPlacement):
        MemoryControl(parse_policy("symi"), layers=1, experts=9, slots=8)
    with pytest.raises(InvalidArgument, match="multiple"):
        MemoryControl(parse_policy("static"), layers=1, experts=3, slots=8)
    control = MemoryControl(Oracle(), layers=1, experts=2, slots=4)
    with pytest.raises(InvalidArgument, match="simulation only"):
        control.step(record(1, [1, 1]))


def test_a_journal_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    answer = journal(path).step(SKEW)
    again = journal(path)
    assert again.begin() == Committed(iteration=1, placements=answer)
    assert again.records == [SKEW]
    with pytest.raises(Conflict):
        again.step(record(1, [1, 1, 1, 1], [1, 1, 1, 1]))


def test_a_line_that_was_cut_by_a_crash_is_not_committed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal(path).step(SKEW)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    again = journal(path)
    assert again.begin().iteration == 1
    again.step(record(2, [10, 70, 10, 10], [10, 10, 10, 10]))
    assert journal(path).begin() == again.begin()
    assert path.read_bytes().startswith(whole)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4), min_size=1, max_size=8),
    st.sampled_from(["symi", "static", "ema(0.5)", "flex(2, full)", "flex(2, shift, 2, 1)"]),
)
def test_a_replay_of_all_commits_gives_the_same_answers(
    popularity: list[list[int]], policy: str
) -> None:
    control = memory(policy)
    records = [record(index, row, row[::-1]) for index, row in enumerate(popularity, start=1)]
    answers = [control.step(entry) for entry in records]
    assert [control.step(entry) for entry in records] == answers
    assert [memory_after(policy, records[: n + 1]) for n in range(len(records))] == answers


def memory_after(policy: str, records: list[IterationRecord]) -> list[list[int]]:
    control = memory(policy)
    return [control.step(entry) for entry in records][-1]
