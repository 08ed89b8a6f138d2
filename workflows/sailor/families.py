"""The layouts that the planner looks at, family by family.

blocks    equal pipelines whose stages are blocks of one choice each (one, two or three pools in
          any order), with the planner's even split and with the balanced one
separate  every pool of a region runs whole pipelines of its own degree, and the microbatches are
          shared out by speed
packed    stages whose replicas come from several pools: at a limit of the stage time each pool
          offers its smallest sufficient degree, and pools fill the stages where they are
          relatively cheapest

A family yields layouts with their bounds. `worth`, asked before anything expensive is computed,
says whether a bound of time and price can still matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise, permutations, product
from math import ceil

import numpy as np

from workflows.sailor.balance import balanced_split
from workflows.sailor.layout import Kind, Layout, busy_chain, fits, time_bound_s, usd_per_s
from workflows.sailor.options import Options, regions_of, widths
from workflows.sailor.packing import Packing
from workflows.sailor.plan import even_split
from workflows.sailor.schedule import lower_bound_s
from workflows.sailor.schedule_bounds import chain_bounds_s

Worth = Callable[[float, float], bool]
"""(bound of the iteration in s, bound of its cost in USD) -> can it still matter"""

MAX_BLOCKS = 3
MAX_MIXED_DEPTH = 16
MAX_DEPTH_OF_THREE = 12
WIDTH_SCALES = (1.0, 0.75, 0.5, 0.25)
BISECTIONS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A layout that no simulated iteration of it can beat these figures of."""

    options: Options
    layout: Layout
    bound_s: float
    bound_usd: float


def _proposal(options: Options, layout: Layout, worth: Worth) -> Proposal | None:
    bound_s = time_bound_s(options, layout)
    bound_usd = bound_s * usd_per_s(options, layout)
    if not worth(bound_s, bound_usd):
        return None
    return Proposal(options=options, layout=layout, bound_s=bound_s, bound_usd=bound_usd)


def _stage_counts(blocks: int, depth: int) -> Iterator[tuple[int, ...]]:
    """Compositions of P into that many positive parts."""
    for bars in combinations(range(1, depth), blocks - 1):
        edges = (0, *bars, depth)
        yield tuple(b - a for a, b in pairwise(edges))


def blocks(options: Options, worth: Worth, most_blocks: int = MAX_BLOCKS) -> Iterator[Proposal]:
    """Equal pipelines made of blocks of one choice each."""
    layers = options.problem.job.layers
    by_pool = {
        pool: [i for i, c in enumerate(options.choices) if c.pool == pool]
        for pool in range(len(options.pools))
    }
    for count in range(1, min(most_blocks, len(options.pools)) + 1):
        deepest = min(layers, (layers, MAX_MIXED_DEPTH, MAX_DEPTH_OF_THREE)[count - 1])
        for pools in permutations(by_pool, count):
            for picked in product(*(by_pool[pool] for pool in pools)):
                for depth in range(count, deepest + 1):
                    for parts in _stage_counts(count, depth):
                        yield from _block_proposals(options, picked, parts, worth)


def _block_proposals(
    options: Options, picked: Sequence[int], parts: Sequence[int], worth: Worth
) -> Iterator[Proposal]:
    problem, m = options.problem, options.microbatch
    choices = [options.choices[c] for c in picked]
    most = min(
        options.pools[c.pool].room(c.degree) // p for c, p in zip(choices, parts, strict=True)
    )
    if most < 1:
        return
    # a stage of a choice does its part of the layers in tau; the parts sum to one
    tau = 1.0 / sum(p / float(c.layer_s[-1]) for c, p in zip(choices, parts, strict=True))
    rate = sum(p * c.usd_per_s for c, p in zip(choices, parts, strict=True))
    least_s = problem.job.microbatches(m, most) * tau
    least_usd = rate * problem.job.global_batch / m * tau
    if not worth(least_s, least_usd):
        return
    row = tuple(c for c, p in zip(picked, parts, strict=True) for _ in range(p))
    candidates = widths(problem, m, most)
    fewest = problem.job.microbatches(m, most)
    splits = {even_split(problem.job.layers, len(row)), balanced_split(options, row, fewest)}
    if fewest < len(row):
        splits.add(balanced_split(options, row, len(row)))
    for split in splits:
        if split is not None:
            yield from _over_widths(options, row, split, candidates, worth)


def _over_widths(
    options: Options,
    row: tuple[int, ...],
    split: tuple[int, ...],
    candidates: Sequence[int],
    worth: Worth,
) -> Iterator[Proposal]:
    """Equal pipelines of one kind at several widths; the bounds of all widths at once."""
    m = options.microbatch
    shares = np.array([options.problem.job.microbatches(m, width) for width in candidates])
    chain = busy_chain(options, split, row)
    bounds = chain_bounds_s(chain, shares) + float(options.choices[row[0]].update[0])
    rate = sum(options.choices[c].usd_per_s for c in row)
    for width, share, chain_s in zip(candidates, shares.tolist(), bounds.tolist(), strict=True):
        if not worth(chain_s, chain_s * rate * width):
            continue
        bound_s = chain_s + options.sync_s(row[0], 0, split[0], width)
        bound_usd = bound_s * rate * width
        if not worth(bound_s, bound_usd):
            continue
        kind = Kind(choices=row, count=width, share=share)
        if fits(options, split, kind):
            layout = Layout(microbatch=m, split=split, kinds=(kind,))
            yield Proposal(options=options, layout=layout, bound_s=bound_s, bound_usd=bound_usd)


def shared_out(
    options: Options, split: Sequence[int], rows: Sequence[tuple[tuple[int, ...], int]]
) -> tuple[Kind, ...] | None:
    """Classes with shares in proportion to speed, or None if one does not fit.

    A pipeline's time is taken as fill + n·slope; the common end is found by bisection.
    """
    job, m = options.problem.job, options.microbatch
    need = ceil(job.global_batch / m)
    lines = []
    for choices, count in rows:
        chain = busy_chain(options, split, choices)
        far, near = lower_bound_s(chain, 2 * need), lower_bound_s(chain, need)
        slope = (far - near) / need
        lines.append((near - slope * need, slope, count))
    low, high = 0.0, max(fill + slope * need for fill, slope, _ in lines)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        done = sum(count * max(0, int((middle - fill) / slope)) for fill, slope, count in lines)
        low, high = (low, middle) if done >= need else (middle, high)
    shares = [max(0, int((high - fill) / slope)) for fill, slope, _ in lines]
    if min(shares) < 1:
        return None
    shares = _trim(shares, [count for _, count in rows], [line[1] for line in lines], need)
    kinds = tuple(
        Kind(choices=choices, count=count, share=share)
        for (choices, count), share in zip(rows, shares, strict=True)
    )
    return kinds if all(fits(options, split, kind) for kind in kinds) else None


def _trim(
    shares: list[int], counts: Sequence[int], slopes: Sequence[float], need: int
) -> list[int]:
    """Take back what is too much, from the slowest class first."""
    for c in sorted(range(len(shares)), key=lambda i: -slopes[i]):
        extra = sum(n * d for n, d in zip(shares, counts, strict=True)) - need
        shares[c] = max(1, shares[c] - max(0, extra) // counts[c])
    return shares


def separate(options: Options, worth: Worth) -> Iterator[Proposal]:
    """Every pool of a region runs whole pipelines; work is shared out by speed."""
    layers = options.problem.job.layers
    for members in regions_of(options.pools).values():
        for size in range(2, len(members) + 1):
            for pools in combinations(members, size):
                per_pool = [
                    [i for i, c in enumerate(options.choices) if c.pool == pool] for pool in pools
                ]
                for picked in product(*per_pool):
                    for depth in range(1, min(layers, MAX_MIXED_DEPTH) + 1):
                        yield from _separate_proposals(options, picked, depth, worth)


def _separate_proposals(
    options: Options, picked: Sequence[int], depth: int, worth: Worth
) -> Iterator[Proposal]:
    problem, m = options.problem, options.microbatch
    choices = [options.choices[c] for c in picked]
    full = [options.pools[c.pool].room(c.degree) // depth for c in choices]
    if min(full) < 1:
        return
    need = ceil(problem.job.global_batch / m)
    speeds = [depth * n / float(c.layer_s[-1]) for n, c in zip(full, choices, strict=True)]
    cheapest = min(c.usd_per_s * float(c.layer_s[-1]) for c in choices)
    if not worth(need / sum(speeds), cheapest * need):
        return
    rows = [(c,) * depth for c in picked]
    splits: set[tuple[int, ...] | None] = {even_split(problem.job.layers, depth)}
    splits |= {balanced_split(options, row, depth) for row in rows if depth > 1}
    for split in splits:
        if split is None:
            continue
        for scale in WIDTH_SCALES:
            counts = [max(1, int(n * scale)) for n in full]
            speed = sum(
                depth * n / float(c.layer_s[-1]) for n, c in zip(counts, choices, strict=True)
            )
            if not worth(need / speed, cheapest * need):
                continue
            kinds = shared_out(options, split, list(zip(rows, counts, strict=True)))
            if kinds is not None:
                layout = Layout(microbatch=m, split=split, kinds=kinds)
                proposal = _proposal(options, layout, worth)
                if proposal is not None:
                    yield proposal


def packed(options: Options, worth: Worth) -> Iterator[Proposal]:
    """Stages with replicas from several pools of a region, with the even split."""
    problem, m = options.problem, options.microbatch
    rows_of_pools = regions_of(options.pools).values()
    if not any(len(pools) > 1 for pools in rows_of_pools):
        return
    for depth in range(1, min(problem.job.layers, MAX_MIXED_DEPTH) + 1):
        split = even_split(problem.job.layers, depth)
        for members in _region_rows(options, depth):
            packing = Packing(options=options, split=split, members=members)
            most = sum(p.room(1) for p in options.pools) // depth
            for width in widths(problem, m, most):
                yield from _packed_at(options, packing, width, worth)


def _region_rows(options: Options, depth: int) -> list[list[list[int]]]:
    """Pools that each stage may use: one region throughout, or two with one cut between stages."""
    regions = list(regions_of(options.pools).values())
    out = [[pools] * depth for pools in regions if len(pools) > 1]
    for first, second in permutations(regions, 2):
        out += [[first] * cut + [second] * (depth - cut) for cut in range(1, depth)]
    return out


def _packed_at(options: Options, packing: Packing, width: int, worth: Worth) -> Iterator[Proposal]:
    share = options.problem.job.microbatches(options.microbatch, width)
    usable = [limit for limit in packing.limits if worth(share * limit, 0.0)]
    if not usable:
        return
    for order in permutations(range(len(options.pools))):
        rows = packing.pack(usable[-1], width, share, order)
        if rows is None:
            continue
        # smaller limits need more GPUs: the smallest one that can be packed is the fastest
        low, high = 0, len(usable) - 2
        while low <= high:
            middle = (low + high) // 2
            found = packing.pack(usable[middle], width, share, order)
            if found is None:
                low = middle + 1
            else:
                rows, high = found, middle - 1
        yield from _packed_proposals(options, packing.split, rows, share, worth)


def _packed_proposals(
    options: Options, split: tuple[int, ...], rows: list[list[int]], share: int, worth: Worth
) -> Iterator[Proposal]:
    """The packed pipelines with equal shares, and with shares by speed."""
    grouped = [(c, len(list(same))) for c, same in groupby(zip(*rows, strict=True))]
    equal = tuple(Kind(choices=c, count=n, share=share) for c, n in grouped)
    uneven = shared_out(options, split, grouped) if len(grouped) > 1 else None
    for kinds in (equal, uneven):
        if kinds is not None:
            layout = Layout(microbatch=options.microbatch, split=split, kinds=kinds)
            proposal = _proposal(options, layout, worth)
            if proposal is not None:
                yield proposal
