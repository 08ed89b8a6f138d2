"""Small applications for tests, written to a folder and built."""

from __future__ import annotations

from pathlib import Path

from apiary.authoring.application import Application
from apiary.authoring.bundle import Bundle, build_bundle

ODD = """
from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from apiary import ApplicationError, Database, function


class Refused(ApplicationError):
    code = "REFUSED"

    def __init__(self, left: int) -> None:
        super().__init__(f"only {left} left")
        self.left = left


@function
def put(db: Database, value: int) -> int:
    db.execute("INSERT INTO odd.item (value) VALUES ($1)", value)
    print("put", value)
    return value


@function
def refuse(db: Database, left: int) -> None:
    db.execute("INSERT INTO odd.item (value) VALUES ($1)", left)
    raise Refused(left)


@function
def fail(db: Database, message: str) -> None:
    db.execute("INSERT INTO odd.item (value) VALUES (1)")
    raise ValueError(message)


@function
def loop(db: Database) -> None:
    while True:
        pass


@function(timeout_s=0.3)
def loop_with_timeout(db: Database) -> None:
    while True:
        pass


@function
def sleep(db: Database, duration_s: float) -> None:
    db.execute("INSERT INTO odd.item (value) VALUES (2)")
    db.query("SELECT pg_sleep($1)", duration_s)


@function
def bad_result(db: Database) -> int:
    return object()


@function
def big_result(db: Database, size: int) -> str:
    return "x" * size


@function
def echo(db: Database, value: Any) -> Any:
    return value


@function
def later(db: Database, day: dt.date, price: Decimal) -> tuple[dt.date, Decimal]:
    return day + dt.timedelta(days=1), price * 2
"""
TABLES = (
    "CREATE TABLE odd.item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value bigint);\n"
)


def odd_application(folder: Path) -> Bundle:
    """The application ``oddities``: functions that do what functions should not."""
    return build_bundle(Application.read(write(folder, "oddities", {"odd": ODD}, {"odd": TABLES})))


def write(
    folder: Path, name: str, functions: dict[str, str], tables: dict[str, str] | None = None
) -> Path:
    """Write an application: the source and the table script of each domain."""
    for domain, source in functions.items():
        place = folder / "functions" / domain
        (place / "sql").mkdir(parents=True, exist_ok=True)
        (place / "__init__.py").write_text(source)
        if tables and domain in tables:
            (place / "sql" / "001_tables.sql").write_text(tables[domain])
    (folder / "apiary.toml").write_text(f'name = "{name}"\n')
    return folder
