"""The layouts that the planner looks at, family by family.

blocks    equal pipelines whose stages are blocks of one choice each (one, two or three pools in
          any order), with the planner's even split and with the balanced one
separate  every pool of a region runs whole pipelines of its own degree, and the microbatches are
          shared out by speed
packed    stages whose replicas come from several pools: at a limit of the stage time each pool
          offers its smallest sufficient degree, and pools fill the stages where they are
          relatively cheapest

A family yields `Proposal`s. A proposal stands for one layout per width; `worth` (asked before
anything expensive is computed) says whether a bound of time and price can still matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, permutations, product
from math import ceil, inf

from workflows.sailor.balance import balanced_split
from workflows.sailor.layout import Kind, Layout, busy_chain, cuts, fits
from workflows.sailor.options import Options, regions_of, widths
from workflows.sailor.plan import even_split
from workflows.sailor.schedule import lower_bound_s

Worth = Callable[[float, float], bool]
"""(bound of the iteration in s, bound of its cost in USD) -> can it still matter"""

MAX_BLOCKS = 3
MAX_MIXED_DEPTH = 16
WIDTH_SCALES = (1.0, 0.75, 0.5, 0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Equal pipelines at several widths, or one finished layout."""

    options: Options
    layouts: tuple[Layout, ...]


def _stage_counts(blocks: int, depth: int) -> Iterator[tuple[int, ...]]:
    """Compositions of P into that many positive parts."""
    for bars in combinations(range(1, depth), blocks - 1):
        edges = (0, *bars, depth)
        yield tuple(b - a for a, b in zip(edges, edges[1:], strict=False))


def blocks(options: Options, worth: Worth, most_blocks: int = MAX_BLOCKS) -> Iterator[Proposal]:
    """Equal pipelines made of blocks of one choice each."""
    layers = options.problem.job.layers
    by_pool = {
        pool: [i for i, c in enumerate(options.choices) if c.pool == pool]
        for pool in range(len(options.pools))
    }
    for count in range(1, min(most_blocks, len(options.pools)) + 1):
        deepest = layers if count == 1 else min(layers, MAX_MIXED_DEPTH)
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
        if split is None:
            continue
        layouts = []
        for width in candidates:
            share = problem.job.microbatches(m, width)
            kind = Kind(choices=row, count=width, share=share)
            if fits(options, split, kind):
                layouts.append(Layout(microbatch=m, split=split, kinds=(kind,)))
        if layouts:
            yield Proposal(options=options, layouts=tuple(layouts))


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
    for _ in range(50):
        middle = (low + high) / 2
        done = sum(
            count * max(0, int((middle - fill) / slope)) for fill, slope, count in lines
        )
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
    splits = {even_split(problem.job.layers, depth)}
    splits |= {balanced_split(options, row, depth) for row in rows if depth > 1}
    for split in splits:
        if split is None:
            continue
        layouts = []
        for scale in WIDTH_SCALES:
            counts = [max(1, int(n * scale)) for n in full]
            kinds = shared_out(options, split, list(zip(rows, counts, strict=True)))
            if kinds is not None:
                layouts.append(Layout(microbatch=m, split=split, kinds=kinds))
        if layouts:
            yield Proposal(options=options, layouts=tuple(layouts))


def packed(options: Options, worth: Worth) -> Iterator[Proposal]:
    """Stages with replicas from several pools of a region, with the even split."""
    problem, m = options.problem, options.microbatch
    if len(options.pools) < 2:
        return
    for depth in range(1, min(problem.job.layers, MAX_MIXED_DEPTH) + 1):
        split = even_split(problem.job.layers, depth)
        times = [
            [float(c.layer_s[stop] - c.layer_s[start]) for c in options.choices]
            for start, stop in cuts(split)
        ]
        limits = sorted({t for row in times for t in row if t >= max(min(r) for r in times)})
        for members in _region_rows(options, depth):
            most = sum(p.room(1) for p in options.pools) // depth
            for width in widths(problem, m, most):
                yield from _packed_at(options, split, times, limits, members, width, worth)


def _region_rows(options: Options, depth: int) -> list[list[list[int]]]:
    """Pools that each stage may use: one region throughout, or two with one cut between stages."""
    regions = list(regions_of(options.pools).values())
    out = [[pools] * depth for pools in regions if len(pools) > 1]
    for first, second in permutations(regions, 2):
        out += [[first] * cut + [second] * (depth - cut) for cut in range(1, depth)]
    return out


def _packed_at(  # noqa: PLR0917 - one step of the loop above
    options: Options,
    split: tuple[int, ...],
    times: list[list[float]],
    limits: Sequence[float],
    members: list[list[int]],
    width: int,
    worth: Worth,
) -> Iterator[Proposal]:
    m = options.microbatch
    share = options.problem.job.microbatches(m, width)
    usable = [limit for limit in limits if worth(share * limit, 0.0)]
    for order in permutations(range(len(options.pools))):
        # smaller limits need more GPUs: the smallest one that can be packed is the fastest
        low, high, rows = 0, len(usable) - 1, None
        while low <= high:
            middle = (low + high) // 2
            found = _pack(options, split, times, usable[middle], members, width, share, order)
            if found is None:
                low = middle + 1
            else:
                rows, high = found, middle - 1
        if rows is None:
            continue
        columns = list(zip(*rows, strict=True))
        grouped = [(choices, len(list(same))) for choices, same in groupby(columns)]
        kinds = tuple(Kind(choices=c, count=n, share=share) for c, n in grouped)
        layouts = [Layout(microbatch=m, split=split, kinds=kinds)]
        uneven = shared_out(options, split, grouped) if len(grouped) > 1 else None
        if uneven is not None:
            layouts.append(Layout(microbatch=m, split=split, kinds=uneven))
        yield Proposal(options=options, layouts=tuple(layouts))


def _pack(  # noqa: PLR0917 - one packing problem
    options: Options,
    split: tuple[int, ...],
    times: list[list[float]],
    limit: float,
    members: list[list[int]],
    width: int,
    share: int,
    order: Sequence[int],
) -> list[list[int]] | None:
    """Choices of the D replicas of every stage, pools in the given order; None if it is too much."""
    depth = len(split)
    offers: list[dict[int, tuple[int, int]]] = []  # stage -> pool -> (degree, choice)
    for i, (start, stop) in enumerate(cuts(split)):
        offer: dict[int, tuple[int, int]] = {}
        for c, choice in enumerate(options.choices):
            if choice.pool not in members[i] or choice.pool in offer or times[i][c] > limit:
                continue
            if choice.fits(start, stop, min(share, depth - i)):
                offer[choice.pool] = (choice.degree, c)
        if not offer:
            return None
        offers.append(offer)
    need = [width] * depth
    rows: list[list[int]] = [[] for _ in range(depth)]
    for place, pool in enumerate(order):
        later = set(order[place + 1 :])
        left = sum(count for _, count in options.pools[pool].zones)
        for i in sorted(range(depth), key=lambda s: _advantage(offers[s], pool, later)):
            if pool not in offers[i] or not need[i]:
                continue
            degree, c = offers[i][pool]
            n = min(need[i], left // degree)
            rows[i] += [c] * n
            need[i] -= n
            left -= n * degree
    return rows if not any(need) else None


def _advantage(offer: dict[int, tuple[int, int]], pool: int, later: set[int]) -> float:
    """GPUs of this pool per GPU of the others, for one replica: small means use it here."""
    if pool not in offer:
        return inf
    others = [degree for other, (degree, _) in offer.items() if other in later]
    return offer[pool][0] / min(others) if others else 0.0
