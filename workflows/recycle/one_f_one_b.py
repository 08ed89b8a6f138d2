"""The fault-free 1F1B schedule.

Stage i runs min(M, S-i) forwards, then backward and forward in turn, then the remaining
backwards. Every operation starts as soon as the order and its inputs allow.
"""

from __future__ import annotations

import numpy as np

from workflows.recycle.job import Job
from workflows.recycle.routing import IntArray, reroute
from workflows.recycle.schedule import Schedule

__all__ = ["one_f_one_b", "stage_order"]


def stage_order(job: Job, stage: int) -> list[tuple[str, int]]:
    """The order of one stage: ("F" or "B", micro-batch)."""
    warm_up = min(job.micro_batches, job.stages - stage)
    order = [("F", j) for j in range(warm_up)]
    for j in range(job.micro_batches):
        order.append(("B", j))
        if warm_up + j < job.micro_batches:
            order.append(("F", warm_up + j))
    return order


def one_f_one_b(job: Job) -> Schedule:
    """1F1B with a fused backward on all P pipelines, which run alike."""
    forward, backward = _earliest_starts(job)
    shape = (job.pipelines, job.stages, job.micro_batches)
    length = np.array([t.input_grad_us for t in job.times])[:, None]
    return Schedule(
        job=job,
        failed=(),
        split=False,
        executor=reroute(job, ()),
        forward_start_us=np.broadcast_to(forward, shape).copy(),
        input_grad_start_us=np.broadcast_to(backward, shape).copy(),
        weight_grad_start_us=np.broadcast_to(backward + length, shape).copy(),
    )


def _earliest_starts(job: Job) -> tuple[IntArray, IntArray]:
    """Start of F and of B in one pipeline, each of shape (S, M)."""
    S, M = job.stages, job.micro_batches
    starts = {op: np.full((S, M), -1, dtype=np.int64) for op in "FB"}
    orders = [stage_order(job, i) for i in range(S)]
    position = [0] * S
    free = [0] * S
    while any(position[i] < len(orders[i]) for i in range(S)):
        for i in range(S):
            while position[i] < len(orders[i]):
                op, j = orders[i][position[i]]
                ready = _ready_us(job, starts, op, i, j)
                if ready is None:
                    break
                start = max(ready, free[i])
                starts[op][i, j] = start
                times = job.times[i]
                free[i] = start + (times.forward_us if op == "F" else times.backward_us)
                position[i] += 1
    return starts["F"], starts["B"]


def _ready_us(job: Job, starts: dict[str, IntArray], op: str, i: int, j: int) -> int | None:
    """When the input of ``op`` has arrived; None if what it waits for has no time yet."""
    if op == "F":
        if i == 0:
            return 0
        before, length = starts["F"][i - 1, j], job.times[i - 1].forward_us
        transfer = job.times[i - 1].transfer_us
    elif i == job.stages - 1:
        before, length, transfer = starts["F"][i, j], job.times[i].forward_us, 0
    else:
        before, length = starts["B"][i + 1, j], job.times[i + 1].backward_us
        transfer = job.times[i].transfer_us
    return None if before < 0 else int(before) + length + transfer
