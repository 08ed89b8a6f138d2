"""The way from the application to the database, with a round-trip time that can be changed.

A proxy delays (see `proxy`); at 0 ms applications connect to the server itself. Kernels with netem
could do it without a process of ours, but many machines and all containers lack it, and two ways
would be two things to compare.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

__all__ = ["Network"]

_PROBES = 200


class Network:
    """One proxy in front of a server."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._port = port

    @classmethod
    async def start(cls, postgres_port: int) -> Network:
        """Start the proxy."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "apiary.bench.proxy",
            str(postgres_port),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        network = cls(process, 0)
        network._port = int((await network._answer())["port"])
        return network

    async def close(self) -> None:
        """End the proxy and the connections through it."""
        self._process.kill()
        await self._process.wait()

    def url(self, url: str) -> str:
        """The same database, through the proxy."""
        parts = urlsplit(url)
        credentials = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{self._port}"))

    async def set_rtt(self, rtt_ms: float) -> None:
        """From now on every round trip takes so much longer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rtt_ms}\n".encode())
        await self._answer()

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer


async def round_trip_ms(url: str) -> float:
    """The median time of SELECT 1, in milliseconds."""
    taken = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for _ in range(_PROBES):
            began = time.perf_counter()
            await connection.execute("SELECT 1")
            taken.append(time.perf_counter() - began)
    return sorted(taken)[_PROBES // 2] * 1e3
