"""Verify a database: from what is stored alone, does everything agree that must agree?

    report = await verify(engine)
    for finding in report.findings:
        print(finding.run_id, finding.message, finding.advice)

All checks see one snapshot, so that a database in use gives no false alarm, and change nothing.
What is checked is in engine/consistency.py. It needs SELECT on the platform's tables and may read
all of them: on a large database run it where a long query does no harm.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import psycopg

from ..engine.consistency import CHECKS, COUNTED, Check
from ..engine.postgres import Connection, PostgresEngine
from ..engine.sqlstates import translate

__all__ = ["Finding", "Report", "verify"]

PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it must be."""

    check: str
    run_id: str
    message: str
    advice: str  # what to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was looked at, and what was found."""

    counted: dict[str, int]  # rows: runs, operations, messages, stream_values
    checks: tuple[str, ...]  # that were made
    findings: tuple[Finding, ...]
    left_out: dict[str, int]  # by check: findings beyond the limit

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return {"sound": self.sound, **asdict(self)}


async def verify(
    engine: PostgresEngine,
    *,
    run_id: str | None = None,
    patience: timedelta = PATIENCE,
    limit: int = 100,
) -> Report:
    """Check the database, or one run of it.

    ``patience`` is how long something that is due may take (adoption, start, timing out) before it
    counts as stranded; ``limit`` bounds the findings of each check. Raises UnavailableError when
    the database is away, StatementError when the account may not read the tables.
    """
    try:
        async with (
            engine.connection("repeatable read") as connection,
            connection.transaction(),
        ):
            await connection.execute("SET TRANSACTION READ ONLY")
            await connection.execute("SET LOCAL statement_timeout = 0")
            counted = {name: await _count(connection, query) for name, query in COUNTED.items()}
            findings: list[Finding] = []
            left_out: dict[str, int] = {}
            for check in CHECKS:
                found = await _found(connection, check, run_id, patience)
                findings += found[:limit]
                if len(found) > limit:
                    left_out[check.name] = len(found) - limit
    except psycopg.Error as error:
        raise translate(error) from error
    return Report(
        counted=counted,
        checks=tuple(check.name for check in CHECKS),
        findings=tuple(findings),
        left_out=left_out,
    )


async def _count(connection: Connection, query: str) -> int:
    cursor = await connection.execute(query.encode())
    row = await cursor.fetchone()
    assert row is not None  # a count is one row
    return int(row[0])


async def _found(
    connection: Connection, check: Check, run_id: str | None, patience: timedelta
) -> list[Finding]:
    query = (
        f"SELECT f.run_id, f.message FROM ({check.query}) AS f (run_id, message)"
        " WHERE %(run_id)s::text IS NULL OR f.run_id = %(run_id)s ORDER BY f.run_id, f.message"
    )
    cursor = await connection.execute(query.encode(), {"run_id": run_id, "patience": patience})
    return [
        Finding(
            check=check.name,
            run_id=found,
            message=message,
            advice=check.advice.format(run_id=found),
        )
        for found, message in await cursor.fetchall()
    ]
