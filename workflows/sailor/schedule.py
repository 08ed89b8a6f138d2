"""1F1B as a sequence of events, for one pipeline.

Stage i of P runs min(n, P - i) forwards, then backward and forward in turn, then the backwards that
are left. An operation starts when the stage is free and what it needs has arrived. A transfer
starts when the operation that produced it ends. `blocking` keeps the sender busy for the length of
the transfer (synchronous point-to-point, as the measured runtime does it); otherwise transfers of
one direction of one link queue up beside the computing.

With equal stages and no transfers the last backward of stage 0 ends at (n + P - 1)·(f + b).
The order of operations in a stage is fixed, so there is no event heap: stages are advanced in turn
as far as their inputs allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workflows.sailor.compiled import COMPILED, compiled

Table = Any
"""Numbers by index: numpy arrays where kernels are compiled, lists where they are interpreted."""


@compiled
def _operation(position: int, warm: int, n: int) -> tuple[bool, int]:
    """(is it a forward, which microbatch) of the operation at a position of 1F1B's order."""
    if position < warm:
        return True, position
    if position >= 2 * n - warm:
        return False, position - n
    turn = position - warm
    if turn % 2 == 0:
        return False, turn // 2
    return True, warm + turn // 2


@compiled
def _transfer(end: float, link_free: float, seconds: float, blocking: bool) -> tuple[float, float]:
    """(arrival, when the sender is free again) of a transfer of what was ready at `end`."""
    arrive = (end if blocking else max(end, link_free)) + seconds
    return arrive, (arrive if blocking else end)


@compiled
def _advance(
    chain: Table,
    n: int,
    blocking: bool,
    clocks: Table,
    counts: Table,
    ready_f: Table,
    ready_b: Table,
    start_f: Table,
    start_b: Table,
) -> None:
    """Fill the start times of every operation, and `clocks[0]` with when each stage is free.

    `chain` has the rows forward, backward, send forward, send backward. `clocks` are when a stage
    and its two outgoing links are free, `counts` the operations done and the inputs known; both
    start at zero, as do the arrival times `ready_f` and `ready_b` of microbatch k at stage i.
    """
    forward, backward, send_forward, send_backward = chain[0], chain[1], chain[2], chain[3]
    free, link_f, link_b = clocks[0], clocks[1], clocks[2]
    position, fwd_known, bwd_known = counts[0], counts[1], counts[2]
    depth = len(forward)
    fwd_known[0] = n
    left = 2 * n * depth
    while left > 0:
        for i in range(depth):
            while position[i] < 2 * n:
                is_forward, k = _operation(position[i], min(n, depth - i), n)
                if (fwd_known[i] if is_forward else bwd_known[i]) <= k:
                    break
                if is_forward:
                    begin = max(free[i], ready_f[i][k])
                    end = begin + forward[i]
                    start_f[i][k] = begin
                    if i + 1 < depth:
                        link_f[i], end = _transfer(end, link_f[i], send_forward[i], blocking)
                        ready_f[i + 1][k] = link_f[i]
                        fwd_known[i + 1] = k + 1
                    else:
                        ready_b[i][k] = end
                        bwd_known[i] = k + 1
                else:
                    begin = max(free[i], ready_b[i][k])
                    end = begin + backward[i]
                    start_b[i][k] = begin
                    if i > 0:
                        link_b[i], end = _transfer(end, link_b[i], send_backward[i], blocking)
                        ready_b[i - 1][k] = link_b[i]
                        bwd_known[i - 1] = k + 1
                free[i] = end
                position[i] += 1
                left -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Per-stage seconds of one pipeline for one microbatch."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    send_forward_s: tuple[float, ...]
    """to the next stage; 0 for the last"""
    send_backward_s: tuple[float, ...]
    """to the previous stage; 0 for the first"""


@dataclass(frozen=True, slots=True)
class Timeline:
    """When every operation starts: tables of shape (stages, microbatches), seconds."""

    chain: Chain
    start_forward_s: Table
    start_backward_s: Table
    end_s: Table
    """when each stage is free after its last backward (and its blocking send)"""


def _floats(rows: Sequence[Sequence[float]]) -> Table:
    if not COMPILED:
        return [list(row) for row in rows]
    import numpy as np  # noqa: PLC0415 - not inside the database

    return np.array(rows, dtype=np.float64)


def _zeros(rows: int, columns: int, *, whole: bool = False) -> Table:
    if not COMPILED:
        return [[0 if whole else 0.0] * columns for _ in range(rows)]
    import numpy as np  # noqa: PLC0415 - not inside the database

    return np.zeros((rows, columns), np.int64 if whole else np.float64)


def run_chain(chain: Chain, microbatches: int, *, blocking: bool) -> Timeline:
    """All events of n microbatches through one pipeline."""
    depth = len(chain.forward_s)
    rows = (chain.forward_s, chain.backward_s, chain.send_forward_s, chain.send_backward_s)
    clocks, counts = _zeros(3, depth), _zeros(3, depth, whole=True)
    ready_f, ready_b = _zeros(depth, microbatches), _zeros(depth, microbatches)
    start_f, start_b = _zeros(depth, microbatches), _zeros(depth, microbatches)
    _advance(
        _floats(rows), microbatches, blocking, clocks, counts, ready_f, ready_b, start_f, start_b
    )
    return Timeline(chain, start_f, start_b, clocks[0])


def lower_bound_s(chain: Chain, microbatches: int) -> float:
    """A bound that no 1F1B run of this pipeline can beat, transfers left out.

    Stage s is busy for n·(f_s + b_s) and starts and ends no nearer to the pipeline's own start and
    end than the stages before it allow. It also cannot start its first backward before one
    microbatch has been through all later stages, and has done at most P - s forwards by then:

        T >= Σ_{i<s} (f_i + b_i) + n·(f_s + b_s)
        T >= Σ_i f_i + Σ_{i≠s} b_i + n·b_s + max(0, n - (P - s))·f_s
    """
    depth = len(chain.forward_s)
    total_f, total_b = sum(chain.forward_s), sum(chain.backward_s)
    best = before = 0.0
    for s, (f, b) in enumerate(zip(chain.forward_s, chain.backward_s, strict=True)):
        busy = before + microbatches * (f + b)
        left = max(0, microbatches - (depth - s))
        filled = total_f + total_b - b + microbatches * b + left * f
        best = max(best, busy, filled)
        before += f + b
    return best


def operations(stage: int, depth: int, microbatches: int) -> list[tuple[bool, int]]:
    """(is it a forward, which microbatch) in the order in which stage i of P runs them."""
    warm = min(microbatches, depth - stage)
    return [_operation(position, warm, microbatches) for position in range(2 * microbatches)]
