"""The floor: stored procedures that record nothing, called in autocommit mode.

A workflow is its procedure called again and again; nothing makes it durable.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from ..plain import POOL_SIZE, Application
from ..workloads import CHAINS, FAN_OUT, Request
from .base import Adapter

__all__ = ["PROCEDURES", "Procedure"]

PROCEDURES = Path(__file__).parent.parent / "procedures.sql"
_CONFLICTS = ("40001", "40P01")


class Procedure(Adapter):
    """Procedures of one schema of `PROCEDURES`."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._statements: dict[tuple[str, tuple[str, ...]], sql.Composed] = {}

    async def open(self, url: str) -> None:
        self._application = Application()
        self._pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=POOL_SIZE,
            kwargs={
                "autocommit": True,
                "options": "-c default_transaction_isolation=serializable",
                "application_name": "bench",
            },
            open=False,
        )
        await self._pool.open(wait=True)

    async def close(self) -> None:
        await self._pool.close()

    async def call(self, request: Request) -> Any:
        if not request.is_workflow:
            return await self._execute(request.target.split(".")[1], request.arguments)
        base, start = request.arguments["base"], request.arguments["start"]
        if request.target in CHAINS:
            count = CHAINS[request.target]
            return sum([await self._transfer(base, start, number) for number in range(count)])
        if request.target == "bench.mixed":
            total = await self._transfer(base, start, 0)
            amount = await asyncio.to_thread(self._application.quote, start)
            return total + await self._transfer(base, start, 0, amount)
        begun = [self._transfer(base, start, number) for number in range(FAN_OUT)]
        return sum(await asyncio.gather(*begun))

    async def _transfer(self, base: int, start: int, number: int, amount: int = 1) -> int:
        arguments = self._application.transfer(base, start, number, amount)
        result: int = await self._execute("transfer", arguments)
        return result

    async def _execute(self, procedure: str, arguments: dict[str, Any]) -> Any:
        statement = self._statement(procedure, tuple(arguments))
        attempt = 0
        while True:
            try:
                async with self._pool.connection() as connection:
                    cursor = await connection.execute(statement, arguments)
                    row = await cursor.fetchone()
                result = row[0] if row else None
                return None if result == "" else result  # what a void function returns
            except psycopg.Error as error:
                if error.sqlstate not in _CONFLICTS:
                    raise
            attempt += 1
            await asyncio.sleep(min(2.0, 0.001 * 1.5**attempt) * (0.5 + random.random() / 2))

    def _statement(self, procedure: str, names: tuple[str, ...]) -> sql.Composed:
        key = (procedure, names)
        if key not in self._statements:
            given = sql.SQL(", ").join(
                sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name))
                for name in names
            )
            called = sql.SQL("SELECT {}({})").format(sql.Identifier(self._schema, procedure), given)
            self._statements[key] = called
        return self._statements[key]
