"""Run ids: the name of a run, and its idempotency key."""

from __future__ import annotations

import unicodedata

from uuid6 import uuid7

from ..authoring.values import digest
from ..errors import BadArgument

__all__ = ["checked_run_id", "derived_id", "new_run_id"]

MAX_CHARACTERS = 255


def new_run_id() -> str:
    """A fresh id: a UUIDv7, so that ids sort by the time at which they were made."""
    return str(uuid7())


def checked_run_id(run_id: str) -> str:
    """``run_id`` itself; BadArgument unless it has 1 to 255 characters, none of them control."""
    if not 1 <= len(run_id) <= MAX_CHARACTERS:
        raise BadArgument(
            f"a run id has 1 to {MAX_CHARACTERS} characters, this one has {len(run_id)}",
            path="run_id",
        )
    if run_id.isprintable():  # nearly always; it tells more than is asked here, but quickly
        return run_id
    for position, character in enumerate(run_id):
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise BadArgument(
                f"a run id has no control characters; character {position} is "
                f"U+{ord(character):04X}",
                path="run_id",
            )
    return run_id


def derived_id(run_id: str, part: str) -> str:
    """The id of something that belongs to a run; where it grows too long the run's is digested."""
    derived = f"{run_id}/{part}"
    return derived if len(derived) <= MAX_CHARACTERS else f"{digest(run_id)}/{part}"
