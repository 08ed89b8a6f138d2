"""What is recorded of a function call, and how its outcome leaves the backend."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Operation(NamedTuple):
    """What is recorded of one function call; JSON columns are JSON text already."""

    seq: int
    name: str
    input: str
    input_digest: str
    output: str | None
    error: str | None
    attempt: int
    started_at: float  # Unix time, s
    finished_at: float
    isolation: str
    read_only: bool
    reads: str | None
    calls: str | None
    log: str | None

    def values(self) -> list[Any]:
        """The columns' values, in the order of `_STORED_COLUMNS`."""
        status = "SUCCEEDED" if self.error is None else "FAILED"
        return [status, *(getattr(self, name) for name in _STORED_COLUMNS)]

    def deferred(self) -> str:
        """The operation as an element of the array that apiary.insert_operations takes."""
        parts = ['"kind":"function"']
        for name in _OPERATION_COLUMNS:
            value = getattr(self, name)
            if value is not None:
                text = value if name in _JSON_COLUMNS else json.dumps(value)
                parts.append(f'"{name}":{text}')
        return f"{{{','.join(parts)}}}"


_OPERATION_COLUMNS = Operation._fields
_JSON_COLUMNS = {"input", "output", "error", "reads", "calls"}
# The times are the transaction's begin and the database's clock: cheaper than passing them.
_STORED_COLUMNS = tuple(name for name in _OPERATION_COLUMNS if not name.endswith("_at"))
_SQL_TYPES = {"seq": "int4", "attempt": "int4", "read_only": "bool"}
OPERATION_TYPES = ["text"] * 6 + [
    "json" if name in _JSON_COLUMNS else _SQL_TYPES.get(name, "text") for name in _STORED_COLUMNS
]
_PLACEHOLDERS = [f"${number}" for number in range(7, 7 + len(_STORED_COLUMNS))]
INSERT_OPERATION = (
    "INSERT INTO apiary.operation (kind, started_at, finished_at,"
    " run_id, application, deployment, principal, trace, status,"
    f" {', '.join(_STORED_COLUMNS)}) VALUES ('function', pg_catalog.now(),"
    f" pg_catalog.clock_timestamp(), $1, $2, $3, $4, $5, $6, {', '.join(_PLACEHOLDERS)})"
)
INSERT_DEFERRED = "SELECT apiary.insert_operations($1, $2, $3, $4, $5, $6)"


def outcome(operation: Operation, deployment: str, xid: str | None) -> str:
    """The outcome of a call as JSON text; one that was not recorded is in it whole."""
    return outcome_text(
        operation.output,
        operation.error,
        deployment,
        xid,
        replayed=False,
        unrecorded=operation.deferred() if xid is None else None,
    )


def outcome_text(
    output: str | None,
    error: str | None,
    deployment: str,
    xid: str | None,
    *,
    replayed: bool,
    unrecorded: str | None,
) -> str:
    """An outcome as JSON text; output, error and unrecorded are JSON text already."""
    shown_xid = f'"{xid}"' if xid else "null"
    return (
        f'{{"output":{output or "null"},"error":{error or "null"},"deployment":"{deployment}",'
        f'"xid":{shown_xid},"replayed":{"true" if replayed else "false"},'
        f'"unrecorded":{unrecorded or "null"}}}'
    )
