"""Telling one process from another, also when its pid has been used again.

A pid alone names nothing for long. A `ProcessMark` adds the moment at which the process started
(on Linux with the boot it belongs to), so a record of it on disk stays true across reboots.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_POLL_INTERVAL_S = 0.02


@dataclass(frozen=True, kw_only=True)
class ProcessMark:
    """One process: its pid and an opaque text for when it started."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessMark | None:
        """The mark of a living process; None when there is none (a zombie is not living)."""
        started = _started_linux(pid) if sys.platform.startswith("linux") else _started_ps(pid)
        return None if started is None else cls(pid=pid, started=started)

    @classmethod
    def of_self(cls) -> ProcessMark:
        """The mark of this process."""
        mark = cls.of(os.getpid())
        if mark is None:  # pragma: no cover - this process is running
            raise RuntimeError("the operating system does not list this process")
        return mark

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ProcessMark:
        return cls(pid=int(document["pid"]), started=str(document["started"]))

    def to_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self.started}

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessMark.of(self.pid) == self

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process is gone (it need not be a child); False at the timeout."""
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_INTERVAL_S)
        return True


def working_in(directory: Path) -> list[int] | None:
    """Pids of processes whose working directory this is (postmasters and backends stay in their
    data directory); None where the operating system does not tell.
    """
    if not sys.platform.startswith("linux"):
        return None
    wanted = os.path.realpath(directory)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and _working_directory(entry) == wanted:
            found.append(int(entry.name))
    return found


def _working_directory(entry: Path) -> str | None:
    try:
        return os.readlink(entry / "cwd")
    except OSError:  # ended meanwhile, or another user's: not one of ours
        return None


def _started_linux(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command in parentheses may hold spaces and parentheses; fields are counted after it.
    state, *fields = stat[stat.rindex(")") + 2 :].split()
    if state in {"Z", "X"}:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{fields[18]}"  # field 22 of stat(5): start in clock ticks since boot


def _started_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
