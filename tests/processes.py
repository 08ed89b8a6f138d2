"""Processes that tests watch."""

from __future__ import annotations

import os


def is_alive(pid: int) -> bool:
    """Whether a process is there, be it dead already with nobody having asked how it ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
