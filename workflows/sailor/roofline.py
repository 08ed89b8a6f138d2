"""Profiles from published hardware figures, for planning without any measurement.

A transformer layer is a matrix part and an element-wise part:

    time = max(flops / (e_m·F), bytes / (e_b·B))  for the matrices  +  bytes / (e_b·B)  elsewhere

divided by t, plus two all-reduces of m·s·h values over the node's peer link for each of forward and
backward. F and B are the card's published peaks; the efficiencies are assumptions, the same for
every card, and the result is marked `source="roofline"`. Backward is twice forward. The step of the
optimizer reads and writes 28 bytes per parameter. Sizes follow from the shape alone: a block has
12·h² + 13·h parameters and keeps s·h·(16 + a·s/h) values at t = 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final

from workflows.sailor.hardware import GPU_TYPES, GpuType, gpu_type
from workflows.sailor.job import Job
from workflows.sailor.network import Link, LinkTable, constant_link
from workflows.sailor.prices import region_of
from workflows.sailor.profile import LayerSize, LayerTime, Point, Profile

MATMUL_EFFICIENCY: Final = 0.45
MEMORY_EFFICIENCY: Final = 0.7
PEER_EFFICIENCY: Final = 0.6
BACKWARD_FACTOR: Final = 2.0
STEP_BYTES_PER_PARAMETER: Final = 28
ELEMENTWISE_PASSES: Final = 24
"""times that an element-wise pass of a block touches its s·h values"""
KEPT_PER_VALUE: Final = 16
MICROBATCHES: Final = (1, 2, 4, 8, 16, 32)

# Assumed rates of one flow between machines, bytes/s; k flows share the machine's card of at most
# MACHINE_BYTES_PER_S. Same zone, other zone of the region, other region.
SAME_ZONE_BYTES_PER_S: Final = 2.0e9
SAME_REGION_BYTES_PER_S: Final = 1.6e9
OTHER_REGION_BYTES_PER_S: Final = 0.25e9
MACHINE_BYTES_PER_S: Final = 6.0e9


def block_parameters(job: Job) -> int:
    """12·h² + 13·h: attention 4·h², feed-forward 8·h², biases and norms."""
    return 12 * job.hidden**2 + 13 * job.hidden


def embedding_parameters(job: Job) -> int:
    """V·h + s·h: words and positions."""
    return (job.vocabulary + job.sequence_length) * job.hidden


def head_parameters(job: Job) -> int:
    """V·h + 2·h: output words and the last norm."""
    return (job.vocabulary + 2) * job.hidden


def block_flops(job: Job, microbatch: int) -> float:
    """Forward matrix products of a block: 2·12·h² per token and 4·s²·h per sequence."""
    tokens = microbatch * job.sequence_length
    return 24.0 * tokens * job.hidden**2 + 4.0 * tokens * job.sequence_length * job.hidden


def head_flops(job: Job, microbatch: int) -> float:
    """2·V·h per token."""
    return 2.0 * microbatch * job.sequence_length * job.hidden * job.vocabulary


def layer_sizes(job: Job, degree: int) -> tuple[LayerSize, ...]:
    """Sizes of all layers on one GPU of a tensor group."""
    values = float(job.sequence_length * job.hidden)
    probabilities = float(job.heads * job.sequence_length**2)

    def size(parameters: float, output: float, kept: float) -> LayerSize:
        return LayerSize(
            parameters=parameters / degree,
            output_floats=output,
            input_floats=values,
            kept_floats=kept / degree,
        )

    logits = float(job.sequence_length * job.vocabulary)
    block = size(block_parameters(job), values, KEPT_PER_VALUE * values + probabilities)
    middle = [block] * (job.layers - 2)
    first = size(embedding_parameters(job), values, values)
    return (first, *middle, size(head_parameters(job), logits, 2 * logits + values))


def _seconds(card: GpuType, job: Job, flops: float, moved_bytes: float) -> float:
    """The roofline of one kernel group."""
    peak = card.matmul_flops_per_s if job.precision == "fp32" else card.half_flops_per_s
    compute = flops / (MATMUL_EFFICIENCY * peak)
    return max(compute, moved_bytes / (MEMORY_EFFICIENCY * card.memory_bytes_per_s))


def _collective_s(card: GpuType, job: Job, microbatch: int, degree: int) -> float:
    """Two ring all-reduces of m·s·h values among t cards of a node."""
    if degree == 1:
        return 0.0
    size = microbatch * job.sequence_length * job.hidden * job.float_bytes
    ring = 2 * (degree - 1) / degree * size / (PEER_EFFICIENCY * card.peer_bytes_per_s)
    return 2 * ring


def layer_times(job: Job, card: GpuType, microbatch: int, degree: int) -> tuple[LayerTime, ...]:
    """Times of all layers on one card type."""
    width = job.float_bytes
    values = microbatch * job.sequence_length * job.hidden * width

    def timed(flops: float, parameters: float, passes: float, collective: float) -> LayerTime:
        matrices = _seconds(card, job, flops / degree, width * parameters / degree + 2 * values)
        passing = _seconds(card, job, 0.0, passes * values / degree)
        forward = matrices + passing + collective
        step = parameters / degree * STEP_BYTES_PER_PARAMETER
        return LayerTime(
            forward_s=forward,
            backward_s=BACKWARD_FACTOR * (matrices + passing) + collective,
            update_s=_seconds(card, job, 0.0, step),
        )

    collective = _collective_s(card, job, microbatch, degree)
    attention = 2.0 * job.heads * job.sequence_length / job.hidden
    block = timed(
        block_flops(job, microbatch),
        block_parameters(job),
        ELEMENTWISE_PASSES + attention,
        collective,
    )
    vocabulary_passes = 3.0 * job.vocabulary / job.hidden
    first = timed(0.0, embedding_parameters(job), 2.0, collective / 2)
    last = timed(head_flops(job, microbatch), head_parameters(job), vocabulary_passes, collective)
    return (first, *([block] * (job.layers - 2)), last)


def roofline_profile(
    job: Job,
    gpus: Iterable[str],
    *,
    table: Mapping[str, GpuType] = GPU_TYPES,
    microbatches: Sequence[int] = MICROBATCHES,
) -> Profile:
    """A profile of a job on cards that nobody measured, marked as such."""
    cards = [gpu_type(name, table) for name in gpus]
    degrees = {c.name: [t for t in (1, 2, 4, 8) if t <= c.gpus_per_node] for c in cards}
    times: dict[Point, tuple[LayerTime, ...]] = {
        (card.name, m, t): layer_times(job, card, m, t)
        for card in cards
        for m in microbatches
        for t in degrees[card.name]
    }
    every = sorted({t for row in degrees.values() for t in row} | {1})
    return Profile(
        model=job.model,
        source="roofline",
        sizes={t: layer_sizes(job, t) for t in every},
        times=times,
    )


def assumed_links(
    zones: Sequence[str], gpus: Iterable[str], table: Mapping[str, GpuType] = GPU_TYPES
) -> LinkTable:
    """Links of constant bandwidth between all zones, from the assumed rates above."""
    alike: dict[tuple[str, str, str, int], Link] = {}
    for gpu, (a, b) in product(gpus, product(zones, zones)):
        flow = OTHER_REGION_BYTES_PER_S
        if region_of(a) == region_of(b):
            flow = SAME_ZONE_BYTES_PER_S if a == b else SAME_REGION_BYTES_PER_S
        for k in (1, 2, 4, 8):
            if k <= gpu_type(gpu, table).gpus_per_node:
                rate = min(k * flow, MACHINE_BYTES_PER_S)
                alike[(a, b, gpu, k)] = constant_link(f"assumed {k}x{gpu} {a} -> {b}", rate)
    return LinkTable.from_alike(alike)
