"""What is recorded of a function call, and how its outcome leaves the backend."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import plpy  # type: ignore[import-not-found]

# The times are the transaction's begin and the database's clock: cheaper than passing them. What
# is the same for every call of a function is in the statement itself, for the same reason.
_INSERT = (
    "INSERT INTO apiary.operation (kind, started_at, finished_at, application, deployment, name,"
    " isolation, run_id, seq, principal, trace, status, input, input_digest, output, error,"
    " attempt, read_only, reads, calls, log) VALUES ('function', pg_catalog.now(),"
    " pg_catalog.clock_timestamp(), {}, {}, {}, {},"
    " $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
)
_TYPES = (
    "text", "int4", "text", "text", "text", "json", "text", "json", "json",
    "int4", "bool", "json", "json", "text",
)  # fmt: skip
INSERT_DEFERRED = "SELECT apiary.insert_operations($1, $2, $3, $4, $5, $6)"
INSERT_DEFERRED_TYPES = ["text"] * 5 + ["json"]


def insert_plan(application: str, deployment: str, name: str, isolation: str) -> Any:
    """The plan that records a call of one function."""
    constants = map(plpy.quote_literal, (application, deployment, name, isolation))
    return plpy.prepare(_INSERT.format(*constants), list(_TYPES))


def deferred_text(columns: dict[str, Any], documents: dict[str, str | None]) -> str:
    """A call as an element of the array that apiary.insert_operations takes.

    ``columns`` are values, ``documents`` JSON text already; what is None is left out.
    """
    parts = ['"kind":"function"']
    parts += [f'"{n}":{json.dumps(v)}' for n, v in columns.items() if v is not None]
    parts += [f'"{n}":{text}' for n, text in documents.items() if text is not None]
    return f"{{{','.join(parts)}}}"


class Outcome(NamedTuple):
    """What came of a call; output, error and unrecorded are JSON text."""

    output: str | None
    error: str | None
    deployment: str
    xid: str | None  # None: nothing was recorded
    replayed: bool = False
    unrecorded: str | None = None  # the call for `deferred_text`'s array, if it was not recorded

    def text(self) -> str:
        """The outcome as JSON text."""
        shown_xid = f'"{self.xid}"' if self.xid else "null"
        return (
            f'{{"output":{self.output or "null"},"error":{self.error or "null"},'
            f'"deployment":"{self.deployment}","xid":{shown_xid},'
            f'"replayed":{"true" if self.replayed else "false"},'
            f'"unrecorded":{self.unrecorded or "null"}}}'
        )
