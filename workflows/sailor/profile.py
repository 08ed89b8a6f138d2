"""Measured (or modelled) layers: how large they are and how long they take.

A profile has, for each tensor degree t, one `LayerSize` per layer at microbatch 1, and for each
(GPU type, m, t) one `LayerTime` per layer. A point that is not there is not feasible: the run that
should have measured it did not fit. Collectives of the tensor group are inside the times, because
they were measured at degree t.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from workflows.sailor.errors import BadProfileFile, MissingProfile, UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSize:
    """Sizes of one layer on one GPU at degree t, microbatch 1, in numbers (not bytes)."""

    parameters: float
    output_floats: float
    """elements sent to the next stage"""
    input_floats: float
    kept_floats: float
    """elements kept from the forward pass for the backward pass"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds of one layer at (GPU type, m, t)."""

    forward_s: float
    backward_s: float
    update_s: float


Row = TypeVar("Row")
Point = tuple[str, int, int]
"""(GPU type, microbatch, tensor degree)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Everything that was measured of one model."""

    model: str
    sizes: Mapping[int, tuple[LayerSize, ...]]
    """tensor degree -> one entry per layer"""
    times: Mapping[Point, tuple[LayerTime, ...]]
    source: str = "measured"
    """where the numbers come from: "measured", "roofline", or the name of a file"""

    def __post_init__(self) -> None:
        lengths = {len(rows) for rows in (*self.sizes.values(), *self.times.values())}
        if len(lengths) > 1:
            raise BadProfileFile(
                f"profile of {self.model}: tables have {sorted(lengths)} layers, expected equal"
            )

    @property
    def layers(self) -> int:
        """L, the number of layers."""
        return len(next(iter(self.sizes.values())))

    @property
    def gpus(self) -> tuple[str, ...]:
        """GPU types that were measured, in alphabetical order."""
        return tuple(sorted({gpu for gpu, _, _ in self.times}))

    def microbatches(self, gpus: Iterable[str]) -> tuple[int, ...]:
        """All microbatch sizes measured on any of these GPU types, ascending."""
        wanted = set(gpus)
        return tuple(sorted({m for gpu, m, _ in self.times if gpu in wanted}))

    def degrees(self, gpu: str, microbatch: int) -> tuple[int, ...]:
        """Tensor degrees measured on a GPU type at a microbatch size, ascending."""
        return tuple(sorted(t for g, m, t in self.times if (g, m) == (gpu, microbatch)))

    def size_of(self, degree: int) -> tuple[LayerSize, ...]:
        """Sizes per layer at a degree, or `MissingProfile`."""
        found = self.sizes.get(degree)
        if found is None:
            raise MissingProfile(
                f"no layer sizes for {self.model}/t={degree}; measured are t={sorted(self.sizes)}"
            )
        return found

    def time_of(self, gpu: str, microbatch: int, degree: int) -> tuple[LayerTime, ...]:
        """Times per layer at (gpu, m, t), or `MissingProfile`."""
        found = self.times.get((gpu, microbatch, degree))
        if found is not None:
            return found
        if gpu not in self.gpus:
            raise UnknownName(
                f"no profile of {self.model} on GPU type {gpu!r}; measured are "
                f"{', '.join(self.gpus)}",
                kind="gpu",
                name=gpu,
            )
        raise MissingProfile(f"no profile for {self.model}/{gpu}/m={microbatch}/t={degree}")

    def to_json(self) -> dict[str, Any]:
        """Rows, one per (t, layer) and one per (gpu, m, t, layer), like the service's tables."""
        return {
            "model": self.model,
            "source": self.source,
            "sizes": [
                [t, i, s.parameters, s.output_floats, s.input_floats, s.kept_floats]
                for t, rows in sorted(self.sizes.items())
                for i, s in enumerate(rows)
            ],
            "times": [
                [gpu, m, t, i, x.forward_s, x.backward_s, x.update_s]
                for (gpu, m, t), rows in sorted(self.times.items())
                for i, x in enumerate(rows)
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Profile:
        """The inverse of `to_json`; rows may come in any order."""
        sizes: dict[int, dict[int, LayerSize]] = {}
        for t, i, parameters, output, given, kept in value["sizes"]:
            sizes.setdefault(int(t), {})[int(i)] = LayerSize(
                parameters=parameters, output_floats=output, input_floats=given, kept_floats=kept
            )
        times: dict[Point, dict[int, LayerTime]] = {}
        for gpu, m, t, i, forward, backward, update in value["times"]:
            times.setdefault((str(gpu), int(m), int(t)), {})[int(i)] = LayerTime(
                forward_s=forward, backward_s=backward, update_s=update
            )
        model = str(value["model"])
        return cls(
            model=model,
            source=str(value.get("source", "measured")),
            sizes={t: _in_order(rows, f"{model}/t={t}") for t, rows in sizes.items()},
            times={p: _in_order(rows, f"{model}/{p}") for p, rows in times.items()},
        )


def _in_order(rows: Mapping[int, Row], where: str) -> tuple[Row, ...]:
    missing = sorted(set(range(len(rows))) - set(rows))
    if missing:
        raise BadProfileFile(f"profile {where}: layer {missing[0]} missing")
    return tuple(rows[i] for i in range(len(rows)))
