"""What a report says of figures: medians, factors, goals, and who is faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from apiary.bench.report import write_report
from apiary.bench.summary import Summary


def latency(system: str, workload: str, rtt_ms: float, p50_ms: float) -> dict[str, Any]:
    return {
        "system": system,
        "workload": workload,
        "rtt_ms": rtt_ms,
        "repetition": 0,
        "count": 10,
        "errors": 0,
        "p10_ms": p50_ms / 2,
        "p50_ms": p50_ms,
        "p99_ms": p50_ms * 4,
    }


def document(*latencies: dict[str, Any], **more: Any) -> dict[str, Any]:
    machine = {
        "processor": "a processor",
        "processors": 2,
        "memory_gib": 8.0,
        "kernel": "6",
        "python": "3.11",
        "fdatasync_ms": 0.2,
        "postgres": {"fsync": "on"},
        "packages": {"psycopg": "3.3"},
        "commit": "abc",
    }
    plan = {
        "systems": ["engine", "procedure", "procedure-python", "grpc", "interactive", "dbos"],
        "workloads": ["increment", "reserve", "timeline", "workflow-5"],
        "rtts_ms": [0.0, 0.5],
        "repetitions": 1,
        "clients": [1],
        "scale": {"counters": 10},
    }
    lists = ("throughputs", "open_loops", "costs", "idle", "flushes", "checks", "failures")
    return {
        "plan": plan,
        "machine": machine,
        "latencies": list(latencies),
        "round_trips": [{"rtt_ms": 0.5, "measured_ms": 0.7}],
        "command": "apiary bench",
        "started_at": "2026-01-01",
        "seconds": 1.0,
        "network": "",
        "loads": [1.0],
        **{name: [] for name in lists},
        **more,
    }


def test_a_figure_is_the_median_of_the_repetitions_with_their_spread() -> None:
    records = [latency("grpc", "increment", 0.0, p50) for p50 in (3.0, 1.0, 2.0)]
    figure = Summary(document(*records)).figure("grpc", "increment", 0.0)
    assert figure is not None
    assert (figure.p50_ms, figure.lowest_p50_ms, figure.highest_p50_ms) == (2.0, 1.0, 3.0)
    assert figure.count == 30


def test_goals_are_held_against_what_was_reached() -> None:
    summary = Summary(
        document(
            latency("engine", "increment", 0.0, 1.2),
            latency("procedure-python", "increment", 0.0, 1.0),
            latency("procedure", "increment", 0.0, 0.8),
            latency("grpc", "timeline", 0.5, 3.0),
            latency("interactive", "timeline", 0.5, 36.0),
            latency("grpc", "workflow-5", 0.0, 4.0),
            latency("dbos", "workflow-5", 0.0, 80.0),
            latency("engine", "reserve", 0.0, 1.0),
            latency("grpc", "reserve", 0.0, 2.0),
            latency("interactive-recorded", "reserve", 0.0, 3.0),
            latency("engine", "workflow-5", 0.0, 3.0),
            latency("engine-calls", "workflow-5", 0.0, 5.0),
            machine={"postgres": {"synchronous_commit": "off"}},
            throughputs=[
                {"system": "grpc", "workload": "reserve", "clients": 16, "per_second": 900.0}
            ],
        )
    )
    reached = [(goal.reached, goal.holds) for goal in summary.goals()]
    assert reached == [
        ("1.20x of PL/Python, 1.50x of PL/pgSQL (p50)", True),
        ("not measured", None),
        ("not measured", None),
        ("3.00x", True),
        ("1.00 ms", True),
        ("900", False),
        ("1.67x", False),
        ("12.0x", True),
        ("20.0x", False),
        ("not measured", None),
    ]


def test_the_report_says_where_others_are_faster_and_what_differed(tmp_path: Path) -> None:
    check = {
        "workload": "reserve",
        "rtt_ms": 0.0,
        "repetition": 0,
        "equal": False,
        "mismatches": [],
        "effects": {"grpc": [1], "dbos": [2]},
    }
    text = write_report(
        document(
            latency("grpc", "reserve", 0.0, 3.0),
            latency("interactive", "reserve", 0.0, 2.0),
            checks=[check],
            loads=[3.5],
        ),
        [],
        tmp_path,
    )
    assert "| interactive psycopg transactions in a service | hotel reserve | 0 | 1.50x |" in text
    assert "0 of 1 blocks" in text
    assert "{'grpc': [1], 'dbos': [2]}" in text
    assert "**The machine was busy while this was measured**" in text


def test_a_report_without_measurements_of_others_claims_nothing(tmp_path: Path) -> None:
    empty = document()
    empty["plan"]["systems"] = ["procedure", "interactive"]
    assert "Where others are faster" not in write_report(empty, [], tmp_path)
