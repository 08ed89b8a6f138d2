"""Messages between the launcher and a rank: one JSON object per line over a socket."""

from __future__ import annotations

import json
import socket
from typing import Any

__all__ = ["Channel"]


class Channel:
    """One end of a launcher-rank conversation."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = b""

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; OSError when the other end is gone."""
        self._socket.sendall(json.dumps(message).encode("ascii") + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next message; None when the other end is gone."""
        while b"\n" not in self._buffer:
            try:
                chunk = self._socket.recv(65536)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
