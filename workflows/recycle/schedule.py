"""A schedule: when every operation of one iteration starts, and on which worker.

A cell is a micro-batch (home pipeline k, j) in a stage i. It has three operations: F (forward),
I (backward for the input) and W (backward for the weights). In a coupled schedule I and W are one
operation: W follows I at once and the stage before waits for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from workflows.recycle.job import Job, Objective, Worker
from workflows.recycle.routing import IntArray

__all__ = ["Objective", "Operation", "Schedule", "ScheduledOp"]

Operation = Literal["F", "I", "W"]


class ScheduledOp(NamedTuple):
    """One operation in its place."""

    worker: Worker
    """Who executes it."""
    op: Operation
    home: int
    """Home pipeline k of the micro-batch; re-routed if it is not the worker's."""
    micro_batch: int
    """j"""
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Start times of all operations of one iteration; arrays have the shape (P, S, M)."""

    job: Job
    failed: tuple[Worker, ...]
    split: bool
    """Whether W may run apart from I."""
    executor: IntArray
    """The pipeline whose worker of the stage executes the cell."""
    forward_start_us: IntArray
    input_grad_start_us: IntArray
    weight_grad_start_us: IntArray

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def duration_us(self, op: Operation) -> IntArray:
        """Duration of ``op`` in each stage, shape (S,)."""
        field = {"F": "forward_us", "I": "input_grad_us", "W": "weight_grad_us"}[op]
        return np.array([getattr(t, field) for t in self.job.times], dtype=np.int64)

    def start_us(self, op: Operation) -> IntArray:
        """Start of ``op`` in each cell, shape (P, S, M)."""
        return {
            "F": self.forward_start_us,
            "I": self.input_grad_start_us,
            "W": self.weight_grad_start_us,
        }[op]

    def end_us(self, op: Operation) -> IntArray:
        """End of ``op`` in each cell, shape (P, S, M)."""
        return self.start_us(op) + self.duration_us(op)[None, :, None]

    @property
    def makespan_us(self) -> int:
        """The end of the last operation; the first starts at 0."""
        return int(self.end_us("W").max())

    def windows_us(self) -> tuple[tuple[int, int], ...]:
        """(S_i, E_i): first start and last end in each stage."""
        first = self.forward_start_us.min(axis=(0, 2))
        last = self.end_us("W").max(axis=(0, 2))
        return tuple((int(a), int(b)) for a, b in zip(first, last, strict=True))

    @property
    def period_us(self) -> int:
        """T_stag = max_i (E_i - S_i + t_Opt): an iteration with the staggered optimizer."""
        windows = self.windows_us()
        return max(
            e - s + t.optimizer_us for (s, e), t in zip(windows, self.job.times, strict=True)
        )

    @property
    def sync_us(self) -> int:
        """T_sync = makespan + t_Opt: an iteration with one global barrier."""
        return self.makespan_us + self.job.optimizer_us

    def iteration_us(self, objective: Objective) -> int:
        """T under ``objective``."""
        return self.sync_us if objective == "sync" else self.period_us

    def ops(self) -> Iterator[ScheduledOp]:
        """All operations, by stage, home pipeline, micro-batch."""
        starts = {op: self.start_us(op).tolist() for op in ("F", "I", "W")}
        length = {op: self.duration_us(op).tolist() for op in ("F", "I", "W")}
        executor = self.executor.tolist()
        kinds: tuple[Operation, ...] = ("F", "I", "W")
        for i in range(self.job.stages):
            for k in range(self.job.pipelines):
                for j in range(self.job.micro_batches):
                    worker = Worker(executor[k][i][j], i)
                    for op in kinds:
                        start = starts[op][k][i][j]
                        yield ScheduledOp(worker, op, k, j, start, start + length[op][i])

    def by_worker(self) -> dict[Worker, list[ScheduledOp]]:
        """Each live worker's operations in the order in which it runs them."""
        rows: dict[Worker, list[ScheduledOp]] = {
            Worker(k, i): []
            for k in range(self.job.pipelines)
            for i in range(self.job.stages)
            if Worker(k, i) not in self.failed
        }
        for row in self.ops():
            rows[row.worker].append(row)
        for ops in rows.values():
            ops.sort(key=lambda row: row.start_us)
        return rows

    def bubble_fraction(self, objective: Objective) -> float:
        """Idle share of the live workers: 1 - sum of work / (T * live workers)."""
        work = self.job.batch * sum(t.total_us for t in self.job.times)
        live = self.job.workers - len(self.failed)
        return 1 - work / (self.iteration_us(objective) * live)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return {
            "job": self.job.to_json(),
            "failed": [list(w) for w in self.failed],
            "split": self.split,
            "executor": self.executor.tolist(),
            "forward_start_us": self.forward_start_us.tolist(),
            "input_grad_start_us": self.input_grad_start_us.tolist(),
            "weight_grad_start_us": self.weight_grad_start_us.tolist(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Schedule:
        """The schedule that `to_json` wrote."""
        arrays = {
            name: np.array(data[name], dtype=np.int64)
            for name in (
                "executor",
                "forward_start_us",
                "input_grad_start_us",
                "weight_grad_start_us",
            )
        }
        return cls(
            job=Job.from_json(data["job"]),
            failed=tuple(Worker(*pair) for pair in data["failed"]),
            split=data["split"],
            **arrays,
        )
