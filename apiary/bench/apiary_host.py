"""Apiary's server or executor as a child of the harness.

    python -m apiary.bench.apiary_host server ADDRESS
    python -m apiary.bench.apiary_host executor

The database's URL is in a variable, as `host` has it.

As `apiary serve` and `apiary executor`, but that they say in a line of JSON that they are ready,
and end when their standard input does: a harness that dies leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from ..engine.postgres import PostgresEngine, PostgresSettings
from ..execution.executor import Executor
from ..execution.listening import Listener
from ..loops import run_main
from ..server import ServerSettings
from ..server.main import Server
from .host import URL_VARIABLE
from .plain import POOL_SIZE

_GRACE_S = 5.0


async def _serve(url: str, address: str) -> None:
    settings = ServerSettings(database_url=url, address=address, pool_size=POOL_SIZE)
    server = Server(settings)
    await server.start()
    await _until_input_ends()
    await server.drain(_GRACE_S)


async def _execute(url: str) -> None:
    listener = Listener(url)
    async with PostgresEngine(url, PostgresSettings(pool_size=POOL_SIZE)) as engine:
        executor = Executor(engine, listener)
        await executor.start()
        await _until_input_ends()
        await executor.drain(_GRACE_S)
        await listener.close()


async def _until_input_ends() -> None:
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the harness
    if sys.argv[1] == "server":
        run_main(_serve(os.environ[URL_VARIABLE], sys.argv[2]))
    else:
        run_main(_execute(os.environ[URL_VARIABLE]))
