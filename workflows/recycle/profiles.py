"""Profiles: from raw timing samples to the whole microseconds that planning needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from workflows.recycle.errors import InvalidArgument
from workflows.recycle.job import StageTimes

__all__ = ["OPERATIONS", "SampleSummary", "StageProfile", "profile_stage"]

OPERATIONS = ("forward", "input_grad", "weight_grad", "transfer", "all_reduce", "optimizer")
_REQUIRED = OPERATIONS[:3]
_TO_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSummary:
    """One operation of one stage, in microseconds."""

    median_us: int
    """Rounded to whole microseconds; plans are made with this."""
    p95_us: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProfile:
    """All measured operations of one stage."""

    operations: Mapping[str, SampleSummary]

    def times(self) -> StageTimes:
        """The stage's times by their medians; the optimizer step includes the all-reduce."""
        median = {name: summary.median_us for name, summary in self.operations.items()}
        return StageTimes(
            forward_us=median["forward"],
            input_grad_us=median["input_grad"],
            weight_grad_us=median["weight_grad"],
            transfer_us=median.get("transfer", 0),
            optimizer_us=median.get("all_reduce", 0) + median.get("optimizer", 0),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StageProfile:
        """The profile that `to_json` wrote."""
        rows = {name: SampleSummary(**row) for name, row in data["operations"].items()}
        return cls(operations=rows)


def profile_stage(
    samples: Mapping[str, Sequence[float]], *, unit: Literal["us", "ms", "s"] = "us"
) -> StageProfile:
    """Median, 95th percentile and count of each operation of one stage.

    Raises `InvalidArgument` for an unknown or missing operation, no samples, a negative or
    infinite one, or a median that rounds to 0 us where the work must take time.
    """
    unknown = sorted(set(samples) - set(OPERATIONS))
    missing = [name for name in _REQUIRED if name not in samples]
    if unknown or missing or unit not in _TO_US:
        raise InvalidArgument(
            f"samples: unknown {unknown}, missing {missing}, unit {unit!r}; operations are "
            f"{', '.join(OPERATIONS)}, units are us, ms, s"
        )
    return StageProfile(
        operations={name: _summary(name, row, _TO_US[unit]) for name, row in samples.items()}
    )


def _summary(name: str, samples: Sequence[float], to_us: float) -> SampleSummary:
    values = np.asarray(samples, dtype=np.float64) * to_us
    if values.size == 0 or not np.isfinite(values).all() or values.min() < 0:
        raise InvalidArgument(
            f"{name}: expected at least one sample, all finite and not negative", operation=name
        )
    median = round(float(np.median(values)))
    if median == 0 and name in _REQUIRED:
        raise InvalidArgument(
            f"{name}: a median of {float(np.median(values))} us rounds to 0: give samples in a "
            "finer unit, or time several micro-batches as one",
            operation=name,
        )
    p95 = round(float(np.percentile(values, 95)))
    return SampleSummary(median_us=median, p95_us=p95, samples=int(values.size))
