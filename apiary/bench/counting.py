"""What a request costs, by counters that do not depend on how busy the machine is.

Statements from pg_stat_statements (those that clients sent, of one database); commits and bytes
from the write-ahead log itself, by pg_walinspect between two of its positions; flushes from
pg_stat_wal, which backends report when they end; processor time from /proc.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

__all__ = ["Cost", "Counters", "Snapshot", "Watch"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STATEMENTS = (
    "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements"
    " WHERE toplevel AND dbid = (SELECT oid FROM pg_database WHERE datname = %s)"
)
# A commit of its own that waits for the disk: what was committed before is flushed as well.
_MARK = "SELECT pg_logical_emit_message(true, 'apiary bench', '')"
_COMMITS = (
    "SELECT coalesce(sum(count), 0)::bigint FROM pg_get_wal_stats(%s, %s, true)"
    " WHERE \"resource_manager/record_type\" LIKE 'Transaction/COMMIT%%'"
)
_MARKS_COMMITS = 1
_GONE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The counters at one moment."""

    statements: int
    lsn: str
    postgres_cpu_s: float
    application_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one request cost on average."""

    requests: int
    statements: float
    commits: float  # that wrote something
    wal_bytes: float
    postgres_cpu_ms: float
    application_cpu_ms: float


class Counters:
    """Reads one server's counters."""

    def __init__(self, url: str, postmaster_pid: int) -> None:
        self._connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        self._postmaster_pid = postmaster_pid

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def snapshot(self, database: str, pids: Sequence[int]) -> Snapshot:
        """The counters now, of one system's database and processes."""
        self._value(_MARK)
        return Snapshot(
            statements=int(self._value(_STATEMENTS, database)),
            lsn=str(self._value("SELECT pg_current_wal_flush_lsn()")),
            postgres_cpu_s=sum(map(cpu_s, children(self._postmaster_pid))),
            application_cpu_s=sum(map(cpu_s, pids)),
        )

    def cost(self, before: Snapshot, after: Snapshot, requests: int) -> Cost:
        """The difference, per request."""
        commits = int(self._value(_COMMITS, before.lsn, after.lsn)) - _MARKS_COMMITS
        size = int(self._value("SELECT pg_wal_lsn_diff(%s, %s)", after.lsn, before.lsn))
        postgres_s = after.postgres_cpu_s - before.postgres_cpu_s
        application_s = after.application_cpu_s - before.application_cpu_s
        return Cost(
            requests=requests,
            statements=(after.statements - before.statements) / requests,
            commits=commits / requests,
            wal_bytes=size / requests,
            postgres_cpu_ms=postgres_s * 1e3 / requests,
            application_cpu_ms=application_s * 1e3 / requests,
        )

    async def until_gone(self, database: str) -> None:
        """Wait until no session of a database is left: each reports what it did as it ends."""
        statement = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        async with asyncio.timeout(_GONE_S):
            while self._value(statement, database):
                await asyncio.sleep(0.02)

    def flushes(self) -> int:
        """How often the log was flushed to the disk, as far as backends have reported."""
        return int(self._value("SELECT wal_sync FROM pg_stat_wal"))

    def _value(self, statement: str, *parameters: Any) -> Any:
        row = self._connection.execute(statement.encode(), parameters or None).fetchone()
        assert row is not None
        return row[0]


def cpu_s(pid: int) -> float:
    """Processor seconds of a process and of its children that have ended; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_PER_S  # utime, stime, cutime, cstime


def children(parent: int) -> list[int]:
    """A process and its children."""
    found = [parent]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if int(fields[1]) == parent:
            found.append(int(entry.name))
    return found


class Watch:
    """The load of the machine while something is measured."""

    def __init__(self) -> None:
        self.loads: list[float] = []

    def look(self) -> None:
        """Note the load average of the last minute."""
        self.loads.append(round(os.getloadavg()[0], 2))
