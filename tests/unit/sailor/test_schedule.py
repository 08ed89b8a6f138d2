"""1F1B by events: it equals the closed form where there is one, and obeys its own rules."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.sailor.schedule import Chain, lower_bound_s, run_chain

seconds = st.floats(0.001, 2.0)


def equal_chain(depth: int, forward: float, backward: float) -> Chain:
    return Chain(
        forward_s=(forward,) * depth,
        backward_s=(backward,) * depth,
        send_forward_s=(0.0,) * depth,
        send_backward_s=(0.0,) * depth,
    )


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(("depth", "n"), [(1, 5), (2, 2), (4, 1), (4, 3), (4, 16), (8, 100)])
def test_equal_stages_without_transfers_take_the_closed_form(depth, n, blocking):
    timeline = run_chain(equal_chain(depth, 1.0, 2.0), n, blocking=blocking)
    assert timeline.end_s.max() == pytest.approx((n + depth - 1) * 3.0)
    assert timeline.end_s[0] == timeline.end_s.max()


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    depth = draw(st.integers(1, 5))
    times = st.tuples(*[seconds] * depth)
    hops = [draw(st.tuples(*[st.floats(0, 0.5)] * (depth - 1))) for _ in range(2)]
    return Chain(
        forward_s=draw(times),
        backward_s=draw(times),
        send_forward_s=(*hops[0], 0.0),
        send_backward_s=(0.0, *hops[1]),
    )


@settings(max_examples=60, deadline=None)
@given(chains(), st.integers(1, 12), st.booleans())
def test_no_operation_starts_before_its_input_or_while_its_stage_is_busy(chain, n, blocking):
    timeline = run_chain(chain, n, blocking=blocking)
    depth = len(chain.forward_s)
    forward, backward = np.array(chain.forward_s), np.array(chain.backward_s)
    f, b = timeline.start_forward_s, timeline.start_backward_s
    for i in range(depth):
        if i > 0:
            assert (f[i] >= f[i - 1] + forward[i - 1] + chain.send_forward_s[i - 1] - 1e-9).all()
        if i + 1 < depth:
            assert (b[i] >= b[i + 1] + backward[i + 1] + chain.send_backward_s[i + 1] - 1e-9).all()
        spans = sorted([(x, x + forward[i]) for x in f[i]] + [(x, x + backward[i]) for x in b[i]])
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))


@settings(max_examples=60, deadline=None)
@given(chains(), st.integers(1, 12))
def test_a_stage_holds_no_more_microbatches_than_its_distance_from_the_end(chain, n):
    timeline = run_chain(chain, n, blocking=False)
    depth = len(chain.forward_s)
    for i in range(depth):
        begun = timeline.start_forward_s[i]
        done = timeline.start_backward_s[i] + chain.backward_s[i]
        held = max(int((begun <= x).sum() - (done <= x).sum()) for x in begun)
        assert held <= min(n, depth - i)


@settings(max_examples=200, deadline=None)
@given(chains(), st.integers(1, 12), st.booleans())
def test_no_run_beats_the_lower_bound(chain, n, blocking):
    timeline = run_chain(chain, n, blocking=blocking)
    assert timeline.end_s.max() >= lower_bound_s(chain, n) * (1 - 1e-12)


@pytest.mark.parametrize(("depth", "n"), [(1, 5), (4, 4), (4, 16)])
def test_the_lower_bound_is_met_by_equal_stages_without_transfers(depth, n):
    chain = equal_chain(depth, 1.0, 2.0)
    assert lower_bound_s(chain, n) == pytest.approx((n + depth - 1) * 3.0)


def test_the_usual_bound_of_a_pipeline_is_not_one():
    """(n - 1)·max + Σ overstates the run of a pipeline whose first stage is the slowest."""
    chain = Chain(
        forward_s=(1.0, 1.0), backward_s=(2.0, 1.0), send_forward_s=(0, 0), send_backward_s=(0, 0)
    )
    assert run_chain(chain, 2, blocking=False).end_s.max() == 7.0
    assert lower_bound_s(chain, 2) == 7.0
    assert (2 - 1) * 3.0 + (3.0 + 2.0) == 8.0
