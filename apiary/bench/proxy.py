"""Round-trip time between application and database: a TCP proxy that delays what it forwards.

    python -m apiary.bench.proxy TARGET_PORT

Each direction is delayed by half of the round trip, from the moment of arrival, so that the proxy's
own work is part of the delay and not in addition to it. It says its port in a line of JSON; each
line of its input is a new round trip in milliseconds, echoed when it holds.

The loop waits by select(), whose time-outs are in microseconds: epoll's are in milliseconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import selectors
import sys
from collections import deque

__all__ = ["DelayingProxy"]

_PR_SET_TIMERSLACK = 29
_SLACK_NS = 1_000


class _Direction(asyncio.Protocol):
    """One way of a connection: what arrives is written to the other after the delay."""

    def __init__(self, proxy: DelayingProxy) -> None:
        self._proxy = proxy
        self.sink: asyncio.WriteTransport | None = None
        self.transport: asyncio.Transport | None = None
        self._held: deque[bytes | None] = deque()  # None: the end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._later(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._later(None)

    def _later(self, data: bytes | None) -> None:
        self._held.append(data)
        loop = asyncio.get_running_loop()
        loop.call_later(self._proxy.one_way_s, self._forward)

    def _forward(self) -> None:
        data = self._held.popleft()
        if self.sink is None or self.sink.is_closing():
            return
        if data is None:
            self.sink.close()
        else:
            self.sink.write(data)


class DelayingProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.one_way_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> int:
        """Begin to take connections; return the port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._accepted, "127.0.0.1", 0)
        self._server = server
        port: int = server.sockets[0].getsockname()[1]
        return port

    def _accepted(self) -> asyncio.Protocol:
        return _Client(self)

    def connect(self, inward: _Client) -> None:
        """Connect to the target for a client that has connected here."""
        task = asyncio.get_running_loop().create_task(self._connect(inward))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, inward: _Client) -> None:
        loop = asyncio.get_running_loop()
        outward = _Direction(self)
        try:
            await loop.create_connection(lambda: outward, "127.0.0.1", self._target_port)
        except OSError:
            assert inward.transport is not None
            inward.transport.close()  # what a client sees of a server that is away
            return
        outward.sink, inward.sink = inward.transport, outward.transport
        assert inward.transport is not None
        inward.transport.resume_reading()


class _Client(_Direction):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()  # until there is somebody to forward to
        self._proxy.connect(self)


async def _main(target_port: int) -> None:
    proxy = DelayingProxy(target_port)
    port = await proxy.listen()
    _say({"port": port})
    while line := await asyncio.to_thread(sys.stdin.readline):
        proxy.one_way_s = float(line) / 2000
        _say({"rtt_ms": float(line)})


def _say(document: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)
    with asyncio.Runner(loop_factory=_loop) as runner:
        runner.run(_main(int(sys.argv[1])))
