"""Apiary in the database without gRPC: the engine, as the server uses it."""

from __future__ import annotations

import json
from typing import Any

from ...engine.base import Invocation
from ...engine.postgres import PostgresEngine, PostgresSettings
from ...engine.runs import RunStore
from ...errors import UsageError
from ...execution.code import CodeCache
from ...execution.ids import new_run_id
from ...execution.invoking import Invoker, raise_recorded_error
from ...execution.starting import RunOptions, Starter
from ..plain import POOL_SIZE, Application
from ..workloads import CHAINS, Request
from .base import Adapter

__all__ = ["APPLICATION", "Engine", "EngineCalls"]

APPLICATION = "apiary"


class Engine(Adapter):
    """Functions, and the workflows that live in the database."""

    async def open(self, url: str) -> None:
        self._engine = PostgresEngine(url, PostgresSettings(pool_size=POOL_SIZE))
        self._invoker = Invoker(self._engine)
        self._starter = Starter(RunStore(self._engine), CodeCache(self._engine))

    async def close(self) -> None:
        await self._invoker.settle()
        await self._engine.close()

    async def call(self, request: Request) -> Any:
        if request.is_workflow:
            return await self._run(request)
        invocation = Invocation(
            run_id=new_run_id(),
            application=APPLICATION,
            function=request.target,
            input=json.dumps(request.arguments),
            principal="bench",
        )
        outcome = await self._invoker.invoke(invocation, fresh=True)
        raise_recorded_error(outcome)
        return outcome.output

    async def _run(self, request: Request) -> Any:
        _, outcome = await self._starter.start_new(
            APPLICATION, request.target, request.arguments, "bench", RunOptions()
        )
        if outcome.status != "SUCCEEDED":
            raise UsageError(f"{request.target} in the database ended as {outcome.status}")
        return outcome.output


class EngineCalls(Engine):
    """A workflow's functions, each called by itself; nothing makes the whole of them durable."""

    async def open(self, url: str) -> None:
        await super().open(url)
        self._application = Application()

    async def call(self, request: Request) -> Any:
        base, start = request.arguments["base"], request.arguments["start"]
        total = 0
        for number in range(CHAINS[request.target]):
            arguments = self._application.transfer(base, start, number)
            total += await super().call(Request(target="bench.transfer", arguments=arguments))
        return total
