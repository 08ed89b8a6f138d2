"""The event loop of the processes that are Apiary's own: servers and executors.

A call is many small waits, which uvloop does for less. A program that uses the client keeps the
loop that it has.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["new_loop", "run_main"]

T = TypeVar("T")


def run_main(main: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine that a process consists of, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop, not running yet."""
    if sys.platform == "win32":  # uvloop is not for it
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415 - only where it is needed

    return uvloop.new_event_loop()
