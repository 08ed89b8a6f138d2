"""How each system reacts to failures: its iteration time and its downtime, event by event.

A system sees every event of a trace in order. For ReCycle the workers' roles are followed, since
a worker that was moved to another stage empties that one when it dies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol

from workflows.recycle import baselines
from workflows.recycle.bounds import lower_bound_us
from workflows.recycle.errors import InvalidArgument
from workflows.recycle.failures import canonical_failures
from workflows.recycle.job import Job, Objective, Worker
from workflows.recycle.normalize import best_counts, move_pays, value_of
from workflows.recycle.oobleck import assign_nodes, make_template
from workflows.recycle.planner import make_plan
from workflows.recycle.traces import TraceEvent

__all__ = ["SYSTEM_NAMES", "Costs", "Reaction", "RecycleOptions", "System", "make_system"]

SYSTEM_NAMES = ("recycle", "oobleck", "bamboo", "pipeline-drop", "fault-scaled", "spares")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Times that a failure costs beside slower iterations; all defaults are inferred."""

    detection_s: float = 5.0
    """Heartbeat timeout."""
    reconfigure_s: float = 60.0
    """Oobleck's T_reconf, paid at every event."""
    copy_s: float = 10.0
    """One stage's parameters and optimizer state between two workers."""
    restart_s: float = 300.0
    """A restart of the whole job from its checkpoint."""
    checkpoint_interval_s: float = 1800.0
    """Half of it is lost on average by a restart."""
    spares: int = 0

    def __post_init__(self) -> None:
        for name in (
            "detection_s",
            "reconfigure_s",
            "copy_s",
            "restart_s",
            "checkpoint_interval_s",
            "spares",
        ):
            if getattr(self, name) < 0:
                raise InvalidArgument(f"{name} = {getattr(self, name)}: expected at least 0")

    @property
    def full_restart_s(self) -> float:
        """Restart and the work since the last checkpoint."""
        return self.restart_s + self.checkpoint_interval_s / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RecycleOptions:
    """How ReCycle is modelled."""

    objective: Objective = "stagger"
    period_source: Literal["plan", "bound"] = "plan"
    """Realised greedy schedules, or their lower bounds (for jobs of thousands of workers)."""
    floor_at_1f1b: bool = True
    """Never count an iteration as shorter than fault-free 1F1B, although a split backward alone
    can make it so: the comparison then shows only what failures cost."""
    allow_moves: bool = True
    expected_gap_s: float = 7200.0
    """Time to the next event, by which moves are judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """A system after an event."""

    iteration_us: float | None
    """None: it cannot run now."""
    downtime_s: float
    restarted: bool = False
    """Whether it goes back to a checkpoint."""


class System(Protocol):
    """A system that trains through failures."""

    name: str

    def start(self) -> Reaction:
        """All workers live."""
        ...

    def react(self, event: TraceEvent) -> Reaction:
        """The next event of the trace has happened."""
        ...


def make_system(
    name: str,
    job: Job,
    costs: Costs,
    *,
    recycle: RecycleOptions | None = None,
    layer_us: tuple[float, ...] | None = None,
    template_nodes: tuple[int, ...] | None = None,
) -> System:
    """The system of this name; `InvalidArgument` lists the names if it is unknown."""
    match name:
        case "recycle":
            return _Recycle(job, costs, recycle or RecycleOptions())
        case "oobleck":
            return _Oobleck(job, costs, layer_us, template_nodes)
        case "bamboo":
            return _Bamboo(job, costs)
        case "pipeline-drop":
            return _PipelineDrop(job, costs)
        case "fault-scaled":
            return _FaultScaled(job)
        case "spares":
            return _Spares(job, costs)
    raise InvalidArgument(
        f"system {name!r} is unknown: expected one of {', '.join(SYSTEM_NAMES)}", system=name
    )


def _seconds(iteration_us: float | None) -> float:
    return 0.0 if iteration_us is None else iteration_us / 1e6


class _Recycle:
    name = "recycle"

    def __init__(self, job: Job, costs: Costs, options: RecycleOptions) -> None:
        self.job, self.costs, self.options = job, costs, options
        self.fault_free_us = float(baselines.fault_free_us(job))
        self.holders: list[set[Worker]] = [
            {Worker(k, i) for k in range(job.pipelines)} for i in range(job.stages)
        ]
        self.stage_of = {w: i for i, workers in enumerate(self.holders) for w in workers}
        self.known_us: dict[tuple[int, ...], float] = {}
        self.current_us: float | None = self.fault_free_us

    def start(self) -> Reaction:
        self.current_us = self._iteration_us(self._counts())
        return Reaction(iteration_us=self.current_us, downtime_s=0.0)

    def react(self, event: TraceEvent) -> Reaction:
        before_us = self.current_us
        if event.kind == "fail":
            downtime_s = self._fail(event.worker, before_us)
        else:
            # The newcomer copies in the background and enters at an iteration boundary.
            downtime_s = 0.0
            self._place(event.worker)
        counts = self._counts()
        runs = max(counts) < self.job.pipelines
        self.current_us = self._iteration_us(counts) if runs else None
        restarted = before_us is None and self.current_us is not None
        if restarted:
            downtime_s = self.costs.full_restart_s
        return Reaction(iteration_us=self.current_us, downtime_s=downtime_s, restarted=restarted)

    def _counts(self) -> tuple[int, ...]:
        return tuple(self.job.pipelines - len(workers) for workers in self.holders)

    def _fail(self, worker: Worker, before_us: float | None) -> float:
        self.holders[self.stage_of.pop(worker)].remove(worker)
        moves = 0
        counts = self._counts()
        if self.options.allow_moves and max(counts) < self.job.pipelines:
            moves = self._rebalance(counts)
        return self.costs.detection_s + _seconds(before_us) + moves * self.costs.copy_s

    def _rebalance(self, counts: tuple[int, ...]) -> int:
        """Move workers between stages if that pays; how many were moved."""
        objective = self.options.objective
        best = best_counts(self.job, sum(counts), objective=objective, current=counts)
        if best.moves == 0:
            return 0
        stay_us, moved_us = self._iteration_us(counts), self._iteration_us(best.counts)
        pays = move_pays(
            stay_us=stay_us,
            moved_us=moved_us,
            expected_iterations=1e6 * self.options.expected_gap_s / stay_us,
            copy_us=1e6 * self.costs.copy_s * best.moves,
        )
        if not pays:
            return 0
        spare = []
        for stage, target in enumerate(best.counts):
            while len(self.holders[stage]) > self.job.pipelines - target:
                spare.append(max(self.holders[stage]))
                self.holders[stage].remove(spare[-1])
        for stage, target in enumerate(best.counts):
            while len(self.holders[stage]) < self.job.pipelines - target:
                worker = spare.pop()
                self.holders[stage].add(worker)
                self.stage_of[worker] = stage
        return best.moves

    def _place(self, worker: Worker) -> None:
        """The newcomer takes the slot that leaves the best counts; an empty stage goes first."""
        options = []
        counts = self._counts()
        for stage, count in enumerate(counts):
            if count > 0:
                after = [*counts[:stage], count - 1, *counts[stage + 1 :]]
                empty = count < self.job.pipelines
                options.append((empty, self._rank(tuple(after)), stage))
        stage = min(options)[2]
        self.holders[stage].add(worker)
        self.stage_of[worker] = stage

    def _rank(self, counts: tuple[int, ...]) -> tuple[float, ...]:
        if max(counts) >= self.job.pipelines:
            return (float(max(counts)),)
        value = value_of(self.job, counts)
        order = (value.staggered_us, value.synchronous_us)
        return order if self.options.objective == "stagger" else order[::-1]

    def _iteration_us(self, counts: tuple[int, ...]) -> float:
        known = self.known_us.get(counts)
        if known is None:
            known = self._model_us(counts)
            self.known_us[counts] = known
        return known

    def _model_us(self, counts: tuple[int, ...]) -> float:
        objective = self.options.objective
        if self.options.period_source == "bound":
            time_us = lower_bound_us(self.job, counts, objective=objective)
        else:
            failed = canonical_failures(self.job, counts)
            plan = make_plan(self.job, failed, objective=objective, engine="greedy")
            time_us = plan.iteration_us
        if self.options.floor_at_1f1b:
            return max(float(time_us), self.fault_free_us)
        return float(time_us)


class _Measured(ABC):
    """What starts with the iteration time of its state, and keeps it until the next event."""

    current_us: float | None = None

    def start(self) -> Reaction:
        self.current_us = self._iteration_us()
        return Reaction(iteration_us=self.current_us, downtime_s=0.0)

    @abstractmethod
    def _iteration_us(self) -> float | None:
        """The iteration time with those who are dead now; None if it stands still."""


class _Oobleck(_Measured):
    name = "oobleck"

    def __init__(
        self,
        job: Job,
        costs: Costs,
        layer_us: tuple[float, ...] | None,
        template_nodes: tuple[int, ...] | None,
    ) -> None:
        # The job has S stages because its model needs about that many workers.
        sizes = template_nodes or tuple(sorted({max(1, job.stages - 1), job.stages}))
        total_us = float(sum(layer_us) if layer_us else sum(t.total_us for t in job.times))
        self.job, self.costs = job, costs
        self.templates = [make_template(layer_us, total_us, nodes) for nodes in sizes]
        self.dead = 0
        self.known_us: dict[int, float | None] = {}

    def react(self, event: TraceEvent) -> Reaction:
        before_us = self.current_us
        self.dead += 1 if event.kind == "fail" else -1
        self.current_us = self._iteration_us()
        downtime_s = self.costs.reconfigure_s + self.costs.copy_s + _seconds(before_us)
        if event.kind == "fail":
            downtime_s += self.costs.detection_s
        restarted = before_us is None and self.current_us is not None
        if restarted:
            downtime_s = self.costs.full_restart_s
        return Reaction(iteration_us=self.current_us, downtime_s=downtime_s, restarted=restarted)

    def _iteration_us(self) -> float | None:
        if self.dead not in self.known_us:
            nodes = self.job.workers - self.dead
            found = assign_nodes(self.templates, nodes, self.job.batch)
            time_us = None if found is None else found.time_us + self.job.optimizer_us
            self.known_us[self.dead] = time_us
        return self.known_us[self.dead]


class _Bamboo(_Measured):
    name = "bamboo"

    def __init__(self, job: Job, costs: Costs) -> None:
        self.job, self.costs = job, costs
        self.dead: set[Worker] = set()
        self.known_us: dict[tuple[int, frozenset[frozenset[int]], bool], float | None] = {}

    def react(self, event: TraceEvent) -> Reaction:
        before_us = self.current_us
        lost_before = baselines.bamboo_lost_pipelines(self.job, self.dead)
        (self.dead.add if event.kind == "fail" else self.dead.remove)(event.worker)
        lost = baselines.bamboo_lost_pipelines(self.job, self.dead)
        self.current_us = self._iteration_us()
        downtime_s = 0.0
        if event.kind == "fail":
            downtime_s = self.costs.detection_s + _seconds(before_us)
        back = before_us is None and self.current_us is not None
        restarted = bool(lost - lost_before) or back
        if restarted:
            downtime_s = self.costs.full_restart_s
        return Reaction(iteration_us=self.current_us, downtime_s=downtime_s, restarted=restarted)

    def _iteration_us(self) -> float | None:
        # Pipelines are alike: only the patterns of their dead stages matter.
        stages: dict[int, set[int]] = {}
        for worker in self.dead:
            stages.setdefault(worker.pipeline, set()).add(worker.stage)
        lost = baselines.bamboo_lost_pipelines(self.job, self.dead)
        patterns = frozenset(frozenset(s) for k, s in stages.items() if k not in lost)
        untouched = len(stages) < self.job.pipelines
        key = (len(lost), patterns, untouched)
        if key not in self.known_us:
            self.known_us[key] = baselines.bamboo_us(self.job, self.dead)
        return self.known_us[key]


class _PipelineDrop(_Measured):
    name = "pipeline-drop"

    def __init__(self, job: Job, costs: Costs) -> None:
        self.job, self.costs = job, costs
        self.dead: set[Worker] = set()
        self.known_us: dict[int, float | None] = {}

    def react(self, event: TraceEvent) -> Reaction:
        before_us = self.current_us
        (self.dead.add if event.kind == "fail" else self.dead.remove)(event.worker)
        self.current_us = self._iteration_us()
        downtime_s = 0.0
        if event.kind == "fail":
            downtime_s = self.costs.detection_s + _seconds(before_us)
        restarted = before_us is None and self.current_us is not None
        if restarted:
            downtime_s = self.costs.full_restart_s
        return Reaction(iteration_us=self.current_us, downtime_s=downtime_s, restarted=restarted)

    def _iteration_us(self) -> float | None:
        dropped = len({worker.pipeline for worker in self.dead})
        if dropped not in self.known_us:
            self.known_us[dropped] = baselines.pipeline_drop_us(self.job, self.dead)
        return self.known_us[dropped]


class _StartsFaultFree:
    """What needs no more than the number of the dead."""

    def __init__(self, job: Job) -> None:
        self.job, self.dead = job, 0
        self.fault_free_us = float(baselines.fault_free_us(job))

    def start(self) -> Reaction:
        return Reaction(iteration_us=self.fault_free_us, downtime_s=0.0)


class _FaultScaled(_StartsFaultFree):
    name = "fault-scaled"

    def react(self, event: TraceEvent) -> Reaction:
        self.dead += 1 if event.kind == "fail" else -1
        left = self.job.workers - self.dead
        scaled = self.fault_free_us * self.job.workers / left if left else None
        return Reaction(iteration_us=scaled, downtime_s=0.0)


class _Spares(_StartsFaultFree):
    name = "spares"

    def __init__(self, job: Job, costs: Costs) -> None:
        super().__init__(job)
        self.costs = costs

    def react(self, event: TraceEvent) -> Reaction:
        self.dead += 1 if event.kind == "fail" else -1
        enough = self.dead <= self.costs.spares
        downtime_s = 0.0
        if event.kind == "fail":
            swap_s = self.costs.detection_s + self.costs.copy_s
            downtime_s = swap_s + self.fault_free_us / 1e6
        elif self.dead == self.costs.spares:
            # It stood still for want of this worker, who copies its state from a peer.
            downtime_s = self.costs.copy_s
        return Reaction(iteration_us=self.fault_free_us if enough else None, downtime_s=downtime_s)
