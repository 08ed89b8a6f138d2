"""The terms of the iteration time, one function each (paper section 4.3.2).

    comp_i = max over replicas of Σ (f + b)          upd_i = max over replicas of u
    A_i    = slowest send of activations from stage i to i+1
    B_i    = slowest send of gradients from stage i to i-1
    S_i    = Σ weight bytes / min(4, smallest degree)
    sync   = slowest link of the ring, at one GPU pair, for S_i and D participants

The links of point-to-point sends are those of the two replicas' tensor degrees with the full, not
per-GPU, activation. At most four flows of a replica speed an all-reduce up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from workflows.sailor.network import Endpoint
from workflows.sailor.plan import Plan, Replica, Stage
from workflows.sailor.problem import Problem

MAX_SYNC_FLOWS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTerms:
    """Terms of one stage, in seconds and bytes. Times are those of the slowest replica."""

    compute_s: float
    """forward + backward of one microbatch"""
    update_s: float
    send_forward_s: float
    """A_i; 0 for the last stage"""
    send_backward_s: float
    """B_i; 0 for the first stage"""
    sync_bytes: float
    sync_s: float


def layer_sums(
    problem: Problem, layers: range, gpu: str, degree: int, microbatch: int
) -> tuple[float, float, float]:
    """(Σ forward, Σ backward, update) in seconds of a run of layers on one replica."""
    times = problem.profile.time_of(gpu, microbatch, degree)
    rows = times[layers.start : layers.stop]
    forward = sum(row.forward_s for row in rows)
    backward = sum(row.backward_s for row in rows)
    return forward, backward, rows[0].update_s


def weight_bytes(problem: Problem, layers: range) -> float:
    """Σ w_l of a run of layers at degree 1."""
    sizes = problem.profile.size_of(1)
    return problem.job.float_bytes * sum(sizes[layer].parameters for layer in layers)


def activation_bytes(problem: Problem, layer: int, microbatch: int) -> float:
    """a_l·m: bytes that layer l hands on for one microbatch."""
    return problem.profile.size_of(1)[layer].output_floats * problem.job.float_bytes * microbatch


def send_s(
    problem: Problem, sender: Replica, receiver: Replica, size_bytes: float, *, published: bool
) -> float:
    """Seconds to send between two replicas."""
    link = problem.links.find(
        Endpoint(zone=sender.zone, gpu=sender.gpu, count=sender.degree),
        Endpoint(zone=receiver.zone, gpu=receiver.gpu, count=receiver.degree),
    )
    return link.send_s(size_bytes, published=published)


def slowest(
    pairs: Sequence[tuple[Replica, Replica]], seconds: Callable[[Replica, Replica], float]
) -> float:
    """The largest of `seconds` over distinct pairs; 0 if there is none."""
    return max((seconds(a, b) for a, b in dict.fromkeys(pairs)), default=0.0)


def edge_s(
    problem: Problem, sender: Stage, receiver: Stage, size_bytes: float, *, published: bool
) -> float:
    """Slowest of the D sends from one stage to another; replica j talks to j mod D."""
    width = len(receiver.replicas)
    pairs = [(r, receiver.replicas[j % width]) for j, r in enumerate(sender.replicas)]
    return slowest(pairs, lambda a, b: send_s(problem, a, b, size_bytes, published=published))


def ring_s(
    problem: Problem, replicas: Sequence[Replica], size_bytes: float, *, published: bool
) -> float:
    """All-reduce over the replicas of a stage, over the slowest link between neighbours.

    The published simulator leaves the edge that closes the ring out.
    """
    width = len(replicas)
    edges = width - 1 if published else width
    pairs = [(replicas[j], replicas[(j + 1) % width]) for j in range(edges)] if width > 1 else []

    def over(a: Replica, b: Replica) -> float:
        link = problem.links.find(
            Endpoint(zone=a.zone, gpu=a.gpu, count=1), Endpoint(zone=b.zone, gpu=b.gpu, count=1)
        )
        return link.all_reduce_s(size_bytes, width, published=published)

    return slowest(pairs, over)


def sync_bytes(problem: Problem, stage: Stage) -> float:
    """S_i: gradient bytes that one GPU of the stage reduces."""
    flows = min(MAX_SYNC_FLOWS, *(replica.degree for replica in stage.replicas))
    return weight_bytes(problem, stage.layers) / flows


def stage_terms(problem: Problem, plan: Plan, *, published: bool) -> tuple[StageTerms, ...]:
    """Terms of every stage of a plan."""
    return tuple(_terms(problem, plan, i, published=published) for i in range(plan.depth))


def _terms(problem: Problem, plan: Plan, i: int, *, published: bool) -> StageTerms:
    stage, m = plan.stages[i], plan.microbatch
    sums = [
        layer_sums(problem, stage.layers, gpu, degree, m)
        for gpu, degree in dict.fromkeys((r.gpu, r.degree) for r in stage.replicas)
    ]
    size = sync_bytes(problem, stage)
    forward = backward = 0.0
    if i + 1 < plan.depth:
        out = activation_bytes(problem, stage.last_layer, m)
        forward = edge_s(problem, stage, plan.stages[i + 1], out, published=published)
    if i > 0:
        # the gradient of a stage's input is as large as the output of the layer before it; the
        # published simulator takes the stage's own first layer instead
        layer = stage.first_layer if published else stage.first_layer - 1
        back = activation_bytes(problem, layer, m)
        backward = edge_s(problem, stage, plan.stages[i - 1], back, published=published)
    return StageTerms(
        compute_s=max(f + b for f, b, _ in sums),
        update_s=max(u for _, _, u in sums),
        send_forward_s=forward,
        send_backward_s=backward,
        sync_bytes=size,
        sync_s=ring_s(problem, stage.replicas, size, published=published),
    )
