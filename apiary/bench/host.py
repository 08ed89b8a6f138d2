"""A system in a process of its own: JSON lines over one connection, each answered when it is done.

    python -m apiary.bench.host SYSTEM

The database's URL is in the variable `URL_VARIABLE`: command lines are public, and it holds a
password.

It writes one line of JSON to standard output when it is ready: its port, and what
`Adapter.describe` says. It ends when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from .systems.base import Adapter
from .workloads import Request

__all__ = ["HOSTED", "LINE_BYTES", "URL_VARIABLE"]

URL_VARIABLE = "APIARY_BENCH_URL"

LINE_BYTES = 16 * 1024 * 1024


def _interactive() -> Adapter:
    from .systems.interactive import Interactive  # noqa: PLC0415

    return Interactive()


def _dbos() -> Adapter:
    from .systems.dbos_peer import Dbos  # noqa: PLC0415

    return Dbos()


def _absurd() -> Adapter:
    from .systems.absurd_peer import AbsurdTasks  # noqa: PLC0415

    return AbsurdTasks()


def _procrastinate() -> Adapter:
    from .systems.procrastinate_peer import ProcrastinateJobs  # noqa: PLC0415

    return ProcrastinateJobs()


def _restate() -> Adapter:
    from .systems.restate_peer import RestateServices  # noqa: PLC0415

    return RestateServices()


# Each is imported in its own process only: they are optional, and some start threads.
HOSTED: dict[str, Callable[[], Adapter]] = {
    "interactive": _interactive,
    "dbos": _dbos,
    "absurd": _absurd,
    "procrastinate": _procrastinate,
    "restate": _restate,
}


class _Service:
    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, in the order in which they are done."""
        while line := await reader.readline():
            task = asyncio.create_task(self._answer(json.loads(line), writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        writer.close()

    async def _answer(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        answer: dict[str, Any] = {"id": asked["id"]}
        try:
            answer["result"] = await self._adapter.call(Request(**asked["request"]))
        # Whatever went wrong is for the harness to tell.
        except Exception as error:  # noqa: BLE001
            answer["error"] = f"{type(error).__name__}: {error}"
        writer.write(json.dumps(answer).encode() + b"\n")


async def _main(system: str, url: str) -> None:
    adapter = HOSTED[system]()
    await adapter.open(url)
    service = _Service(adapter)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, limit=LINE_BYTES)
    ready = {"port": server.sockets[0].getsockname()[1], **adapter.describe()}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)  # until whoever started this is done with it, or dead
    server.close()
    await adapter.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the harness
    asyncio.run(_main(sys.argv[1], os.environ[URL_VARIABLE]))
    os._exit(0)  # a peer's threads need not be waited for
