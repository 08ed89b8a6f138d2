"""Ingest, statistics and synthesis of popularity traces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.symi import statistics
from workflows.symi.errors import Conflict, InvalidArgument
from workflows.symi.synthetic import PopularityProcess, synthesize
from workflows.symi.trace import Trace, ingest, read_csv

ROWS = [("r", 3, 0, 0, 5), ("r", 3, 0, 1, 7), ("r", 4, 0, 0, 0), ("r", 4, 0, 1, 12)]


def test_rows_in_any_order_become_one_array() -> None:
    trace = ingest(reversed(ROWS))
    assert (trace.run, trace.first_iteration) == ("r", 3)
    assert trace.tokens.tolist() == [[[5, 7]], [[0, 12]]]
    assert trace.popularity(4, 0) == [0, 12]
    assert list(trace.rows()) == ROWS
    with pytest.raises(InvalidArgument, match=r"3\.\.4"):
        trace.popularity(5, 0)


def test_csv_reads_the_same() -> None:
    lines = ["run,iter,layer,expert,tokens", *(",".join(map(str, row)) for row in ROWS)]
    assert ingest(ROWS).tokens.tolist() == read_csv(lines).tokens.tolist()
    with pytest.raises(InvalidArgument, match="header"):
        read_csv(["a,b"])
    with pytest.raises(InvalidArgument, match="line 2"):
        read_csv([lines[0], "r,0,0,0,many"])


def test_a_repeated_row_is_accepted_and_other_data_is_a_conflict() -> None:
    assert ingest([*ROWS, ROWS[0]]).tokens.tolist() == ingest(ROWS).tokens.tolist()
    with pytest.raises(Conflict, match="iteration 3, layer 0, expert 0 has 5 tokens and again 6"):
        ingest([*ROWS, ("r", 3, 0, 0, 6)])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one row"),
        ([*ROWS, ("q", 3, 0, 0, 5)], "as in the first row"),
        (ROWS[:-1], "iteration 4, layer 0, expert 1 is missing"),
        ([("r", 0, 0, 0)], "run,iter,layer,expert,tokens"),
        ([("r", 0, 0, 0, -1)], r"rows\[0\].tokens"),
        ([("r", 0, 0, 0, 1.5)], r"rows\[0\].tokens"),
        ([("r", 0, True, 0, 1)], r"rows\[0\].layer"),
        ([("", 0, 0, 0, 1)], "name the run"),
        ([("r", 10**15, 0, 0, 1), ("r", 0, 0, 0, 1)], "iteration 1, layer 0, expert 0 is missing"),
    ],
)
def test_bad_rows_are_refused_by_name(rows: list[Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ingest(rows)


def test_a_hundred_thousand_rows_pass() -> None:
    trace = synthesize(experts=16, tokens=32768, iterations=6250, seed=1)
    again = ingest(trace.rows())
    assert again.tokens.size == 100_000
    assert np.array_equal(again.tokens, trace.tokens)


def test_first_rows_of_the_worked_synthetic_trace() -> None:
    trace = synthesize(experts=4, tokens=100, iterations=3, seed=0)
    assert trace.tokens[:, 0].tolist() == [[22, 18, 36, 24], [32, 17, 34, 17], [28, 15, 35, 22]]


def test_layers_differ_and_do_not_disturb_the_first() -> None:
    one = synthesize(experts=4, tokens=100, iterations=5, seed=0)
    two = synthesize(experts=4, tokens=100, iterations=5, seed=0, layers=2)
    assert np.array_equal(one.tokens[:, 0], two.tokens[:, 0])
    assert not np.array_equal(two.tokens[:, 0], two.tokens[:, 1])


@given(st.integers(1, 12), st.integers(1, 5000), st.integers(1, 20), st.integers(0, 2**32))
def test_every_iteration_routes_all_tokens(
    experts: int, tokens: int, iterations: int, seed: int
) -> None:
    trace = synthesize(experts=experts, tokens=tokens, iterations=iterations, seed=seed)
    assert (trace.tokens.sum(axis=2) == tokens).all()


@pytest.mark.parametrize("name", ["slow_memory", "fast_memory", "slow_spread"])
def test_processes_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        PopularityProcess(**{name: -0.1})
    with pytest.raises(InvalidArgument, match="seed"):
        synthesize(experts=4, tokens=100, iterations=3, seed=-1)


def test_skew_by_hand() -> None:
    tokens = np.array([[1, 1, 1, 1], [0, 0, 0, 8]])
    assert statistics.max_over_mean(tokens).tolist() == [1.0, 4.0]
    assert statistics.gini(tokens).tolist() == [0.0, 0.75]
    assert statistics.entropy_bits(tokens).tolist() == [2.0, 0.0]
    assert statistics.entropy_bits(np.array([[2, 1, 1]])).tolist() == [1.5]


def test_change_by_hand() -> None:
    tokens = np.array([[10, 90], [90, 10], [10, 90], [90, 10]])
    # Shares alternate around 1/2: r(1) = -3/4, r(2) = 2/4.
    assert statistics.autocorrelation(tokens, 1) == pytest.approx(-0.75)
    assert statistics.autocorrelation(tokens, 2) == pytest.approx(0.5)
    assert statistics.autocorrelation(tokens, 4) is None
    assert statistics.autocorrelation(np.full((4, 2), 3), 1) is None
    assert statistics.swing(tokens) == 9.0
    assert statistics.swing(np.array([[1, 5], [2, 5], [4, 5], [16, 5], [32, 5]])) == 16.0
    assert statistics.swing(np.array([[0, 5], [8, 5]])) == 8.0


def test_the_calibrated_trace_is_skewed_and_remembers() -> None:
    trace = synthesize(experts=16, tokens=32768, iterations=600, seed=0)
    seen = statistics.layer_statistics(trace, 0)
    assert seen.mean_tokens == 32768
    assert 1 < seen.max_over_mean < seen.largest_max_over_mean < 16
    assert 0 < seen.gini < 15 / 16
    assert 0 < seen.entropy_bits < math.log2(16)
    assert len(seen.autocorrelation) == statistics.LONGEST_LAG
    first, last = seen.autocorrelation[0], seen.autocorrelation[-1]
    assert first is not None
    assert last is not None
    assert first > 0.8 > last


def test_a_silent_layer_has_statistics_too() -> None:
    trace = Trace(run="r", first_iteration=0, tokens=np.zeros((3, 1, 4), dtype=np.int64))
    seen = statistics.layer_statistics(trace, 0, longest_lag=2)
    assert (seen.mean_tokens, seen.gini, seen.autocorrelation) == (0.0, 0.0, [None, None])
