"""How a long-lived process is told to end."""

from __future__ import annotations

import asyncio
import os
import signal

__all__ = ["stop_on_signals"]


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Let SIGTERM and SIGINT set the event; a second signal ends the process at once."""
    signals = 0  # counted by themselves: what else sets the event may come at the same time

    def on_signal(number: int) -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            os._exit(128 + number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
