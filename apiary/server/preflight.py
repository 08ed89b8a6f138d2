"""Whether the database can be served from: told in one line at the start, not at a call."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from psycopg import pq

from ..engine.migrating import require_current
from ..engine.sqlstates import is_connection_failure
from ..errors import ConfigurationError, UnavailableError

__all__ = ["check_database"]

log = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S = 5
_FULL = ("too many", "connection slots")  # the server is there, and full


def check_database(url: str) -> None:
    """Connect as a server will, and see that the platform is installed and may be used.

    Raises UnavailableError when no database answers there, and ConfigurationError when the role,
    the password, the database or its installation are wrong.
    """
    try:
        connection = _connect(url)
    except psycopg.OperationalError as error:
        raise _refused(url, error) from error
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            f"the database URL cannot be read: {error}",
            hint="as in postgresql://user:password@host:5432/database",
        ) from error
    with connection:
        try:
            _check_privileges(connection)
            _warn_of_superuser(connection)
            require_current(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise _not_runtime(connection) from error
        except psycopg.Error as error:
            if not is_connection_failure(error):
                raise
            raise UnavailableError(f"the database went away: {_line(error)}") from error


def _connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    options: dict[str, Any] = {"application_name": "apiary server"}
    if "connect_timeout" not in url:
        options["connect_timeout"] = _CONNECT_TIMEOUT_S
    return psycopg.connect(url, autocommit=True, **options)


def _refused(url: str, error: psycopg.OperationalError) -> ConfigurationError | UnavailableError:
    """Why no connection was made. libpq gives only a text, in any language; a ping tells more."""
    reason = _line(error)
    answer = pq.PGconn.ping(url.encode())
    if answer == pq.Ping.OK and not any(text in reason for text in _FULL):
        return ConfigurationError(
            f"the database refuses the connection: {reason}",
            hint="check the user, password and database name of the database URL",
        )
    if answer == pq.Ping.NO_ATTEMPT:
        return ConfigurationError(f"the database URL cannot be used: {reason}")
    return UnavailableError(
        f"no database answers: {reason}",
        hint="start it, or check host and port of the database URL",
    )


def _check_privileges(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    row = connection.execute(
        "SELECT to_regnamespace('apiary') IS NOT NULL,"
        " coalesce(has_schema_privilege(to_regnamespace('apiary')::oid, 'USAGE'), false)"
    ).fetchone()
    assert row is not None  # the statement has one row
    installed, may_use = row
    if installed and not may_use:
        raise _not_runtime(connection)


def _warn_of_superuser(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    if connection.info.parameter_status("is_superuser") == "on":
        log.warning(
            "server_is_superuser role=%s: in production use a member of apiary_runtime",
            connection.info.user,
        )


def _not_runtime(connection: psycopg.Connection[tuple[Any, ...]]) -> ConfigurationError:
    user = connection.info.user
    return ConfigurationError(
        f"the database role {user} may not run functions",
        hint=f'as a superuser: GRANT apiary_runtime TO "{user}"',
        role=user,
    )


def _line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
