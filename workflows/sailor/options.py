"""What the planner may choose from at one microbatch size, as arrays.

A *pool* is one GPU type in one region (its zones merged). A *choice* is a pool with a tensor
degree. Layer times and sizes become prefix sums, so that any run of layers costs two look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from workflows.sailor.errors import BadLink
from workflows.sailor.network import Endpoint, Link
from workflows.sailor.plan import Availability
from workflows.sailor.prices import region_of
from workflows.sailor.problem import Problem
from workflows.sailor.stages import MAX_SYNC_FLOWS

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """GPUs of one type in one region."""

    gpu: str
    region: str
    zones: tuple[tuple[str, int], ...]
    """(zone, GPUs), largest first"""

    def room(self, degree: int) -> int:
        """Replicas of a degree that the pool can host at once."""
        return sum(count // degree for _, count in self.zones)

    def usable(self, degree: int) -> int:
        """GPUs that replicas of a degree can occupy."""
        return self.room(degree) * degree


def pools_of(problem: Problem, available: Availability) -> list[Pool]:
    """Pools with at least one GPU and a profile, in alphabetical order."""
    zones: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for (gpu, zone), count in available.items():
        problem.gpu(gpu)
        if count > 0 and gpu in problem.profile.gpus:
            zones.setdefault((gpu, region_of(zone)), []).append((zone, count))
    return [
        Pool(gpu=gpu, region=region, zones=tuple(sorted(found, key=lambda z: (-z[1], z[0]))))
        for (gpu, region), found in sorted(zones.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A pool with a tensor degree, and what a run of layers costs there."""

    pool: int
    degree: int
    forward: Floats
    """prefix sums of seconds, L + 1 entries"""
    backward: Floats
    update: Floats
    """seconds of one layer's step"""
    model_bytes: Floats
    """prefix sums"""
    kept_bytes: Floats
    """prefix sums, one microbatch"""
    room_bytes: float
    """card without the platform's overhead"""
    usd_per_s: float
    """of one replica, at the cheapest zone of the pool"""

    @property
    def layer_s(self) -> Floats:
        """Prefix sums of forward + backward."""
        total: Floats = self.forward + self.backward
        return total

    def fits(self, start: int, stop: int, flight: int) -> bool:
        """Whether a run of layers fits with that many microbatches in flight."""
        model = self.model_bytes[stop] - self.model_bytes[start]
        kept = self.kept_bytes[stop] - self.kept_bytes[start]
        return bool(model + flight * kept <= self.room_bytes)


def _prefix(values: Sequence[float]) -> Floats:
    return np.concatenate(([0.0], np.cumsum(np.array(values, dtype=np.float64))))


@dataclass(slots=True, kw_only=True)
class Options:
    """All choices at one microbatch size."""

    problem: Problem
    microbatch: int
    pools: Sequence[Pool]
    choices: list[Choice] = field(default_factory=list)
    bad_links: set[str] = field(default_factory=set)
    """fits that are not positive where they were needed; layouts that need them are left out"""
    _hops: dict[tuple[int, int, int], float] = field(default_factory=dict)
    _rings: dict[tuple[int, float, int], float] = field(default_factory=dict)
    _lone: dict[int, Link | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, pool in enumerate(self.pools):
            card = self.problem.gpu(pool.gpu)
            for degree in self.problem.profile.degrees(pool.gpu, self.microbatch):
                known = degree in self.problem.profile.sizes
                if known and degree <= card.gpus_per_node and pool.room(degree) > 0:
                    self.choices.append(self._choice(index, pool, degree))

    def _choice(self, index: int, pool: Pool, degree: int) -> Choice:
        problem, m = self.problem, self.microbatch
        times = problem.profile.time_of(pool.gpu, m, degree)
        sizes = problem.profile.size_of(degree)
        card, job = problem.gpu(pool.gpu), problem.job
        price = min(
            problem.prices.usd_per_second(pool.gpu, zone, problem.priced_at_s)
            for zone, _ in pool.zones
        )
        return Choice(
            pool=index,
            degree=degree,
            forward=_prefix([x.forward_s for x in times]),
            backward=_prefix([x.backward_s for x in times]),
            update=np.array([x.update_s for x in times]),
            model_bytes=_prefix([job.model_bytes_per_parameter * x.parameters for x in sizes]),
            kept_bytes=_prefix([job.float_bytes * m * x.kept_floats for x in sizes]),
            room_bytes=card.memory_bytes - card.fixed_bytes,
            usd_per_s=degree * price,
        )

    def hop_s(self, sender: int, receiver: int, layer: int) -> float:
        """The fastest send of a layer's output between two choices, over their zones."""
        key = (sender, receiver, layer)
        if key not in self._hops:
            a, b = self.choices[sender], self.choices[receiver]
            size = self.problem.profile.size_of(1)[layer].output_floats
            size *= self.problem.job.float_bytes * self.microbatch
            times = [self._or_never(link, size, None) for link in self._between(a, b)]
            self._hops[key] = min(times, default=inf)
        return self._hops[key]

    def _between(self, a: Choice, b: Choice) -> list[Link]:
        here, there = self.pools[a.pool], self.pools[b.pool]
        found = [
            self.problem.links.get(
                Endpoint(zone=x, gpu=here.gpu, count=a.degree),
                Endpoint(zone=y, gpu=there.gpu, count=b.degree),
            )
            for x, _ in here.zones
            for y, _ in there.zones
        ]
        return [link for link in found if link is not None]

    def ring_s(self, pool: int, size_bytes: float, width: int) -> float:
        """The fastest all-reduce of D replicas inside one zone of a pool."""
        key = (pool, size_bytes, width)
        if key not in self._rings:
            if pool not in self._lone:
                self._lone[pool] = self._inside(pool)
            link = self._lone[pool]
            if width == 1:
                self._rings[key] = 0.0
            else:
                self._rings[key] = inf if link is None else self._or_never(link, size_bytes, width)
        return self._rings[key]

    def _or_never(self, link: Link, size_bytes: float, width: int | None) -> float:
        """Seconds of a send (no width) or all-reduce; infinite where the fit is not positive."""
        try:
            if width is None:
                return link.send_s(size_bytes)
            return link.all_reduce_s(size_bytes, width)
        except BadLink:
            self.bad_links.add(link.name)
            return inf

    def _inside(self, pool: int) -> Link | None:
        gpu = self.pools[pool].gpu
        ends = [Endpoint(zone=zone, gpu=gpu, count=1) for zone, _ in self.pools[pool].zones]
        links = [link for end in ends if (link := self.problem.links.get(end, end)) is not None]
        return max(links, key=lambda link: link.max_bytes_per_s, default=None)

    def weights_bytes(self, start: int, stop: int) -> float:
        """Σ w_l of a run of layers."""
        sizes = self.problem.profile.size_of(1)
        return self.problem.job.float_bytes * sum(x.parameters for x in sizes[start:stop])

    def sync_s(self, choice: int, start: int, stop: int, width: int) -> float:
        """All-reduce of a stage of D replicas of one choice, at best."""
        flows = min(MAX_SYNC_FLOWS, self.choices[choice].degree)
        return self.ring_s(
            self.choices[choice].pool, self.weights_bytes(start, stop) / flows, width
        )


def widths(problem: Problem, microbatch: int, most: int) -> list[int]:
    """D values up to `most` at which N_b changes, descending."""
    out, previous = [], 0
    for width in range(1, most + 1):
        batches = problem.job.microbatches(microbatch, width)
        if batches != previous:
            out.append(width)
        previous = batches
    return out[::-1]


def regions_of(pools: Sequence[Pool]) -> Mapping[str, list[int]]:
    """Pool indices per region."""
    out: dict[str, list[int]] = {}
    for index, pool in enumerate(pools):
        out.setdefault(pool.region, []).append(index)
    return out
