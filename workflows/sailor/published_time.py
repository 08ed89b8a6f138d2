"""The published closed form of the iteration time, quirks included.

    T    = T_pp + max_i sync_i
    T_pp = (N_b - 1)·max_i(comp_i + comm_i) + Σ comm_i + Σ comp_i + max_i upd_i

comm_i is A_0 for the first stage of a pipeline of at most 3 stages and 2·A_0 of a longer one,
A_i + B_i in the middle, 2·B_i for the last, 0 if there is only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from workflows.sailor.plan import Plan
from workflows.sailor.problem import Problem
from workflows.sailor.stages import StageTerms, ring_s, stage_terms, weight_bytes

SHORT_PIPELINE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTime:
    """The closed form with its parts, in seconds."""

    microbatches: int
    straggler_s: float
    comm_s: float
    compute_s: float
    update_s: float
    sync_s: float
    stage_comm_s: tuple[float, ...]
    terms: tuple[StageTerms, ...]

    @property
    def pipeline_s(self) -> float:
        """T_pp."""
        overhead = (self.microbatches - 1) * self.straggler_s
        return overhead + self.comm_s + self.compute_s + self.update_s

    @property
    def iteration_s(self) -> float:
        """T."""
        return self.pipeline_s + self.sync_s


def stage_comm_s(terms: Sequence[StageTerms]) -> tuple[float, ...]:
    """comm_i of every stage."""
    depth = len(terms)
    if depth == 1:
        return (0.0,)
    first = terms[0].send_forward_s * (1 if depth <= SHORT_PIPELINE else 2)
    middle = [x.send_forward_s + x.send_backward_s for x in terms[1:-1]]
    return (first, *middle, 2 * terms[-1].send_backward_s)


def published_time(
    problem: Problem, plan: Plan, *, microbatches: int | None = None
) -> PublishedTime:
    """The closed form for one plan; N_b may be given (several independent pipelines)."""
    terms = stage_terms(problem, plan, published=True)
    comm = stage_comm_s(terms)
    if microbatches is None:
        microbatches = problem.job.microbatches(plan.microbatch, plan.width)
    return PublishedTime(
        microbatches=microbatches,
        straggler_s=max(x.compute_s + c for x, c in zip(terms, comm, strict=True)),
        comm_s=sum(comm),
        compute_s=sum(x.compute_s for x in terms),
        update_s=max(x.update_s for x in terms),
        sync_s=max(x.sync_s for x in terms),
        stage_comm_s=comm,
        terms=terms,
    )


def independent_pipelines_s(problem: Problem, plans: Sequence[Plan]) -> float:
    """T of K pipelines that hold a whole model each and reduce gradients with one another.

    Each runs ceil(G / (m·D·K)) microbatches; to the slowest pipeline and its own all-reduce comes
    one among the K, of the undivided weights of the longest pipeline's largest stage.
    """
    count = len(plans)
    width = plans[0].width * count
    each = [
        published_time(problem, plan, microbatches=problem.job.microbatches(plan.microbatch, width))
        for plan in plans
    ]
    inside = max(x.pipeline_s for x in each) + max(x.sync_s for x in each)
    longest = max(plans, key=lambda plan: plan.depth)
    among = 0.0
    if count > 1:
        for stage in longest.stages:
            size = weight_bytes(problem, stage.layers)
            for replica in dict.fromkeys(stage.replicas):
                # a ring of K equal peers over the replica's own link
                among = max(among, ring_s(problem, [replica] * count, size, published=True))
    return inside + among
