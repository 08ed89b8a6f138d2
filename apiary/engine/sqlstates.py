"""Errors of PostgreSQL and of the in-backend runtime, as the platform's errors."""

from __future__ import annotations

import json

import psycopg

from ..errors import (
    ApiaryError,
    Cancelled,
    DeadlineExceeded,
    StatementError,
    TransactionConflict,
    UnavailableError,
)

__all__ = ["DUPLICATE", "SESSION", "is_conflict", "is_connection_failure", "translate"]

# The states that storage/postgres/runtime raises.
_ERROR = "AP001"
DUPLICATE = "AP002"
SESSION = "AP003"

_CONFLICTS = {"40001", "40P01"}
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
    if message.endswith(_STATEMENT_TIMEOUT):  # PL/Python puts the exception's name before it
        return DeadlineExceeded("the statement ran into its timeout and was rolled back")
    return Cancelled("the statement was cancelled and rolled back")


def translate(error: psycopg.Error) -> ApiaryError:
    """The platform's error for one of PostgreSQL's."""
    state = error.sqlstate or ""
    message = error.diag.message_primary or str(error)
    if state == _ERROR and error.diag.message_detail:
        return ApiaryError.from_json(json.loads(error.diag.message_detail))
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
