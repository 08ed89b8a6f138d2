"""The checks of `apiary doctor`: each says what it found, and how to mend it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psycopg

from ..engine import migrating
from ..errors import ApiaryError, ConfigurationError
from ..local.binaries import SUPPORTED
from . import settings
from .database import Connection, connect

__all__ = ["Check", "State", "database_checks", "local_checks"]

MAX_CLOCK_SKEW_S = 1.0
_PYTHON = (3, 11)
_SERVER_PYTHON = (3, 10)  # what runs in the backend is written for it
_ROLES = ("apiary_owner", "apiary_deployer", "apiary_runtime", "apiary_reader")


class State(StrEnum):
    """What came of a check."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"  # what it needs is missing, which another check says


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    found: str
    mend: str | None = None


def local_checks(folder: Path | None) -> Iterator[Check]:
    """What can be checked without any server: this Python, PostgreSQL's binaries, the application.

    Without a ``folder``, the current one is looked at, and need not be an application.
    """
    yield _python()
    yield _attempt("postgresql binaries", _binaries)
    if folder is None and not any(Path(root).is_dir() for root in ("functions", "workflows")):
        yield Check(
            name="application",
            state=State.SKIPPED,
            found="this folder is no application",
            mend="apiary init NAME makes one",
        )
    else:
        yield from _application(folder or Path())


def database_checks(url: settings.Setting) -> Iterator[Check]:
    """What a connection to the database can tell."""
    if url.value is None:
        yield Check(
            name="database", state=State.SKIPPED, found="no database is named", mend=url.origin
        )
        return
    try:
        connection = connect(url)
    except ApiaryError as error:
        yield _failed("database", error)
        return
    with connection:
        yield Check(name="database", state=State.OK, found=_where(connection))
        yield _attempt("server version", lambda: _version(connection))
        yield _attempt("plpython3u", lambda: _extension(connection))
        yield _attempt("clock", lambda: _clock(connection))
        migrated = _attempt("migrations", lambda: _migrations(connection))
        yield migrated
        yield _attempt("roles", lambda: _roles(connection))
        if migrated.state is State.OK:
            yield _attempt("privileges", lambda: _privileges(connection))
            yield _attempt("server's python", lambda: _server_python(connection))


def _attempt(name: str, check: Callable[[], str]) -> Check:
    """The outcome of a check that raises ApiaryError (with its hint) when something is wrong."""
    try:
        return Check(name=name, state=State.OK, found=check())
    except ApiaryError as error:
        return _failed(name, error)
    except psycopg.Error as error:
        return Check(
            name=name,
            state=State.FAILED,
            found=str(error).strip(),
            mend="this role may not look: use the URL of a superuser or of the deployer",
        )


def _failed(name: str, error: ApiaryError) -> Check:
    return Check(name=name, state=State.FAILED, found=error.message, mend=error.hint)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _PYTHON:
        return Check(name="python", state=State.OK, found=version)
    return Check(
        name="python", state=State.FAILED, found=version, mend="install Python 3.11 or newer"
    )


def _binaries() -> str:
    from ..local import find_installation

    installation = find_installation()
    return f"{installation.version_text} in {installation.bin_dir}, with PL/Python"


def _application(folder: Path) -> Iterator[Check]:
    from ..authoring.analysis import Module, analyse
    from ..authoring.application import Application

    try:
        application = Application.read(folder)
        analysis = analyse(
            Module(name=module.name, file=module.file, source=module.source)
            for module in application.modules
        )
    except ApiaryError as error:
        yield _failed("application", error)
        return
    if analysis.problems:
        for problem in analysis.problems:
            yield Check(
                name="application",
                state=State.FAILED,
                found=f"{problem.file}:{problem.line}: {problem.message}",
                mend="correct it there; `apiary deploy --check` tries everything",
            )
        return
    counts = (
        f"{len(analysis.functions)} functions, {len(analysis.steps)} steps, "
        f"{len(analysis.workflows)} workflows"
    )
    yield Check(name="application", state=State.OK, found=f"{application.name}: {counts}")


def _where(connection: Connection) -> str:
    info = connection.info
    return f"{info.dbname} at {info.host}:{info.port} as {info.user}"


def _one(connection: Connection, statement: str, *parameters: object) -> tuple[object, ...]:
    row = connection.execute(statement.encode(), parameters or None).fetchone()
    assert row is not None  # every statement here yields a row
    return row


def _version(connection: Connection) -> str:
    major = connection.info.server_version // 10000
    if major not in SUPPORTED:
        raise ConfigurationError(
            f"PostgreSQL {major} is not supported", hint="use a server of version 14 to 18"
        )
    return str(_one(connection, "SHOW server_version")[0])


def _extension(connection: Connection) -> str:
    available, installed = _one(
        connection,
        "SELECT max(default_version), max(installed_version) FROM pg_available_extensions"
        " WHERE name = 'plpython3u'",
    )
    if available is None:
        major = connection.info.server_version // 10000
        raise ConfigurationError(
            "the server has no PL/Python",
            hint=f"on its machine: apt-get install postgresql-plpython3-{major}",
        )
    if installed is None:
        raise ConfigurationError(
            "the extension is not created in this database",
            hint="apiary migrate, with a superuser's URL, does it",
        )
    return f"version {installed}"


def _clock(connection: Connection) -> str:
    before = time.time()
    [there] = _one(connection, "SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    assert isinstance(there, float)
    # Where in the round trip the database looked is not known: only what is outside counts.
    skew_s = max(before - there, there - after, 0.0)
    if skew_s > MAX_CLOCK_SKEW_S:
        raise ConfigurationError(
            f"the clocks here and in the database differ by {skew_s:.1f} s",
            hint="synchronise both with NTP; leases and schedules go by the database's clock",
        )
    return f"differs by less than {max(skew_s, after - before) + 0.001:.3f} s"


def _migrations(connection: Connection) -> str:
    migrating.require_current(connection)
    version, at = _one(connection, "SELECT version, installed_at FROM apiary.installation")
    return f"up to date (version {version}, installed {at:%Y-%m-%d %H:%M})"


def _roles(connection: Connection) -> str:
    rows = connection.execute(
        "SELECT rolname, rolsuper FROM pg_roles WHERE rolname = ANY(%s)", [list(_ROLES)]
    ).fetchall()
    known = {str(role): bool(is_superuser) for role, is_superuser in rows}
    missing = [role for role in _ROLES if role not in known]
    if missing:
        raise ConfigurationError(
            f"no role {', '.join(missing)}", hint="apiary migrate, with a superuser's URL, makes it"
        )
    superusers = [role for role, is_superuser in known.items() if is_superuser]
    if superusers:
        raise ConfigurationError(
            f"{superusers[0]} is a superuser", hint=f"ALTER ROLE {superusers[0]} NOSUPERUSER"
        )
    return ", ".join(_ROLES)


_WANTED = """
SELECT 'apiary_runtime may create objects in schema ' || n.nspname, 'REVOKE CREATE ON SCHEMA '
       || quote_ident(n.nspname) || ' FROM PUBLIC, apiary_runtime'
  FROM pg_namespace n
 WHERE n.nspname !~ '^pg_' AND has_schema_privilege('apiary_runtime', n.oid, 'CREATE')
UNION ALL
SELECT 'apiary_runtime may create schemas in this database', 'REVOKE CREATE ON DATABASE '
       || quote_ident(current_database()) || ' FROM PUBLIC, apiary_runtime'
 WHERE has_database_privilege('apiary_runtime', current_database(), 'CREATE')
UNION ALL
SELECT role || ' may not connect to this database', 'GRANT CONNECT ON DATABASE '
       || quote_ident(current_database()) || ' TO ' || role
  FROM unnest(ARRAY['apiary_runtime', 'apiary_deployer', 'apiary_reader']) role
 WHERE NOT has_database_privilege(role, current_database(), 'CONNECT')
UNION ALL
SELECT 'apiary_runtime may not execute ' || p.oid::regprocedure, 'GRANT EXECUTE ON FUNCTION '
       || p.oid::regprocedure || ' TO apiary_runtime'
  FROM pg_proc p
 WHERE p.pronamespace = 'apiary'::regnamespace
   AND p.proname IN ('invoke', 'recorded', 'log_attempt')
   AND NOT has_function_privilege('apiary_runtime', p.oid, 'EXECUTE')
UNION ALL
SELECT 'apiary_reader may ' || lower(privilege) || ' ' || c.oid::regclass, 'REVOKE ' || privilege
       || ' ON ' || c.oid::regclass || ' FROM PUBLIC, apiary_reader'
  FROM pg_class c, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) privilege
 WHERE c.relkind IN ('r', 'p', 'v')
   AND c.relnamespace IN ('apiary'::regnamespace, 'provenance'::regnamespace)
   AND has_table_privilege('apiary_reader', c.oid, privilege)
"""


def _privileges(connection: Connection) -> str:
    """Least privilege, as the catalogue says it is."""
    rows = connection.execute(_WANTED.encode()).fetchall()
    if rows:
        raise ConfigurationError(
            "; ".join(str(row[0]) for row in rows), hint="; ".join(str(row[1]) for row in rows)
        )
    return "runtime creates nothing, reader writes nothing"


def _server_python(connection: Connection) -> str:
    [version] = _one(connection, "SELECT apiary.python_version()")
    found = tuple(map(int, str(version).split(".")[:2]))
    if found < _SERVER_PYTHON:
        raise ConfigurationError(
            f"PL/Python runs Python {version}",
            hint="use a server whose PL/Python is 3.10 or newer: functions run in it",
        )
    return str(version)
