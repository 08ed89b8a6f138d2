"""The pictures of a report, as SVG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

from .catalogue import SYSTEMS
from .summary import Summary
from .workloads import WORKLOADS

mpl.use("svg")
from matplotlib import pyplot as plt

__all__ = ["draw"]

_OVERHEADS = (
    ("engine-off", "recorded"),
    ("engine", "and provenance: writes"),
    ("engine-full", "and provenance: full"),
)


def draw(summary: Summary, folder: Path, stem: str) -> list[Path]:
    """Draw what there are figures for; return the files, named after ``stem``."""
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "apiary"  # the same figures give the same file
    drawn = []
    pictures: tuple[tuple[str, Callable[[Summary, Any], bool]], ...] = (
        ("throughput", _throughput),
        ("factors", _factors),
        ("overheads", _overheads),
    )
    for name, picture in pictures:
        figure = plt.figure(figsize=(11, 4.2), layout="constrained")
        if picture(summary, figure):
            path = folder / f"{stem}-{name}.svg"
            figure.savefig(path, metadata={"Date": None})
            drawn.append(path)
        plt.close(figure)
    return drawn


def _throughput(summary: Summary, figure: Any) -> bool:
    """p50 against requests per second, a point for each number of clients."""
    workloads = [w for w in summary.workloads if summary.records("throughputs", workload=w)]
    for number, workload in enumerate(workloads, 1):
        axes = figure.add_subplot(1, len(workloads), number)
        for name in summary.systems:
            records = summary.records("throughputs", system=name, workload=workload)
            records.sort(key=lambda record: int(record["clients"]))
            if records:
                axes.plot(
                    [record["per_second"] for record in records],
                    [record["p50_ms"] for record in records],
                    marker="o",
                    markersize=3,
                    label=SYSTEMS[name].title,
                )
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="requests per second",
            ylabel="p50, ms",
            title=WORKLOADS[workload].title,
        )
        if number == 1:
            axes.legend(fontsize=6)
    return bool(workloads)


def _factors(summary: Summary, figure: Any) -> bool:
    """How many times a system's p50 is that of Apiary over gRPC, against the round trip."""
    wanted = [w for w in ("increment", "timeline", "workflow-5") if w in summary.workloads]
    drawn = False
    for number, workload in enumerate(wanted, 1):
        axes = figure.add_subplot(1, len(wanted), number)
        for name in summary.others():
            points = [
                (rtt, factor)
                for rtt in summary.rtts_ms
                if (factor := summary.factor(name, "grpc", workload, rtt)) is not None
            ]
            if points:
                drawn = True
                axes.plot(*zip(*points, strict=True), marker="o", label=SYSTEMS[name].title)
        axes.axhline(1.0, color="grey", linewidth=0.8)
        axes.set(
            yscale="log",
            xlabel="round trip to the database, ms",
            ylabel="p50 / p50 of Apiary over gRPC",
            title=WORKLOADS[workload].title,
        )
        if axes.lines and number == len(wanted):
            axes.legend(fontsize=6)
    return drawn


def _overheads(summary: Summary, figure: Any) -> bool:
    """p50 as a multiple of the bare PL/pgSQL procedure's."""
    workloads = [
        w for w in summary.workloads if summary.overhead("engine-off", "procedure", w) is not None
    ]
    axes = figure.add_subplot(1, 1, 1)
    for offset, (name, label) in enumerate(_OVERHEADS):
        heights = [1 + (summary.overhead(name, "procedure", w) or 0.0) for w in workloads]
        places = [place + 0.25 * (offset - 1) for place in range(len(workloads))]
        axes.bar(places, heights, width=0.22, label=label)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(workloads)), [WORKLOADS[w].title for w in workloads])
    axes.set(ylabel="p50 / p50 of the bare PL/pgSQL procedure")
    axes.legend(fontsize=7)
    return bool(workloads)
