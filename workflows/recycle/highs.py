"""The schedule problem as a mixed-integer programme for HiGHS: a cross-check of CP-SAT.

    E_n >= d_n and integer                                   end of every operation
    E(F,k,i,j) >= E(F,k,i-1,j) + t_C + t_F, and so on        precedences
    E_b >= E_a + d_b - BIG*(1 - O_ab), O_ab + O_ba = 1       one operation at a time on a worker
    a_b + sum_a a_a*O_ab <= budget                           memory when b ends
    T >= E_n + t_Opt, or T >= E_n - (E_m - d_m) + t_Opt      sync, or stagger within a stage

The big-M relaxation is weak: this is for instances of some hundreds of binaries. CP-SAT is the
engine for anything larger.
"""

from __future__ import annotations

import time
from itertools import combinations
from typing import Any

import highspy
import numpy as np

from workflows.recycle.bounds import lower_bound_us
from workflows.recycle.errors import InvalidArgument, SolverFailed
from workflows.recycle.exact import Answer, first_pipeline, on_all_pipelines
from workflows.recycle.failures import failure_counts
from workflows.recycle.job import Objective
from workflows.recycle.plan_tasks import SolverLimits
from workflows.recycle.routing import IntArray
from workflows.recycle.schedule import Operation, Schedule

__all__ = ["MAX_BINARIES", "solve_highs"]

MAX_BINARIES = 20_000
_Op = tuple[Operation, int, int, int]
_KINDS: tuple[Operation, ...] = ("F", "I", "W")


def solve_highs(
    hint: Schedule,
    *,
    objective: Objective,
    limits: SolverLimits | None = None,
    in_order: bool = True,
    bound_cut: bool = True,
) -> Answer:
    """The same question as `solve_cpsat`; ``bound_cut`` adds T >= the lower bound of the load.

    Raises `InvalidArgument` for more than `MAX_BINARIES` ordering variables, `SolverFailed` if the
    solver calls a feasible instance infeasible.
    """
    limits = limits or SolverLimits()
    if not hint.failed and hint.job.pipelines > 1:
        single = solve_highs(
            first_pipeline(hint),
            objective=objective,
            limits=limits,
            in_order=in_order,
            bound_cut=bound_cut,
        )
        found = single.schedule and on_all_pipelines(single.schedule, hint.job.pipelines)
        return Answer(
            schedule=found,
            bound_us=single.bound_us,
            proved=single.proved,
            in_order=in_order,
            wall_s=single.wall_s,
        )
    return _Model(hint, objective, in_order, bound_cut).solve(limits)


class _Model:
    def __init__(
        self, hint: Schedule, objective: Objective, in_order: bool, bound_cut: bool
    ) -> None:
        self.hint, self.objective, self.in_order = hint, objective, in_order
        self.job = hint.job
        self.highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self.highs.silent()
        transfers = sum(t.transfer_us for t in self.job.times)
        best = hint.iteration_us(objective)
        # The same argument as in the CP-SAT model: no better schedule ends later.
        self.big = hint.makespan_us
        if objective == "stagger":
            self.big = max(self.big, self.job.stages * best + transfers)
        self.ops: list[_Op] = [
            (op, k, i, j)
            for op in _KINDS
            for k in range(self.job.pipelines)
            for i in range(self.job.stages)
            for j in range(self.job.micro_batches)
        ]
        self.end: dict[_Op, Any] = {
            op: self._integer(self._length(op), self.big, str(op)) for op in self.ops
        }
        self.before: dict[tuple[_Op, _Op], Any] = {}
        self._add_precedences()
        self._add_workers()
        self._add_objective(bound_cut, best)

    def _integer(self, low: int, high: int, name: str) -> Any:
        return self.highs.addVariable(
            lb=low, ub=high, type=highspy.HighsVarType.kInteger, name=name
        )

    def _length(self, op: _Op) -> int:
        times = self.job.times[op[2]]
        if op[0] == "F":
            return times.forward_us
        return times.input_grad_us if op[0] == "I" else times.weight_grad_us

    def _after(self, later: _Op, earlier: _Op, transfer_us: int = 0) -> None:
        gap = transfer_us + self._length(later)
        self.highs.addConstr(self.end[later] - self.end[earlier] >= gap)

    def _add_precedences(self) -> None:
        last = self.job.stages - 1
        source: Operation = "I" if self.hint.split else "W"
        for k in range(self.job.pipelines):
            for i, times in enumerate(self.job.times):
                for j in range(self.job.micro_batches):
                    self._after(("I", k, i, j), ("F", k, i, j))
                    self._after(("W", k, i, j), ("I", k, i, j))
                    if not self.hint.split:
                        together = self.end["W", k, i, j] - self.end["I", k, i, j]
                        self.highs.addConstr(together == self._length(("W", k, i, j)))
                    if i < last:
                        self._after(("F", k, i + 1, j), ("F", k, i, j), times.transfer_us)
                        self._after(("I", k, i, j), (source, k, i + 1, j), times.transfer_us)
                    if self.in_order and j > 0:
                        start_order = self.end["F", k, i, j] - self.end["F", k, i, j - 1]
                        self.highs.addConstr(start_order >= 0)

    def _known_order(self, a: _Op, b: _Op) -> bool | None:
        """Whether ``a`` runs before ``b`` on their worker; None if that is to be decided."""
        if a[1:] == b[1:]:
            return _KINDS.index(a[0]) < _KINDS.index(b[0])
        if self.in_order and a[0] == b[0] == "F" and a[1] == b[1]:
            return a[3] < b[3]
        return None

    def _add_workers(self) -> None:
        lanes: dict[tuple[int, int], list[_Op]] = {}
        for op in self.ops:
            lanes.setdefault((int(self.hint.executor[op[1:]]), op[2]), []).append(op)
        pairs = [pair for lane in lanes.values() for pair in combinations(lane, 2)]
        open_pairs = sum(self._known_order(a, b) is None for a, b in pairs)
        if open_pairs > MAX_BINARIES:
            raise InvalidArgument(
                f"the instance has {open_pairs} ordering variables; the HiGHS cross-check takes at "
                f"most {MAX_BINARIES}: use the engine cpsat",
                binaries=open_pairs,
            )
        for a, b in pairs:
            self._order_pair(a, b)
        for (_, stage), lane in lanes.items():
            self._add_memory(stage, lane)

    def _order_pair(self, a: _Op, b: _Op) -> None:
        known = self._known_order(a, b)
        if known is not None:
            self.before[a, b], self.before[b, a] = int(known), int(not known)
            first, second = (a, b) if known else (b, a)
            self._after(second, first)
            return
        binary = self._integer(0, 1, f"O_{a}_{b}")
        self.before[a, b], self.before[b, a] = binary, 1 - binary
        span_b, span_a = self.big + self._length(b), self.big + self._length(a)
        self.highs.addConstr(
            self.end[b] - self.end[a] - span_b * binary >= self._length(b) - span_b
        )
        self.highs.addConstr(self.end[a] - self.end[b] + span_a * binary >= self._length(a))

    def _add_memory(self, stage: int, lane: list[_Op]) -> None:
        if self.job.memory is None:
            return
        memory = self.job.memory[stage]
        delta = {
            "F": memory.forward_bytes,
            "I": memory.input_grad_bytes,
            "W": memory.weight_grad_bytes,
        }
        for b in lane:
            if delta[b[0]] <= 0:
                continue
            held = sum(delta[a[0]] * self.before[a, b] for a in lane if a != b and delta[a[0]] != 0)
            constraint = held <= memory.budget_bytes - delta[b[0]]
            # Where every order is known the sum is a number and there is nothing to add.
            if not isinstance(constraint, bool):
                self.highs.addConstr(constraint)

    def _add_objective(self, bound_cut: bool, best: int) -> None:
        counts = failure_counts(self.job, self.hint.failed)
        low = 0
        if bound_cut:
            low = lower_bound_us(self.job, counts, objective=self.objective, split=self.hint.split)
        self.iteration = self._integer(low, best, "T")
        for i, times in enumerate(self.job.times):
            ends = [self.end[op] for op in self.ops if op[0] == "W" and op[2] == i]
            if self.objective == "sync":
                for end in ends:
                    self.highs.addConstr(self.iteration - end >= self.job.optimizer_us)
                continue
            first = self._integer(0, self.big, f"S_{i}")
            for op in self.ops:
                if op[0] == "F" and op[2] == i:
                    self.highs.addConstr(self.end[op] - first >= times.forward_us)
            for end in ends:
                self.highs.addConstr(self.iteration - end + first >= times.optimizer_us)

    def solve(self, limits: SolverLimits) -> Answer:
        self.highs.setOptionValue("time_limit", float(limits.time_limit_s))
        self.highs.setOptionValue("threads", limits.threads)
        self.highs.setOptionValue("random_seed", limits.seed)
        began = time.monotonic()
        self.highs.minimize(self.iteration)
        wall_s = time.monotonic() - began
        status = self.highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible and not self.in_order:
            raise SolverFailed("HiGHS finds no schedule although one is in hand")
        info = self.highs.getInfo()
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        bound = 0
        if np.isfinite(info.mip_dual_bound):
            # T is whole, so a fractional bound rounds up; the tolerance is the solver's.
            bound = max(0, int(np.ceil(info.mip_dual_bound - 1e-6)))
        return Answer(
            schedule=self._schedule() if feasible else None,
            bound_us=bound,
            proved=status == highspy.HighsModelStatus.kOptimal,
            in_order=self.in_order,
            wall_s=wall_s,
        )

    def _schedule(self) -> Schedule:
        values = self.highs.getSolution().col_value
        arrays: dict[Operation, IntArray] = {
            op: np.zeros(self.hint.executor.shape, dtype=np.int64) for op in _KINDS
        }
        for op, end in self.end.items():
            arrays[op[0]][op[1:]] = round(values[end.index]) - self._length(op)
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
