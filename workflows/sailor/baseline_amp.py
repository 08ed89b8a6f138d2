"""AMP: uniform t·D·P over all GPUs, with its own time model and no memory model.

    T = (N_b - 1)·max stage + Σ stages + Σ edges + max DP
    stage = Σ layers of m·3·f(m=1, t), averaged over the GPU types that have the degree
    edge  = volume[last layer]·m / (bw/4),  0 inside a node, mean over the D pipelines
    DP    = 2(D-1)/D · parameters(t) / (bw/4) over the last pair of the ring, 0 inside a node

bw is the smallest of the types' maximum over all GPUs of a node, in floats/s. Ranks are ordered
t + t·d + t·D·p over nodes, types in the order of mention. `volume` is [embedding, embedding,
block 2, block 3, …]: the published list is one layer behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workflows.sailor.errors import BadPlan, MissingProfile
from workflows.sailor.network import Endpoint
from workflows.sailor.plan import Availability, Plan, Replica, stages_from_split
from workflows.sailor.problem import Problem
from workflows.sailor.search_result import Goal

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    gpus: tuple[tuple[str, int], ...]
    """(type, GPUs) in the order of mention"""
    zone: str
    per_node: int
    nodes: int
    """nodes that AMP uses"""
    floats_per_s: float


def amp_plans(problem: Problem, available: Availability, goal: Goal) -> list[Plan]:
    """AMP's plans, best first by its own estimate (of time, or of time x price)."""
    cluster = _cluster(problem, available)
    ranked: list[tuple[float, Plan]] = []
    for m, t, width in _degrees(problem.job.global_batch, cluster):
        depth = cluster.nodes * cluster.per_node // (t * width)
        if depth > problem.job.layers or t not in problem.profile.sizes:
            continue
        layer_s = _layer_s(problem, cluster, t, m)
        if layer_s is None:
            continue
        split = _split(problem.job.layers, depth)
        seconds = _estimate_s(problem, cluster, split, (t, width, m), layer_s)
        plan = _plan(cluster, split, (t, width, m))
        usd = seconds * sum(
            n * problem.prices.usd_per_second(gpu, zone, problem.priced_at_s)
            for (gpu, zone), n in plan.gpus_used().items()
        )
        ranked.append((seconds if goal.objective == "throughput" else usd, plan))
    return [plan for _, plan in sorted(ranked, key=lambda entry: entry[0])]


def _cluster(problem: Problem, available: Availability) -> _Cluster:
    gpus = [(gpu, zone, n) for (gpu, zone), n in available.items() if n > 0]
    zones = {zone for _, zone, _ in gpus}
    if len(zones) != 1:
        raise BadPlan(f"AMP plans for one zone, got {len(zones)}: {', '.join(sorted(zones))}")
    zone = zones.pop()
    per_node = problem.gpu(gpus[0][0]).gpus_per_node
    nodes = sum(n // per_node for _, _, n in gpus)
    ends = [Endpoint(zone=zone, gpu=gpu, count=per_node) for gpu, _, _ in gpus]
    limit = min(problem.links.find(end, end).max_bytes_per_s for end in ends)
    batch = problem.job.global_batch
    usable = next((n for n in range(nodes, 0, -1) if batch % (n * per_node) == 0), 1)
    return _Cluster(
        gpus=tuple((gpu, n) for gpu, _, n in gpus),
        zone=zone,
        per_node=per_node,
        nodes=usable,
        floats_per_s=limit / FLOAT_BYTES,
    )


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _degrees(batch: int, cluster: _Cluster) -> Iterator[tuple[int, int, int]]:
    """(m, t, D) in AMP's order: by microbatch as it first appears."""
    by_m: dict[int, list[tuple[int, int]]] = {}
    for t in _divisors(cluster.per_node):
        for width in _divisors(cluster.per_node * cluster.nodes // t):
            if batch >= width:
                for m in _divisors(batch // width):
                    by_m.setdefault(m, []).append((t, width))
    for m, pairs in by_m.items():
        for t, width in pairs:
            yield m, t, width


def _layer_s(problem: Problem, cluster: _Cluster, t: int, m: int) -> list[float] | None:
    """m·3·f at microbatch 1 per layer, averaged over the types that have the degree."""
    rows = []
    for gpu, _ in cluster.gpus:
        try:
            rows.append(problem.profile.time_of(gpu, 1, t))
        except MissingProfile:
            continue  # AMP averages over the types that were measured at this degree
    if not rows:
        return None
    return [
        sum(m * 3 * row[layer].forward_s for row in rows) / len(rows)
        for layer in range(problem.job.layers)
    ]


def _split(layers: int, depth: int) -> tuple[int, ...]:
    """Equal parts, what is left over goes to the last."""
    each = layers // depth
    return (*([each] * (depth - 1)), layers - each * (depth - 1))


def _estimate_s(
    problem: Problem,
    cluster: _Cluster,
    split: Sequence[int],
    degrees: tuple[int, int, int],
    layer_s: Sequence[float],
) -> float:
    t, width, m = degrees
    sizes = problem.profile.size_of(t)
    outputs = [size.output_floats for size in sizes]
    volume = [outputs[0], outputs[0], *outputs[2:]]
    starts = [sum(split[:i]) for i in range(len(split))]
    runs = [range(a, a + n) for a, n in zip(starts, split, strict=True)]
    stages = [sum(layer_s[i] for i in run) for run in runs]
    edges = 0.0
    for p, run in enumerate(runs[:-1]):
        apart = sum(not _edge_inside(cluster, degrees, p, d) for d in range(width)) / width
        edges += apart * m * volume[run[-1]] / cluster.floats_per_s
    reduce = 0.0
    for p, run in enumerate(runs):
        parameters = sum(sizes[i].parameters for i in run)
        for shard in range(t):
            if _node(cluster, degrees, p, width - 1, shard) != _node(cluster, degrees, p, 0, shard):
                reduce = max(reduce, 2 * (width - 1) / width * parameters / cluster.floats_per_s)
    batches = problem.job.global_batch / (width * m)
    return (batches - 1) * max(stages) + sum(stages) + edges + reduce


def _node(cluster: _Cluster, degrees: tuple[int, int, int], p: int, d: int, shard: int) -> int:
    t, width, _ = degrees
    return (shard + t * d + t * width * p) // cluster.per_node


def _edge_inside(cluster: _Cluster, degrees: tuple[int, int, int], p: int, d: int) -> bool:
    """Whether all tensor shards of replica d find the next stage in their own node."""
    return all(
        _node(cluster, degrees, p, d, shard) == _node(cluster, degrees, p + 1, d, shard)
        for shard in range(degrees[0])
    )


def _plan(cluster: _Cluster, split: Sequence[int], degrees: tuple[int, int, int]) -> Plan:
    """GPUs in rank order: the first type until it is used up, then the next."""
    t, width, m = degrees
    pool = [
        Replica(gpu=gpu, degree=t, zone=cluster.zone)
        for gpu, n in cluster.gpus
        for _ in range(n // t)
    ]
    rows = [pool[i * width : (i + 1) * width] for i in range(len(split))]
    return Plan(microbatch=m, stages=stages_from_split(split, rows))
