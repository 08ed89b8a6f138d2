"""docs/benchmarks.md: what was measured, under which conditions, and where others are faster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .catalogue import SYSTEMS
from .summary import Summary
from .workloads import WORKLOADS

__all__ = ["write_report"]

_FEW = 100
_NOTES = """\
- **The same work.** Every system runs the functions of this repository (`functions/`): Apiary, the
  interactive service and the peers the very same bodies, the bare procedures by hand
  (`apiary/bench/procedures.sql`). A request is drawn from its number alone, so that all get the
  same ones. In a round every system gets the request once, in random order; their results must be
  equal, and after each block so must what is in their tables.
- **The same database.** One private PostgreSQL, its durability settings untouched (they are above),
  a database for each system with the same rows. Every transaction is SERIALIZABLE, everywhere, and
  repeated on a conflict. Sixteen connections for a system's data, whatever it is.
- **A process of its own** for the interactive service and for each peer, called by JSON lines over
  TCP, which cost less than gRPC; Restate is called by its HTTP ingress. The bare procedures,
  Apiary's *engine* and the interactive transactions *with the same record* are called from the
  harness's own process, without any hop: compare these with each other, and gRPC with the rest.
  With the same record means: the same row in apiary.operation by one more statement, and the same
  capture triggers.
- **Round trips** are put between whatever opens database connections and PostgreSQL; the hop from
  client to service is not delayed, in no system, nor is the one between Restate's server and its
  handlers.
- **Latencies** are of one client, in interleaved rounds. Figures are medians over the repetitions;
  the spread is the lowest and the highest p50 of a repetition. In the open loops requests leave on
  a timetable, and a latency counts from there: what a stall delays is charged to it.
- **Counts** are PostgreSQL's own: statements of pg_stat_statements (top level, BEGIN and COMMIT
  included), commit records and bytes of the write-ahead log by pg_walinspect, flushes from
  pg_stat_wal. They do not depend on how busy the machine is.
- **DBOS**: state and data in one database, transactions of its datasource, children of the
  fan-out by `start_workflow`. **Absurd**: spawned and worked by one thread, so without the 0.25 s
  polling of its worker; a step and its checkpoint are two transactions, so a step may run twice.
  Its fan-out is left out: waiting for tasks of one's own queue is refused. **Restate**: its default
  settings; a step and its log entry are two commits in two systems, so a step may run twice.
  **Procrastinate**: woken by LISTEN/NOTIFY, single functions only (it has no steps); the answer is
  given before the job is marked as done. **Interactive** and **bare procedures**: their workflows
  are calls one after another and survive no crash.
"""


def write_report(document: dict[str, Any], plots: Sequence[Path], folder: Path) -> str:
    """The report as Markdown; plots are linked relative to ``folder``."""
    summary = Summary(document)
    parts: list[str] = [
        "# Benchmarks\n\nWritten by `apiary bench`; do not edit.\n",
        _conditions(document),
        _goals(summary),
        _lost(summary),
        *_latencies(summary),
        _by_rtt(summary),
        _throughput(summary),
        _open_loops(summary),
        _costs(summary),
        _overheads(summary),
        _idle(summary),
        _checks(document),
        f"## How it was measured\n\n{_NOTES}",
    ]
    if plots:
        links = "\n\n".join(
            f"![{plot.stem}]({plot.relative_to(folder).as_posix()})" for plot in plots
        )
        parts.insert(4, f"## Pictures\n\n{links}\n")
    return "\n".join(part for part in parts if part)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _conditions(document: dict[str, Any]) -> str:
    machine, plan = document["machine"], document["plan"]
    loads = document["loads"] or [0.0]
    postgres = ", ".join(f"{name} {value}" for name, value in sorted(machine["postgres"].items()))
    packages = ", ".join(f"{name} {value}" for name, value in machine["packages"].items())
    trips = "; ".join(
        f"{rtt:g} ms asked, {_span(found)} ms measured"
        for rtt in sorted(plan["rtts_ms"])
        if (found := [r["measured_ms"] for r in document["round_trips"] if r["rtt_ms"] == rtt])
    )
    busy = ""
    if max(loads) > machine["processors"]:
        busy = (
            f"\n**The machine was busy while this was measured**: a load average of {min(loads):g}"
            f" to {max(loads):g} on {machine['processors']} processors. Times are longer than on a"
            " machine of one's own, and p99 is that of the neighbours; compare ratios, and rely on"
            " the counts.\n"
        )
    fewest = min((record["count"] for record in document["latencies"]), default=0)
    if fewest < _FEW:
        busy += (
            f"\n**Short**: a latency is of as few as {fewest} requests, so that p50 is uncertain"
            " and p99 is hardly more than the slowest of them. Use a larger `--budget`.\n"
        )
    rows = [
        ("when", f"{document['started_at']}, {document['seconds']:g} s"),
        ("command", f"`{document['command']}`"),
        ("code", machine["commit"]),
        (
            "machine",
            f"{machine['processors']} x {machine['processor']}, {machine['memory_gib']} GiB,"
            f" Linux {machine['kernel']}, Python {machine['python']}",
        ),
        ("load average", f"{min(loads):g} to {max(loads):g}"),
        ("disk", f"8 kB and fdatasync: {machine['fdatasync_ms']:g} ms (median)"),
        ("PostgreSQL", postgres),
        ("packages", packages),
        ("round trips (SELECT 1)", trips),
        ("delayed by", document["network"] or "nothing was"),
        ("rows", ", ".join(f"{value} {name}" for name, value in plan["scale"].items())),
        ("repetitions", str(plan["repetitions"])),
    ]
    return f"## Conditions\n{busy}\n{_table(('what', 'how'), rows)}"


def _goals(summary: Summary) -> str:
    says = {True: "yes", False: "**no**", None: "-"}
    rows = [(goal.text, goal.reached, says[goal.holds]) for goal in summary.goals()]
    return "## Goals\n\n" + _table(("goal", "reached", "holds"), rows)


def _lost(summary: Summary) -> str:
    if not summary.others() or "grpc" not in summary.systems:
        return ""
    rows = [
        (SYSTEMS[name].title, WORKLOADS[workload].title, f"{rtt_ms:g}", f"{factor:.2f}x")
        for name, workload, rtt_ms, factor in summary.lost()
    ]
    head = "## Where others are faster\n\n"
    if not rows:
        return head + "Nowhere in this run, by p50, than Apiary over gRPC.\n"
    text = (
        "Where the p50 of another system is below that of Apiary over gRPC. Interactive"
        " transactions record nothing, and their workflows are not durable.\n\n"
    )
    return head + text + _table(("system", "workload", "round trip, ms", "faster by"), rows)


def _latencies(summary: Summary) -> Iterator[str]:
    rtt_ms = summary.rtts_ms[0]
    yield f"## Latency, one client, {rtt_ms:g} ms\n\nMilliseconds.\n"
    for workload in summary.workloads:
        rows = []
        for name in summary.systems:
            figure = summary.figure(name, workload, rtt_ms)
            if figure is None:
                continue
            factor = summary.factor(name, "grpc", workload, rtt_ms)
            rows.append(
                (
                    SYSTEMS[name].title + ("" if _durable(name, workload) else " (not durable)"),
                    _ms(figure.p10_ms),
                    _ms(figure.p50_ms),
                    f"{_ms(figure.lowest_p50_ms)} to {_ms(figure.highest_p50_ms)}",
                    _ms(figure.p99_ms),
                    "" if factor is None else f"{factor:.2f}",
                    str(figure.count),
                )
            )
        if rows:
            head = ("system", "p10", "p50", "spread", "p99", "p50 / Apiary gRPC", "n")
            yield f"### {WORKLOADS[workload].title}\n\n{_table(head, rows)}"


def _durable(system: str, workload: str) -> bool:
    return SYSTEMS[system].is_durable or not WORKLOADS[workload].is_workflow


def _by_rtt(summary: Summary) -> str:
    rows = []
    for workload in summary.workloads:
        for name in summary.others():
            cells = [
                "" if (f := summary.factor(name, "grpc", workload, rtt)) is None else f"{f:.1f}x"
                for rtt in summary.rtts_ms
            ]
            if any(cells):
                rows.append((WORKLOADS[workload].title, SYSTEMS[name].title, *cells))
    if not rows:
        return ""
    head = ("workload", "system", *(f"{rtt:g} ms" for rtt in summary.rtts_ms))
    text = "How many times its p50 is that of Apiary over gRPC, by round-trip time.\n\n"
    return f"## Factor over others\n\n{text}{_table(head, rows)}"


def _throughput(summary: Summary) -> str:
    clients = summary.document["plan"]["clients"]
    rows = []
    for workload in summary.workloads:
        for name in summary.systems:
            cells = []
            for count in clients:
                found = summary.records(
                    "throughputs", system=name, workload=workload, clients=count
                )
                cells.append(
                    f"{found[0]['per_second']:.0f} ({_ms(found[0]['p50_ms'])},"
                    f" {_ms(found[0]['p99_ms'])})"
                    if found
                    else ""
                )
            if any(cells):
                rows.append((WORKLOADS[workload].title, SYSTEMS[name].title, *cells))
    if not rows:
        return ""
    head = ("workload", "system", *(f"{count} clients" for count in clients))
    text = "Closed loop: requests per second (p50, p99 in ms).\n\n"
    return f"## Throughput\n\n{text}{_table(head, rows)}"


def _open_loops(summary: Summary) -> str:
    rows = [
        (
            WORKLOADS[record["workload"]].title,
            SYSTEMS[record["system"]].title,
            f"{record['share']:.0%}",
            f"{record['rate']:.0f}",
            _ms(record["p50_ms"]),
            _ms(record["p99_ms"]),
        )
        for workload in summary.workloads
        for name in summary.systems
        for record in sorted(
            summary.records("open_loops", system=name, workload=workload),
            key=lambda record: float(record["share"]),
        )
    ]
    if not rows:
        return ""
    head = ("workload", "system", "of its best", "requests/s", "p50, ms", "p99, ms")
    return "## Open loop, from the time each request was due\n\n" + _table(head, rows)


def _costs(summary: Summary) -> str:
    rows = []
    for workload in summary.workloads:
        for name in summary.systems:
            for record in summary.records("costs", system=name, workload=workload):
                flushes = summary.records("flushes", system=name, workload=workload)
                rows.append(
                    (
                        WORKLOADS[workload].title,
                        SYSTEMS[name].title,
                        f"{record['statements']:.1f}",
                        f"{record['commits']:.1f}",
                        f"{flushes[0]['flushes']:.1f}" if flushes else "",
                        f"{record['wal_bytes']:.0f}",
                        f"{record['postgres_cpu_ms']:.2f}",
                        f"{record['application_cpu_ms']:.2f}",
                        str(record["requests"]),
                    )
                )
    if not rows:
        return ""
    head = ("workload", "system", "statements", "commits", "flushes", "WAL bytes",
            "PostgreSQL CPU, ms", "application CPU, ms", "n")  # fmt: skip
    text = (
        "Per request, each system by itself. Application CPU is that of a system's own processes;"
        " for those without any it is the harness's. Restate's own log is not in the WAL.\n\n"
    )
    return f"## What a request costs\n\n{text}{_table(head, rows)}"


def _overheads(summary: Summary) -> str:
    pairs = (
        ("recording", "engine-off", "procedure"),
        ("recording, over PL/Python", "engine-off", "procedure-python"),
        ("provenance `writes`, over recording", "engine", "engine-off"),
        ("provenance `full`, over recording", "engine-full", "engine-off"),
        ("gRPC, over the engine", "grpc", "engine"),
    )
    workloads = [name for name in summary.workloads if not WORKLOADS[name].is_workflow]
    rows = []
    for what, system, base in pairs:
        cells = [
            "" if (share := summary.overhead(system, base, name)) is None else f"{share:+.0%}"
            for name in workloads
        ]
        if any(cells):
            rows.append((what, *cells))
    if not rows:
        return ""
    head = ("what", *(WORKLOADS[name].title for name in workloads))
    return f"## Overheads, by p50 at {summary.rtts_ms[0]:g} ms\n\n{_table(head, rows)}"


def _idle(summary: Summary) -> str:
    rows = [
        (SYSTEMS[record["system"]].title, f"{record['statements_per_s']:.1f}")
        for record in summary.document["idle"]
    ]
    return "## Idle\n\n" + _table(("system", "statements per second"), rows) if rows else ""


def _checks(document: dict[str, Any]) -> str:
    checks = document["checks"]
    equal = sum(check["equal"] for check in checks)
    text = [
        f"## Checks\n\nResults of all rounds equal, and the same left in the tables: {equal} of"
        f" {len(checks)} blocks.\n"
    ]
    for check in checks:
        if not check["equal"]:
            told = "; ".join(check["mismatches"]) or str(check["effects"])
            text.append(f"- **differs**: {check['workload']} at {check['rtt_ms']:g} ms: {told}\n")
    for failure in document["failures"]:
        where = f"{failure['system']} at {failure['workload']}"
        text.append(f"- **failed**, and left out from then on: {where}: {failure['message']}\n")
    return "\n".join(text)


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
