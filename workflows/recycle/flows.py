"""The ReCycle workflows: profile, plan, schedule, validate, simulate, train.

    apiary workflow start recycle.plan --wait request='{"profile_id": "...", ...}'

Plans ahead of failures are child workflows, one for each plan. What a failure does to a running
job is `recycle.on_event`, one transaction. Everything that computes is a step, and imports what it
needs when it runs, so that deploying needs neither numpy nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from apiary import gather, run_id, step, workflow
from functions import recycle
from functions.recycle.errors import InvalidArgument, declared
from functions.recycle.records import (
    OperationTime,
    OpRow,
    PlanRequest,
    PlanSummary,
    SimulationFigures,
    StageBytes,
)
from workflows.recycle.job import StageMemory, StageTimes, Worker
from workflows.recycle.training_spec import TrainingSpec

__all__ = [
    "FailureTrace",
    "Layer",
    "TraceEntry",
    "TrainingSummary",
    "ensure_plan",
    "plan",
    "profile",
    "schedule",
    "simulate",
    "train",
    "validate",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Times and activation memory of one layer for one micro-batch."""

    forward: int | float
    input_grad: int | float
    weight_grad: int | float
    transfer: int | float = 0
    """Of its output, if it is the last one of its stage."""
    optimizer: int | float = 0
    forward_bytes: int = 0
    input_grad_bytes: int = 0
    """What is added when the backward for the input ends: usually negative."""
    static_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredViolation:
    """A rule that a plan breaks, and the operations that break it."""

    rule: str
    ops: list[str]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """A worker dies or comes back."""

    time_s: float
    worker: Worker
    kind: Literal["fail", "join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTrace:
    """A given trace, or one that is drawn from a mean time between failures."""

    horizon_s: float
    events: list[TraceEntry] | None = None
    mtbf_s: float | None = None
    repair_s: float = 14_400.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """What a training run did."""

    job_id: str
    losses: list[float]
    replayed: int
    """Iterations that had to be run again."""
    rollbacks: int
    """Steps that stages had done too early and undid."""
    max_difference: float
    """Between these losses and those of the same training in one process."""


# Profiles


@workflow
def profile(
    samples: list[dict[str, list[float]]] | None = None,
    layers: list[Layer] | None = None,
    stage_of_layer: list[int] | None = None,
    device_limit_bytes: list[int] | None = None,
    memory: list[StageMemory] | None = None,
    unit: Literal["us", "ms", "s"] = "us",
) -> str:
    """Store a profile: from raw samples of each stage, or from layers and the stage of each.

    ``memory`` goes with samples, ``device_limit_bytes`` (of each stage) with layers. The id of the
    profile is that of the run.
    """
    if (samples is None) == (layers is None):
        raise InvalidArgument("a profile is made from samples or from layers: give one of them")
    if samples is not None:
        times = summarise_samples(samples, unit)
        bytes_of = _stage_bytes(memory or [])
        return recycle.store_profile(run_id(), "samples", times, bytes_of, run_id())
    figures = _sum_layers(layers or [], stage_of_layer or [], device_limit_bytes, unit)
    return recycle.store_profile(run_id(), "layers", figures[0], figures[1], run_id())


@step
def summarise_samples(
    samples: list[dict[str, list[float]]], unit: Literal["us", "ms", "s"]
) -> list[OperationTime]:
    """Median, 95th percentile and count of every operation of every stage."""
    from workflows.recycle.profiles import profile_stage

    with declared():
        stages = [profile_stage(stage, unit=unit) for stage in samples]
    return [
        OperationTime(
            stage=stage,
            operation=name,
            median_us=summary.median_us,
            p95_us=summary.p95_us,
            samples=summary.samples,
        )
        for stage, measured in enumerate(stages)
        for name, summary in sorted(measured.operations.items())
    ]


def _stage_bytes(memory: list[StageMemory]) -> list[StageBytes]:
    return [
        StageBytes(
            stage=stage,
            limit_bytes=m.limit_bytes,
            static_bytes=m.static_bytes,
            forward_bytes=m.forward_bytes,
            input_grad_bytes=m.input_grad_bytes,
            weight_grad_bytes=m.weight_grad_bytes,
        )
        for stage, m in enumerate(memory)
    ]


_TO_US = {"us": 1, "ms": 1_000, "s": 1_000_000}


def _sum_layers(
    layers: list[Layer],
    stage_of_layer: list[int],
    limits: list[int] | None,
    unit: Literal["us", "ms", "s"],
) -> tuple[list[OperationTime], list[StageBytes]]:
    """Times and memory of the stages as sums over their layers."""
    stages = 1 + max(stage_of_layer, default=-1)
    if len(stage_of_layer) != len(layers) or sorted(set(stage_of_layer)) != list(range(stages)):
        raise InvalidArgument(
            f"stage_of_layer = {stage_of_layer}: expected a stage for each of the {len(layers)} "
            "layers, and no stage without a layer",
            argument="stage_of_layer",
        )
    if stage_of_layer != sorted(stage_of_layer) or (limits is not None and len(limits) != stages):
        raise InvalidArgument("layers are in the order of their stages, with a limit for each")
    times: list[OperationTime] = []
    memory: list[StageBytes] = []
    for stage in range(stages):
        own = [layer for layer, where in zip(layers, stage_of_layer, strict=True) if where == stage]
        sums = {
            "forward": sum(layer.forward for layer in own),
            "input_grad": sum(layer.input_grad for layer in own),
            "weight_grad": sum(layer.weight_grad for layer in own),
            "transfer": own[-1].transfer,
            "optimizer": sum(layer.optimizer for layer in own),
        }
        for name, value in sums.items():
            whole_us = _whole_us(f"{name} of stage {stage}", value, unit)
            times.append(
                OperationTime(
                    stage=stage, operation=name, median_us=whole_us, p95_us=whole_us, samples=1
                )
            )
        if limits is not None:
            forward = sum(layer.forward_bytes for layer in own)
            input_grad = sum(layer.input_grad_bytes for layer in own)
            memory.append(
                StageBytes(
                    stage=stage,
                    limit_bytes=limits[stage],
                    static_bytes=sum(layer.static_bytes for layer in own),
                    forward_bytes=forward,
                    input_grad_bytes=input_grad,
                    weight_grad_bytes=-forward - input_grad,
                )
            )
    return times, memory


def _whole_us(name: str, value: int | float, unit: Literal["us", "ms", "s"]) -> int:
    scaled = value * _TO_US[unit]
    if scaled != round(scaled):
        raise InvalidArgument(
            f"{name} = {value} {unit}: expected whole microseconds, scale the times", argument=name
        )
    return round(scaled)


# Plans


@workflow
def plan(request: PlanRequest) -> PlanSummary:
    """Make all plans up to f_max failures, side by side; the set has the id of the run."""
    plan_set_id = run_id()
    tasks = recycle.open_plan_set(plan_set_id, request, plan_set_id)
    gather(*[plan_counts.start(plan_set_id, candidates) for candidates in tasks])
    summary = recycle.plan_summary(plan_set_id)
    draw_plan_set(summary)
    return summary


@workflow
def plan_counts(plan_set_id: str, candidates: list[list[int]]) -> int:
    """Make one plan of a set, for the best of some counts, and store it; its id."""
    return make_plan(plan_set_id, candidates)


@step(process=True, retries=2)
def make_plan(plan_set_id: str, candidates: list[list[int]]) -> int:
    """Compute a plan, check it, and store it: the first one that is stored for its key counts."""
    from workflows.recycle.stored import make_and_store

    with declared():
        return make_and_store(plan_set_id, candidates)


@step(process=True)
def draw_plan_set(summary: PlanSummary) -> list[str]:
    """Pictures of a plan set, stored under its run; their names."""
    from workflows.recycle.drawings import draw_plans

    with declared():
        return draw_plans(summary)


@workflow
def ensure_plan(job_id: str) -> int:
    """Make the plan that a job needs now, if its plan set has none; its id."""
    plan_id = recycle.attach_plan(job_id)
    if plan_id is None:
        state = recycle.job_state(job_id)
        make_plan(recycle.job_plan_set(job_id), [list(state.counts)])
        plan_id = recycle.attach_plan(job_id)
    if plan_id is None:
        raise InvalidArgument(f"job {job_id!r} has changed meanwhile, or is stopped")
    return plan_id


@workflow
def schedule(
    plan_id: int | None = None,
    plan_set_id: str | None = None,
    failed: list[tuple[int, int]] | None = None,
    first: int = 0,
    rows: int = 50_000,
) -> list[OpRow]:
    """The operations of a stored plan, or of a plan set when exactly these workers are dead.

    Rows are (pipeline, stage, F/I/W, home pipeline, micro-batch, start_us, end_us). Counts that
    have no stored plan are planned now, greedily.
    """
    if plan_id is not None:
        return recycle.plan_ops(plan_id, first, rows)
    if plan_set_id is None or failed is None:
        raise InvalidArgument("give a plan_id, or a plan_set_id and the failed workers")
    stored = recycle.planned_ops(plan_set_id, failed, first, rows)
    return plan_on_demand(plan_set_id, failed, first, rows) if stored is None else stored


@step(process=True)
def plan_on_demand(
    plan_set_id: str, failed: list[tuple[int, int]], first: int, rows: int
) -> list[OpRow]:
    """The operations of a greedy plan that nobody has stored."""
    from workflows.recycle.stored import plan_now

    with declared():
        return plan_now(plan_set_id, failed)[first : first + rows]


@workflow
def validate(plan_id: int) -> list[StoredViolation]:
    """Check a stored plan by what the database holds now; empty if it breaks no rule."""
    return check_plan(plan_id)


@step(process=True)
def check_plan(plan_id: int) -> list[StoredViolation]:
    """Read a plan and check it with code that the planners do not share."""
    from workflows.recycle.stored import check_stored

    with declared():
        return [
            StoredViolation(rule=v.rule, ops=list(v.ops), detail=v.detail)
            for v in check_stored(plan_id)
        ]


# Simulation


@workflow
def simulate(
    plan_set_id: str,
    trace: FailureTrace,
    systems: list[str] | None = None,
    period_source: Literal["plan", "bound"] = "plan",
    costs: dict[str, float] | None = None,
) -> list[SimulationFigures]:
    """Systems on one failure trace; figures and intervals are stored under the run's id.

    ``costs`` change the defaults of `workflows.recycle.systems.Costs`; ``period_source`` bound is
    for jobs of thousands of workers.
    """
    chosen = systems or ["recycle", "oobleck", "bamboo", "pipeline-drop", "fault-scaled"]
    ran = run_simulation(plan_set_id, trace, chosen, period_source, costs or {})
    return recycle.store_simulation(
        run_id(),
        plan_set_id,
        ran.figures,
        trace.horizon_s,
        ran.events,
        run_id(),
        mtbf_s=trace.mtbf_s,
        repair_s=None if trace.mtbf_s is None else trace.repair_s,
        seed=None if trace.mtbf_s is None else trace.seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What a simulation step has stored the intervals of."""

    events: int
    figures: list[SimulationFigures] = field(default_factory=list)


@step(process=True)
def run_simulation(
    plan_set_id: str,
    trace: FailureTrace,
    systems: list[str],
    period_source: Literal["plan", "bound"],
    costs: dict[str, float],
) -> SimulationResult:
    """Run the systems, store intervals and pictures."""
    from workflows.recycle.simulation_service import simulate_stored

    with declared():
        events, figures = simulate_stored(
            plan_set_id,
            _trace_document(trace),
            systems=systems,
            period_source=period_source,
            costs=costs,
        )
    return SimulationResult(events=events, figures=figures)


def _trace_document(trace: FailureTrace) -> dict[str, Any]:
    if (trace.events is None) == (trace.mtbf_s is None):
        raise InvalidArgument("a trace has events or an mtbf_s: give one of them")
    if trace.events is None:
        return {
            "mtbf_s": trace.mtbf_s,
            "repair_s": trace.repair_s,
            "horizon_s": trace.horizon_s,
            "seed": trace.seed,
        }
    events = [[e.time_s, list(e.worker), e.kind] for e in trace.events]
    return {"events": events, "horizon_s": trace.horizon_s}


# Training


@workflow
def train(spec: TrainingSpec | None = None, f_max: int | None = None) -> TrainingSummary:
    """Train a small model with real processes, real kills and joins; compare with one process.

    All plans up to ``f_max`` failures (2, or as many as the job survives) are made first. The job
    has the id of the run, and its control state is in recycle.job.
    """
    chosen = spec or TrainingSpec()
    if chosen.kill_controller is not None:
        raise InvalidArgument(
            "kill_controller would end the executor: it is for training without the platform"
        )
    survived = chosen.stages * (chosen.pipelines - 1)
    job_id = run_id()
    times = _unit_times(chosen.stages)
    recycle.store_profile(job_id, "layers", times, [], job_id)
    planned = plan(
        PlanRequest(
            profile_id=job_id,
            pipelines=chosen.pipelines,
            micro_batches=chosen.micro_batches,
            f_max=min(2, survived) if f_max is None else f_max,
            engine="greedy",
            scope="counts",
        )
    )
    recycle.create_job(job_id, planned.plan_set_id, job_id, allow_moves=False)
    summary = train_processes(job_id, chosen)
    reference = train_reference(chosen)
    remove_training_files(job_id)
    return TrainingSummary(
        job_id=job_id,
        losses=summary.losses,
        replayed=summary.replayed,
        rollbacks=summary.rollbacks,
        max_difference=max(abs(a - b) for a, b in zip(summary.losses, reference, strict=True)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedProcesses:
    """What the processes of a training run did."""

    losses: list[float]
    replayed: int
    rollbacks: int


def _unit_times(stages: int) -> list[OperationTime]:
    times = StageTimes()
    lengths = {
        "forward": times.forward_us,
        "input_grad": times.input_grad_us,
        "weight_grad": times.weight_grad_us,
    }
    return [
        OperationTime(stage=stage, operation=name, median_us=us, p95_us=us, samples=1)
        for stage in range(stages)
        for name, us in lengths.items()
    ]


@step
def train_processes(job_id: str, spec: TrainingSpec) -> TrainedProcesses:
    """Control the job's processes until its last step is committed."""
    from workflows.recycle.training_service import train_job

    with declared():
        report = train_job(job_id, spec)
        attempt = recycle.job_state(job_id).attempt
    return TrainedProcesses(
        losses=list(report.losses), replayed=attempt, rollbacks=report.rollbacks
    )


@step(process=True)
def train_reference(spec: TrainingSpec) -> list[float]:
    """The losses of the same training in one process, without pipelines."""
    from workflows.recycle.training_reference import reference_losses

    return reference_losses(spec)


@step
def remove_training_files(job_id: str) -> None:
    """Remove what the processes shared."""
    from workflows.recycle.training_service import remove_place

    remove_place(job_id)
