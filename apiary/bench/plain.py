"""The application's functions outside the database: statement by statement over a connection.

What an application without Apiary would run. The bodies are the very same, so that the statements
are; only where they run differs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import RawCursor
from psycopg_pool import ConnectionPool

from ..authoring.context import Context, running_in
from ..authoring.database import Database, Row
from ..authoring.decorators import Function, Registered, Step
from ..authoring.loader import DeploymentCode
from ..errors import UsageError
from .dataset import application

__all__ = ["POOL_SIZE", "Application", "PsycopgDatabase", "serializable_pool"]

T = TypeVar("T")
Connection = psycopg.Connection[Any]
POOL_SIZE = 16  # connections of every system, Apiary's default
_CONFLICTS = ("40001", "40P01")
_FIRST_DELAY_S, _FACTOR, _MAX_DELAY_S = 0.001, 1.5, 2.0  # as Apiary retries


def row_of(cursor: Any) -> Callable[[Sequence[Any]], Row]:
    """A row factory: rows as functions see them."""
    names = [column.name for column in cursor.description or ()]
    return lambda values: Row(zip(names, values, strict=True))


class PsycopgDatabase(Database):
    """`Database` over a connection that is in a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._cursor: RawCursor[Row] = RawCursor(connection, row_factory=row_of)

    def execute(self, sql: str, *parameters: Any) -> int:
        return self._cursor.execute(sql.encode(), parameters).rowcount

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        return self._cursor.execute(sql.encode(), parameters).fetchall()

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        self._cursor.executemany(sql.encode(), rows)
        return self._cursor.rowcount


class _SameTransaction(Context):
    """Functions that a function calls run in its transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return target.body(self._database, *args, **kwargs)

    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise UsageError(f"{target.name}: a function starts nothing")

    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        raise UsageError(f"apiary.{name}() in a function")


class Application:
    """The functions and the step that other systems run."""

    def __init__(self) -> None:
        modules = application("off").modules
        code = DeploymentCode("bench", modules)
        found = list(code.registered([module.name for module in modules]))
        self._functions = {each.name: each for each in found if isinstance(each, Function)}
        self._steps = {each.name: each for each in found if isinstance(each, Step)}
        self.pair: Callable[[int, int, int], tuple[int, int]] = code.load("workflows.bench").pair

    def run(self, connection: Connection, target: str, arguments: dict[str, Any]) -> Any:
        """Run a function in the transaction that the connection is in; its result as JSON."""
        function = self._functions[target]
        database = PsycopgDatabase(connection)
        with running_in(_SameTransaction(database)):
            return function.signature.encode_result(function.body(database, **arguments))

    def transact(self, pool: ConnectionPool[Any], target: str, arguments: dict[str, Any]) -> Any:
        """Run a function as a transaction, again when it conflicts with others."""

        def attempt() -> Any:
            with pool.connection() as connection, connection.transaction():
                return self.run(connection, target, arguments)

        return again_on_conflict(attempt)

    def transfer(self, base: int, start: int, number: int, amount: int = 1) -> dict[str, Any]:
        """The arguments of a workflow's ``number``-th transfer."""
        source, target = self.pair(base, start, number)
        return {"source": source, "target": target, "amount": amount}

    def quote(self, number: int) -> int:
        """The external step."""
        result: int = self._steps["bench.quote"].body(number)
        return result


def again_on_conflict(attempt: Callable[[], T]) -> T:
    """Run a transaction until it does not conflict."""
    delay_s = _FIRST_DELAY_S
    while True:
        try:
            return attempt()
        except psycopg.Error as error:
            if error.sqlstate not in _CONFLICTS:
                raise
        time.sleep(delay_s * (0.5 + random.random() / 2))
        delay_s = min(delay_s * _FACTOR, _MAX_DELAY_S)


def serializable_pool(url: str) -> ConnectionPool[Any]:
    """Connections in autocommit mode whose transactions are serializable."""
    pool: ConnectionPool[Any] = ConnectionPool(
        url,
        min_size=1,
        max_size=POOL_SIZE,
        kwargs={
            "autocommit": True,
            "options": "-c default_transaction_isolation=serializable",
            "application_name": "bench",
        },
        open=True,
    )
    pool.wait()
    return pool
