"""Interactive transactions that leave the same record as Apiary: what co-location saves, by itself.

The very same bodies and the very same capture triggers; the operation's row is one more statement
of the transaction. Called from the harness's own process, as Apiary's engine is.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg

from ...authoring.values import canonical, digest
from ..plain import Application, again_on_conflict, serializable_pool
from ..workloads import Request
from .base import Adapter, Threads

__all__ = ["Recorded"]

_RECORD = (
    b"INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal,"
    b" status, input, input_digest, output, started_at, finished_at, isolation) VALUES"
    b" (%s, 0, 'function', %s, 'apiary', %s, 'bench', 'SUCCEEDED', %s, %s, %s,"
    b" now(), clock_timestamp(), 'serializable')"
)


class Recorded(Adapter):
    """Functions, statement by statement, and then their record."""

    async def open(self, url: str) -> None:
        self._application = Application()
        self._pool = serializable_pool(url)
        self._threads = Threads()
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT current FROM apiary.application").fetchone()
        assert row is not None  # the harness has deployed it
        self._deployment: str = row[0]

    async def close(self) -> None:
        self._threads.close()
        self._pool.close()

    async def call(self, request: Request) -> Any:
        return await self._threads.run(self._transact, request.target, request.arguments)

    def _transact(self, target: str, arguments: dict[str, Any]) -> Any:
        text = canonical(arguments)

        def attempt() -> Any:
            with self._pool.connection() as connection, connection.transaction():
                result = self._application.run(connection, target, arguments)
                record = (str(uuid4()), target, self._deployment, text, digest(text))
                connection.execute(_RECORD, (*record, json.dumps(result)))
                return result

        return again_on_conflict(attempt)
