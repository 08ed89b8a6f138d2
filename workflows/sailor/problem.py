"""Everything a plan is judged by, in one value: job, profile, links, cards and prices.

A `Problem` is immutable. Simulator, planner and baselines all take the same one, so that there is
one price table, one memory model and one network model for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workflows.sailor.errors import BadJob, UnknownName
from workflows.sailor.hardware import GPU_TYPES, GpuType, gpu_type
from workflows.sailor.job import Job
from workflows.sailor.network import LinkTable
from workflows.sailor.prices import LIST_PRICES, PriceTable
from workflows.sailor.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A job and the world it runs in."""

    job: Job
    profile: Profile
    links: LinkTable
    prices: PriceTable = LIST_PRICES
    gpus: Mapping[str, GpuType] = field(default_factory=lambda: dict(GPU_TYPES))
    priced_at_s: float = 0.0
    """time at which prices are looked up"""

    def __post_init__(self) -> None:
        if self.profile.model != self.job.model:
            raise UnknownName(
                f"the job trains {self.job.model!r} but the profile is of {self.profile.model!r}",
                kind="model",
                name=self.job.model,
            )
        if self.profile.layers != self.job.layers:
            raise BadJob(
                f"job {self.job.model} has {self.job.layers} layers, its profile "
                f"{self.profile.layers}; expected the same number"
            )

    def gpu(self, name: str) -> GpuType:
        """The card of that name, or `UnknownName`."""
        return gpu_type(name, self.gpus)

    def with_global_batch(self, global_batch: int) -> Problem:
        """The same problem for another global batch."""
        return replace(self, job=replace(self.job, global_batch=global_batch))

    def to_json(self) -> dict[str, Any]:
        """Plain values, as a step of a workflow takes them."""
        return {
            "job": self.job.to_json(),
            "profile": self.profile.to_json(),
            "links": self.links.to_json(),
            "prices": self.prices.to_json(),
            "gpus": [card.to_json() for card in self.gpus.values()],
            "priced_at_s": self.priced_at_s,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Problem:
        """The inverse of `to_json`."""
        cards = [GpuType.from_json(card) for card in value["gpus"]]
        return cls(
            job=Job.from_json(value["job"]),
            profile=Profile.from_json(value["profile"]),
            links=LinkTable.from_json(value["links"]),
            prices=PriceTable.from_json(value["prices"]),
            gpus={card.name: card for card in cards},
            priced_at_s=float(value.get("priced_at_s", 0.0)),
        )
