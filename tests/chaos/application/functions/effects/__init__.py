"""Functions whose every execution can be counted."""

from __future__ import annotations

from apiary import Database, function


@function
def note(db: Database, run_id: str, tag: str) -> str:
    """Leave one row."""
    db.execute("INSERT INTO effects.effect (run_id, tag) VALUES ($1, $2)", run_id, tag)
    return tag


@function
def bump(db: Database, run_id: str, tag: str) -> int:
    """Leave one row, and write one that everybody writes."""
    value: int = db.value("SELECT value FROM effects.counter WHERE name = 'hot'")
    db.execute("UPDATE effects.counter SET value = $1 WHERE name = 'hot'", value + 1)
    db.execute("INSERT INTO effects.effect (run_id, tag) VALUES ($1, $2)", run_id, tag)
    return value


@function
def cross(db: Database, run_id: str, tag: str, first: str, second: str) -> str:
    """Write two common rows in the order asked for, the gate between: opposite orders deadlock."""
    db.execute("UPDATE effects.counter SET value = value + 1 WHERE name = $1", first)
    db.query("SELECT pg_advisory_xact_lock_shared(4711)")
    db.execute("UPDATE effects.counter SET value = value + 1 WHERE name = $1", second)
    db.execute("INSERT INTO effects.effect (run_id, tag) VALUES ($1, $2)", run_id, tag)
    return tag


@function
def gated(db: Database, run_id: str, tag: str) -> str:
    """Leave one row, then wait for the gate."""
    db.execute("INSERT INTO effects.effect (run_id, tag) VALUES ($1, $2)", run_id, tag)
    db.query("SELECT pg_advisory_xact_lock_shared(4711)")
    return tag


@function
def look(db: Database, name: str) -> int:
    """Read only."""
    value: int = db.value("SELECT value FROM effects.counter WHERE name = $1", name)
    return value
