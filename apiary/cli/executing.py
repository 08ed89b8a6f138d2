"""Running an executor in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ..engine.postgres import PostgresEngine, PostgresSettings
from ..execution.executor import Executor, ExecutorSettings
from ..execution.listening import Listener
from ..execution.signals import stop_on_signals
from ..loops import run_main
from ..server.preflight import check_database

__all__ = ["execute", "executing"]


@asynccontextmanager
async def executing(url: str, settings: ExecutorSettings) -> AsyncIterator[Executor]:
    """An executor from when it claims runs until the block ends; then it drains."""
    engine_settings = PostgresSettings(application_name="apiary executor")
    async with PostgresEngine(url, engine_settings) as engine:
        listener = Listener(url)
        executor = Executor(engine, listener, settings)
        await executor.start()
        try:
            yield executor
        finally:
            await executor.drain()
            await listener.close()


def execute(
    url: str, settings: ExecutorSettings, started: Callable[[Executor], None] | None = None
) -> None:
    """Execute until SIGTERM or SIGINT, then drain; a second signal ends the process at once."""
    check_database(url)
    run_main(_execute(url, settings, started))


async def _execute(
    url: str, settings: ExecutorSettings, started: Callable[[Executor], None] | None
) -> None:
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    async with executing(url, settings) as executor:
        if started is not None:
            started(executor)
        await stopping.wait()
