"""What must be true after anything, read from tables and files beside the platform's own record."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from apiary.engine.postgres import PostgresEngine
from apiary.execution.verifying import verify

# Effects that took place twice.
_DOUBLED = "SELECT run_id, tag, count(*) FROM effects.effect GROUP BY 1, 2 HAVING count(*) > 1"
# Recorded functions whose effect is not there, and effects that no record answers for.
_UNMATCHED = """
    SELECT coalesce(o.run_id, e.run_id), coalesce(o.tag, e.tag),
           o.run_id IS NOT NULL AS recorded, e.run_id IS NOT NULL AS there
      FROM (SELECT input ->> 'run_id' AS run_id, input ->> 'tag' AS tag FROM apiary.operation
             WHERE kind = 'function' AND status = 'SUCCEEDED' AND input ->> 'tag' IS NOT NULL) AS o
      FULL JOIN effects.effect e ON e.run_id = o.run_id AND e.tag = o.tag
     WHERE o.run_id IS NULL OR e.run_id IS NULL"""
# Every increment of a counter is some function's effect: none was lost, none took place twice.
_COUNTED = """
    SELECT (SELECT sum(value) FROM effects.counter),
           (SELECT count(*) FROM effects.effect WHERE tag ~ '^(2|4|bump after .*|in the queue)$')
           + 2 * (SELECT count(*) FROM effects.effect WHERE tag = 'cross')"""
_STEPS = """
    SELECT run_id || '/' || seq, output #>> '{}' FROM apiary.operation
     WHERE kind = 'step' AND status = 'SUCCEEDED'"""
_UNFINISHED = "SELECT run_id, status, waiting_for FROM apiary.run WHERE finished_at IS NULL"
_ENDED_BADLY = "SELECT run_id, status, error FROM apiary.run WHERE status NOT IN ('SUCCEEDED')"


def check_invariants(url: str, side: Path, *, all_succeeded: bool = True) -> None:
    """Raise AssertionError, with all that is wrong."""
    problems: list[str] = []
    with psycopg.connect(url, autocommit=True) as connection:

        def rows(query: str) -> list[tuple[Any, ...]]:
            return connection.execute(query.encode()).fetchall()

        problems += [f"twice: {row}" for row in rows(_DOUBLED)]
        problems += [f"recorded or there, not both: {row}" for row in rows(_UNMATCHED)]
        problems += [f"counted {was}, effects {n}" for was, n in rows(_COUNTED) if was != n]
        problems += [f"unfinished: {row}" for row in rows(_UNFINISHED)]
        if all_succeeded:
            problems += [f"did not succeed: {row}" for row in rows(_ENDED_BADLY)]
        problems += _check_steps(rows(_STEPS), side)
    problems += asyncio.run(_verified(url))
    if problems:
        raise AssertionError("\n".join(problems))


def _check_steps(recorded: list[tuple[Any, ...]], side: Path) -> list[str]:
    """A step's record is what one of its executions returned, and it was executed at least once."""
    done: dict[str, list[str]] = {}
    for line in side.read_text().splitlines() if side.exists() else []:
        # A kill does not tear a line: one short append is one system call.
        key, pid, text = line.split(" ", 2)
        done.setdefault(key, []).append(f"{text} by {pid}")
    problems = [
        f"step {key} recorded {output!r}, which no execution gave: {done.get(key)}"
        for key, output in recorded
        if output not in done.get(key, [])
    ]
    keys = Counter(key for key, _ in recorded)
    return problems + [f"step {key} has {n} records" for key, n in keys.items() if n > 1]


async def _verified(url: str) -> list[str]:
    async with PostgresEngine(url) as engine:
        report = await verify(engine)
    assert report.counted["runs"] > 0
    return [f"{finding.check}: {finding.run_id}: {finding.message}" for finding in report.findings]
