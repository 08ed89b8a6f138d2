"""Stopping a body that loops in pure Python.

PostgreSQL notices a cancel or a statement timeout only where its own code checks for interrupts,
which a Python loop never reaches. While a body runs, a timer that counts the CPU time spent in it
(SIGVTALRM, which PostgreSQL does not use) looks at the backend's own flags, and raises in the body
when one is set; the next call into the database then lets PostgreSQL process the interrupt. A body
that waits inside the database needs no timer: there PostgreSQL checks for itself.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_TICK_S = 0.1

_backend = ctypes.CDLL(None)
_flags = tuple(
    ctypes.c_int.in_dll(_backend, name) for name in ("QueryCancelPending", "ProcDiePending")
)
_isolation_level = ctypes.c_int.in_dll(_backend, "XactIsoLevel")
_statement_timeout = ctypes.c_int.in_dll(_backend, "StatementTimeout")
_transaction_id = ctypes.PyDLL(None).GetTopTransactionIdIfAny
_transaction_id.restype = ctypes.c_uint32
_ISOLATIONS = ("read uncommitted", "read committed", "repeatable read", "serializable")


class Interrupted(BaseException):
    """The statement was cancelled, timed out, or its backend is being terminated.

    Not an Exception, so that a body's ``except Exception`` does not swallow it; one that is
    swallowed all the same is raised again at the next tick.
    """


def interrupt_pending() -> bool:
    """Whether PostgreSQL waits for this backend to stop its statement."""
    return any(flag.value for flag in _flags)


def transaction_isolation() -> str:
    """The isolation level of the running transaction."""
    return _ISOLATIONS[_isolation_level.value]


def statement_timeout_ms() -> int:
    """The session's statement timeout; 0 means none."""
    return _statement_timeout.value


def has_written() -> bool:
    """Whether the transaction has been given an id: it has written something, or locked a row."""
    return bool(_transaction_id())


def _on_tick(_signum: int, _frame: FrameType | None) -> None:
    if interrupt_pending():
        raise Interrupted


@contextmanager
def interruptible() -> Iterator[None]:
    """Let PostgreSQL's interrupts reach the Python code of this block."""
    previous = signal.signal(signal.SIGVTALRM, _on_tick)
    signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous or signal.SIG_IGN)
