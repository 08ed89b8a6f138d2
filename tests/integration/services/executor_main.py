"""An executor as a program of its own: ``python -m tests.integration.services.executor_main URL``.

It says ``ready`` when it has begun, and runs until it is ended.
"""

from __future__ import annotations

import asyncio
import sys

from apiary.engine.postgres import PostgresEngine, PostgresSettings
from apiary.execution.executor import Executor, ExecutorSettings
from apiary.execution.listening import Listener


async def main(url: str) -> None:
    """Execute runs of every application in the database."""
    async with PostgresEngine(url, PostgresSettings(pool_size=4)) as engine:
        executor = Executor(engine, Listener(url), ExecutorSettings(lease_s=6.0, poll_s=0.2))
        await executor.start()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
