"""A TCP proxy in front of PostgreSQL that counts round trips and can withhold notifications.

It reads the messages of the wire protocol (a type byte and a length), so connections through it are
neither encrypted nor compressed.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType

import psycopg

_NOTIFICATION = b"A"
_SYNC = b"S"
_QUERY = b"Q"


class Proxy:
    """Listens on a free port of the loopback while the block runs."""

    def __init__(self, url: str, *, notifications: bool = True) -> None:
        info = psycopg.conninfo.conninfo_to_dict(url)
        self._target = str(info.get("host", "127.0.0.1")), int(info.get("port") or 5432)
        self._notifications = notifications
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.round_trips = 0  # statements, or batches of them, that waited for an answer
        self.url = psycopg.conninfo.make_conninfo(
            url,
            host="127.0.0.1",
            port=self._server.getsockname()[1],
            sslmode="disable",
            gssencmode="disable",
        )

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every connection."""
        for each in [self._server, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = self._connect()
            self._sockets += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._backward, args=(server, client), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = self._target
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection(self._target)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError, EOFError):
            server.sendall(_untyped(client))  # the start of the session
            while True:
                kind, message = _typed(client)
                self.round_trips += kind in (_SYNC, _QUERY)
                server.sendall(message)
        _end(client, server)

    def _backward(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while True:
                kind, message = _typed(server)
                if kind != _NOTIFICATION or self._notifications:
                    client.sendall(message)
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _read(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _untyped(source: socket.socket) -> bytes:
    head = _read(source, 4)
    return head + _read(source, struct.unpack("!I", head)[0] - 4)


def _typed(source: socket.socket) -> tuple[bytes, bytes]:
    kind = _read(source, 1)
    return kind, kind + _untyped(source)
