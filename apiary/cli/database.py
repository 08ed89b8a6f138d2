"""A direct connection to the database, for the commands that manage it."""

from __future__ import annotations

import psycopg

from ..errors import ApiaryError, ConfigurationError, Unauthenticated, UnavailableError
from .settings import Setting, masked

__all__ = ["Connection", "connect"]

Connection = psycopg.Connection[tuple[object, ...]]

_CONNECT_TIMEOUT_S = 10


def connect(url: Setting) -> Connection:
    """An autocommit connection.

    Raises UsageError when no database is named, ConfigurationError for a URL that is none,
    Unauthenticated for wrong credentials, UnavailableError when nobody answers.
    """
    text = url.required
    try:
        return psycopg.connect(
            text,
            autocommit=True,
            connect_timeout=_CONNECT_TIMEOUT_S,
            application_name="apiary cli",
        )
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            f"{masked(text)!r} ({url.origin}) is not a database URL: {str(error).strip()}",
            hint="it looks like postgresql://USER:PASSWORD@HOST:5432/DATABASE",
        ) from error
    except psycopg.OperationalError as error:
        raise _refused(str(error).strip(), url) from error


def _refused(said: str, url: Setting) -> ApiaryError:
    where = masked(url.value or "") or "the database of the PG* variables"
    if "authentication failed" in said or "no password supplied" in said:
        return Unauthenticated(
            f"{where} does not accept these credentials: {said}",
            hint="put the right user and password into the URL, or a password file (PGPASSFILE)",
        )
    if "does not exist" in said:
        return ConfigurationError(
            f"{where} cannot be used: {said}", hint="create it first: createdb NAME"
        )
    return UnavailableError(
        f"{where} cannot be reached: {said}",
        hint=f"is PostgreSQL running there? The URL came from {url.origin}",
    )
