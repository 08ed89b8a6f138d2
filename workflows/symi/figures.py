"""The paper's figures S1 to S11 beside this library's, each with how much it is worth.

``calibrated``   parameters were chosen so that it comes out: a regression check, no prediction
``independent``  follows from formulas, or from parameters that were fixed by other figures
``input``        the model takes it from the paper; shown for completeness

A figure agrees when it is within its tolerance: relative for times and ratios, in percentage points
where ``unit`` is ``%``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from . import costs, published
from .convergence import fit_survival_line, iteration_fraction
from .costs import ExpertLayer, Links, Variant
from .latency import CalibratedLatency, calibrate
from .policies import parse_policy
from .simulation import PolicyResult, fewer_drops_percent, simulate
from .synthetic import synthesize

__all__ = [
    "LARGE_CLUSTER",
    "LARGE_LINKS",
    "TESTBED",
    "TESTBED_LINKS",
    "Figure",
    "Kind",
    "all_figures",
    "figures_table",
]

LARGE_CLUSTER = ExpertLayer(
    ranks=2048,
    experts=64,
    slots_per_rank=2,
    gradient_bytes=3.375e9,
    weight_bytes=3.375e9,
    optimizer_bytes=27e9,
)
"""The paper's cost example."""
LARGE_LINKS = Links(pci_bytes_per_s=64e9, network_bytes_per_s=50e9)

_PARAMETERS = 2 * 768 * 3072
TESTBED = ExpertLayer(
    ranks=16,
    experts=16,
    slots_per_rank=4,
    gradient_bytes=2 * _PARAMETERS,
    weight_bytes=2 * _PARAMETERS,
    optimizer_bytes=16 * _PARAMETERS,
)
"""The paper's measurements: GPT-Small's expert on 16 ranks."""
TESTBED_LINKS = Links(pci_bytes_per_s=32e9, network_bytes_per_s=12.5e9)

_SYSTEMS = {
    "static": "DeepSpeed",
    "flex(100, full)": "FlexMoE-100",
    "flex(50, full)": "FlexMoE-50",
    "flex(10, full)": "FlexMoE-10",
    "symi": "SYMI",
}


class Kind(StrEnum):
    """How a figure came about."""

    CALIBRATED = "calibrated"
    INDEPENDENT = "independent"
    INPUT = "input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of the paper and ours."""

    number: str
    what: str
    unit: str
    paper: float
    ours: float
    tolerance: float | None
    """Relative, or percentage points for ``%``; None where no agreement is claimed."""
    kind: Kind

    @property
    def agrees(self) -> bool | None:
        """Within tolerance; None where no agreement is claimed."""
        if self.tolerance is None:
            return None
        scale = 1.0 if self.unit == "%" else abs(self.paper)
        return abs(self.ours - self.paper) <= self.tolerance * scale


def all_figures() -> list[Figure]:
    """Compute every figure; takes about a second."""
    model = calibrate()
    results = _replayed(model)
    return [
        *_minutes(model),
        *_iterations(),
        *_drops(results),
        *_latencies(model),
        *_table_1(),
        *_cost_example(),
        *_testbed(),
    ]


def _replayed(model: CalibratedLatency) -> dict[str, PolicyResult]:
    trace = synthesize(experts=16, tokens=32768, iterations=600, seed=0)
    policies = [parse_policy(system) for system in _SYSTEMS]
    results = simulate(trace, policies, ranks=16, slots_per_rank=4, latency=model)
    return {result.policy: result for result in results}


def _relative_latency(model: CalibratedLatency, system: str) -> float:
    """Average latency relative to SYMI's."""
    intervals = {"flex(100, full)": 100, "flex(50, full)": 50, "flex(10, full)": 10}
    if system in intervals:
        return model.flex_mean(intervals[system])
    return model.static if system == "static" else 1.0


def _minutes(model: CalibratedLatency) -> list[Figure]:
    """minutes = minutes of DeepSpeed * fraction * lat / lat of DeepSpeed."""
    base = published.MINUTES_TO_LOSS_4["static"]
    ours = {
        system: base * iteration_fraction(system) * _relative_latency(model, system) / model.static
        for system in _SYSTEMS
    }
    rows = [
        Figure(
            number="S1",
            what=f"minutes to loss 4.0, {name}",
            unit="min",
            paper=published.MINUTES_TO_LOSS_4[system],
            ours=ours[system],
            tolerance=0.005,
            # The calibration uses the other four; this one is what it predicts.
            kind=Kind.INDEPENDENT if system == "flex(50, full)" else Kind.CALIBRATED,
        )
        for system, name in _SYSTEMS.items()
    ]
    shorter = 1.0 - published.LATENCY_LOWER_PERCENT["125M"] / 100.0
    rows.append(
        Figure(
            number="S1",
            what="minutes of SYMI from iterations and latency saved",
            unit="min",
            paper=published.MINUTES_TO_LOSS_4["symi"],
            ours=base * iteration_fraction("symi") * shorter,
            tolerance=0.005,
            kind=Kind.INDEPENDENT,
        )
    )
    for system, percent in (("static", 30.5), ("flex(10, full)", 25.9), ("flex(100, full)", 29.4)):
        rows.append(
            Figure(
                number="S2",
                what=f"time saved against {_SYSTEMS[system]}",
                unit="%",
                paper=percent,
                ours=100.0 * (1.0 - ours["symi"] / ours[system]),
                tolerance=0.2,
                kind=Kind.CALIBRATED,
            )
        )
    return rows


def _iterations() -> list[Figure]:
    return [
        Figure(
            number="S3",
            what=f"fewer iterations than {_SYSTEMS[system]}",
            unit="%",
            paper=100.0 * saving,
            ours=100.0 * (1.0 - iteration_fraction("symi") / iteration_fraction(system)),
            tolerance=0.05,
            kind=Kind.INPUT,
        )
        for system, saving in published.ITERATIONS_FEWER.items()
    ]


def _drops(results: dict[str, PolicyResult]) -> list[Figure]:
    rows = [
        Figure(
            number="S4",
            what=f"fewer drops than {_SYSTEMS[system]}",
            unit="%",
            paper=percent,
            ours=fewer_drops_percent(results["symi"], results[system]),
            tolerance=7.0,
            kind=Kind.CALIBRATED,
        )
        for system, percent in published.DROPS_FEWER_PERCENT.items()
    ]
    # The paper reads about 40 % off a plot; the trace that meets the four ratios drops 32 %.
    for system, percent, tolerance in (("static", 40.0, None), ("symi", 10.0, 1.0)):
        rows.append(
            Figure(
                number="S5",
                what=f"tokens dropped by {_SYSTEMS[system]}",
                unit="%",
                paper=percent,
                ours=100.0 * results[system].drop_share,
                tolerance=tolerance,
                kind=Kind.CALIBRATED,
            )
        )
    return rows


def _latencies(model: CalibratedLatency) -> list[Figure]:
    shares = [
        Figure(
            number="S7",
            what=f"share of the new components, {size}",
            unit="%",
            paper=100.0 * share,
            ours=100.0 * share,
            tolerance=0.0,
            kind=Kind.INPUT,
        )
        for size, share in published.OVERHEAD_SHARE.items()
    ]
    shorter = [
        Figure(
            number="S6",
            what=f"shorter iteration than DeepSpeed's, {size}",
            unit="%",
            paper=published.LATENCY_LOWER_PERCENT[size],
            ours=published.LATENCY_LOWER_PERCENT[size],
            tolerance=0.0,
            kind=Kind.INPUT,
        )
        for size in ("350M", "760M")
    ]
    return [
        Figure(
            number="S6",
            what="shorter iteration than DeepSpeed's, 125M",
            unit="%",
            paper=published.LATENCY_LOWER_PERCENT["125M"],
            ours=100.0 * (1.0 - 1.0 / model.static),
            tolerance=0.1,
            kind=Kind.INDEPENDENT,
        ),
        *shorter,
        *shares,
        Figure(
            number="S8",
            what="rebalancing over plain iteration of FlexMoE",
            unit="x",
            paper=published.REBALANCING_FACTOR,
            ours=model.flex_factor,
            tolerance=0.005,
            kind=Kind.INDEPENDENT,
        ),
        Figure(
            number="S8",
            what="latency of FlexMoE-10 above SYMI's",
            unit="%",
            paper=35.0,
            ours=100.0 * (model.flex_mean(10) - 1.0),
            tolerance=0.5,
            kind=Kind.CALIBRATED,
        ),
    ]


def _table_1() -> list[Figure]:
    line = fit_survival_line()
    return [
        Figure(
            number="S9",
            what=f"iterations at capacity x{row.capacity_factor}",
            unit="iterations",
            paper=row.iterations,
            ours=line.iterations(row.survival_percent),
            tolerance=4.0 / row.iterations,
            kind=Kind.CALIBRATED,
        )
        for row in published.TABLE_1
    ]


def _cost_example() -> list[Figure]:
    cost = costs.communication_cost(LARGE_CLUSTER, LARGE_LINKS)
    hbm = costs.communication_cost(LARGE_CLUSTER, LARGE_LINKS, Variant.HBM)
    moved = cost.gradient_volume_bytes + cost.weight_volume_bytes
    # Tolerances are half a unit of the last digit that the paper prints.
    values = (
        ("S10", "optimizer communication, static", "s", 0.269, cost.static_s, 0.0005 / 0.269),
        ("S10", "optimizer communication, SYMI", "s", 0.273, cost.symi_s, 0.0005 / 0.273),
        ("S10", "overhead with offload", "%", 1.52, cost.overhead_percent, 0.005),
        ("S10", "overhead without offload", "%", 1.54, hbm.overhead_percent, 0.005),
        ("S10", "bytes moved per iteration and layer", "TB", 27.0, moved / 1e12, 0.65 / 27),
        (
            "S10",
            "optimizer state per layer",
            "TB",
            1.7,
            cost.optimizer_total_bytes / 1e12,
            0.05 / 1.7,
        ),
        ("S11", "moving one expert's weights", "s", 0.0675, cost.move_weights_s, 1e-9),
        ("S11", "moving one expert's optimizer state", "s", 0.54, cost.move_optimizer_s, 1e-9),
    )
    return [
        Figure(
            number=number,
            what=what,
            unit=unit,
            paper=paper,
            ours=ours,
            tolerance=tolerance,
            kind=Kind.INDEPENDENT,
        )
        for number, what, unit, paper, ours, tolerance in values
    ]


def _testbed() -> list[Figure]:
    """The paper's formula on the paper's testbed against the overhead that its text speaks of."""
    return [
        Figure(
            number="S10",
            what="the same formula on the paper's own testbed",
            unit="%",
            paper=1.52,
            ours=costs.communication_cost(TESTBED, TESTBED_LINKS).overhead_percent,
            tolerance=None,
            kind=Kind.INDEPENDENT,
        )
    ]


def figures_table(figures: list[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = ["| # | figure | paper | here | agrees | kind |", "|---|---|---|---|---|---|"]
    words = {True: "yes", False: "no", None: "not claimed"}
    lines += [
        f"| {figure.number} | {figure.what} ({figure.unit}) | {figure.paper:.5g} | "
        f"{figure.ours:.5g} | {words[figure.agrees]} | {figure.kind} |"
        for figure in figures
    ]
    return "\n".join(lines)
