"""The SQL functions by which plain SQL calls an application's functions.

    SELECT shop.checkout(5);    -- in a session of the function's isolation level

Each has its function's parameters with real SQL types, and hands them to `apiary.call` as the JSON
document that any other caller would send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

__all__ = ["install_callable_functions"]


def install_callable_functions(
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
        sql.SQL("{}, {}").format(sql.Literal(parameter), _parameter_json(type_name, number + 1))
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


def _parameter_json(type_name: str, number: int) -> sql.Composed:
    template = _to_json(type_name)
    places = template.replace("{{", "").count("{}")
    return sql.SQL(template).format(*[sql.SQL(f"${number}")] * places)


def _to_json(type_name: str) -> str:
    """How a parameter of this SQL type is written in a function's JSON input."""
    return {
        "numeric": "{}::text",
        "bytea": "pg_catalog.translate(pg_catalog.encode({}, 'base64'), E'\\n', '')",
        "uuid": "{}::text",
        "interval": "CASE WHEN {} IS NOT NULL THEN pg_catalog.json_build_object('$timedelta',"
        " (EXTRACT(epoch FROM {}) * 1000000)::bigint) END",
        "double precision": "CASE WHEN {} = 'NaN' THEN '{{\"$float\": \"nan\"}}'::json"
        " WHEN {} = 'Infinity' THEN '{{\"$float\": \"inf\"}}'"
        " WHEN {} = '-Infinity' THEN '{{\"$float\": \"-inf\"}}' ELSE pg_catalog.to_json({}) END",
    }.get(type_name, "{}")
