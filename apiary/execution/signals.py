"""How a long-lived process is told to end."""

from __future__ import annotations

import asyncio
import os
import signal

__all__ = ["stop_requested"]


def stop_requested() -> asyncio.Event:
    """Set by SIGTERM or SIGINT from now on; a second signal ends the process at once."""
    stopping = asyncio.Event()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stopping
