"""What one iteration costs (paper section 4.3.3).

  C_comp = Σ_r t_r·price_r·T
  C_comm = [ 2·Σ_i Σ_j N_j·e(z_ij, z_i+1,j)·a_i·m  +  Σ_i Σ_j e(z_ij, z_i,j+1)·(S_i/D)·2(D-1) ]/1e9

e is USD per 1e9 bytes, a_i the activation of the last layer of stage i, S_i the stage's weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from workflows.sailor.network import GB
from workflows.sailor.plan import Plan, Stage
from workflows.sailor.problem import Problem
from workflows.sailor.stages import activation_bytes, weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """USD of one iteration."""

    compute_usd: float
    communication_usd: float

    @property
    def total_usd(self) -> float:
        """C."""
        return self.compute_usd + self.communication_usd


def compute_usd_per_s(problem: Problem, plan: Plan) -> float:
    """Price of all GPUs of the plan per second."""
    prices, at = problem.prices, problem.priced_at_s
    return sum(
        count * prices.usd_per_second(gpu, zone, at)
        for (gpu, zone), count in plan.gpus_used().items()
    )


def pipeline_usd(problem: Problem, plan: Plan, shares: Sequence[int]) -> float:
    """Traffic of activations and gradients between stages."""
    total = 0.0
    for i in range(plan.depth - 1):
        here, there = plan.stages[i].replicas, plan.stages[i + 1].replicas
        edges: Counter[tuple[str, str]] = Counter()
        for j, replica in enumerate(here):
            edges[(replica.zone, there[j % len(there)].zone)] += shares[j % len(shares)]
        size = activation_bytes(problem, plan.stages[i].last_layer, plan.microbatch)
        for (a, b), microbatches in edges.items():
            usd = problem.prices.egress_usd_per_gb(a, b) + problem.prices.egress_usd_per_gb(b, a)
            total += usd * microbatches * size / GB
    return total


def all_reduce_usd(problem: Problem, stage: Stage) -> float:
    """Traffic of the stage's gradient all-reduce over its ring of replicas."""
    width = len(stage.replicas)
    edges = Counter(
        (replica.zone, stage.replicas[(j + 1) % width].zone)
        for j, replica in enumerate(stage.replicas)
    )
    usd = sum(problem.prices.egress_usd_per_gb(a, b) * n for (a, b), n in edges.items())
    return usd * weight_bytes(problem, stage.layers) / width * 2 * (width - 1) / GB


def iteration_cost(problem: Problem, plan: Plan, iteration_s: float, shares: Sequence[int]) -> Cost:
    """USD of one iteration of `iteration_s` seconds; `shares` are microbatches per pipeline."""
    return Cost(
        compute_usd=compute_usd_per_s(problem, plan) * iteration_s,
        communication_usd=pipeline_usd(problem, plan, shares)
        + sum(all_reduce_usd(problem, stage) for stage in plan.stages),
    )
