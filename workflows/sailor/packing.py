"""Packing the replicas of all stages into pools, at a limit of the stage time.

At a limit each pool offers a stage its smallest sufficient tensor degree. Pools are filled in a
given order; each first takes the stages where it is cheapest relative to the pools after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from workflows.sailor.layout import cuts
from workflows.sailor.options import Options

Offer = dict[int, tuple[int, int]]
"""pool -> (degree, choice)"""


@dataclass(slots=True, kw_only=True)
class Packing:
    """One split of the layers and the pools that each stage may use."""

    options: Options
    split: tuple[int, ...]
    members: list[list[int]]
    """pools per stage"""
    limits: list[float] = field(default_factory=list)
    """stage times that can be a limit, ascending"""
    _times: list[list[float]] = field(default_factory=list)
    _offers: dict[tuple[float, int], list[Offer] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._times = [
            [float(c.layer_s[stop] - c.layer_s[start]) for c in self.options.choices]
            for start, stop in cuts(self.split)
        ]
        allowed = [
            [t for t, c in zip(row, self.options.choices, strict=True) if c.pool in pools]
            for row, pools in zip(self._times, self.members, strict=True)
        ]
        if all(allowed):
            least = max(min(row) for row in allowed)
            self.limits = sorted({t for row in allowed for t in row if t >= least})

    def offers(self, limit: float, share: int) -> list[Offer] | None:
        """Per stage, what each pool offers at a limit; None if a stage gets no offer."""
        key = (limit, min(share, len(self.split)))
        if key not in self._offers:
            self._offers[key] = self._make_offers(limit, share)
        return self._offers[key]

    def _make_offers(self, limit: float, share: int) -> list[Offer] | None:
        depth = len(self.split)
        out: list[Offer] = []
        for i, (start, stop) in enumerate(cuts(self.split)):
            offer: Offer = {}
            for c, choice in enumerate(self.options.choices):
                if choice.pool not in self.members[i] or choice.pool in offer:
                    continue
                quick = self._times[i][c] <= limit
                if quick and choice.fits(start, stop, min(share, depth - i)):
                    offer[choice.pool] = (choice.degree, c)
            if not offer:
                return None
            out.append(offer)
        return out

    def pack(
        self, limit: float, width: int, share: int, order: Sequence[int]
    ) -> list[list[int]] | None:
        """Choices of the D replicas of every stage; None if the pools are too small."""
        offers = self.offers(limit, share)
        if offers is None:
            return None
        depth = len(self.split)
        need = [width] * depth
        rows: list[list[int]] = [[] for _ in range(depth)]
        for place, pool in enumerate(order):
            later = set(order[place + 1 :])
            left = sum(count for _, count in self.options.pools[pool].zones)
            stages = [i for i in range(depth) if need[i] and pool in offers[i]]
            for i in sorted(stages, key=lambda s: advantage(offers[s], pool, later)):
                degree, c = offers[i][pool]
                n = min(need[i], left // degree)
                rows[i] += [c] * n
                need[i] -= n
                left -= n * degree
        return rows if not any(need) else None


def advantage(offer: Offer, pool: int, later: set[int]) -> float:
    """GPUs of this pool per GPU of a later one, for one replica: small means use it here."""
    if pool not in offer:
        return inf
    others = [degree for other, (degree, _) in offer.items() if other in later]
    return offer[pool][0] / min(others) if others else 0.0
