"""An executor as a process: `python -m tests.chaos.executor_main URL NAME LEASE_S`.

SIGTERM drains it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from apiary.engine.postgres import PostgresEngine, PostgresSettings
from apiary.execution.executor import Executor, ExecutorSettings
from apiary.execution.listening import Listener


async def main(url: str, name: str, lease_s: float) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = ExecutorSettings(name=name, lease_s=lease_s, poll_s=0.5, grace_s=2.0, concurrency=12)
    engine_settings = PostgresSettings(pool_size=6, acquire_timeout_s=5.0)
    async with PostgresEngine(url, engine_settings) as engine:
        listener = Listener(url)
        executor = Executor(engine, listener, settings)
        await executor.start()
        print("ready", flush=True)
        await stop.wait()
        await executor.drain()
        await listener.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
