"""The server's log: one file, written by the postmaster and read for error messages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_LIMIT_BYTES = 16 * 1024 * 1024
_TAIL_BYTES = 256 * 1024


@dataclass(frozen=True)
class ServerLog:
    """A log file that may not exist yet."""

    path: Path

    @property
    def old(self) -> Path:
        return self.path.with_name(f"{self.path.name}.1")

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def open(self) -> BinaryIO:
        """For appending. Only its owner may read it: statements with their data are in it."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "ab")

    def rotate(self) -> None:
        """Put a large log aside (one old one is kept); not while a server writes it."""
        if self.size_bytes > _LIMIT_BYTES:
            self.path.replace(self.old)

    def since(self, offset_bytes: int) -> str:
        """What was written after an offset (at most the first 256 kB of it)."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(offset_bytes)
            return file.read(_TAIL_BYTES).decode("utf-8", errors="replace")

    def tail(self, n: int) -> str:
        """The last ``n`` lines (of the last 256 kB)."""
        lines = self.since(max(0, self.size_bytes - _TAIL_BYTES)).splitlines()
        return "\n".join(lines[-n:]) if n > 0 else ""
