"""Starting systems and talking to them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from ..errors import ConfigurationError
from ..local.starting import free_port
from .host import LINE_BYTES, URL_VARIABLE
from .http import HttpConnection
from .systems.base import Adapter
from .systems.grpc_client import GrpcClient
from .workloads import Request

__all__ = ["Direct", "Hosted", "OverGrpc", "RestateIngress", "Running", "SystemFailed"]

_START_S = 90.0
_STOP_S = 20.0


class SystemFailed(Exception):
    """A system answered a request with an error."""


class Running(ABC):
    """A system that runs."""

    pids: Sequence[int] = ()  # its application-side processes

    @abstractmethod
    async def call(self, request: Request) -> Any:
        """Send a request and return its result as a JSON document."""

    @abstractmethod
    async def close(self) -> None:
        """End it; its database connections are closed when this returns."""


class Direct(Running):
    """An adapter in the harness's own process."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.pids = (os.getpid(),)

    @classmethod
    async def start(cls, adapter: Adapter, url: str) -> Direct:
        """Open it."""
        await adapter.open(url)
        return cls(adapter)

    async def call(self, request: Request) -> Any:
        return await self._adapter.call(request)

    async def close(self) -> None:
        await self._adapter.close()


class _Process:
    """A child that says a line when it is ready, and ends when its input ends or by a signal."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    async def start(cls, url: str, *command: str) -> tuple[_Process, dict[str, Any]]:
        """Start a module of Python and wait for its line of JSON."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, URL_VARIABLE: url},
        )
        child = cls(process)
        assert process.stdout is not None
        line = b""
        try:
            # A library may have written lines of its own before.
            while not line.startswith(b"{"):
                line = await asyncio.wait_for(process.stdout.readline(), _START_S)
                if not line:
                    raise ConfigurationError(f"{' '.join(command[:2])} ended while it started")
        except BaseException:
            await child.stop()
            raise
        return child, json.loads(line)

    async def stop(self) -> None:
        """Ask it to end; kill it when it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class Hosted(Running):
    """A system behind `host`."""

    def __init__(self, process: _Process, ready: dict[str, Any]) -> None:
        self._process = process
        self.ready = ready
        self.pids = (process.pid, *ready.get("pids", ()))
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next = 0

    @classmethod
    async def start(cls, system: str, url: str) -> Hosted:
        """Start its process and connect."""
        process, ready = await _Process.start(url, "apiary.bench.host", system)
        hosted = cls(process, ready)
        hosted._reader, hosted._writer = await asyncio.open_connection(
            "127.0.0.1", ready["port"], limit=LINE_BYTES
        )
        hosted._reading = asyncio.create_task(hosted._read())
        return hosted

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _reading: asyncio.Task[None]

    async def call(self, request: Request) -> Any:
        self._next += 1
        number = self._next
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        document = {"id": number, "request": asdict(request)}
        self._writer.write(json.dumps(document).encode() + b"\n")
        try:
            answer = await waiting
        finally:
            del self._waiting[number]
        if "error" in answer:
            raise SystemFailed(answer["error"])
        return answer["result"]

    async def _read(self) -> None:
        while line := await self._reader.readline():
            answer = json.loads(line)
            waiting = self._waiting.get(answer["id"])
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(SystemFailed("its process ended"))

    async def close(self) -> None:
        self._writer.close()
        await self._process.stop()
        await self._reading


class RestateIngress(Running):
    """Restate, called by its ingress as its clients do."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self.pids = hosted.pids
        self._port: int = hosted.ready["ingress"]
        self._idle: list[HttpConnection] = []

    @classmethod
    async def start(cls, url: str) -> RestateIngress:
        """Start server and handlers."""
        return cls(await Hosted.start("restate", url))

    async def call(self, request: Request) -> Any:
        handler = "function"
        if request.is_workflow:
            handler = {"bench.mixed": "mixed", "bench.fan_out": "fan_out"}.get(
                request.target, "chain"
            )
        connection = (
            self._idle.pop() if self._idle else await HttpConnection("127.0.0.1", self._port).open()
        )
        document = {"target": request.target, "arguments": request.arguments}
        headers = {"idempotency-key": uuid4().hex}
        try:
            result = await connection.post(f"/bench/{handler}", document, headers)
        except BaseException:
            await connection.close()
            raise
        self._idle.append(connection)
        return result

    async def close(self) -> None:
        for connection in self._idle:
            await connection.close()
        await self._hosted.close()


class OverGrpc(Running):
    """Apiary's server, an executor beside it, and a client here."""

    def __init__(self, processes: Sequence[_Process], client: Adapter) -> None:
        self._processes = processes
        self._client = client
        self.pids = tuple(process.pid for process in processes)

    @classmethod
    async def start(cls, url: str, *, executor_only: bool) -> OverGrpc:
        """Start the processes and connect."""
        address = f"127.0.0.1:{free_port()}"
        server, _ = await _Process.start(url, "apiary.bench.apiary_host", "server", address)
        processes = [server]
        try:
            executor, _ = await _Process.start(url, "apiary.bench.apiary_host", "executor")
            processes.append(executor)
            client = GrpcClient(executor_only=executor_only)
            await client.open(address)
        except BaseException:
            for process in processes:
                await process.stop()
            raise
        return cls(processes, client)

    async def call(self, request: Request) -> Any:
        return await self._client.call(request)

    async def close(self) -> None:
        await self._client.close()
        for process in self._processes:
            await process.stop()
