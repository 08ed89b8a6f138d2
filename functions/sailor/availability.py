"""Which GPUs can be had: every change is a version, which holds all counts."""

from __future__ import annotations

from apiary import Database, function
from workflows.sailor.catalogue import EXAMPLE_CLUSTER
from workflows.sailor.plan import parse_availability

from .errors import declared

__all__ = ["current_version", "newest_availability", "record_availability", "stored_availability"]


def newest_version(db: Database) -> int | None:
    """The newest version, None before the first."""
    found: int | None = db.value(
        "SELECT version FROM sailor.availability_version ORDER BY version DESC LIMIT 1"
    )
    return found


def current_version(db: Database, run_id: str) -> int:
    """The newest version; before the first change, one with the example cluster is made."""
    found = newest_version(db)
    return _new_version(db, dict(EXAMPLE_CLUSTER), run_id) if found is None else found


def stored_availability(db: Database, version: int) -> dict[str, int]:
    """ "<gpu>_<zone>" -> count of a version."""
    rows = db.query(
        "SELECT gpu, zone, count FROM sailor.availability WHERE version = $1 ORDER BY gpu, zone",
        version,
    )
    return {f"{row.gpu}_{row.zone}": row.count for row in rows}


@function
def newest_availability(db: Database, run_id: str) -> int:
    """The newest version; before the first change, one with the example cluster is made."""
    return current_version(db, run_id)


@function
def record_availability(
    db: Database, changes: dict[str, int], run_id: str, only_these: bool = False
) -> int:
    """Make a version in which these counts hold (and, unless ``only_these``, all others stay)."""
    with declared():
        parse_availability(changes)
    newest = newest_version(db)
    before = {} if newest is None or only_these else stored_availability(db, newest)
    return _new_version(db, before | changes, run_id)


def _new_version(db: Database, counts: dict[str, int], run_id: str) -> int:
    version: int = db.value(
        "INSERT INTO sailor.availability_version (run_id) VALUES ($1) RETURNING version", run_id
    )
    db.execute_many(
        "INSERT INTO sailor.availability (version, gpu, zone, count) VALUES ($1, $2, $3, $4)",
        [
            (version, gpu, zone, count)
            for (gpu, zone), count in sorted(parse_availability(counts).items())
        ],
    )
    return version
