"""What is recorded of a function call, and how its outcome leaves the backend."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Operation:
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
        """The columns' values, in the order of `_OPERATION_COLUMNS`."""
        status = "SUCCEEDED" if self.error is None else "FAILED"
        return [status, *(getattr(self, name) for name in _OPERATION_COLUMNS)]

    def deferred(self) -> str:
        """The operation as an element of the array that apiary.insert_operations takes."""
        parts = ['"kind":"function"']
        for name in _OPERATION_COLUMNS:
            value = getattr(self, name)
            if value is not None:
                text = value if name in _JSON_COLUMNS else json.dumps(value)
                parts.append(f'"{name}":{text}')
        return f"{{{','.join(parts)}}}"


_OPERATION_COLUMNS = tuple(field.name for field in fields(Operation))
_JSON_COLUMNS = {"input", "output", "error", "reads", "calls"}
_SQL_TYPES = {"int": "int4", "float": "float8", "bool": "bool"}
OPERATION_TYPES = ["text"] * 6 + [
    "json" if field.name in _JSON_COLUMNS else _SQL_TYPES.get(str(field.type), "text")
    for field in fields(Operation)
]
_PLACEHOLDERS = [
    f"pg_catalog.to_timestamp(${number})" if name.endswith("_at") else f"${number}"
    for number, name in enumerate(_OPERATION_COLUMNS, start=7)
]
INSERT_OPERATION = (
    "INSERT INTO apiary.operation (kind, run_id, application, deployment, principal, trace, status, "
    f"{', '.join(_OPERATION_COLUMNS)}) VALUES ('function', $1, $2, $3, $4, $5, $6, "
    f"{', '.join(_PLACEHOLDERS)}) RETURNING xid"
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
    return (
        f'{{"output":{output or "null"},"error":{error or "null"},"deployment":"{deployment}",'
        f'"xid":{json.dumps(xid)},"replayed":{"true" if replayed else "false"},'
        f'"unrecorded":{unrecorded or "null"}}}'
    )
