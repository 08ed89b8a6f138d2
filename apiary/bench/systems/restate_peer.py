"""Restate: handlers of durable steps, called by its own HTTP ingress with an idempotency key.

The server is the binary of its npm package, with its own log on the same disk, synced as it is by
default; the handlers are served by hypercorn (HTTP/2) in this process. A step's effects and its
entry in the log are two commits, in two systems.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ...errors import ConfigurationError
from ...local.starting import free_port
from ..http import HttpConnection
from ..plain import Application, serializable_pool
from ..workloads import CHAINS, FAN_OUT, Request
from .base import Adapter, Threads, missing_peer

try:
    import restate
    from hypercorn.asyncio import serve
    from hypercorn.config import Config
except ImportError as error:
    raise missing_peer(error) from error

__all__ = ["BINARY_VARIABLE", "RestateServices", "find_server"]

BINARY_VARIABLE = "APIARY_BENCH_RESTATE"
_START_S = 60.0


def find_server() -> Path:
    """The server's binary. ConfigurationError says how to get one."""
    chosen = os.environ.get(BINARY_VARIABLE) or shutil.which("restate-server")
    if chosen is None or not Path(chosen).is_file():
        raise ConfigurationError(
            f"no restate-server (looked for it in {BINARY_VARIABLE} and on the path)",
            hint="make bench-peers installs the npm package @restatedev/restate-server",
        )
    return Path(chosen)


class RestateServices(Adapter):
    """A server of its own, the handlers, and their registration."""

    async def open(self, url: str) -> None:
        self._application = Application()
        self._pool = serializable_pool(url)
        self._threads = Threads()
        self._folder = tempfile.mkdtemp(prefix="apiary-bench-")
        node, self._ingress, admin, handlers = (free_port() for _ in range(4))
        self._server = await asyncio.create_subprocess_exec(
            str(find_server()),
            "--node-name=bench",
            f"--base-dir={self._folder}",
            "--listen-mode=tcp",
            env={
                **os.environ,
                "RESTATE_DISABLE_TELEMETRY": "true",
                "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
                "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
                "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self._ingress}",
                "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            },
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._stopping = asyncio.Event()
        config = Config()
        config.bind = [f"127.0.0.1:{handlers}"]
        config.errorlog = None
        application: Any = restate.app([self._service()])
        self._handlers = asyncio.create_task(
            serve(application, config, shutdown_trigger=self._stopping.wait)
        )
        await self._register(admin, handlers)

    async def _register(self, admin: int, handlers: int) -> None:
        ends = asyncio.get_running_loop().time() + _START_S
        document = {"uri": f"http://127.0.0.1:{handlers}"}
        while True:
            try:
                async with HttpConnection("127.0.0.1", admin) as connection:
                    await connection.post("/deployments", document, {})
                return
            except (OSError, ConfigurationError):
                if asyncio.get_running_loop().time() > ends:
                    raise
                await asyncio.sleep(0.2)

    async def close(self) -> None:
        self._stopping.set()
        await self._handlers
        self._server.terminate()
        await self._server.wait()
        shutil.rmtree(self._folder)
        self._threads.close()
        self._pool.close()

    async def call(self, request: Request) -> Any:
        raise NotImplementedError("Restate is called by its ingress")

    def describe(self) -> dict[str, Any]:
        return {"ingress": self._ingress, "pids": [self._server.pid]}

    def _service(self) -> Any:
        service = restate.Service("bench")

        @service.handler()
        async def function(ctx: restate.Context, given: dict[str, Any]) -> Any:
            return await ctx.run_typed(
                "function", self._transact, target=given["target"], arguments=given["arguments"]
            )

        @service.handler()
        async def chain(ctx: restate.Context, given: dict[str, Any]) -> int:
            total = 0
            for number in range(CHAINS[given["target"]]):
                total += await self._transfer(ctx, given, number)
            return total

        @service.handler()
        async def mixed(ctx: restate.Context, given: dict[str, Any]) -> int:
            total: int = await self._transfer(ctx, given, 0)
            start = given["arguments"]["start"]
            amount = await ctx.run_typed("quote", self._quote, number=start)
            return total + int(await self._transfer(ctx, given, 0, amount))

        @service.handler()
        async def fan_out(ctx: restate.Context, given: dict[str, Any]) -> int:
            begun = [self._transfer(ctx, given, number) for number in range(FAN_OUT)]
            done = await restate.gather(*begun)
            return sum([await each for each in done])

        return service

    def _transfer(
        self, ctx: restate.Context, given: dict[str, Any], number: int, amount: int = 1
    ) -> Any:
        arguments = self._application.transfer(**given["arguments"], number=number, amount=amount)
        return ctx.run_typed(
            f"transfer-{number}", self._transact, target="bench.transfer", arguments=arguments
        )

    async def _transact(self, target: str, arguments: dict[str, Any]) -> Any:
        return await self._threads.run(self._application.transact, self._pool, target, arguments)

    async def _quote(self, number: int) -> int:
        return await self._threads.run(self._application.quote, number)
