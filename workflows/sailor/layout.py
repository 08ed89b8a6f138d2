"""A layout: a plan before its replicas have zones. Bounds are computed on it, plans made from it.

A layout has one split of the layers and a few classes of equal pipelines; a class says which choice
(pool and degree) each stage uses, how many pipelines there are and how many microbatches each runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations

from workflows.sailor.options import Options
from workflows.sailor.plan import Plan, Replica, stages_from_split
from workflows.sailor.prices import region_of
from workflows.sailor.schedule import Chain, lower_bound_s

MAX_ORDERED_ZONES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A class of equal pipelines."""

    choices: tuple[int, ...]
    """per stage, an index into the options' choices"""
    count: int
    share: int
    """microbatches of each pipeline"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One split and the classes of pipelines."""

    microbatch: int
    split: tuple[int, ...]
    kinds: tuple[Kind, ...]

    @property
    def depth(self) -> int:
        """P."""
        return len(self.split)

    @property
    def width(self) -> int:
        """D."""
        return sum(kind.count for kind in self.kinds)


def cuts(split: Sequence[int]) -> list[tuple[int, int]]:
    """(start, stop) of every stage."""
    stops = list(accumulate(split))
    return list(zip([0, *stops[:-1]], stops, strict=True))


def busy_chain(options: Options, split: Sequence[int], choices: Sequence[int]) -> Chain:
    """A pipeline whose operations include their (blocking) sends over the fastest links."""
    runs = cuts(split)
    depth = len(runs)
    forward, backward = [], []
    for i, ((start, stop), c) in enumerate(zip(runs, choices, strict=True)):
        choice = options.choices[c]
        f = float(choice.forward[stop] - choice.forward[start])
        b = float(choice.backward[stop] - choice.backward[start])
        if i + 1 < depth:
            f += options.hop_s(c, choices[i + 1], stop - 1)
        if i > 0:
            b += options.hop_s(c, choices[i - 1], start - 1)
        forward.append(f)
        backward.append(b)
    still = (0.0,) * depth
    return Chain(
        forward_s=tuple(forward),
        backward_s=tuple(backward),
        send_forward_s=still,
        send_backward_s=still,
    )


def fits(options: Options, split: Sequence[int], kind: Kind) -> bool:
    """Whether every stage of a class fits its card."""
    depth = len(split)
    return all(
        options.choices[c].fits(start, stop, min(kind.share, depth - i))
        for i, ((start, stop), c) in enumerate(zip(cuts(split), kind.choices, strict=True))
    )


def time_bound_s(options: Options, layout: Layout) -> float:
    """No simulated iteration of this layout is shorter.

    Stage 0 ends last, then reduces its gradients and steps.
    """
    chain_s = max(
        lower_bound_s(busy_chain(options, layout.split, kind.choices), kind.share)
        for kind in layout.kinds
    )
    stop = layout.split[0]
    firsts = [kind.choices[0] for kind in layout.kinds]
    flows = min(firsts, key=lambda c: options.choices[c].degree)
    pools = [options.choices[c].pool for c in firsts]
    size = options.weights_bytes(0, stop) / min(4, options.choices[flows].degree)
    sync = min(options.ring_s(pool, size, layout.width) for pool in pools)
    update = max(float(options.choices[c].update[0]) for c in firsts)
    return chain_s + sync + update


def usd_per_s(options: Options, layout: Layout) -> float:
    """Price of a layout at the cheapest zones."""
    return sum(
        kind.count * sum(options.choices[c].usd_per_s for c in kind.choices)
        for kind in layout.kinds
    )


def to_plans(options: Options, layout: Layout) -> list[Plan]:
    """The plans of a layout: zones filled stage by stage and pipeline by pipeline, in any order.

    Which zones follow one another decides the slowest link of a ring, so every order of up to
    `MAX_ORDERED_ZONES` zones is tried; of more zones only the largest-first one. An order in which
    the replicas do not fit their zones is left out.
    """
    used = {options.choices[c].pool for kind in layout.kinds for c in kind.choices}
    zones = list(dict.fromkeys(z for pool in sorted(used) for z, _ in options.pools[pool].zones))
    if len({(region_of(z)) for z in zones}) == len(zones):
        orders = [tuple(zones)]
    elif len(zones) <= MAX_ORDERED_ZONES:
        orders = list(permutations(zones))
    else:
        orders = [tuple(zones)]
    by_stage = [(i, j) for i in range(layout.depth) for j in range(layout.width)]
    by_pipeline = [(i, j) for j in range(layout.width) for i in range(layout.depth)]
    fills = [by_stage] if len(orders) == 1 or layout.depth == 1 else [by_stage, by_pipeline]
    plans = [_place(options, layout, fill, order) for order in orders for fill in fills]
    return list(dict.fromkeys(plan for plan in plans if plan is not None))


def _place(
    options: Options,
    layout: Layout,
    fill: Sequence[tuple[int, int]],
    zone_order: Sequence[str],
) -> Plan | None:
    columns = [kind for kind in layout.kinds for _ in range(kind.count)]
    rank = {zone: place for place, zone in enumerate(zone_order)}
    free = [
        dict(sorted(pool.zones, key=lambda entry: rank.get(entry[0], len(rank))))
        for pool in options.pools
    ]
    grid: list[list[Replica | None]] = [[None] * layout.width for _ in range(layout.depth)]
    for i, j in fill:
        choice = options.choices[columns[j].choices[i]]
        zones = free[choice.pool]
        zone = next((z for z, left in zones.items() if left >= choice.degree), None)
        if zone is None:
            return None
        zones[zone] -= choice.degree
        grid[i][j] = Replica(gpu=options.pools[choice.pool].gpu, degree=choice.degree, zone=zone)
    rows = [[replica for replica in row if replica is not None] for row in grid]
    shares = tuple(kind.share for kind in columns)
    equal = options.problem.job.microbatches(layout.microbatch, layout.width)
    return Plan(
        microbatch=layout.microbatch,
        stages=stages_from_split(layout.split, rows),
        shares=None if all(n == equal for n in shares) else shares,
    )
