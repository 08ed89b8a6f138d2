"""Bench: the smallest functions that say something about speed, and the store of what was measured.

`increment` is the get-and-increment of Apiary's paper; `transfer` is one SELECT, two UPDATEs and
one INSERT, of which the workflows of `workflows.bench` are made.
"""

from __future__ import annotations

from typing import Any

from apiary import Database, function


@function
def increment(db: Database, key: int) -> int:
    """Add one to a counter that exists or not; return its new value."""
    value: int = db.value("SELECT value FROM bench.counter WHERE key = $1", key) or 0
    db.execute(
        "INSERT INTO bench.counter (key, value) VALUES ($1, $2)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key,
        value + 1,
    )
    return value + 1


@function
def transfer(db: Database, source: int, target: int, amount: int) -> int:
    """Move an amount between two accounts and book it; return the source's new balance."""
    balance: int = db.value("SELECT balance FROM bench.account WHERE account_id = $1", source)
    db.execute(
        "UPDATE bench.account SET balance = balance - $2 WHERE account_id = $1", source, amount
    )
    db.execute(
        "UPDATE bench.account SET balance = balance + $2 WHERE account_id = $1", target, amount
    )
    db.execute(
        "INSERT INTO bench.entry (source, target, amount) VALUES ($1, $2, $3)",
        source,
        target,
        amount,
    )
    return balance - amount


@function
def store(db: Database, result_id: str, commit: str, document: dict[str, Any]) -> None:
    """Keep what a benchmark measured, with the version of the code that was measured."""
    db.execute(
        "INSERT INTO bench.result (result_id, commit, document) VALUES ($1, $2, $3)",
        result_id,
        commit,
        document,
    )


@function
def stored(db: Database, result_id: str) -> dict[str, Any] | None:
    """What was stored under an id, or None."""
    document: dict[str, Any] | None = db.value(
        "SELECT document FROM bench.result WHERE result_id = $1", result_id
    )
    return document
