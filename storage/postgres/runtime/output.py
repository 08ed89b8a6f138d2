"""Keeping what a body prints and logs, bounded, for its invocation's row."""

from __future__ import annotations

import io
import logging
import sys

LIMIT_CHARACTERS = 64 * 1024


class _Bounded(io.TextIOBase):
    """A text stream that keeps the first characters written to it and counts the rest."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = LIMIT_CHARACTERS - self._length
        if room > 0:
            self._parts.append(text[:room])
        self._length += len(text)
        return len(text)

    def text(self) -> str | None:
        if not self._length:
            return None
        kept = (
            "".join(self._parts).replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
        )
        dropped = self._length - LIMIT_CHARACTERS
        return kept if dropped <= 0 else f"{kept}\n[{dropped} more characters were dropped]"


class _Handler(logging.Handler):
    """Writes log records to the stream of the body that runs now."""

    stream: _Bounded | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None:
            self.stream.write(self.format(record) + "\n")


_handler = _Handler()
_handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
logging.getLogger().addHandler(_handler)
logging.getLogger().setLevel(logging.INFO)


class kept_output:  # noqa: N801  (used like a function; a class costs a third of a generator)
    """Keep what the code in this block prints and logs."""

    __slots__ = ("_outer", "_stream")

    def __enter__(self) -> _Bounded:
        self._stream = _Bounded()
        self._outer = (sys.stdout, sys.stderr, _handler.stream)
        sys.stdout = sys.stderr = self._stream  # type: ignore[assignment]
        _handler.stream = self._stream
        return self._stream

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr, _handler.stream = self._outer
