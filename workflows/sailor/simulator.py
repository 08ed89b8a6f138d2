"""`simulate`: time, memory and cost of one iteration of a plan. A pure function of its inputs.

Two modes share memory, network and price tables:

"published"  the closed form of the published simulator with all its quirks (see `published_time`),
             bare bandwidth polynomials, uncapped activations and its two values of overhead. For
             comparison with published figures.
"exact"      1F1B run event by event for every pipeline (see `schedule`), one overhead per card, at
             most min(N_b, P - i) microbatches in flight. A stage reduces its gradients as soon as
             its own last backward is done (DeepSpeed's order), or bucket by bucket during that
             backward with `overlap_sync`. This is the one scoring function of our planner.

    T = max_i ( end of the last backward of stage i over its replicas + sync_i + upd_i )
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from workflows.sailor.cost import Cost, iteration_cost
from workflows.sailor.errors import BadPlan
from workflows.sailor.memory import WorkerMemory, plan_memory
from workflows.sailor.network import BUCKET_BYTES
from workflows.sailor.plan import Plan, Replica, check_plan
from workflows.sailor.problem import Problem
from workflows.sailor.published_time import published_time
from workflows.sailor.schedule import Chain, run_chain
from workflows.sailor.stages import (
    StageTerms,
    activation_bytes,
    layer_sums,
    send_s,
    stage_terms,
)

Mode = Literal["exact", "published"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one iteration of a plan takes."""

    mode: Mode
    iteration_s: float
    microbatches: int
    """N_b of the longest pipeline"""
    straggler_s: float
    """the slowest stage's seconds per microbatch, sends included"""
    compute_s: float
    """Σ over stages of one microbatch"""
    comm_s: float
    """Σ over stages of the sends of one microbatch"""
    update_s: float
    sync_s: float
    """the largest all-reduce of a stage"""
    cost: Cost
    stages: tuple[StageTerms, ...]
    memory: tuple[WorkerMemory, ...]
    reasons: tuple[str, ...]
    """why the plan does not fit; empty if it does"""
    warnings: tuple[str, ...]

    @property
    def feasible(self) -> bool:
        """Whether every worker fits its card."""
        return not self.reasons

    @property
    def iterations_per_s(self) -> float:
        """Throughput."""
        return 1.0 / self.iteration_s

    @property
    def cost_usd(self) -> float:
        """USD per iteration."""
        return self.cost.total_usd

    @property
    def peak_bytes(self) -> float:
        """The largest reported peak of a worker."""
        return max(worker.peak_bytes for worker in self.memory)

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the derived figures that a table of results shows."""
        return asdict(self) | {
            "feasible": self.feasible,
            "iterations_per_s": self.iterations_per_s,
            "cost_usd": self.cost_usd,
            "peak_bytes": self.peak_bytes,
        }


def simulate(
    problem: Problem,
    plan: Plan,
    *,
    mode: Mode = "exact",
    blocking_sends: bool = True,
    overlap_sync: bool = False,
) -> Estimate:
    """Time, memory and cost of one iteration.

    Raises the error of the first broken rule (see `errors`); a plan that only does not fit its
    cards is no error: `feasible` is false and `reasons` say where.
    """
    check_plan(plan, problem.job, problem.gpus)
    published = mode == "published"
    memory = plan_memory(problem, plan, published=published)
    shares = pipeline_shares(problem, plan)
    if published:
        time = published_time(problem, plan)
        terms, iteration_s, comm = time.terms, time.iteration_s, time.stage_comm_s
    else:
        terms = stage_terms(problem, plan, published=False)
        ends = stage_ends(problem, plan, shares, blocking=blocking_sends)
        iteration_s = max(
            _stage_done(problem, plan, i, end, term, overlap=overlap_sync)
            for i, (end, term) in enumerate(zip(ends, terms, strict=True))
        )
        comm = tuple(term.send_forward_s + term.send_backward_s for term in terms)
    return Estimate(
        mode=mode,
        iteration_s=iteration_s,
        microbatches=max(shares),
        straggler_s=max(t.compute_s + c for t, c in zip(terms, comm, strict=True)),
        compute_s=sum(term.compute_s for term in terms),
        comm_s=sum(comm),
        update_s=max(term.update_s for term in terms),
        sync_s=max(term.sync_s for term in terms),
        cost=iteration_cost(problem, plan, iteration_s, shares),
        stages=terms,
        memory=memory,
        reasons=tuple(_misfit(worker) for worker in memory if not worker.fits),
        warnings=_warnings(problem, plan),
    )


def pipeline_shares(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Microbatches of each pipeline per iteration."""
    if plan.shares is not None:
        return plan.shares
    return (problem.job.microbatches(plan.microbatch, plan.width),) * plan.width


def chain_of(problem: Problem, plan: Plan, replicas: Sequence[Replica]) -> Chain:
    """Per-stage seconds of the pipeline made of these replicas, one per stage."""
    sums = [
        layer_sums(problem, stage.layers, r.gpu, r.degree, plan.microbatch)
        for stage, r in zip(plan.stages, replicas, strict=True)
    ]
    sizes = [
        activation_bytes(problem, stage.last_layer, plan.microbatch) for stage in plan.stages[:-1]
    ]
    hop = partial(send_s, problem, published=False)
    onward = [hop(a, b, x) for a, b, x in zip(replicas, replicas[1:], sizes, strict=False)]
    back = [hop(b, a, x) for a, b, x in zip(replicas, replicas[1:], sizes, strict=False)]
    return Chain(
        forward_s=tuple(f for f, _, _ in sums),
        backward_s=tuple(b for _, b, _ in sums),
        send_forward_s=(*onward, 0.0),
        send_backward_s=(0.0, *back),
    )


def distinct_chains(
    plan: Plan, shares: Sequence[int]
) -> dict[tuple[tuple[Replica, ...], int], int]:
    """(replicas of a pipeline, its microbatches) -> how many pipelines are alike."""
    widths = {len(stage.replicas) for stage in plan.stages}
    if len(widths) > 1:
        raise BadPlan(
            f"the stages have {sorted(widths)} replicas; event-driven simulation needs the same "
            "number in every stage (use the published mode)"
        )
    kinds: dict[tuple[tuple[Replica, ...], int], int] = {}
    columns = zip(*(stage.replicas for stage in plan.stages), strict=True)
    for chain, share in zip(columns, shares, strict=True):
        kinds[(chain, share)] = kinds.get((chain, share), 0) + 1
    return kinds


def stage_ends(
    problem: Problem, plan: Plan, shares: Sequence[int], *, blocking: bool
) -> tuple[float, ...]:
    """Per stage, when the last of its replicas has finished its last backward."""
    ends = [0.0] * plan.depth
    for replicas, share in distinct_chains(plan, shares):
        timeline = run_chain(chain_of(problem, plan, replicas), share, blocking=blocking)
        ends = [max(a, float(b)) for a, b in zip(ends, timeline.end_s, strict=True)]
    return tuple(ends)


def _stage_done(
    problem: Problem, plan: Plan, i: int, end_s: float, term: StageTerms, *, overlap: bool
) -> float:
    """When stage i has reduced its gradients and stepped."""
    if not overlap or term.sync_s == 0.0:
        return end_s + term.sync_s + term.update_s
    stage = plan.stages[i]
    last_backward = max(
        layer_sums(problem, stage.layers, gpu, degree, plan.microbatch)[1]
        for gpu, degree in dict.fromkeys((r.gpu, r.degree) for r in stage.replicas)
    )
    buckets = max(1, -int(-term.sync_bytes // BUCKET_BYTES))
    done = 0.0
    for k in range(1, buckets + 1):
        # gradients appear evenly over the last backward; bucket k is full at its k-th part
        full_at = end_s - last_backward * (1 - k / buckets)
        done = max(done, full_at) + term.sync_s / buckets
    return done + term.update_s


def _misfit(worker: WorkerMemory) -> str:
    return (
        f"stage {worker.stage}: {worker.gpu} at t={worker.degree} needs "
        f"{worker.needed_bytes / 1e9:.2f} GB of {worker.limit_bytes / 1e9:.2f} GB"
    )


def _warnings(problem: Problem, plan: Plan) -> tuple[str, ...]:
    job = problem.job
    if job.global_batch < plan.microbatch * plan.width:
        return (
            f"the global batch {job.global_batch} is smaller than m·D = "
            f"{plan.microbatch * plan.width}: one microbatch each, some replicas idle",
        )
    return ()
