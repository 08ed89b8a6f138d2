"""Installing the platform into a PostgreSQL database, and bringing it up to date.

One transaction under one lock: a migration that fails leaves the database as it was, and two
servers that start at once do not race.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import psycopg

from ..errors import ConfigurationError, PermissionDenied
from . import storage

__all__ = ["MigrationPlan", "apply", "plan", "require_current", "script"]

# Functions are made anew: one whose parameters changed would else exist twice. The code makes the
# triggers that call them anew, too; anything else that depends on one is not ours to drop.
_DROP_FUNCTIONS = """\
DO $body$
DECLARE
    v_trigger record;
    v_function regprocedure;
BEGIN
    FOR v_trigger IN
        SELECT t.tgname AS name, t.tgrelid::regclass AS relation
          FROM pg_catalog.pg_trigger t
          JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
          JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
         WHERE p.pronamespace = 'apiary'::regnamespace AND c.relnamespace = 'apiary'::regnamespace
           AND NOT t.tgisinternal
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', v_trigger.name, v_trigger.relation);
    END LOOP;
    FOR v_function IN SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'apiary'::regnamespace
    LOOP
        EXECUTE format('DROP ROUTINE %s', v_function);
    END LOOP;
END
$body$;"""

_LOCK = 0x41706961  # of the advisory lock that serialises installations
_SUPPORTED = range(14, 19)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """What installing would do."""

    migrations: tuple[storage.SqlFile, ...]  # not applied yet, in order
    code: bool  # whether functions, views and the runtime are to be replaced

    @property
    def empty(self) -> bool:
        """Whether the database is up to date."""
        return not self.migrations and not self.code


def plan(connection: psycopg.Connection[tuple[object, ...]]) -> MigrationPlan:
    """What `apply` would do; refuses a server or a database that cannot be used."""
    major = connection.info.server_version // 10000
    if major not in _SUPPORTED:
        raise ConfigurationError(
            f"PostgreSQL {major} is not supported", hint="use a server of version 14 to 18"
        )
    applied: dict[str, str] = {}
    installed = None
    if connection.execute("SELECT to_regclass('apiary.migration')").fetchone() != (None,):
        rows = connection.execute("SELECT name, checksum FROM apiary.migration").fetchall()
        applied = {str(name): str(checksum) for name, checksum in rows}
        row = connection.execute("SELECT checksum FROM apiary.installation").fetchone()
        installed = row[0] if row else None
    pending = []
    for file in storage.migrations():
        if file.name not in applied:
            pending.append(file)
        elif applied[file.name] != file.checksum:
            raise ConfigurationError(
                f"migration {file.name} was applied with another text",
                hint="this database was installed by another build of apiary",
            )
    return MigrationPlan(migrations=tuple(pending), code=installed != _code_checksum())


def apply(connection: psycopg.Connection[tuple[object, ...]]) -> MigrationPlan:
    """Install or update the platform; return what was done. Needs a superuser the first time."""
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            todo = plan(connection)
            if not todo.empty:
                _apply(connection, todo)
    except psycopg.errors.InsufficientPrivilege as error:
        raise PermissionDenied(
            f"this role may not install apiary: {error}",
            hint="run `apiary migrate` with a superuser's URL; PL/Python is an untrusted language",
        ) from error
    except psycopg.errors.UndefinedFile as error:
        major = connection.info.server_version // 10000
        raise ConfigurationError(
            "the server has no PL/Python",
            hint=f"on its machine: apt-get install postgresql-plpython3-{major}",
        ) from error
    return todo


def script(todo: MigrationPlan) -> str:
    """What `apply` would run, as one SQL script that psql can run; empty when nothing is to do."""
    if todo.empty:
        return ""
    parts = ["BEGIN;", f"SELECT pg_advisory_xact_lock({_LOCK});"]
    for file in todo.migrations:
        parts.append(f"-- {file.name}\n{file.sql.rstrip()}\nRESET ROLE;")
    for file in todo.migrations:
        values = f"{_quoted(file.name)}, {_quoted(file.checksum)}"
        parts.append(f"INSERT INTO apiary.migration (name, checksum) VALUES ({values});")
    parts.append(_DROP_FUNCTIONS)
    for file in storage.code_files():
        parts.append(f"-- code/{file.name}\n{file.sql.rstrip()}\nRESET ROLE;")
    parts.append("DELETE FROM apiary.runtime_module;")
    for module in storage.runtime_modules():
        values = f"{_quoted(module.name)}, {_quoted(module.source)}, {module.is_package}"
        parts.append(
            f"INSERT INTO apiary.runtime_module (name, source, is_package) VALUES ({values});"
        )
    values = f"{_quoted(_version())}, {_quoted(_code_checksum())}"
    parts.append(
        "DELETE FROM apiary.installation;\n"
        f"INSERT INTO apiary.installation (version, checksum) VALUES ({values});"
    )
    return "\n\n".join([*parts, "COMMIT;"]) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def require_current(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """ConfigurationError when the database is not installed or not up to date."""
    if not plan(connection).empty:
        raise ConfigurationError(
            "the database is not at this version of apiary",
            hint="apiary migrate --database-url URL (as a superuser) brings it up to date",
        )


def _apply(connection: psycopg.Connection[tuple[object, ...]], todo: MigrationPlan) -> None:
    for file in todo.migrations:
        _run(connection, file)
    for file in todo.migrations:
        connection.execute(
            "INSERT INTO apiary.migration (name, checksum) VALUES (%s, %s)",
            [file.name, file.checksum],
        )
    connection.execute(_DROP_FUNCTIONS)
    for file in storage.code_files():
        _run(connection, file)
    connection.execute("DELETE FROM apiary.runtime_module")
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO apiary.runtime_module (name, source, is_package) VALUES (%s, %s, %s)",
            [(m.name, m.source, m.is_package) for m in storage.runtime_modules()],
        )
    connection.execute("SELECT apiary.compile_runtime()")
    connection.execute(
        "INSERT INTO apiary.installation (version, checksum) VALUES (%s, %s)"
        " ON CONFLICT (only_row) DO UPDATE SET version = excluded.version,"
        " checksum = excluded.checksum, installed_at = clock_timestamp()",
        [_version(), _code_checksum()],
    )


def _run(connection: psycopg.Connection[tuple[object, ...]], file: storage.SqlFile) -> None:
    try:
        connection.execute(file.sql.encode())
        connection.execute("RESET ROLE")
    except psycopg.Error as error:
        error.add_note(f"while applying storage/postgres/{file.name}")
        raise


def _code_checksum() -> str:
    digest = hashlib.sha256()
    for text in _code_texts():
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _code_texts() -> Iterator[str]:
    for file in storage.code_files():
        yield file.sql
    for module in storage.runtime_modules():
        yield module.name
        yield module.source


def _version() -> str:
    try:
        return version("apiary")
    except PackageNotFoundError:
        return "checkout"
