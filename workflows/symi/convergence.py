"""Iterations and minutes to a target loss. Standard library only.

Two ways to the number of iterations: the paper's own savings per system (an input), or a straight
line through its Table 1, iterations against survival. The line is good inside the table and weak
outside: by the paper SYMI and FlexMoE-10 need equally many iterations although one drops more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import arguments, published

__all__ = ["SurvivalLine", "fit_survival_line", "iteration_fraction", "minutes_to_target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalLine:
    """iterations = intercept + slope * survival_percent."""

    intercept: float
    slope: float

    def iterations(self, survival_percent: float) -> float:
        """Iterations to the target at this share of surviving tokens."""
        return self.intercept + self.slope * survival_percent


def fit_survival_line(rows: Sequence[published.CapacityRow] = published.TABLE_1) -> SurvivalLine:
    """Least squares of iterations on survival over at least two rows."""
    if len({row.survival_percent for row in rows}) < 2:
        raise arguments.refused("rows", rows, "two different survivals", "add measurements")
    mean_x = sum(row.survival_percent for row in rows) / len(rows)
    mean_y = sum(row.iterations for row in rows) / len(rows)
    covariance = sum((row.survival_percent - mean_x) * (row.iterations - mean_y) for row in rows)
    slope = covariance / sum((row.survival_percent - mean_x) ** 2 for row in rows)
    return SurvivalLine(intercept=mean_y - slope * mean_x, slope=slope)


def iteration_fraction(system: str) -> float:
    """Iterations to loss 4.0 over those of DeepSpeed, from the paper's savings.

    SYMI needs 1 - 0.285 of DeepSpeed's and 1 - saving of every other system's.

    Raises:
        InvalidArgument: the paper reports no iterations for this system.
    """
    symi = 1.0 - published.ITERATIONS_FEWER["static"]
    if system == "symi":
        return symi
    if system not in published.ITERATIONS_FEWER:
        raise arguments.refused(
            "system",
            system,
            ", ".join(published.MINUTES_TO_LOSS_4),
            "estimate iterations from survival with fit_survival_line instead",
        )
    return symi / (1.0 - published.ITERATIONS_FEWER[system])


def minutes_to_target(iterations: float, mean_latency_s: float) -> float:
    """iterations * mean latency, in minutes."""
    arguments.positive_number("iterations", iterations)
    return iterations * arguments.positive_number("mean_latency_s", mean_latency_s) / 60.0
