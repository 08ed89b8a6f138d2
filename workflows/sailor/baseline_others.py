"""Varuna and Atlas, small planners for clusters of one GPU type.

Varuna: t = 1, P divides L, D = GPUs div P, m the largest that its memory model (weights, optimizer
and one activation; nothing of the platform) lets fit; time by running the schedule, one all-reduce.
Atlas: t = GPUs of a node, every D, P and m; regions with the most GPUs first, each hosts as many
stages as it can. Time and memory are the simulator's.
"""

from __future__ import annotations

from math import ceil

from workflows.sailor.errors import BadPlan, MissingProfile
from workflows.sailor.memory import plan_memory
from workflows.sailor.network import Endpoint
from workflows.sailor.plan import Availability, Plan, Replica, stages_from_split, uniform_plan
from workflows.sailor.prices import region_of
from workflows.sailor.problem import Problem
from workflows.sailor.schedule import run_chain
from workflows.sailor.search_result import Goal
from workflows.sailor.simulator import chain_of, simulate
from workflows.sailor.stages import activation_bytes, weight_bytes


def first_type(available: Availability, name: str) -> str:
    """The first GPU type of a cluster: these planners know only one."""
    gpus = [gpu for (gpu, _), n in available.items() if n > 0]
    if not gpus:
        raise BadPlan(f"{name}: the cluster has no GPU")
    return gpus[0]


def varuna_plans(problem: Problem, available: Availability, goal: Goal) -> list[Plan]:
    """Varuna's plans on the first GPU type and zone, best first by its own estimate."""
    gpu = first_type(available, "Varuna")
    zone, count = next((z, n) for (g, z), n in available.items() if g == gpu and n > 0)
    replica = Replica(gpu=gpu, degree=1, zone=zone)
    ranked: list[tuple[float, Plan]] = []
    for depth in range(1, problem.job.layers + 1):
        if problem.job.layers % depth or count < depth:
            continue
        m = _varuna_microbatch(problem, gpu, depth)
        if m is None:
            continue
        plan = uniform_plan(
            layers=problem.job.layers,
            stages=depth,
            replicas=count // depth,
            replica=replica,
            microbatch=m,
        )
        seconds = _varuna_s(problem, plan, replica)
        price = depth * plan.width * problem.prices.usd_per_second(gpu, zone, problem.priced_at_s)
        ranked.append((seconds if goal.objective == "throughput" else seconds * price, plan))
    return [plan for _, plan in sorted(ranked, key=lambda entry: entry[0])]


def _varuna_microbatch(problem: Problem, gpu: str, depth: int) -> int | None:
    """The largest microbatch whose model state and one set of activations fit the card."""
    sizes = problem.profile.size_of(1)
    each = problem.job.layers // depth
    for m in reversed(problem.profile.microbatches([gpu])):
        try:
            problem.profile.time_of(gpu, m, 1)
        except MissingProfile:
            continue  # not measured: it did not fit even without a pipeline
        needed = max(
            problem.job.model_bytes_per_parameter * sum(x.parameters for x in stage)
            + problem.job.float_bytes * m * sum(x.kept_floats for x in stage)
            for stage in (sizes[i : i + each] for i in range(0, len(sizes), each))
        )
        if needed <= problem.gpu(gpu).memory_bytes:
            return m
    return None


def _varuna_s(problem: Problem, plan: Plan, replica: Replica) -> float:
    """The schedule by events, sends beside the computing, one all-reduce of the largest stage."""
    chain = chain_of(problem, plan, [replica] * plan.depth)
    batches = ceil(problem.job.global_batch // plan.width / plan.microbatch)
    end_s = float(run_chain(chain, max(1, batches), blocking=False).end_s.max())
    end = Endpoint(zone=replica.zone, gpu=replica.gpu, count=1)
    size = max(weight_bytes(problem, stage.layers) for stage in plan.stages)
    return end_s + problem.links.find(end, end).all_reduce_s(size, plan.width)


def atlas_plans(problem: Problem, available: Availability, goal: Goal) -> list[Plan]:
    """Atlas's plans, best first by the simulator."""
    gpu = first_type(available, "Atlas")
    degree = problem.gpu(gpu).gpus_per_node
    ranked: list[tuple[tuple[float, float], Plan]] = []
    for m in problem.profile.microbatches([gpu]):
        if degree not in problem.profile.degrees(gpu, m):
            continue
        for depth in range(1, problem.job.layers):
            most = sum(n for (g, _), n in available.items() if g == gpu) // (degree * depth)
            for width in range(1, min(most, problem.job.global_batch // m) + 1):
                plan = _atlas_plan(problem, available, gpu, (depth, width, m))
                if plan is None or not all(w.fits for w in plan_memory(problem, plan)):
                    continue
                ranked.append((goal.key(simulate(problem, plan)), plan))
    return [plan for _, plan in sorted(ranked, key=lambda entry: entry[0])]


def _atlas_plan(
    problem: Problem, available: Availability, gpu: str, shape: tuple[int, int, int]
) -> Plan | None:
    """Regions filled greedily: stages to region = min(left, GPUs div (t·D))."""
    depth, width, m = shape
    degree = problem.gpu(gpu).gpus_per_node
    regions: dict[str, dict[str, int]] = {}
    for (g, zone), n in available.items():
        if g == gpu and n > 0:
            regions.setdefault(region_of(zone), {})[zone] = n
    rows: list[list[Replica]] = []
    for zones in sorted(regions.values(), key=lambda z: -sum(z.values())):
        slots = [
            Replica(gpu=gpu, degree=degree, zone=zone)
            for zone, n in zones.items()
            for _ in range(n // degree)
        ]
        hosted = min(depth - len(rows), len(slots) // width)
        rows += [slots[i * width : (i + 1) * width] for i in range(hosted)]
    if len(rows) < depth:
        return None
    template = uniform_plan(
        layers=problem.job.layers, stages=depth, replicas=1, replica=rows[0][0], microbatch=m
    )
    return Plan(microbatch=m, stages=stages_from_split(template.split, rows))


def pipeline_bytes(problem: Problem, microbatch: int) -> float:
    """Activation of an inner layer for one microbatch: what DTFM takes for every edge."""
    return activation_bytes(problem, min(1, problem.job.layers - 1), microbatch)
