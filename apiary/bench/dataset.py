"""The same rows for every system: the built-in application's tables, filled by formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from ..authoring.application import Application
from ..authoring.bundle import Bundle, build_bundle
from ..engine import storage
from .workloads import ACCOUNTS, Scale, last_name

__all__ = ["application", "create_tables", "effects", "fill"]

DOMAINS = ("bench", "hotel", "retwis", "shop", "tpcc")
Connection = psycopg.Connection[tuple[Any, ...]]


def application(provenance: str) -> Bundle:
    """The measured part of the built-in application, at a provenance level."""
    whole = Application.read(storage.application_root())
    measured = replace(
        whole,
        modules=tuple(
            module
            for module in whole.modules
            if "." not in module.name or module.name.split(".")[1] in DOMAINS
        ),
        scripts=tuple(script for script in whole.scripts if script.domain in DOMAINS),
        provenance=provenance,
    )
    return build_bundle(measured)


def create_tables(connection: Connection) -> None:
    """The application's tables in a database that knows nothing of the platform."""
    bundle = application("off")
    for domain in DOMAINS:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(domain)))
    for script in bundle.scripts:
        connection.execute(script.sql.encode())


def fill(connection: Connection, scale: Scale) -> None:
    """Fill the tables. As a superuser, who may leave triggers out: loading is not measured."""
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")
        for statement, parameters in _rows(scale):
            connection.execute(statement.encode(), parameters)
    connection.execute("VACUUM ANALYZE")


def _rows(scale: Scale) -> list[tuple[str, list[Any]]]:
    names = [last_name(number) for number in range(scale.customers)]
    return [
        (
            "INSERT INTO bench.account SELECT i, 1000000 FROM generate_series(0, %s) i",
            [ACCOUNTS - 1],
        ),
        (
            "INSERT INTO retwis.post SELECT i * 7919 %% %s, i, i, 'post ' || i || repeat(' x', 40)"
            " FROM generate_series(0, %s) i",
            [scale.users, scale.posts - 1],
        ),
        (
            "INSERT INTO retwis.followee SELECT u, (u * 31 + k) %% %s"
            " FROM generate_series(0, %s) u, generate_series(1, %s) k",
            [scale.users, scale.users - 1, scale.followees],
        ),
        (
            "INSERT INTO hotel.hotel SELECT i, 'Hotel ' || i, 2147483647"
            " FROM generate_series(0, %s) i",
            [scale.hotels - 1],
        ),
        (
            "INSERT INTO hotel.position SELECT i, i * 37 %% 90, i * 53 %% 90"
            " FROM generate_series(0, %s) i",
            [scale.hotels - 1],
        ),
        (
            "INSERT INTO shop.item (item_id, item_name, item_desc, cost, inventory)"
            " SELECT i, 'item ' || i || ' kind' || i %% 97, 'colour' || i %% 11 || ' of the shop',"
            " 900 + i * 7919 %% 1100, 100000000 FROM generate_series(0, %s) i",
            [scale.items - 1],
        ),
        (
            "INSERT INTO tpcc.warehouse SELECT i, i * 37 %% 2000, 30000000"
            " FROM generate_series(1, %s) i",
            [scale.warehouses],
        ),
        (
            "INSERT INTO tpcc.district SELECT w, d, d * 53 %% 2000, 3000000, 3001"
            " FROM generate_series(1, %s) w, generate_series(1, 10) d",
            [scale.warehouses],
        ),
        (
            "INSERT INTO tpcc.customer SELECT w, d, c, 'First' || c * 7919 %% 1000,"
            " (%s::text[])[c], c * 37 %% 5000, -1000, 1"
            " FROM generate_series(1, %s) w, generate_series(1, 10) d, generate_series(1, %s) c",
            [names, scale.warehouses, scale.customers],
        ),
        (
            "INSERT INTO tpcc.item SELECT i, 100 + i * 7919 %% 9900 FROM generate_series(1, %s) i",
            [scale.stock],
        ),
        (
            "INSERT INTO tpcc.stock SELECT w, i, 10 + i * 31 %% 91, 0, 0, 0"
            " FROM generate_series(1, %s) w, generate_series(1, %s) i",
            [scale.warehouses, scale.stock],
        ),
    ]


def effects(connection: Connection, queries: tuple[str, ...]) -> tuple[int, ...]:
    """What each query counts."""
    counted = []
    for query in queries:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None  # they aggregate
        counted.append(int(row[0] or 0))
    return tuple(counted)
