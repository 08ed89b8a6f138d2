"""A small application with workflows of every kind."""

from __future__ import annotations

from pathlib import Path

from apiary.authoring.application import Application
from apiary.authoring.bundle import Bundle, build_bundle

FUNCTIONS = """
from apiary import ApplicationError, Database, function


class SoldOut(ApplicationError):
    code = "SOLD_OUT"


@function
def add(db: Database, key: str, amount: int) -> int:
    return db.value(
        "INSERT INTO ledger.entry (key, amount) VALUES ($1, $2)"
        " RETURNING (SELECT coalesce(sum(amount), 0) FROM ledger.entry WHERE key = $1) + $2",
        key, amount,
    )


@function
def total(db: Database, key: str) -> int:
    return db.value("SELECT coalesce(sum(amount), 0)::int FROM ledger.entry WHERE key = $1", key)


@function
def slowly(db: Database, key: str, duration_s: float) -> int:
    db.execute("INSERT INTO ledger.entry (key, amount) VALUES ($1, 1)", key)
    db.query("SELECT pg_sleep($1)", duration_s)
    return 1


@function
def refuse(db: Database, key: str) -> None:
    raise SoldOut(f"nothing left of {key}")
"""
WORKFLOWS = """
import datetime as dt
from decimal import Decimal

import apiary
from apiary import step, workflow
from functions import ledger


@workflow
def fill(key: str, amounts: list[int]) -> int:
    for amount in amounts:
        ledger.add(key, amount)
    return ledger.total(key)


@workflow
def fill_slowly(key: str, times: int, duration_s: float) -> int:
    done = 0
    for _ in range(times):
        done += ledger.slowly(key, duration_s)
    return done


@workflow
def fail(key: str) -> None:
    ledger.add(key, 1)
    ledger.refuse(key)


@step
def square(value: int) -> int:
    return value * value


@workflow
def squares(key: str, values: list[int]) -> list[int]:
    found = []
    for position, value in enumerate(values):
        found.append(square(value))
        ledger.add(key, value)
        apiary.progress(position + 1, len(values), f"squared {value}")
    return found


@workflow
def later(day: dt.date, price: Decimal) -> tuple[dt.date, Decimal]:
    square(1)
    return day + dt.timedelta(days=1), price * 2


@workflow
def nap(seconds: float) -> str:
    apiary.sleep(seconds)
    return "awake"


@workflow
def greet(topic: str, timeout_s: float | None = None) -> str:
    name = apiary.recv(topic, timeout_s=timeout_s)
    apiary.set_event("greeted", name)
    return f"hello {name}"


@workflow
def listen(run_id: str, key: str) -> str:
    return apiary.get_event(run_id, key)


@workflow
def count(up_to: int) -> int:
    for number in range(up_to):
        apiary.write_stream("numbers", number)
    apiary.recv("go")
    apiary.write_stream("numbers", "end")
    return up_to


@workflow
def parent(key: str) -> list[str]:
    first = greet.start(f"{key}-a")
    second = greet.start(f"{key}-b")
    return apiary.gather(first, second)
"""
TABLES = (
    "CREATE TABLE ledger.entry (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " key text NOT NULL, amount integer NOT NULL);\n"
)


def write_ledger(
    folder: Path, name: str = "ledgers", *, functions: str = FUNCTIONS, workflows: str = WORKFLOWS
) -> Path:
    """Write the application ``ledgers``."""
    place = folder / "functions" / "ledger"
    (place / "sql").mkdir(parents=True, exist_ok=True)
    (place / "__init__.py").write_text(functions)
    (place / "sql" / "001_tables.sql").write_text(TABLES)
    (folder / "workflows" / "books").mkdir(parents=True, exist_ok=True)
    (folder / "workflows" / "books" / "__init__.py").write_text(workflows)
    (folder / "apiary.toml").write_text(f'name = "{name}"\n')
    return folder


def ledger_bundle(folder: Path, *, workflows: str = WORKFLOWS) -> Bundle:
    """The application ``ledgers``, built."""
    return build_bundle(Application.read(write_ledger(folder, workflows=workflows)))
