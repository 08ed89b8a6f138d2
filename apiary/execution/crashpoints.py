"""Places at which tests let a process die: `APIARY_CRASH_POINT=name` or `name:count`.

The process kills itself, as the out-of-memory killer would, when it gets to the point for the
count-th time. Without the variable a point does nothing.
"""

from __future__ import annotations

import os
import signal

__all__ = ["CRASH_POINTS", "crash_point"]

CRASH_POINTS = (
    "claimed",  # runs were claimed, nothing of them was done
    "function-before",
    "function-after",  # it has committed, the code has not got its result
    "step-before",
    "step-after",  # its effect is there, its record is not
    "step-recorded",
    "child-started",
    "join-before",  # children have ended or not, nothing of that is recorded
    "message-taken",
    "park-before",
    "park-after",
    "finish-before",
    "finish-after",
    "renewed",
    "draining",
)
_name, _, _count = os.environ.get("APIARY_CRASH_POINT", "").partition(":")
_left = int(_count or 1)


def crash_point(name: str) -> None:
    """Die here when the environment says so."""
    global _left  # noqa: PLW0603  (one process, one death)
    if name == _name:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
