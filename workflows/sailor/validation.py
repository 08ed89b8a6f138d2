"""The simulator beside measurements: error per plan, and mean, median and largest of a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from workflows.sailor.errors import BadProfileFile
from workflows.sailor.plan import Plan, Replica, stages_from_split
from workflows.sailor.problem import Problem
from workflows.sailor.simulator import Estimate, Mode, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A plan that was really run."""

    name: str
    plan: Plan
    global_batch: int
    iteration_s: float
    reduce_s: float
    """time in the gradient reduction"""
    peak_bytes: float
    """highest over all ranks"""

    @property
    def layers(self) -> int:
        """Layers that the plan covers."""
        return sum(self.plan.split)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One measured plan beside its estimate."""

    measured: Measured
    estimate: Estimate

    @property
    def time_error(self) -> float:
        """|T - T_measured| / T_measured."""
        return abs(self.estimate.iteration_s / self.measured.iteration_s - 1)

    @property
    def memory_error(self) -> float:
        """|M_peak - measured| / measured."""
        return abs(self.estimate.peak_bytes / self.measured.peak_bytes - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of a set, as fractions."""

    count: int
    mean: float
    median: float
    largest: float


def measured_from_published(name: str, value: Mapping[str, Any]) -> Measured:
    """A measured plan of the published validation set.

    Stages are read by their sizes: five of the published files name one inner layer by another's
    number, and all inner layers are alike.
    """
    if len(value["pipeline_list"]) != 1:
        raise BadProfileFile(f"{name}: {len(value['pipeline_list'])} pipelines, expected one")
    pipeline = value["pipeline_list"][0]
    replicas = [
        [Replica(gpu=vms[0][0], degree=degree, zone=vms[0][2]) for vms, degree in stage]
        for stage in pipeline["tmp_per_stage"]
    ]
    split = [len(stage) for stage in pipeline["layers_per_stage"]]
    return Measured(
        name=name,
        plan=Plan(microbatch=value["mbs"], stages=stages_from_split(split, replicas)),
        global_batch=value["gbs"],
        iteration_s=value["real"],
        reduce_s=value["red_grads"],
        peak_bytes=value["max_mem"],
    )


def compare_measured(
    problem: Problem, rows: Sequence[Measured], *, mode: Mode = "exact"
) -> list[Comparison]:
    """Every measured plan beside its estimate, each with the global batch it was run with."""
    return [
        Comparison(
            measured=row,
            estimate=simulate(problem.with_global_batch(row.global_batch), row.plan, mode=mode),
        )
        for row in rows
    ]


def summarise(errors: Sequence[float]) -> Summary:
    """Mean, median and largest of a set of errors."""
    if not errors:
        raise BadProfileFile("no measured plan to summarise")
    return Summary(
        count=len(errors), mean=fmean(errors), median=median(errors), largest=max(errors)
    )
