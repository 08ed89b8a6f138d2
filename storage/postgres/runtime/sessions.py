"""The session of an in-database run: transactions, isolation, durability, timeouts.

PL/Python cannot issue SET TRANSACTION: each of its statements runs in a subtransaction. So a
transaction's isolation level is set in the backend itself, where a transaction that has just begun
takes it from, too. Durability is a setting of the session, put back at the end; it is set there as
well, as statements for that took a tenth of a run.
"""

from __future__ import annotations

import ctypes

import plpy  # type: ignore[import-not-found]
from apiary_runtime.interrupts import set_transaction_isolation

_backend = ctypes.PyDLL(None)
_synchronous_commit = ctypes.c_int.in_dll(_backend, "synchronous_commit")

# Of utils/timeout.h, utils/guc.h and access/xact.h, the same in all supported versions.
_STATEMENT_TIMEOUT = 3
_PGC_USERSET, _PGC_S_SESSION = 6, 13
_DURABILITIES = ("off", "local", "remote_write", "on", "remote_apply")


class Session:
    """Transaction control for a procedure that commits."""

    def __init__(self) -> None:
        self._durability = _durability()
        _set("synchronous_commit", "off")

    def use(self, isolation: str) -> None:
        """Give the current transaction, in which nothing has run yet, this level."""
        set_transaction_isolation(isolation)

    def commit(self, next_isolation: str) -> None:
        """Commit without waiting for the disk; the next transaction has the given level."""
        plpy.commit()
        self.use(next_isolation)

    def rollback(self, next_isolation: str) -> None:
        """Roll back; the next transaction has the given level."""
        plpy.rollback()
        self.use(next_isolation)

    def commit_durably(self) -> None:
        """Commit, wait for the disk, and put the session's setting back."""
        _set("synchronous_commit", self._durability)
        plpy.commit()

    def restore(self) -> None:
        """Put the session's setting back, if that is still to be done; the work is over."""
        if _durability() != self._durability:
            self.commit_durably()

    def start_statement_timeout(self, timeout_ms: int) -> None:
        """Let PostgreSQL cancel what runs now after a time, as it does for a client's statement.

        A CALL is one statement however many functions it runs, so its own timeout cannot be theirs.
        """
        _backend.enable_timeout_after(_STATEMENT_TIMEOUT, timeout_ms)

    def stop_statement_timeout(self) -> None:
        """Take the timeout back."""
        _backend.disable_timeout(_STATEMENT_TIMEOUT, False)


def _durability() -> str:
    return _DURABILITIES[_synchronous_commit.value]


def _set(name: str, value: str) -> None:
    """As SET does; for values that PostgreSQL takes, since an error could not leave from here."""
    _backend.SetConfigOption(name.encode(), value.encode(), _PGC_USERSET, _PGC_S_SESSION)
