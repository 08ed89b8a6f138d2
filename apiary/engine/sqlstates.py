"""Errors of PostgreSQL and of the in-backend runtime, as the platform's errors."""

from __future__ import annotations

import json
import re

import psycopg

from ..errors import (
    ApiaryError,
    Cancelled,
    DeadlineExceeded,
    IdempotencyMismatch,
    LeaseLost,
    NotFound,
    StatementError,
    TransactionConflict,
    UnavailableError,
    WrongState,
)

__all__ = ["DUPLICATE", "SESSION", "is_conflict", "is_connection_failure", "translate"]

# The states that storage/postgres/runtime raises.
_ERROR = "AP001"
DUPLICATE = "AP002"
SESSION = "AP003"
_LEASE_LOST = "AP004"
_WRONG_STATE = "AP005"
_NOT_FOUND = "AP006"
_ID_TAKEN = "AP007"

_CONFLICTS = {"40001", "40P01"}
# PL/Python puts the class of an error that passes through it before the message.
_PYTHON_PREFIX = re.compile(r"^(plpy|spiexceptions)\.\w+: ")
_STATEMENT_TIMEOUT = "canceling statement due to statement timeout"


def is_conflict(error: psycopg.Error) -> bool:
    """Whether the transaction may succeed when it is run again: 40001, 40P01."""
    return error.sqlstate in _CONFLICTS


def is_connection_failure(error: psycopg.Error) -> bool:
    """Whether the connection or the server went away, so that the outcome may be unknown."""
    state = error.sqlstate or ""
    if state.startswith(("08", "57P")):
        return True
    return not state and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))


def _cancelled(message: str) -> ApiaryError:
    if message.endswith(_STATEMENT_TIMEOUT):  # PL/Python puts its exception class before it
        return DeadlineExceeded("the statement ran into its timeout and was rolled back")
    return Cancelled("the statement was cancelled and rolled back")


def translate(error: psycopg.Error) -> ApiaryError:  # noqa: PLR0911  (one per kind)
    """The platform's error for one of PostgreSQL's."""
    state = error.sqlstate or ""
    message = _PYTHON_PREFIX.sub("", error.diag.message_primary or str(error))
    if state == _ERROR and error.diag.message_detail:
        return ApiaryError.from_json(json.loads(error.diag.message_detail))
    if state in _OF_RUNS:
        return _OF_RUNS[state](message, error.diag.message_detail or "", error.diag.message_hint)
    if is_conflict(error):
        return TransactionConflict(message, sqlstate=state)
    if is_connection_failure(error):
        return UnavailableError(
            f"the database is not reachable: {message.strip()}",
            hint="repeat the call with the same run id when it is back",
        )
    if state == "57014":
        return _cancelled(message)
    if state.startswith("53"):
        return UnavailableError(
            f"the database has run out of a resource: {message}", sqlstate=state
        )
    return StatementError.of(
        message,
        sqlstate=state,
        constraint=error.diag.constraint_name,
        detail=error.diag.message_detail,
    )


def _lease_lost(message: str, detail: str, _hint: str | None) -> ApiaryError:
    return LeaseLost(message, hint="another executor goes on with the run", state=detail)


def _wrong_state(message: str, detail: str, hint: str | None) -> ApiaryError:
    return WrongState(message, hint=hint, run_id=detail)


def _not_found(message: str, detail: str, hint: str | None) -> ApiaryError:
    kind, _, name = detail.partition(" ")
    return NotFound(message, hint=hint, kind=kind, name=name)


def _id_taken(message: str, detail: str, _hint: str | None) -> ApiaryError:
    return IdempotencyMismatch(
        f"{message} by another workflow or input",
        hint="use a new run id, or repeat the recorded call to get its result",
        **json.loads(detail),
    )


_OF_RUNS = {
    _LEASE_LOST: _lease_lost,
    _WRONG_STATE: _wrong_state,
    _NOT_FOUND: _not_found,
    _ID_TAKEN: _id_taken,
}
