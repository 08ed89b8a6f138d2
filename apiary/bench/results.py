"""What a run measured, as one JSON document."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .counting import Cost
from .measuring import Latency
from .workloads import Scale

__all__ = ["Plan", "Results", "describe_machine"]

_PACKAGES = (
    "apiary", "psycopg", "grpcio", "dbos", "absurd-sdk", "procrastinate", "restate-sdk",
    "hypercorn", "sqlalchemy", "hdrhistogram",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured, within about how much time."""

    systems: tuple[str, ...]
    workloads: tuple[str, ...]
    rtts_ms: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0)
    repetitions: int = 3
    budget_s: float = 420.0
    clients: tuple[int, ...] = (1, 4, 16, 64)
    at_least: int = 3  # rounds of a block, however slow a system is
    warm_up: int = 2  # rounds before the first block of a workload
    warm_up_s: float = 1.0  # of each system and workload before throughputs
    scale: Scale = field(default_factory=Scale)
    idle_s: float = 4.0  # of doing nothing
    settle_s: float = 11.0  # idle backends report their statistics after ten seconds


@dataclass(slots=True, kw_only=True)
class Results:
    """Everything that was measured; lists of flat records."""

    result_id: str
    plan: Plan
    machine: dict[str, Any]
    command: str
    started_at: str
    seconds: float = 0.0
    network: str = ""
    latencies: list[dict[str, Any]] = field(default_factory=list)
    throughputs: list[dict[str, Any]] = field(default_factory=list)
    open_loops: list[dict[str, Any]] = field(default_factory=list)
    costs: list[dict[str, Any]] = field(default_factory=list)
    idle: list[dict[str, Any]] = field(default_factory=list)
    flushes: list[dict[str, Any]] = field(default_factory=list)
    round_trips: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def latency(self, where: dict[str, Any], latency: Latency) -> dict[str, Any]:
        """A record of a latency measured somewhere."""
        numbers = {name: _short(value) for name, value in asdict(latency).items()}
        return {**where, **numbers, "per_second": _short(latency.per_second)}

    def cost(self, where: dict[str, Any], cost: Cost) -> dict[str, Any]:
        """A record of a cost."""
        return {**where, **{name: _short(value) for name, value in asdict(cost).items()}}

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @property
    def equal(self) -> bool:
        """Whether all systems gave the same results and left the same rows, and none failed."""
        return not self.failures and all(check["equal"] for check in self.checks)


def _short(value: Any) -> Any:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def describe_machine(sync_ms: float, postgres: dict[str, str]) -> dict[str, Any]:
    """Where it was measured."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "fdatasync_ms": _short(sync_ms),
        "postgres": postgres,
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "commit": commit(),
    }


def commit() -> str:
    """The version of the code: the checkout's commit, else the package's version."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return _version("apiary") or "unknown"


def started_now() -> tuple[str, str]:
    """The moment, for people, and as the id of a result."""
    now = datetime.now(UTC)
    return now.isoformat(timespec="seconds"), f"bench-{now:%Y%m%dT%H%M%SZ}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
