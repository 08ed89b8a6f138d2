"""A plan: the schedule that the survivors run, how good it is, and how that is known.

Every plan carries a lower bound and its gap, and has passed the independent checker before it is
returned. Engines:

    greedy   list scheduling only; milliseconds
    cpsat    greedy, then CP-SAT to improve it or prove it
    highs    greedy, then HiGHS (small instances; a cross-check)
    auto     greedy; then CP-SAT if the bound is not met and the instance is small enough
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from workflows.recycle.bounds import lower_bound_us
from workflows.recycle.check import check_figures, check_schedule
from workflows.recycle.errors import InvalidArgument, SolverFailed
from workflows.recycle.exact import Answer
from workflows.recycle.failures import check_failures, failure_counts
from workflows.recycle.greedy import best_greedy_schedule
from workflows.recycle.job import Job, Objective, Worker
from workflows.recycle.one_f_one_b import one_f_one_b
from workflows.recycle.plan_tasks import ENGINES, OBJECTIVES, Engine, SolverLimits
from workflows.recycle.schedule import Schedule

__all__ = ["AUTO_MAX_CELLS", "Plan", "Status", "make_plan"]

Status = Literal["optimal", "optimal_in_order", "heuristic"]

AUTO_MAX_CELLS = 800
"""P*S*M up to which the engine ``auto`` calls CP-SAT: the model is then solved in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A checked schedule with its figures; immutable."""

    objective: Objective
    schedule: Schedule
    iteration_us: int
    """T under the objective."""
    makespan_us: int
    lower_bound_us: int
    """No schedule with these dead workers and this dealing of micro-batches is shorter."""
    in_order_bound_us: int | None
    """The same among schedules whose forwards keep micro-batch order; None if not known."""
    status: Status
    """``optimal``: equal to the bound. ``optimal_in_order``: equal to the in-order bound.
    ``heuristic``: neither is proved."""
    engine: Engine
    """The engine that found the schedule."""
    solver_seed: int | None
    wall_ms: int

    def __post_init__(self) -> None:
        for array in (
            self.schedule.executor,
            self.schedule.forward_start_us,
            self.schedule.input_grad_start_us,
            self.schedule.weight_grad_start_us,
        ):
            array.setflags(write=False)

    @property
    def job(self) -> Job:
        """The job it plans."""
        return self.schedule.job

    @property
    def counts(self) -> tuple[int, ...]:
        """Failures in each stage."""
        return failure_counts(self.job, self.schedule.failed)

    @property
    def gap(self) -> float:
        """(T - LB)/LB"""
        return (self.iteration_us - self.lower_bound_us) / self.lower_bound_us

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, with the derived figures; `from_json` reads it back."""
        return {
            "objective": self.objective,
            "schedule": self.schedule.to_json(),
            "iteration_us": self.iteration_us,
            "makespan_us": self.makespan_us,
            "lower_bound_us": self.lower_bound_us,
            "in_order_bound_us": self.in_order_bound_us,
            "status": self.status,
            "engine": self.engine,
            "solver_seed": self.solver_seed,
            "wall_ms": self.wall_ms,
            "counts": list(self.counts),
            "gap": self.gap,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """The plan that `to_json` wrote."""
        derived = {"counts", "gap", "schedule"}
        fields = {name: value for name, value in data.items() if name not in derived}
        return cls(schedule=Schedule.from_json(data["schedule"]), **fields)


def make_plan(
    job: Job,
    failed: Iterable[Sequence[int]] = (),
    *,
    objective: Objective = "stagger",
    split: bool = True,
    engine: Engine = "auto",
    limits: SolverLimits | None = None,
) -> Plan:
    """The best schedule found for ``job`` with these workers dead.

    Raises the errors of `check_failures`, `InfeasibleMemory`, `InvalidArgument` for an unknown
    engine or objective, and `SolverFailed` if a schedule does not pass the checker.
    """
    _check_choice("objective", objective, OBJECTIVES)
    _check_choice("engine", engine, ENGINES)
    began = time.monotonic()
    limits = limits or SolverLimits()
    dead = check_failures(job, failed)
    counts = failure_counts(job, dead)
    bound = lower_bound_us(job, counts, objective=objective, split=split)
    start = _starting_schedule(job, dead, objective, split, bound)
    search = _Search(start, objective, bound)
    cells = job.workers * job.micro_batches
    exact = engine in ("cpsat", "highs") or (engine == "auto" and cells <= AUTO_MAX_CELLS)
    if exact and not search.proved:
        search.run("highs" if engine == "highs" else "cpsat", limits)
    plan = search.plan(limits, began)
    _require_valid(plan)
    return plan


def _check_choice(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidArgument(
            f"{name} = {given!r}: expected one of {', '.join(known)}", argument=name, given=given
        )


def _starting_schedule(
    job: Job, failed: tuple[Worker, ...], objective: Objective, split: bool, bound_us: int
) -> Schedule:
    """The greedy schedule, or 1F1B where no worker is dead and it is shorter and fits."""
    greedy = best_greedy_schedule(job, failed, objective=objective, split=split, bound_us=bound_us)
    if greedy.failed:
        return greedy
    classic = one_f_one_b(job)
    if split:
        classic = Schedule(
            job=job,
            failed=(),
            split=True,
            executor=classic.executor,
            forward_start_us=classic.forward_start_us,
            input_grad_start_us=classic.input_grad_start_us,
            weight_grad_start_us=classic.weight_grad_start_us,
        )
    shorter = classic.iteration_us(objective) < greedy.iteration_us(objective)
    return classic if shorter and not check_schedule(classic) else greedy


class _Search:
    """The best schedule so far and what has been proved about it."""

    def __init__(self, start: Schedule, objective: Objective, bound_us: int) -> None:
        self.schedule, self.objective = start, objective
        self.bound_us = bound_us
        self.in_order_bound_us: int | None = None
        self.engine: Engine = "greedy"
        self.used_solver = False

    @property
    def iteration_us(self) -> int:
        return self.schedule.iteration_us(self.objective)

    @property
    def proved(self) -> bool:
        return self.iteration_us <= self.bound_us

    def run(self, engine: Literal["cpsat", "highs"], limits: SolverLimits) -> None:
        """Search in micro-batch order; once that is settled, spend what is left without it."""
        began = time.monotonic()
        self._take(_solve(engine, self.schedule, self.objective, limits, True), engine)
        left_s = limits.time_limit_s - (time.monotonic() - began)
        settled = self.in_order_bound_us == self.iteration_us and not self.proved
        if settled and left_s > 0:
            rest = replace(limits, time_limit_s=left_s)
            self._take(_solve(engine, self.schedule, self.objective, rest, False), engine)

    def _take(self, answer: Answer, engine: Engine) -> None:
        self.used_solver = True
        better = answer.schedule
        if better is not None and better.iteration_us(self.objective) < self.iteration_us:
            self.schedule, self.engine = better, engine
        if not answer.in_order:
            self.bound_us = max(self.bound_us, answer.bound_us)
        elif answer.bound_us > 0:
            self.in_order_bound_us = max(self.bound_us, answer.bound_us)

    def plan(self, limits: SolverLimits, began: float) -> Plan:
        status: Status = "heuristic"
        if self.proved:
            status = "optimal"
        elif self.in_order_bound_us == self.iteration_us:
            status = "optimal_in_order"
        return Plan(
            objective=self.objective,
            schedule=self.schedule,
            iteration_us=self.iteration_us,
            makespan_us=self.schedule.makespan_us,
            lower_bound_us=self.bound_us,
            in_order_bound_us=self.in_order_bound_us,
            status=status,
            engine=self.engine,
            solver_seed=limits.seed if self.used_solver else None,
            wall_ms=round(1000 * (time.monotonic() - began)),
        )


def _solve(
    engine: Literal["cpsat", "highs"],
    hint: Schedule,
    objective: Objective,
    limits: SolverLimits,
    in_order: bool,
) -> Answer:
    # The solvers are heavy optional packages: imported only when one is asked for.
    if engine == "cpsat":
        from workflows.recycle.cpsat import solve_cpsat  # noqa: PLC0415

        return solve_cpsat(hint, objective=objective, limits=limits, in_order=in_order)
    from workflows.recycle.highs import solve_highs  # noqa: PLC0415

    return solve_highs(hint, objective=objective, limits=limits, in_order=in_order)


def _require_valid(plan: Plan) -> None:
    found = check_schedule(plan.schedule) + check_figures(
        plan.schedule,
        objective=plan.objective,
        iteration_us=plan.iteration_us,
        makespan_us=plan.makespan_us,
        lower_bound_us=plan.lower_bound_us,
    )
    if found:
        raise SolverFailed(
            f"the {plan.engine} schedule breaks {len(found)} rules, first: {found[0].detail}",
            violations=[violation.to_json() for violation in found[:20]],
        )
