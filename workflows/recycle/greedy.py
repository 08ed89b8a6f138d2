"""Greedy list scheduling: the primary engine, O(n log n) in the number of operations.

Time moves forward over all workers. Each worker's candidate is the operation that can start
first, with ties in the order I, F, W, then j, then k: I frees the stages before it, W can wait
for a bubble. A forward is passed over while the worker's memory has no room for it. The earliest
candidate of all workers is committed.

A micro-batch is counted at its peak from its F to its I and at what it holds after that until its
W. The last stage always drains (its I needs nothing but its own F), hence so does the stage
before it, and so on: with room for one micro-batch in each stage the scheduler never blocks.

Heap entries are single integers (time and rank packed together) because a job of 32 pipelines,
16 stages and 512 micro-batches has 786,432 operations.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from workflows.recycle.errors import InfeasibleMemory
from workflows.recycle.failures import check_failures
from workflows.recycle.job import Job, Objective, Worker
from workflows.recycle.routing import IntArray, reroute
from workflows.recycle.schedule import Schedule

__all__ = ["best_greedy_schedule", "greedy_schedule"]

_I, _F, _W = 0, 1, 2
_NEVER = -1


def greedy_schedule(
    job: Job, failed: Iterable[Sequence[int]] = (), *, split: bool = True
) -> Schedule:
    """A feasible schedule of one iteration with these workers dead.

    ``split`` False keeps I and W together. Raises the errors of `check_failures`, and
    `InfeasibleMemory`.
    """
    dead = check_failures(job, failed)
    executor = reroute(job, dead)
    forward, input_grad, weight_grad = _Run(job, executor, split).run()
    return Schedule(
        job=job,
        failed=dead,
        split=split,
        executor=executor,
        forward_start_us=forward,
        input_grad_start_us=input_grad,
        weight_grad_start_us=weight_grad,
    )


def best_greedy_schedule(
    job: Job,
    failed: Iterable[Sequence[int]] = (),
    *,
    objective: Objective,
    split: bool = True,
    bound_us: int = 0,
) -> Schedule:
    """The better of two greedy schedules: as given, and with the hurt pipelines named last.

    Pipelines are alike, so their names matter only for ties, and the dealing of micro-batches
    starts with unhurt pipelines if those come first. Under a tight memory cap that is up to 10%.
    The second is not tried if the first is within 0.1% of ``bound_us``.
    """
    first = greedy_schedule(job, failed, split=split)
    hurt = Counter(worker.pipeline for worker in first.failed)
    names = sorted(range(job.pipelines), key=lambda k: (hurt[k], k))
    if names == sorted(names) or 1000 * first.iteration_us(objective) <= 1001 * bound_us:
        return first
    place = {name: position for position, name in enumerate(names)}
    renamed = [Worker(place[k], i) for k, i in first.failed]
    second = _with_names(greedy_schedule(job, renamed, split=split), place, first.failed)
    return min(first, second, key=lambda s: (s.iteration_us(objective), s.makespan_us))


def _with_names(
    schedule: Schedule, place: Mapping[int, int], failed: tuple[Worker, ...]
) -> Schedule:
    """The schedule with position ``place[k]`` called pipeline k."""
    positions = np.array([place[k] for k in range(len(place))])
    names = np.argsort(positions)
    return Schedule(
        job=schedule.job,
        failed=failed,
        split=schedule.split,
        executor=names[schedule.executor[positions]],
        forward_start_us=schedule.forward_start_us[positions],
        input_grad_start_us=schedule.input_grad_start_us[positions],
        weight_grad_start_us=schedule.weight_grad_start_us[positions],
    )


class _Run:
    """The state of one scheduling run.

    Worker w = stage*P + pipeline. A key is (rank*M + j)*P + k: smaller is preferred. Operations
    that are ready wait in ``ready_*`` (keys); those whose input is still to arrive wait in
    ``later_*`` (time*key_space + key). Forwards are apart from the rest since memory can hold
    them back.
    """

    def __init__(self, job: Job, executor: IntArray, split: bool) -> None:
        self.job = job
        self.split = split
        self.P, self.S, self.M = job.pipelines, job.stages, job.micro_batches
        self.key_space = 3 * self.M * self.P
        self.executor: list[list[list[int]]] = executor.transpose(1, 2, 0).tolist()
        n = self.P * self.S
        self.free = [0] * n
        self.ready_f: list[list[int]] = [[] for _ in range(n)]
        self.ready_b: list[list[int]] = [[] for _ in range(n)]
        self.later_f: list[list[int]] = [[] for _ in range(n)]
        self.later_b: list[list[int]] = [[] for _ in range(n)]
        self.candidate_start = [_NEVER] * n
        self.candidate_key = [_NEVER] * n
        self.queue: list[int] = []
        self.starts = [[_NEVER] * (self.P * self.S * self.M) for _ in range(3)]
        self._set_up_memory()

    def _set_up_memory(self) -> None:
        """Room left on each worker, and what F takes and I and W give back; all 0 if unlimited."""
        memory = self.job.memory
        take, give_i, give_w, room = [0] * self.S, [0] * self.S, [0] * self.S, [0] * self.S
        for i, stage in enumerate(memory or ()):
            take[i] = stage.peak_bytes
            give_i[i] = stage.peak_bytes - stage.held_after_input_grad_bytes
            give_w[i] = stage.held_after_input_grad_bytes
            room[i] = stage.budget_bytes
        self.take, self.give_i, self.give_w = take, give_i, give_w
        self.room = [room[w // self.P] for w in range(self.P * self.S)]

    def run(self) -> tuple[IntArray, IntArray, IntArray]:
        """Commit every operation; the starts of F, I and W, each of shape (P, S, M)."""
        for j in range(self.M):
            for k in range(self.P):
                w = self.executor[0][j][k]
                heapq.heappush(self.ready_f[w], (_F * self.M + j) * self.P + k)
        for w in range(self.P):
            self._choose(w)
        while self.queue:
            start, w = divmod(heapq.heappop(self.queue), self.P * self.S * 3)
            w //= 3
            if self.candidate_start[w] == start:
                self._commit(w, start)
        return self._arrays()

    def _arrays(self) -> tuple[IntArray, IntArray, IntArray]:
        i_start, f_start, w_start = (
            np.array(s, dtype=np.int64).reshape(self.S, self.M, self.P).transpose(2, 0, 1).copy()
            for s in self.starts
        )
        if min(int(f_start.min()), int(w_start.min())) < 0:
            raise InfeasibleMemory(
                "no schedule fits the memory caps", unplaced=int((w_start < 0).sum())
            )
        return f_start, i_start, w_start

    def _choose(self, w: int) -> None:
        """Find the candidate of worker ``w`` and queue it."""
        free, space = self.free[w], self.key_space
        later_b, ready_b = self.later_b[w], self.ready_b[w]
        while later_b and later_b[0] < (free + 1) * space:
            heapq.heappush(ready_b, heapq.heappop(later_b) % space)
        later_f, ready_f = self.later_f[w], self.ready_f[w]
        while later_f and later_f[0] < (free + 1) * space:
            heapq.heappush(ready_f, heapq.heappop(later_f) % space)
        may_forward = self.room[w] >= self.take[w // self.P]
        start, key = free, _NEVER
        if ready_b:
            key = ready_b[0]
        if may_forward and ready_f and (key == _NEVER or ready_f[0] < key):
            key = ready_f[0]
        if key == _NEVER:
            packed = later_b[0] if later_b else _NEVER
            if may_forward and later_f and (packed == _NEVER or later_f[0] < packed):
                packed = later_f[0]
            if packed == _NEVER:
                self.candidate_start[w] = _NEVER
                return
            start, key = divmod(packed, space)
        self.candidate_start[w] = start
        self.candidate_key[w] = key
        # Same start on several workers: their order does not matter, since what they release
        # starts later. The rank is in the entry only to follow the stated rule.
        heapq.heappush(self.queue, (start * self.P * self.S + w) * 3 + key // (self.M * self.P))

    def _arrive(self, w: int, key: int, ready: int, *, forward: bool) -> None:
        """An operation's input will be on worker ``w`` at ``ready``."""
        heapq.heappush((self.later_f if forward else self.later_b)[w], ready * self.key_space + key)
        if not 0 <= self.candidate_start[w] < ready:
            self._choose(w)

    def _commit(self, w: int, start: int) -> None:
        """Run the candidate of ``w`` and hand its output on."""
        key = self.candidate_key[w]
        stage = w // self.P
        rank, rest = divmod(key, self.M * self.P)
        self._take_out(w, key, rank)
        self.starts[rank][stage * self.M * self.P + rest] = start
        if rank == _F:
            self._after_forward(w, stage, rest, start)
        elif rank == _I:
            self._after_backward(w, stage, rest, start)
        else:
            self.free[w] = start + self.job.times[stage].weight_grad_us
            self.room[w] += self.give_w[stage]
        self._choose(w)

    def _take_out(self, w: int, key: int, rank: int) -> None:
        forward = rank == _F
        ready = (self.ready_f if forward else self.ready_b)[w]
        if ready and ready[0] == key:
            heapq.heappop(ready)
        else:
            heapq.heappop((self.later_f if forward else self.later_b)[w])
        self.candidate_start[w] = _NEVER

    def _after_forward(self, w: int, stage: int, rest: int, start: int) -> None:
        times = self.job.times[stage]
        end = start + times.forward_us
        self.free[w] = end
        self.room[w] -= self.take[stage]
        j, k = divmod(rest, self.P)
        if stage + 1 < self.S:
            target = (stage + 1) * self.P + self.executor[stage + 1][j][k]
            key = (_F * self.M + j) * self.P + k
            self._arrive(target, key, end + times.transfer_us, forward=True)
        else:
            heapq.heappush(self.later_b[w], end * self.key_space + rest)

    def _after_backward(self, w: int, stage: int, rest: int, start: int) -> None:
        times = self.job.times[stage]
        end = start + times.input_grad_us
        self.room[w] += self.give_i[stage]
        if self.split:
            key = _W * self.M * self.P + rest
            heapq.heappush(self.later_b[w], end * self.key_space + key)
        else:
            self.starts[_W][stage * self.M * self.P + rest] = end
            end += times.weight_grad_us
            self.room[w] += self.give_w[stage]
        self.free[w] = end
        if stage > 0:
            j, k = divmod(rest, self.P)
            target = (stage - 1) * self.P + self.executor[stage - 1][j][k]
            transfer = self.job.times[stage - 1].transfer_us
            self._arrive(target, rest, end + transfer, forward=False)
