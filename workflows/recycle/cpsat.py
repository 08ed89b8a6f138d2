"""The schedule problem for OR-Tools CP-SAT: one interval per operation.

    no two intervals of a worker overlap
    F(k,i,j) after F(k,i-1,j), I after F and after I(k,i+1,j), W after I, each with its transfer
    memory of a worker: a_F + a_I from F to W, the rest from F to I (or from I to W), cumulative
    sync:     T >= end of W + t_Opt                        for all operations
    stagger:  T >= last end - first start + t_Opt          in every stage
    T >= the lower bound of the load, T <= the schedule in hand

The load bound closes the staggered gap, which the solver cannot prove by itself. The schedule in
hand is given as a hint: under tight memory the solver finds nothing without it.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from workflows.recycle.bounds import lower_bound_us
from workflows.recycle.errors import SolverFailed
from workflows.recycle.exact import Answer, first_pipeline, on_all_pipelines
from workflows.recycle.failures import failure_counts
from workflows.recycle.job import Objective
from workflows.recycle.plan_tasks import SolverLimits
from workflows.recycle.routing import IntArray
from workflows.recycle.schedule import Operation, Schedule

__all__ = ["solve_cpsat"]

_Cell = tuple[int, int, int]


def solve_cpsat(
    hint: Schedule,
    *,
    objective: Objective,
    limits: SolverLimits | None = None,
    in_order: bool = True,
) -> Answer:
    """A schedule at least as good as ``hint``, with what could be proved about it.

    ``in_order`` limits the search to schedules whose forwards of one home pipeline start in
    micro-batch order. If ``hint`` itself is not in order the answer may have no schedule.
    Raises `SolverFailed` if the solver rejects the model or calls a feasible one infeasible.
    """
    limits = limits or SolverLimits()
    if not hint.failed and hint.job.pipelines > 1:
        single = solve_cpsat(
            first_pipeline(hint), objective=objective, limits=limits, in_order=in_order
        )
        found = single.schedule and on_all_pipelines(single.schedule, hint.job.pipelines)
        return Answer(
            schedule=found,
            bound_us=single.bound_us,
            proved=single.proved,
            in_order=in_order,
            wall_s=single.wall_s,
        )
    return _Model(hint, objective, in_order).solve(limits)


class _Model:
    def __init__(self, hint: Schedule, objective: Objective, in_order: bool) -> None:
        self.hint, self.objective, self.in_order = hint, objective, in_order
        self.job = hint.job
        self.model = cp_model.CpModel()
        self.best_us = hint.iteration_us(objective)
        self.horizon = self._horizon_us()
        self.cells: list[_Cell] = [
            (k, i, j)
            for k in range(self.job.pipelines)
            for i in range(self.job.stages)
            for j in range(self.job.micro_batches)
        ]
        self.start: dict[tuple[Operation, _Cell], Any] = {}
        self.end: dict[tuple[Operation, _Cell], Any] = {}
        self._add_operations()
        self._add_precedences()
        self._add_memory()
        self._add_objective()
        if in_order:
            self._add_order()
        else:
            self._add_symmetry()

    def _horizon_us(self) -> int:
        """No better schedule needs to end later.

        Synchronous: the makespan in hand. Staggered: if stage i starts after all forwards of stage
        i-1 have arrived, it and all later stages can be moved earlier as a block, so its window
        starts at most one period and one transfer after that of stage i-1.
        """
        if self.objective == "sync":
            return self.hint.makespan_us
        transfers = sum(t.transfer_us for t in self.job.times)
        return max(self.hint.makespan_us, self.job.stages * self.best_us + transfers)

    def _length(self, op: Operation, stage: int) -> int:
        times = self.job.times[stage]
        if op == "F":
            return times.forward_us
        return times.input_grad_us if op == "I" else times.weight_grad_us

    def _add_operations(self) -> None:
        lanes: dict[tuple[int, int], list[Any]] = {}
        for cell in self.cells:
            k, i, j = cell
            lane = lanes.setdefault((int(self.hint.executor[cell]), i), [])
            for op, length in self._pieces(i):
                name = f"{op}_{k}_{i}_{j}"
                start = self.model.new_int_var(0, self.horizon - length, name)
                lane.append(self.model.new_fixed_size_interval_var(start, length, name))
                self.model.add_hint(start, int(self.hint.start_us(op)[cell]))
                self.start[op, cell], self.end[op, cell] = start, start + length
            if not self.hint.split:
                self.start["W", cell] = self.start["I", cell] + self._length("I", i)
                self.end["W", cell] = self.end["I", cell]
        for lane in lanes.values():
            self.model.add_no_overlap(lane)

    def _pieces(self, stage: int) -> list[tuple[Operation, int]]:
        """The operations of a cell that the solver places, with their lengths."""
        forward: tuple[Operation, int] = ("F", self._length("F", stage))
        i_us, w_us = self._length("I", stage), self._length("W", stage)
        if self.hint.split:
            return [forward, ("I", i_us), ("W", w_us)]
        return [forward, ("I", i_us + w_us)]

    def _add_precedences(self) -> None:
        for cell in self.cells:
            k, i, j = cell
            if i > 0:
                arrived = self.end["F", (k, i - 1, j)] + self.job.times[i - 1].transfer_us
                self.model.add(self.start["F", cell] >= arrived)
            if i < self.job.stages - 1:
                arrived = self.end["I", (k, i + 1, j)] + self.job.times[i].transfer_us
                self.model.add(self.start["I", cell] >= arrived)
            self.model.add(self.start["I", cell] >= self.end["F", cell])
            if self.hint.split:
                self.model.add(self.start["W", cell] >= self.end["I", cell])

    def _add_memory(self) -> None:
        for i, memory in enumerate(self.job.memory or ()):
            between = memory.held_after_input_grad_bytes
            for worker in range(self.job.pipelines):
                cells = [c for c in self.cells if c[1] == i and self.hint.executor[c] == worker]
                held: list[tuple[Any, int]] = []
                for cell in cells:
                    base = min(between, memory.forward_bytes)
                    held.append((self._span(cell, "F", "W"), base))
                    if memory.forward_bytes > between:
                        held.append((self._span(cell, "F", "I"), memory.forward_bytes - between))
                    elif memory.forward_bytes < between:
                        held.append((self._span(cell, "I", "W"), between - memory.forward_bytes))
                if held:
                    spans, bytes_held = zip(*held, strict=True)
                    self.model.add_cumulative(spans, bytes_held, memory.budget_bytes)

    def _span(self, cell: _Cell, first: Operation, last: Operation) -> Any:
        """The interval from the start of ``first`` to the end of ``last``."""
        name = f"{first}{last}_{cell[0]}_{cell[1]}_{cell[2]}"
        size = self.model.new_int_var(0, self.horizon, name)
        return self.model.new_interval_var(
            self.start[first, cell], size, self.end[last, cell], name
        )

    def _add_objective(self) -> None:
        counts = failure_counts(self.job, self.hint.failed)
        low = lower_bound_us(self.job, counts, objective=self.objective, split=self.hint.split)
        iteration = self.model.new_int_var(low, self.best_us, "T")
        self.model.add_hint(iteration, self.best_us)
        for i, times in enumerate(self.job.times):
            cells = [c for c in self.cells if c[1] == i]
            first: Any = 0
            step = self.job.optimizer_us
            if self.objective == "stagger":
                step = times.optimizer_us
                first = self.model.new_int_var(0, self.horizon, f"S_{i}")
                self.model.add_hint(first, self.hint.windows_us()[i][0])
                for cell in cells:
                    self.model.add(self.start["F", cell] >= first)
            for cell in cells:
                self.model.add(iteration >= self.end["W", cell] - first + step)
        self.model.minimize(iteration)

    def _add_order(self) -> None:
        for k, i, j in self.cells:
            if j > 0:
                earlier = self.start["F", (k, i, j - 1)]
                self.model.add(self.start["F", (k, i, j)] >= earlier)

    def _add_symmetry(self) -> None:
        """Micro-batches with the same executor in every stage are alike: fix who enters first.

        Nothing is lost, since any schedule can be renamed to keep this order; it is the one of
        the schedule in hand, so that the hint keeps it too.
        """
        alike: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for k in range(self.job.pipelines):
            for j in range(self.job.micro_batches):
                executors = tuple(int(e) for e in self.hint.executor[k, :, j])
                alike.setdefault(executors, []).append((k, j))
        for cells in alike.values():
            cells.sort(key=lambda cell: self.hint.forward_start_us[cell[0], 0, cell[1]])
            for (k, j), (next_k, next_j) in pairwise(cells):
                later = self.start["F", (next_k, 0, next_j)]
                self.model.add(self.start["F", (k, 0, j)] <= later)

    def solve(self, limits: SolverLimits) -> Answer:
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = limits.time_limit_s
        if limits.work_limit is not None:
            solver.parameters.max_deterministic_time = limits.work_limit
        solver.parameters.num_workers = limits.threads
        solver.parameters.random_seed = limits.seed
        began = time.monotonic()
        status = solver.solve(self.model)
        wall_s = time.monotonic() - began
        if status == cp_model.MODEL_INVALID:
            raise SolverFailed(f"CP-SAT rejects the model: {self.model.validate()}")
        if status == cp_model.INFEASIBLE and not self.in_order:
            raise SolverFailed(
                "CP-SAT finds no schedule although one is in hand: the hint or the model is wrong"
            )
        found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        bound = round(solver.best_objective_bound) if found else 0
        return Answer(
            schedule=self._schedule(solver) if found else None,
            bound_us=bound,
            proved=status == cp_model.OPTIMAL,
            in_order=self.in_order,
            wall_s=wall_s,
        )

    def _schedule(self, solver: cp_model.CpSolver) -> Schedule:
        arrays: dict[Operation, IntArray] = {
            op: np.zeros(self.hint.executor.shape, dtype=np.int64) for op in ("F", "I", "W")
        }
        for (op, cell), start in self.start.items():
            arrays[op][cell] = solver.value(start)
        earliest = arrays["F"].min()
        return Schedule(
            job=self.job,
            failed=self.hint.failed,
            split=self.hint.split,
            executor=self.hint.executor,
            forward_start_us=arrays["F"] - earliest,
            input_grad_start_us=arrays["I"] - earliest,
            weight_grad_start_us=arrays["W"] - earliest,
        )
