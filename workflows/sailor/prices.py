"""Prices: one table of GPU-hours with validity, and the price of traffic between zones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from workflows.sailor.errors import BadJob, MissingPrice

SECONDS_PER_HOUR: Final = 3600.0
SAME_REGION_USD_PER_GB: Final = 0.01
SAME_CONTINENT_USD_PER_GB: Final = 0.02
OTHER_CONTINENT_USD_PER_GB: Final = 0.05


def region_of(zone: str) -> str:
    """Region of a zone: its name without the last part ("us-central1-a" -> "us-central1")."""
    head, separator, _ = zone.rpartition("-")
    return head if separator else zone


def listed_egress_usd_per_gb(sender: str, receiver: str) -> float:
    """USD per 1e9 bytes from zone to zone by the published rule of the cloud."""
    if sender == receiver:
        return 0.0
    if region_of(sender) == region_of(receiver):
        return SAME_REGION_USD_PER_GB
    same_continent = sender.partition("-")[0] == receiver.partition("-")[0]
    return SAME_CONTINENT_USD_PER_GB if same_continent else OTHER_CONTINENT_USD_PER_GB


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """Price of one GPU-hour in a zone (None: every zone without a row of its own)."""

    gpu: str
    usd_per_hour: float
    zone: str | None = None
    valid_from_s: float = -inf
    valid_to_s: float = inf

    def __post_init__(self) -> None:
        if not self.usd_per_hour >= 0:
            raise BadJob(f"price of {self.gpu}: {self.usd_per_hour} USD/h, expected >= 0")


class PriceTable:
    """The one price table that planner and simulator share."""

    def __init__(
        self, gpus: Iterable[GpuPrice], egress: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        self._gpus = tuple(gpus)
        self._egress = dict(egress or {})
        self._by_place: dict[tuple[str, str | None], list[GpuPrice]] = {}
        for row in self._gpus:
            self._by_place.setdefault((row.gpu, row.zone), []).append(row)

    @property
    def gpu_rows(self) -> tuple[GpuPrice, ...]:
        """All rows of GPU prices."""
        return self._gpus

    def usd_per_second(self, gpu: str, zone: str, at_s: float = 0.0) -> float:
        """USD per second of one GPU at a time; the row of the zone wins over the general one."""
        for place in ((gpu, zone), (gpu, None)):
            for row in self._by_place.get(place, ()):
                if row.valid_from_s <= at_s < row.valid_to_s:
                    return row.usd_per_hour / SECONDS_PER_HOUR
        raise MissingPrice(f"no price for {gpu} in {zone} at time {at_s:g} s; add a row for it")

    def egress_usd_per_gb(self, sender: str, receiver: str) -> float:
        """USD per 1e9 bytes from zone to zone; by the listed rule where the table is silent."""
        found = self._egress.get((sender, receiver))
        return listed_egress_usd_per_gb(sender, receiver) if found is None else found

    def to_json(self) -> dict[str, Any]:
        """Rows of both tables."""
        return {
            "gpus": [
                [
                    p.gpu,
                    p.zone,
                    p.usd_per_hour,
                    None if p.valid_from_s == -inf else p.valid_from_s,
                    None if p.valid_to_s == inf else p.valid_to_s,
                ]
                for p in self._gpus
            ],
            "egress": [[a, b, usd] for (a, b), usd in sorted(self._egress.items())],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PriceTable:
        """The inverse of `to_json`."""
        rows = [
            GpuPrice(
                gpu=gpu,
                zone=zone,
                usd_per_hour=usd,
                valid_from_s=-inf if start is None else start,
                valid_to_s=inf if end is None else end,
            )
            for gpu, zone, usd, start, end in value["gpus"]
        ]
        return cls(rows, {(a, b): usd for a, b, usd in value["egress"]})


# List prices of on-demand cards (USD per GPU-hour); H100 and RTX are typical public offers.
LIST_PRICES: Final = PriceTable(
    [
        GpuPrice(gpu="V100-16", usd_per_hour=2.859998),
        GpuPrice(gpu="A100-40", usd_per_hour=3.673385),
        GpuPrice(gpu="A100-80", usd_per_hour=5.07),
        GpuPrice(gpu="H100-80", usd_per_hour=11.06),
        GpuPrice(gpu="GH-96", usd_per_hour=11.06),
        GpuPrice(gpu="Titan-RTX", usd_per_hour=0.8),
        GpuPrice(gpu="RTX-2080", usd_per_hour=0.3),
        GpuPrice(gpu="RTX-3090", usd_per_hour=0.5),
        GpuPrice(gpu="cpu", usd_per_hour=0.05),  # a core, for live runs
    ]
)
