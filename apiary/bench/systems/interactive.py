"""Hand-written transactions over psycopg in a service process: the classic shape of FaaS.

Workflows are transactions one after another; nothing makes them durable.
"""

from __future__ import annotations

from typing import Any

from ..plain import Application, serializable_pool
from ..workloads import CHAINS, FAN_OUT, Request
from .base import Adapter, Threads

__all__ = ["Interactive"]


class Interactive(Adapter):
    """Statement by statement, from a process of its own."""

    async def open(self, url: str) -> None:
        self._application = Application()
        self._pool = serializable_pool(url)
        self._threads = Threads()

    async def close(self) -> None:
        self._threads.close()
        self._pool.close()

    async def call(self, request: Request) -> Any:
        if not request.is_workflow:
            return await self._transact(request.target, request.arguments)
        base, start = request.arguments["base"], request.arguments["start"]
        if request.target in CHAINS:
            return await self._threads.run(self._chain, base, start, CHAINS[request.target])
        if request.target == "bench.mixed":
            return await self._threads.run(self._mixed, base, start)
        return await self._fan_out(base, start)

    async def _transact(self, target: str, arguments: dict[str, Any]) -> Any:
        return await self._threads.run(self._application.transact, self._pool, target, arguments)

    def _transfer(self, base: int, start: int, number: int, amount: int = 1) -> int:
        arguments = self._application.transfer(base, start, number, amount)
        result: int = self._application.transact(self._pool, "bench.transfer", arguments)
        return result

    def _chain(self, base: int, start: int, count: int) -> int:
        return sum(self._transfer(base, start, number) for number in range(count))

    def _mixed(self, base: int, start: int) -> int:
        total = self._transfer(base, start, 0)
        return total + self._transfer(base, start, 0, self._application.quote(start))

    async def _fan_out(self, base: int, start: int) -> int:
        begun = [
            self._threads.run(self._transfer, base, start, number) for number in range(FAN_OUT)
        ]
        return sum([await each for each in begun])
