"""Messages between a controller and its workers: JSON lines over a local socket.

The controller publishes its address and a secret in a file of the run's directory. A worker whose
connection ends looks there again: the next controller has another address.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import time
from pathlib import Path
from typing import Any

from workflows.recycle.errors import TrainingFailed

__all__ = ["Link", "LinkClosedError", "connect", "publish"]

_POLL_S = 0.05


class LinkClosedError(ConnectionError):
    """The other side is gone."""


class Link:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = b""

    def fileno(self) -> int:
        """For selectors."""
        return self.connection.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; `LinkClosedError` if the other side is gone."""
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise LinkClosedError(str(error)) from error

    def receive(self, patience_s: float) -> dict[str, Any]:
        """The next message; `LinkClosedError`, or `TrainingFailed` when patience is over."""
        deadline = time.monotonic() + patience_s
        while True:
            messages = self._take_one()
            if messages is not None:
                return messages
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.connection], [], [], left)[0]:
                raise TrainingFailed(f"no message within {patience_s} s")
            self._read()

    def waiting(self) -> list[dict[str, Any]]:
        """All messages that have come; call it when the socket is readable."""
        self._read()
        found = []
        while (message := self._take_one()) is not None:
            found.append(message)
        return found

    def _read(self) -> None:
        try:
            data = self.connection.recv(1 << 16)
        except OSError as error:
            raise LinkClosedError(str(error)) from error
        if not data:
            raise LinkClosedError("end of stream")
        self._received += data

    def _take_one(self) -> dict[str, Any] | None:
        line, end, rest = self._received.partition(b"\n")
        if not end:
            return None
        self._received = rest
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


def publish(path: Path) -> tuple[socket.socket, str]:
    """Listen on a free local port and write where; the listening socket and the secret."""
    listener = socket.create_server(("127.0.0.1", 0))
    secret = secrets.token_hex(16)
    draft = path.with_suffix(".draft")
    port = listener.getsockname()[1]
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        json.dump({"port": port, "secret": secret}, handle)
    draft.replace(path)
    return listener, secret


def connect(path: Path, hello: dict[str, Any], patience_s: float) -> Link:
    """Connect to the present controller and say hello; waits for one to appear."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if path.exists():
            address = json.loads(path.read_text(encoding="utf-8"))
            connection = socket.socket()
            if connection.connect_ex(("127.0.0.1", address["port"])) == 0:
                link = Link(connection)
                link.send(hello | {"secret": address["secret"]})
                return link
            connection.close()
        # Nothing tells a process that another will start to listen.
        time.sleep(_POLL_S)
    raise TrainingFailed(f"no controller within {patience_s} s")
