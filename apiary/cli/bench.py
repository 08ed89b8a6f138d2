"""`apiary bench`: how fast, against what one would use instead."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import note, write_text

if TYPE_CHECKING:
    from ..bench.results import Plan
    from ..bench.systems.base import Adapter

__all__ = ["register"]

_FILES = ("--json", "--report", "--from", "--store", "--directory")

Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="Measure this one; may be repeated."),
]
Workloads = Annotated[
    list[str] | None,
    typer.Option("--workload", metavar="NAME", help="Measure this one; may be repeated."),
]
Peers = Annotated[
    bool, typer.Option("--peers", help="Also DBOS, Absurd, Procrastinate and Restate.")
]
RttMs = Annotated[
    list[float] | None,
    typer.Option(
        "--rtt-ms",
        metavar="MS",
        min=0,
        help="Round trip between application and database; may be repeated."
        " Default: 0, 0.25, 0.5 and 1.",
    ),
]
Repetitions = Annotated[int, typer.Option("--repetitions", metavar="N", min=1, help="Of each.")]
Budget = Annotated[
    float,
    typer.Option(
        "--budget", metavar="SECONDS", min=1, help="For measuring; preparing comes on top."
    ),
]
Clients = Annotated[
    list[int] | None,
    typer.Option(
        "--clients",
        metavar="N",
        min=1,
        help="At once, for throughput; may be repeated. Default: 1, 4, 16 and 64.",
    ),
]
Hotels = Annotated[
    int,
    typer.Option(
        "--hotels",
        metavar="N",
        min=1,
        help="How many hotels there are; reservations at one conflict with each other.",
    ),
]
Small = Annotated[
    int, typer.Option("--shrink", metavar="N", min=1, help="Load only one N-th of the rows.")
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", dir_okay=False, help="Write the raw result."),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", dir_okay=False, help="Write a report, with plots."),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Measure nothing: report on a raw result of before.",
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="HOST:PORT",
        help="Keep the result on this server too, by its function bench.store.",
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        metavar="PATH",
        file_okay=False,
        help="Where the measured database lives meanwhile; its disk is measured with it.",
    ),
]
SynchronousCommit = Annotated[
    str,
    typer.Option(
        "--synchronous-commit",
        metavar="on|off",
        help="Whether PostgreSQL's commits wait for the disk; off shows the work itself.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


def bench(
    system: Systems = None,
    workload: Workloads = None,
    peers: Peers = False,
    rtt_ms: RttMs = None,
    repetitions: Repetitions = 3,
    budget: Budget = 240.0,
    clients: Clients = None,
    shrink: Small = 1,
    hotels: Hotels = 100,
    json_file: Json = None,
    report: Report = None,
    from_file: From = None,
    store: Store = None,
    directory: Directory = None,
    synchronous_commit: SynchronousCommit = "on",
) -> None:
    """Measure microservice workloads and workflows against what one would use instead.

    All systems run in one interleaved run on one private PostgreSQL, which is removed afterwards.
    Needs what apiary[bench] installs. Exit code 1 when systems did not do the same.

    Variable: APIARY_BENCH_RESTATE, where the restate-server program is.

    Example: apiary bench --peers --report docs/benchmarks.md --json result.json
    """
    from ..bench.results import Plan
    from ..bench.workloads import Scale, chosen_workloads

    if from_file is not None:
        document = json.loads(from_file.read_text(encoding="utf-8"))
    else:
        from ..bench.catalogue import chosen_systems

        plan = Plan(
            systems=tuple(each.name for each in chosen_systems(system or [], peers=peers)),
            workloads=tuple(each.name for each in chosen_workloads(workload or [])),
            rtts_ms=tuple(sorted(set(rtt_ms))) if rtt_ms else (0.0, 0.25, 0.5, 1.0),
            repetitions=repetitions,
            budget_s=budget,
            clients=tuple(sorted(set(clients))) if clients else (1, 4, 16, 64),
            scale=replace(Scale().smaller(shrink), hotels=hotels),
        )
        document = _measure(plan, directory, synchronous_commit)
    if json_file is not None:
        json_file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if store is not None:
        from ..bench.systems.grpc_client import GrpcClient

        _keep(GrpcClient(), store, document)
        note(f"stored as {document['result_id']} on {store}")
    _report(document, report)
    if document["failures"] or not all(check["equal"] for check in document["checks"]):
        note("not all systems did the same: see the checks")
        raise typer.Exit(1)


def _measure(plan: Plan, directory: Path | None, synchronous_commit: str) -> dict[str, Any]:
    from ..bench.catalogue import SYSTEMS
    from ..bench.databases import measured_server
    from ..bench.running import measure
    from ..bench.systems.engine import Engine

    folder = Path(tempfile.mkdtemp(prefix="apiary-bench-", dir=directory))
    folder.chmod(0o755)  # the server may run under an account of its own
    try:
        settings = {"synchronous_commit": synchronous_commit}
        with measured_server(folder, settings) as cluster:
            document: dict[str, Any] = json.loads(
                json.dumps(measure(cluster, plan, note, _command()).document())
            )
            ours = [SYSTEMS[name] for name in plan.systems if SYSTEMS[name].provenance is not None]
            if ours:
                _keep(Engine(), cluster.url(ours[0].database), document)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return document


def _command() -> str:
    """What was asked for, without where its files are."""
    kept: list[str] = []
    given = iter(sys.argv[1:])
    for word in given:
        option, has_value, _ = word.partition("=")
        if option not in _FILES:
            kept.append(word)
        elif not has_value:
            next(given, None)
    return " ".join(["apiary", *kept])


def _keep(adapter: Adapter, url: str, document: dict[str, Any]) -> None:
    from ..bench.storing import store

    asyncio.run(store(adapter, url, document))


def _report(document: dict[str, Any], file: Path | None) -> None:
    from ..bench.report import write_report
    from ..bench.summary import Summary

    if file is None:
        write_text(write_report(document, [], Path()))
        return
    try:
        from ..bench.plots import draw
    except ImportError as error:
        note(f"no plots: {error.name} is not installed")
        plots: list[Path] = []
    else:
        plots = draw(Summary(document), file.parent / "pictures", file.stem)
    file.write_text(write_report(document, plots, file.parent), encoding="utf-8")
    note(f"wrote {file}")
