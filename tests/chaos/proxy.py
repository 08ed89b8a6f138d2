"""A TCP proxy before PostgreSQL that loses replies.

It forwards everything. When a request contains the marked bytes, what the server answers is awaited
(so the request has been executed, and in autocommit mode committed), thrown away, and the client's
connection is reset.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo

__all__ = ["LossyProxy", "lossy_proxy"]


class LossyProxy:
    """Where to connect, and what is to be lost."""

    def __init__(self, url: str) -> None:
        self._target = conninfo_to_dict(url)
        self._marks: list[bytes] = []
        self.lost = 0  # replies
        self.port = 0

    def url(self) -> str:
        """The database's URL through the proxy."""
        return make_conninfo(**{**self._target, "host": "127.0.0.1", "port": self.port})  # type: ignore[arg-type]

    def lose(self, mark: bytes) -> None:
        """Lose the reply to the next request that contains ``mark``."""
        self._marks.append(mark)

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, upwards = await asyncio.open_connection(
                str(self._target["host"]), int(str(self._target["port"]))
            )
        except OSError:
            writer.close()
            return
        doomed = asyncio.Event()
        pumps = [
            asyncio.create_task(self._requests(reader, upwards, doomed)),
            asyncio.create_task(self._replies(upstream, writer, doomed)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in (writer, upwards):
            end.close()
            with suppress(OSError):
                await end.wait_closed()

    async def _requests(
        self, reader: asyncio.StreamReader, upwards: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                found = next((mark for mark in self._marks if mark in data), None)
                if found is not None:
                    self._marks.remove(found)
                    doomed.set()
                upwards.write(data)
                await upwards.drain()

    async def _replies(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await upstream.read(1 << 16):
                if doomed.is_set():
                    self.lost += 1
                    reset = struct.pack("ii", 1, 0)
                    own: socket.socket = writer.get_extra_info("socket")
                    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                    writer.transport.abort()
                    return
                writer.write(data)
                await writer.drain()


@contextmanager
def lossy_proxy(url: str) -> Iterator[LossyProxy]:
    """A proxy that runs in a thread of its own."""
    proxy = LossyProxy(url)
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        loop.run_until_complete(proxy.serve(started, stop))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
