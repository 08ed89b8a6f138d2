"""The network: bandwidth as a function of message size, and what transfers and all-reduces take.

    bw(x)      = c0·u² + c1·u + c2  [GB/s],  u = log2(x / 1e6)
    send(x)    = (x / 1e9) / bw(x)  [s],     send(0) = 0
    ar(S, n)   = Σ over buckets of at most 5e8 bytes of 2·(n-1)·send(bucket / n)

(paper section 4.3; the polynomial is of the *aggregate* of k GPU pairs that send at once.) A fit is
only valid where it was measured: outside 2^16 … 2^30 bytes it may even turn negative, so we hold
the size at those ends and never exceed the measured maximum. `published=True` evaluates the bare
polynomial instead, as the published simulator does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log2
from typing import Any, Final

from workflows.sailor.errors import BadLink, MissingLink, UnknownName

SMALLEST_MEASURED_BYTES: Final = 2.0**16
LARGEST_MEASURED_BYTES: Final = 2.0**30
BUCKET_BYTES: Final = 5e8
GB: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One side of a link: k GPUs of one type in one zone that send or receive at once."""

    zone: str
    gpu: str
    count: int

    def __str__(self) -> str:
        return f"{self.count}x{self.gpu}@{self.zone}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Fitted bandwidth between two endpoints."""

    name: str
    c0: float
    c1: float
    c2: float
    max_bytes_per_s: float

    def gb_per_s(self, size_bytes: float, *, published: bool = False) -> float:
        """bw(x) in GB/s (1e9 bytes), or `BadLink` if the fit is not positive there."""
        if not published:
            size_bytes = min(max(size_bytes, SMALLEST_MEASURED_BYTES), LARGEST_MEASURED_BYTES)
        u = log2(size_bytes / 1e6)
        fitted = (self.c0 * u + self.c1) * u + self.c2
        if published and fitted != 0.0:
            return fitted
        if fitted <= 0.0:
            raise BadLink(
                f"link {self.name}: fitted bandwidth is {fitted:.6g} GB/s at {size_bytes:.0f} "
                "bytes, expected a positive number; measure the link again"
            )
        return min(fitted, self.max_bytes_per_s / GB)

    def send_s(self, size_bytes: float, *, published: bool = False) -> float:
        """send(x) in seconds."""
        if size_bytes <= 0.0:
            return 0.0
        return size_bytes / GB / self.gb_per_s(size_bytes, published=published)

    def all_reduce_s(
        self, size_bytes: float, participants: int, *, published: bool = False
    ) -> float:
        """ar(S, n) in seconds: a ring of n participants over this link, in buckets."""
        if participants <= 1 or size_bytes <= 0.0:
            return 0.0
        full, rest = divmod(size_bytes, BUCKET_BYTES)
        steps = 2 * (participants - 1)
        whole = self.send_s(BUCKET_BYTES / participants, published=published) if full else 0.0
        return steps * (full * whole + self.send_s(rest / participants, published=published))


LinkKey = tuple[str, str, int, str, str, int]


class LinkTable:
    """All links, by (zone, gpu, count) of sender and receiver."""

    def __init__(self, links: Mapping[LinkKey, Link]) -> None:
        self._links = dict(links)
        self._zones = {key[0] for key in self._links} | {key[3] for key in self._links}

    def __len__(self) -> int:
        return len(self._links)

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones that some link touches."""
        return tuple(sorted(self._zones))

    def items(self) -> Iterable[tuple[LinkKey, Link]]:
        """Key and link of every entry."""
        return self._links.items()

    def get(self, sender: Endpoint, receiver: Endpoint) -> Link | None:
        """The link between two endpoints, or None."""
        return self._links.get(
            (sender.zone, sender.gpu, sender.count, receiver.zone, receiver.gpu, receiver.count)
        )

    def find(self, sender: Endpoint, receiver: Endpoint) -> Link:
        """The link between two endpoints, or `UnknownName` / `MissingLink`."""
        found = self.get(sender, receiver)
        if found is not None:
            return found
        for zone in (sender.zone, receiver.zone):
            if zone not in self._zones:
                raise UnknownName(
                    f"unknown zone {zone!r}; links are known for {', '.join(self.zones)}",
                    kind="zone",
                    name=zone,
                )
        raise MissingLink(f"no link from {sender} to {receiver}; measure it or leave it out")

    def to_json(self) -> list[list[Any]]:
        """Rows (zone, gpu, k, zone, gpu, k, c0, c1, c2, max bytes/s)."""
        return [
            [*key, link.c0, link.c1, link.c2, link.max_bytes_per_s]
            for key, link in sorted(self._links.items())
        ]

    @classmethod
    def from_json(cls, rows: Iterable[Iterable[Any]]) -> LinkTable:
        """The inverse of `to_json`."""
        links: dict[LinkKey, Link] = {}
        for za, ga, ka, zb, gb, kb, c0, c1, c2, limit in rows:
            key = (str(za), str(ga), int(ka), str(zb), str(gb), int(kb))
            links[key] = Link(name=link_name(key), c0=c0, c1=c1, c2=c2, max_bytes_per_s=limit)
        return cls(links)

    @classmethod
    def from_alike(cls, alike: Mapping[tuple[str, str, str, int], Link]) -> LinkTable:
        """Fill the table from links between equal endpoints, keyed (zone, zone, gpu, count).

        Unlike endpoints are not measured: equal types with different counts get the entry of the
        smaller count, different types the entry of whichever has the smaller maximum.
        """
        sides = sorted({(gpu, count) for _, _, gpu, count in alike})
        zone_pairs = sorted({(a, b) for a, b, _, _ in alike})
        links: dict[LinkKey, Link] = {}
        for zone_a, zone_b in zone_pairs:
            for gpu_a, count_a in sides:
                for gpu_b, count_b in sides:
                    link = _slower_side(alike, zone_a, zone_b, (gpu_a, count_a), (gpu_b, count_b))
                    if link is not None:
                        links[(zone_a, gpu_a, count_a, zone_b, gpu_b, count_b)] = link
        return cls(links)


def _slower_side(
    alike: Mapping[tuple[str, str, str, int], Link],
    zone_a: str,
    zone_b: str,
    side_a: tuple[str, int],
    side_b: tuple[str, int],
) -> Link | None:
    a = alike.get((zone_a, zone_b, *side_a))
    b = alike.get((zone_a, zone_b, *side_b))
    if a is None or b is None:
        return None
    if side_a[0] == side_b[0]:
        return a if side_a[1] <= side_b[1] else b
    return a if a.max_bytes_per_s <= b.max_bytes_per_s else b


def link_name(key: LinkKey) -> str:
    """How a link is called in messages."""
    return f"{key[2]}x{key[1]}@{key[0]} -> {key[5]}x{key[4]}@{key[3]}"


def constant_link(name: str, bytes_per_s: float) -> Link:
    """A link whose bandwidth does not depend on the size."""
    if bytes_per_s <= 0:
        raise BadLink(f"link {name}: bandwidth is {bytes_per_s} bytes/s, expected a positive one")
    return Link(name=name, c0=0.0, c1=0.0, c2=bytes_per_s / GB, max_bytes_per_s=bytes_per_s)
