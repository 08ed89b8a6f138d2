"""The independent checker: does a schedule obey every rule, and are a plan's figures true?

It shares no code with the planners: precedences, worker exclusivity, memory, loads and bounds are
all recomputed here from the job and the start times alone. It reports every broken rule with the
operations concerned, and never stops at the first.

An operation's id is its kind, home pipeline, stage and micro-batch: ``F(k=1,i=2,j=0)``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workflows.recycle.job import Job, Objective
from workflows.recycle.schedule import Operation, Schedule

__all__ = ["Violation", "check_figures", "check_schedule", "op_id"]

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]
_KINDS: tuple[Operation, ...] = ("F", "I", "W")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule."""

    rule: str
    """Its stable name, for example ``overlap``."""
    ops: tuple[str, ...]
    """Ids of the operations that break it together; empty for a rule about a whole plan."""
    detail: str
    """What was found and what the rule asks for."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self) | {"ops": list(self.ops)}


def op_id(op: Operation, k: int, i: int, j: int) -> str:
    """The id of one operation."""
    return f"{op}(k={k},i={i},j={j})"


def check_schedule(schedule: Schedule) -> list[Violation]:
    """Every broken rule of ``schedule``; empty if it is valid."""
    shape_faults = _check_shapes(schedule)
    if shape_faults:
        return shape_faults
    times = _Times(schedule)
    found = _check_executors(schedule)
    found += _check_starts(times)
    found += _check_forward(times)
    found += _check_input_grad(times)
    found += _check_weight_grad(times)
    found += _check_workers(times)
    return found


def check_figures(
    schedule: Schedule,
    *,
    objective: Objective,
    iteration_us: int,
    makespan_us: int,
    lower_bound_us: int,
) -> list[Violation]:
    """Whether the figures claimed for a schedule are those of its start times."""
    job = schedule.job
    ends = schedule.weight_grad_start_us + _per_stage(job, "weight_grad_us")
    steps = np.array([t.optimizer_us for t in job.times])
    makespan = int(ends.max())
    if objective == "sync":
        iteration = makespan + int(steps.max())
    else:
        window = ends.max(axis=(0, 2)) - schedule.forward_start_us.min(axis=(0, 2)) + steps
        iteration = int(window.max())
    found = []
    for name, claimed, true in (
        ("iteration", iteration_us, iteration),
        ("makespan", makespan_us, makespan),
    ):
        if claimed != true:
            found.append(_plan_fault(name, f"claimed {claimed} us, the start times give {true} us"))
    if lower_bound_us > iteration_us:
        found.append(
            _plan_fault(
                "bound", f"bound {lower_bound_us} us is over the iteration {iteration_us} us"
            )
        )
    work = _busiest_us(schedule)
    if lower_bound_us < work:
        found.append(
            _plan_fault(
                "bound", f"bound {lower_bound_us} us is under the busiest worker's {work} us"
            )
        )
    return found


def _plan_fault(rule: str, detail: str) -> Violation:
    return Violation(rule=rule, ops=(), detail=detail)


def _per_stage(job: Job, field: str) -> _Ints:
    """A time of each stage, shaped to broadcast over (P, S, M)."""
    return np.array([getattr(t, field) for t in job.times], dtype=np.int64)[None, :, None]


def _busiest_us(schedule: Schedule) -> int:
    """The work, with its optimizer step, of the busiest worker."""
    job = schedule.job
    busiest = 0
    for i, t in enumerate(job.times):
        executor = schedule.executor[:, i, :].ravel()
        cells = np.bincount(executor[executor >= 0], minlength=job.pipelines)
        work = t.forward_us + t.input_grad_us + t.weight_grad_us
        busiest = max(busiest, int(cells.max()) * work + t.optimizer_us)
    return busiest


class _Times:
    """Starts and ends of all operations, and the schedule they belong to."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.job = schedule.job
        self.start: dict[Operation, _Ints] = {
            "F": schedule.forward_start_us,
            "I": schedule.input_grad_start_us,
            "W": schedule.weight_grad_start_us,
        }
        self.end: dict[Operation, _Ints] = {
            "F": self.start["F"] + _per_stage(self.job, "forward_us"),
            "I": self.start["I"] + _per_stage(self.job, "input_grad_us"),
            "W": self.start["W"] + _per_stage(self.job, "weight_grad_us"),
        }
        # Between stages i and i+1, shaped for arrays of S-1 stages.
        self.transfer = _per_stage(self.job, "transfer_us")[:, : self.job.stages - 1]


def _check_shapes(schedule: Schedule) -> list[Violation]:
    job = schedule.job
    expected = (job.pipelines, job.stages, job.micro_batches)
    arrays = {
        "executor": schedule.executor,
        "forward_start_us": schedule.forward_start_us,
        "input_grad_start_us": schedule.input_grad_start_us,
        "weight_grad_start_us": schedule.weight_grad_start_us,
    }
    return [
        _plan_fault("shape", f"{name} has the shape {array.shape}, expected {expected}")
        for name, array in arrays.items()
        if array.shape != expected
    ]


def _check_executors(schedule: Schedule) -> list[Violation]:
    """Every cell runs on a live worker of its stage, and at home if the home worker lives."""
    job = schedule.job
    dead = np.zeros((job.pipelines, job.stages), dtype=np.bool_)
    for k, i in schedule.failed:
        dead[k, i] = True
    home, stage, _ = np.indices(schedule.executor.shape)
    known = (schedule.executor >= 0) & (schedule.executor < job.pipelines)
    runs_dead = known & dead[np.where(known, schedule.executor, 0), stage]
    strays = known & ~runs_dead & (schedule.executor != home) & ~dead[home, stage]
    found = []
    for rule, broken, why in (
        ("executor-unknown", ~known, "is not a worker of the job"),
        ("executor-dead", runs_dead, "is dead"),
        ("executor-not-home", strays, "runs it although its home worker lives"),
    ):
        for k, i, j in np.argwhere(broken):
            ops = tuple(op_id(op, int(k), int(i), int(j)) for op in _KINDS)
            detail = f"worker ({schedule.executor[k, i, j]}, {i}) {why}"
            found.append(Violation(rule=rule, ops=ops, detail=detail))
    return found


def _report(
    rule: str, broken: _Bools, first: tuple[Operation, int], second: tuple[Operation, int], why: str
) -> list[Violation]:
    """One violation for each broken cell; ``first`` and ``second`` are (kind, stage offset)."""
    return [
        Violation(
            rule=rule,
            ops=(
                op_id(first[0], int(k), int(i) + first[1], int(j)),
                op_id(second[0], int(k), int(i) + second[1], int(j)),
            ),
            detail=why,
        )
        for k, i, j in np.argwhere(broken)
    ]


def _check_starts(times: _Times) -> list[Violation]:
    found = []
    for op, start in times.start.items():
        for k, i, j in np.argwhere(start < 0):
            found.append(
                Violation(
                    rule="start",
                    ops=(op_id(op, int(k), int(i), int(j)),),
                    detail=f"starts at {start[k, i, j]} us, before the iteration",
                )
            )
    return found


def _check_forward(times: _Times) -> list[Violation]:
    """F needs the forward of the stage before, and its transfer."""
    arrived = times.end["F"][:, :-1] + times.transfer
    broken = times.start["F"][:, 1:] < arrived
    why = "F starts before the activation of the stage before has arrived"
    return _report("forward", broken, ("F", 0), ("F", 1), why)


def _check_input_grad(times: _Times) -> list[Violation]:
    """I needs its own forward and the gradient of the stage after."""
    own = times.start["I"] < times.end["F"]
    found = _report(
        "input-grad-own", own, ("F", 0), ("I", 0), "I starts before its own F has ended"
    )
    # A fused backward hands its gradient on only when all of it is done.
    source: Operation = "I" if times.schedule.split else "W"
    arrived = times.end[source][:, 1:] + times.transfer
    broken = times.start["I"][:, :-1] < arrived
    why = "I starts before the gradient of the stage after has arrived"
    return found + _report("input-grad", broken, (source, 1), ("I", 0), why)


def _check_weight_grad(times: _Times) -> list[Violation]:
    """W needs its own I; in a coupled schedule it follows at once."""
    early = times.start["W"] < times.end["I"]
    found = _report("weight-grad", early, ("I", 0), ("W", 0), "W starts before its own I has ended")
    if not times.schedule.split:
        apart = times.start["W"] > times.end["I"]
        why = "a coupled schedule must run W directly after I"
        found += _report("coupled", apart, ("I", 0), ("W", 0), why)
    return found


class _Lane:
    """What one worker runs, in the order of the start times."""

    def __init__(self, times: _Times, worker: int, stage: int) -> None:
        self.worker, self.stage = worker, stage
        self.homes, self.micro_batches = np.nonzero(times.schedule.executor[:, stage, :] == worker)
        self.cells = len(self.homes)
        at = (self.homes, stage, self.micro_batches)
        start = np.concatenate([times.start[op][at] for op in _KINDS])
        end = np.concatenate([times.end[op][at] for op in _KINDS])
        self.order = np.argsort(start, kind="stable")
        self.start, self.end = start[self.order], end[self.order]

    def op(self, position: int) -> str:
        """Id of the operation at a position of the order."""
        kind, cell = divmod(int(self.order[position]), self.cells)
        return op_id(_KINDS[kind], int(self.homes[cell]), self.stage, int(self.micro_batches[cell]))


def _check_workers(times: _Times) -> list[Violation]:
    """No two operations of one worker at once, and never more memory than it has."""
    found: list[Violation] = []
    for stage in range(times.job.stages):
        for worker in range(times.job.pipelines):
            lane = _Lane(times, worker, stage)
            if lane.cells:
                found += _check_overlap(lane)
                found += _check_memory(lane, times.job)
    return found


def _check_overlap(lane: _Lane) -> list[Violation]:
    latest = np.maximum.accumulate(lane.end)
    return [
        Violation(
            rule="overlap",
            ops=(lane.op(int(np.argmax(lane.end[: at + 1]))), lane.op(int(at) + 1)),
            detail=f"worker ({lane.worker}, {lane.stage}) runs both at {lane.start[at + 1]} us",
        )
        for at in np.nonzero(lane.start[1:] < latest[:-1])[0]
    ]


def _check_memory(lane: _Lane, job: Job) -> list[Violation]:
    """Static memory and the deltas of all operations so far, at the end of each."""
    if job.memory is None:
        return []
    memory = job.memory[lane.stage]
    deltas = np.array([memory.forward_bytes, memory.input_grad_bytes, memory.weight_grad_bytes])
    held = memory.static_bytes + np.cumsum(deltas[lane.order // lane.cells])
    return [
        Violation(
            rule="memory",
            ops=(lane.op(int(at)),),
            detail=f"worker ({lane.worker}, {lane.stage}) then holds {held[at]} of "
            f"{memory.limit_bytes} bytes",
        )
        for at in np.nonzero(held > memory.limit_bytes)[0]
    ]
