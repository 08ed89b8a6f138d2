"""Stopping a body that loops in pure Python.

PostgreSQL notices a cancel or a statement timeout only where its own code checks for interrupts,
which a Python loop never reaches. While a body runs, a timer that counts the CPU time spent in it
(SIGVTALRM, which PostgreSQL does not use) looks at the backend's own flags, and raises in the body
when one is set; the next call into the database then lets PostgreSQL process the interrupt. A body
that waits inside the database needs no timer: there PostgreSQL checks for itself.

A body that swallows what is raised in it, again and again, is ended with its backend: a FATAL error
of the same SQL state and text, which rolls the transaction back like any other end of a session.
"""

from __future__ import annotations

import ctypes
import signal
from _signal import setitimer  # the signal module's own goes through enums
from collections.abc import Callable
from types import FrameType
from typing import Any

_TICK_S = 0.1
_PATIENCE_TICKS = 5  # how often a body may swallow its interruption

_backend = ctypes.PyDLL(None)  # keeps the interpreter's lock: these calls are into our own process
_query_cancel_pending = ctypes.c_int.in_dll(_backend, "QueryCancelPending")
_proc_die_pending = ctypes.c_int.in_dll(_backend, "ProcDiePending")
_isolation_level = ctypes.c_int.in_dll(_backend, "XactIsoLevel")
_first_snapshot_set = ctypes.c_bool.in_dll(_backend, "FirstSnapshotSet")
_statement_timeout = ctypes.c_int.in_dll(_backend, "StatementTimeout")
_ISOLATIONS = ("read uncommitted", "read committed", "repeatable read", "serializable")

_transaction_id = _backend.GetTopFullTransactionIdIfAny
_transaction_id.restype = ctypes.c_uint64

_after_trigger_pending_on = _backend.AfterTriggerPendingOnRel
_after_trigger_pending_on.restype = ctypes.c_bool
_after_trigger_pending_on.argtypes = [ctypes.c_uint]

# Of utils/elog.h and utils/timeout.h, the same in all supported versions.
_FATAL_LEVEL = 22
_STATEMENT_TIMEOUT = 3


class Interrupted(BaseException):
    """The statement was cancelled, timed out, or its backend is being terminated.

    Not an Exception, so that a body's ``except Exception`` does not swallow it; one that is
    swallowed all the same is raised again at the next tick.
    """


def interrupt_pending() -> bool:
    """Whether PostgreSQL waits for this backend to stop its statement."""
    return bool(_query_cancel_pending.value or _proc_die_pending.value)


def has_transaction_id() -> bool:
    """Whether the running transaction has written anything (or has asked for its own id)."""
    return _transaction_id() != 0


def transaction_id() -> str:
    """The running transaction's id, as pg_current_xact_id() shows it."""
    return str(_transaction_id())


def triggers_pending_on(relation: int) -> bool:
    """Whether deferred triggers of a table, given by its oid, have still to run."""
    return bool(_after_trigger_pending_on(relation))


def transaction_isolation() -> str:
    """The isolation level of the running transaction."""
    return _ISOLATIONS[_isolation_level.value]


def set_transaction_isolation(isolation: str) -> None:
    """Give the running transaction, in which nothing has run yet, another isolation level."""
    if _first_snapshot_set.value and transaction_isolation() != isolation:
        raise RuntimeError("the transaction has a snapshot; its isolation level cannot change")
    _isolation_level.value = _ISOLATIONS.index(isolation)


def statement_timeout_ms() -> int:
    """The session's statement timeout; 0 means none."""
    return _statement_timeout.value


class interruptible:  # noqa: N801  (used like a function; a class costs a third of a generator)
    """Let PostgreSQL's interrupts reach the Python code of this block; blocks may be nested.

    ``lost`` gives the error after which the transaction can only be rolled back, so that going on
    is useless, or None.
    """

    __slots__ = ("_lost", "_outer", "_ticks")
    innermost: interruptible | None = None

    def __init__(self, lost: Callable[[], Any]) -> None:
        self._lost = lost
        self._ticks = 0

    def __enter__(self) -> None:
        self._outer = interruptible.innermost
        interruptible.innermost = self
        if self._outer is None:
            setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)

    def __exit__(self, *_: object) -> None:
        interruptible.innermost = self._outer
        if self._outer is None:
            setitimer(signal.ITIMER_VIRTUAL, 0)

    def tick(self) -> None:
        """Raise in the block's code when it has to stop; end the backend when it does not."""
        error = self._lost()
        if interrupt_pending() or error is not None:
            self._ticks += 1
            if self._ticks > _PATIENCE_TICKS:
                _end_loop(error)
            raise Interrupted


def _on_tick(_signum: int, _frame: FrameType | None) -> None:
    if interruptible.innermost is not None:
        interruptible.innermost.tick()


signal.signal(signal.SIGVTALRM, _on_tick)


def _end_loop(error: Any) -> None:
    if error is not None:
        state, message = error.sqlstate, str(error)
    else:
        _backend.get_timeout_indicator.restype = ctypes.c_bool
        timed_out = _backend.get_timeout_indicator(_STATEMENT_TIMEOUT, ctypes.c_bool(False))
        cause = "statement timeout" if timed_out else "user request"
        state, message = "57014", f"canceling statement due to {cause}"
    end_backend(state, message, "The function caught its interruption and went on.")


def end_backend(state: str, message: str, detail: str) -> None:
    """Report a FATAL error, which ends this process in PostgreSQL's own way. Does not return."""
    _backend.errstart(_FATAL_LEVEL, None)
    _backend.errcode(_sqlstate(state))
    _backend.errmsg_internal(message.replace("%", "%%").encode())
    _backend.errdetail_internal(detail.replace("%", "%%").encode())
    _backend.errfinish(b"interrupts.py", ctypes.c_int(0), b"apiary")


def _sqlstate(state: str) -> int:
    """MAKE_SQLSTATE of utils/elog.h: six bits a character."""
    return sum(
        ((ord(character) - 48) & 0x3F) << (6 * place) for place, character in enumerate(state)
    )
