"""Storing a deployment: one transaction, so that a failure at any statement changes nothing.

The order: the application and its schemas; its table scripts, run with the application's role; the
deployment's rows; capture triggers on its tables; callable SQL functions; a check inside the
backend that every function's module imports and every statement prepares; and last the switch of
the current deployment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Json

from ..authoring.bundle import Bundle
from ..authoring.loader import SourceModule
from ..errors import ConflictError, DeployError, NotFound, PermissionDenied
from .sqlstates import translate

__all__ = ["Deployed", "deploy", "rollback"]

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
        with connection.transaction():
            deployed.append(_deploy(connection, bundle, principal))
            if check_only:
                raise _CheckOnly
    except _CheckOnly:
        pass
    except psycopg.errors.InsufficientPrivilege as error:
        raise PermissionDenied(
            f"this role may not deploy: {error}",
            hint="deploy with a role that is a member of apiary_deployer",
        ) from error
    except psycopg.Error as error:
        raise translate(error) from error
    return deployed[0]


def rollback(connection: psycopg.Connection[Any], application: str, *, principal: str) -> Deployed:
    """Let the deployment before the current one serve again. Tables stay as they are."""
    with connection.transaction():
        current = _lock(connection, application)
        row = connection.execute(
            "SELECT deployment FROM apiary.activation WHERE application = %s AND deployment <> %s"
            " AND id < (SELECT max(id) FROM apiary.activation"
            "            WHERE application = %s AND deployment = %s AND kind = 'deploy')"
            " ORDER BY id DESC LIMIT 1",
            [application, current, application, current],
        ).fetchone()
        if row is None:
            raise NotFound(f"{application} has no deployment before {current}", kind="deployment")
        previous = str(row[0])
        names = _names(connection, previous)
        _install_callable_functions(
            connection, application, _stored_functions(connection, previous)
        )
        _activate(connection, application, previous, principal, "rollback")
    return Deployed(
        application=application,
        deployment=previous,
        previous=current,
        changed=True,
        functions=names[0],
        workflows=names[1],
        scripts=(),
    )


def _deploy(connection: psycopg.Connection[Any], bundle: Bundle, principal: str) -> Deployed:
    connection.execute("SELECT apiary.create_application(%s)", [bundle.application])
    current = _lock(connection, bundle.application)
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
    _install_callable_functions(connection, bundle.application, bundle.functions)
    _activate(connection, bundle.application, bundle.id, principal, "deploy")
    connection.execute("SELECT apiary.check_deployment(%s, %s)", [bundle.application, bundle.id])
    return Deployed(**{**_fields(result), "scripts": applied})


def _fields(deployed: Deployed) -> dict[str, Any]:
    return {name: getattr(deployed, name) for name in Deployed.__dataclass_fields__}


def _lock(connection: psycopg.Connection[Any], application: str) -> str | None:
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK, application])
    row = connection.execute(
        "SELECT current FROM apiary.application WHERE name = %s", [application]
    ).fetchone()
    if row is None:
        raise NotFound(f"no application {application!r} in this database", kind="application")
    return None if row[0] is None else str(row[0])


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
    transaction = _transaction_id(connection)
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
    try:
        connection.execute(text.encode())
    except psycopg.Error as error:
        position = error.diag.statement_position
        line = text.encode()[: int(position) - 1].count(b"\n") + 1 if position else None
        raise DeployError(
            f"{file}{'' if line is None else f':{line}'}: {error.diag.message_primary or error}",
            hint=error.diag.message_hint,
            file=file,
            line=line,
            sqlstate=error.sqlstate,
        ) from error
    if _transaction_id(connection) != transaction:
        raise DeployError(
            f"{file} ends the transaction that it is applied in",
            hint="remove COMMIT and ROLLBACK: a deploy applies all scripts in one transaction",
            file=file,
        )
    connection.execute("RESET ROLE")


def _transaction_id(connection: psycopg.Connection[Any]) -> object:
    row = connection.execute("SELECT pg_current_xact_id()").fetchone()
    return row and row[0]


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


def _install_callable_functions(
    connection: psycopg.Connection[Any], application: str, functions: Sequence[Mapping[str, Any]]
) -> None:
    """Replace the SQL functions by which plain SQL calls the application's functions."""
    old = connection.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc p"
        " JOIN pg_namespace n ON n.oid = p.pronamespace"
        " JOIN apiary.domain d ON d.name = n.nspname"
        " WHERE d.application = %s AND obj_description(p.oid, 'pg_proc') = 'apiary function'",
        [application],
    ).fetchall()
    # The functions belong to the application's role, which cannot see what their bodies call.
    connection.execute("SET LOCAL check_function_bodies = off")
    role = sql.Identifier(f"apiary_app_{application}")
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
    for (signature,) in old:
        connection.execute(f"DROP FUNCTION {signature}".encode())
    for function in functions:
        parameters = [(p["name"], p["sql_type"]) for p in function["signature"]["parameters"]]
        _create_callable(connection, application, function["name"], parameters)
    connection.execute("RESET ROLE")


def _create_callable(
    connection: psycopg.Connection[Any],
    application: str,
    name: str,
    parameters: Sequence[tuple[str, str]],
) -> None:
    target = sql.Identifier(*name.split(".", 1))
    declared = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(parameter), sql.SQL(type_name))
        for parameter, type_name in parameters
    )
    input_document = sql.SQL(", ").join(
        sql.SQL("{}, {}").format(
            sql.Literal(parameter), sql.SQL(_to_json(type_name)).format(sql.SQL(f"${number + 1}"))
        )
        for number, (parameter, type_name) in enumerate(parameters)
    )
    body = sql.SQL("SELECT apiary.call({}, {}, pg_catalog.json_build_object({}))").format(
        sql.Literal(application), sql.Literal(name), input_document
    )
    connection.execute(
        sql.SQL("CREATE FUNCTION {}({}) RETURNS json LANGUAGE sql AS {}").format(
            target, declared, sql.Literal(body.as_string(connection))
        )
    )
    connection.execute(
        sql.SQL("COMMENT ON FUNCTION {}({}) IS 'apiary function'").format(
            target, sql.SQL(", ").join(sql.SQL(type_name) for _, type_name in parameters)
        )
    )


def _to_json(type_name: str) -> str:
    """How a parameter of this SQL type is written in a function's JSON input."""
    return {
        "numeric": "{}::text",
        "bytea": "pg_catalog.encode({}, 'base64')",
        "uuid": "{}::text",
        "timestamptz": "pg_catalog.to_json({})",
        "interval": "pg_catalog.json_build_object('$timedelta',"
        " (pg_catalog.date_part('epoch', {}) * 1000000)::bigint)",
    }.get(type_name, "{}")


def _activate(
    connection: psycopg.Connection[Any],
    application: str,
    deployment: str,
    principal: str,
    kind: str,
) -> None:
    connection.execute(
        "UPDATE apiary.application SET current = %s WHERE name = %s", [deployment, application]
    )
    connection.execute(
        "INSERT INTO apiary.activation (application, deployment, activated_by, kind)"
        " VALUES (%s, %s, %s, %s)",
        [application, deployment, principal, kind],
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
