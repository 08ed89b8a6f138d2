"""Storing a deployment: one transaction, so that a failure at any statement changes nothing.

The order: the application and its schemas; its table scripts, run with the application's role; the
deployment's rows; capture triggers on its tables; callable SQL functions; a check inside the
backend that every function's module imports and every statement prepares; and last the switch of
the current deployment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Json

from ..authoring.bundle import Bundle
from ..authoring.loader import SourceModule
from ..errors import (
    ApiaryError,
    ConflictError,
    DeployError,
    NotFound,
    PermissionDenied,
    StatementError,
    WrongState,
)
from .callables import install_callable_functions
from .scripts import ScriptStatement, split_script
from .sqlstates import translate

__all__ = ["Deployed", "deploy", "remove_deployment", "rollback"]

_LOCK = 0x4465706C  # first key of the advisory locks that serialise deploys per application


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What a deploy or rollback did."""

    application: str
    deployment: str
    previous: str | None  # the deployment that served before
    changed: bool  # false: this content was serving already
    functions: tuple[str, ...]
    workflows: tuple[str, ...]
    scripts: tuple[str, ...]  # table scripts that were applied now


# An activation stands for itself, or for the one that a rollback went back to. The deployment
# before the current one is what the activation before that one stands for, so that each rollback
# goes further back.
_BEFORE_CURRENT = """
WITH standing AS (
    SELECT id, coalesce(restores, id) AS stands_for FROM apiary.activation WHERE application = %s
)
SELECT deploy.id, deploy.deployment
  FROM standing before JOIN apiary.activation deploy ON deploy.id = before.stands_for
 WHERE before.id < (SELECT stands_for FROM standing ORDER BY id DESC LIMIT 1)
 ORDER BY before.id DESC LIMIT 1"""


class _CheckOnly(Exception):
    """Ends a deploy that was only to be checked, so that its transaction rolls back."""


def deploy(
    connection: psycopg.Connection[Any],
    bundle: Bundle,
    *,
    principal: str,
    check_only: bool = False,
) -> Deployed:
    """Store ``bundle`` and let it serve new calls; with ``check_only`` do all of it, then undo it.

    Raises DeployError (with ``file`` and ``line`` where they are known), ConflictError for an
    edited script, PermissionDenied when the connection's role may not deploy.
    """
    deployed: list[Deployed] = []
    try:
        with _deploy_errors(), connection.transaction():
            deployed.append(_deploy(connection, bundle, principal))
            if check_only:
                raise _CheckOnly
    except _CheckOnly:
        pass
    return deployed[0]


@contextmanager
def _deploy_errors() -> Iterator[None]:
    """Raise what the database refuses as the platform's errors."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise PermissionDenied(
            f"this role may not deploy: {error.diag.message_primary}",
            hint="deploy with a role that is a member of apiary_deployer",
        ) from error
    except psycopg.errors.DuplicateSchema as error:
        raise ConflictError(
            f"{error.diag.message_primary}",
            hint="each domain is a schema of one application: rename the folder in functions/",
        ) from error
    except psycopg.Error as error:
        raise _refusal(translate(error)) from error


def _refusal(error: ApiaryError) -> ApiaryError:
    """A statement that the database refused, as what it is here: a reason not to deploy."""
    if not isinstance(error, StatementError):
        return error
    return DeployError(error.message, hint=error.hint, **error.metadata)


def rollback(connection: psycopg.Connection[Any], application: str, *, principal: str) -> Deployed:
    """Let the deployment that served before the current one serve again.

    Tables stay as they are. Repeated, it goes back further, to the first deployment; then it
    raises NotFound.
    """
    with _deploy_errors(), connection.transaction():
        _lock(connection, application)
        current = _current(connection, application)
        if current is None:
            raise NotFound(f"no application {application!r} in this database", kind="application")
        restored = connection.execute(_BEFORE_CURRENT, [application]).fetchone()
        if restored is None:
            raise NotFound(f"{application} has no deployment before {current}", kind="deployment")
        previous = str(restored[1])
        names = _names(connection, previous)
        install_callable_functions(connection, application, _stored_functions(connection, previous))
        _activate(connection, application, previous, principal, restores=restored[0])
    return Deployed(
        application=application,
        deployment=previous,
        previous=current,
        changed=True,
        functions=names[0],
        workflows=names[1],
        scripts=(),
    )


def remove_deployment(
    connection: psycopg.Connection[Any], application: str, deployment: str
) -> None:
    """Remove a deployment's code and description; what it recorded stays.

    NotFound when there is none; WrongState when it is the current one, or runs that have not ended
    still need it.
    """
    with _deploy_errors(), connection.transaction():
        _lock(connection, application)
        known = connection.execute(
            "SELECT FROM apiary.deployment WHERE id = %s AND application = %s FOR UPDATE",
            [deployment, application],
        ).fetchone()
        if known is None:
            raise NotFound(
                f"{application} has no deployment {deployment}",
                hint="apiary deployment list shows what there is",
                kind="deployment",
                name=deployment,
            )
        if _current(connection, application) == deployment:
            raise WrongState(
                f"deployment {deployment} is the current one of {application}",
                hint="deploy another version first, or roll back",
                deployment=deployment,
            )
        row = connection.execute(
            "SELECT count(*), min(run_id) FROM apiary.run"
            " WHERE deployment = %s AND finished_at IS NULL",
            [deployment],
        ).fetchone()
        if row is not None and row[0]:
            raise WrongState(
                f"deployment {deployment} has {row[0]} runs that have not ended, as {row[1]}",
                hint="let them end, cancel them, or fork them to another deployment first",
                deployment=deployment,
                live_runs=row[0],
            )
        connection.execute("DELETE FROM apiary.activation WHERE deployment = %s", [deployment])
        connection.execute("DELETE FROM apiary.deployment WHERE id = %s", [deployment])


def _deploy(connection: psycopg.Connection[Any], bundle: Bundle, principal: str) -> Deployed:
    _lock(connection, bundle.application)
    connection.execute("SELECT apiary.create_application(%s)", [bundle.application])
    current = _current(connection, bundle.application)
    result = Deployed(
        application=bundle.application,
        deployment=bundle.id,
        previous=current,
        changed=current != bundle.id,
        functions=tuple(function["name"] for function in bundle.functions),
        workflows=tuple(w["name"] for w in bundle.workflows if w["kind"] == "workflow"),
        scripts=(),
    )
    if not result.changed:
        return result
    connection.execute(
        "UPDATE apiary.application SET provenance = %s WHERE name = %s",
        [bundle.provenance, bundle.application],
    )
    applied = _apply_scripts(connection, bundle)
    _store(connection, bundle, principal)
    connection.execute("SELECT apiary.capture_tables(%s)", [bundle.application])
    install_callable_functions(connection, bundle.application, bundle.functions)
    _activate(connection, bundle.application, bundle.id, principal)
    connection.execute("SELECT apiary.check_deployment(%s, %s)", [bundle.application, bundle.id])
    return Deployed(**{**_fields(result), "scripts": applied})


def _fields(deployed: Deployed) -> dict[str, Any]:
    return {name: getattr(deployed, name) for name in Deployed.__dataclass_fields__}


def _lock(connection: psycopg.Connection[Any], application: str) -> None:
    """Wait for other deploys of the application, and see what they did."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK, application])


def _current(connection: psycopg.Connection[Any], application: str) -> str | None:
    row = connection.execute(
        "SELECT current FROM apiary.application WHERE name = %s", [application]
    ).fetchone()
    return None if row is None or row[0] is None else str(row[0])


def _apply_scripts(connection: psycopg.Connection[Any], bundle: Bundle) -> tuple[str, ...]:
    domains = {script.domain for script in bundle.scripts}
    domains.update(function["name"].partition(".")[0] for function in bundle.functions)
    for domain in sorted(domains):
        connection.execute("SELECT apiary.create_domain(%s, %s)", [bundle.application, domain])
    known = {
        (str(domain), str(name)): str(checksum)
        for domain, name, checksum in connection.execute(
            "SELECT domain, name, checksum FROM apiary.table_script WHERE application = %s",
            [bundle.application],
        )
    }
    applied = []
    for script in bundle.scripts:
        checksum = hashlib.sha256(script.sql.encode()).hexdigest()
        recorded = known.get((script.domain, script.name))
        if recorded is None:
            _run_script(connection, bundle.application, script.file, script.sql)
            connection.execute(
                "INSERT INTO apiary.table_script (application, domain, name, checksum)"
                " VALUES (%s, %s, %s, %s)",
                [bundle.application, script.domain, script.name, checksum],
            )
            applied.append(script.file)
        elif recorded != checksum:
            raise ConflictError(
                f"{script.file} was edited after it had been applied",
                hint="put the change into a new file with the next number",
                file=script.file,
            )
    return tuple(applied)


def _run_script(
    connection: psycopg.Connection[Any], application: str, file: str, text: str
) -> None:
    role = sql.Identifier(f"apiary_app_{application}")
    statements = list(split_script(text))
    for statement in statements:
        if statement.is_transaction_command:
            raise DeployError(
                f"{file}:{statement.line}: {statement.words[0]} in a table script",
                hint="remove it: a deploy applies all scripts in one transaction of its own",
                file=file,
                line=statement.line,
            )
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
    for statement in statements:
        _run_statement(connection, file, statement)
    connection.execute("RESET ROLE")


def _run_statement(
    connection: psycopg.Connection[Any], file: str, statement: ScriptStatement
) -> None:
    try:
        connection.execute(statement.text.encode())
    except psycopg.Error as error:
        position = error.diag.statement_position
        line = statement.line if position is None else statement.line_of(int(position))
        raise DeployError(
            f"{file}:{line}: {error.diag.message_primary or error}",
            hint=error.diag.message_hint,
            file=file,
            line=line,
            sqlstate=error.sqlstate,
        ) from error


def _store(connection: psycopg.Connection[Any], bundle: Bundle, principal: str) -> None:
    stored = connection.execute(
        "INSERT INTO apiary.deployment (id, application, created_by) VALUES (%s, %s, %s)"
        " ON CONFLICT (id) DO NOTHING",
        [bundle.id, bundle.application, principal],
    )
    if stored.rowcount == 0:
        return  # this content was deployed before; its rows are still here
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO apiary.module (deployment, name, file, source, is_package)"
            " VALUES (%s, %s, %s, %s, %s)",
            [_module_values(bundle.id, module) for module in bundle.modules],
        )
    for table, rows in (("function", bundle.functions), ("workflow", bundle.workflows)):
        for row in rows:
            _insert(connection, table, {"deployment": bundle.id, **row})


def _module_values(deployment: str, module: SourceModule) -> Sequence[object]:
    return [deployment, module.name, module.file, module.source, module.is_package]


_COLUMNS = {
    "function": "deployment name module qualname file line signature doc isolation timeout_ms "
    "partition read_only dynamic reads writes statements",
    "workflow": "deployment name kind module qualname file line signature doc in_database reasons "
    "options",
}
_JSON_COLUMNS = {"signature", "statements", "reasons", "options"}


def _insert(connection: psycopg.Connection[Any], table: str, row: Mapping[str, Any]) -> None:
    columns = _COLUMNS[table].split()
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier("apiary", table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
    )
    connection.execute(
        statement,
        [Json(row[column]) if column in _JSON_COLUMNS else row[column] for column in columns],
    )


def _stored_functions(connection: psycopg.Connection[Any], deployment: str) -> list[dict[str, Any]]:
    rows = connection.execute(
        "SELECT name, signature FROM apiary.function WHERE deployment = %s", [deployment]
    )
    return [{"name": name, "signature": signature} for name, signature in rows]


def _activate(
    connection: psycopg.Connection[Any],
    application: str,
    deployment: str,
    principal: str,
    restores: int | None = None,
) -> None:
    connection.execute(
        "UPDATE apiary.application SET current = %s WHERE name = %s", [deployment, application]
    )
    connection.execute(
        "INSERT INTO apiary.activation (application, deployment, activated_by, kind, restores)"
        " VALUES (%s, %s, %s, %s, %s)",
        [application, deployment, principal, "rollback" if restores else "deploy", restores],
    )


def _names(
    connection: psycopg.Connection[Any], deployment: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    functions = connection.execute(
        "SELECT name FROM apiary.function WHERE deployment = %s ORDER BY name", [deployment]
    ).fetchall()
    workflows = connection.execute(
        "SELECT name FROM apiary.workflow"
        " WHERE deployment = %s AND kind = 'workflow' ORDER BY name",
        [deployment],
    ).fetchall()
    return tuple(str(row[0]) for row in functions), tuple(str(row[0]) for row in workflows)
