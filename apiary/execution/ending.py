"""Ending tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["end_tasks"]

_AGAIN_S = 1.0


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended; what they ended with is no concern any more.

    Once is not enough: a pool of connections swallows a cancellation that arrives while it hands a
    connection out, and a loop that goes on for ever would then do so.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=_AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # so that it counts as seen
