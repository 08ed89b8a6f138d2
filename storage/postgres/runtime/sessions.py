"""The session of an in-database run: transactions, isolation, durability, timeouts.

A transaction's isolation level is fixed when it begins, and PL/Python cannot issue SET TRANSACTION
(each of its statements runs in a subtransaction). So the *default* level is set before the commit
that begins the next transaction. The session's own settings are put back at the end.
"""

from __future__ import annotations

import ctypes

import plpy  # type: ignore[import-not-found]
from apiary_runtime.deployments import Backend
from apiary_runtime.interrupts import default_isolation, transaction_isolation

_backend = ctypes.PyDLL(None)
_STATEMENT_TIMEOUT = 3  # TimeoutId of the statement timeout, in every supported version


class Session:
    """Transaction control for a procedure that commits."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._saved = {
            name: self._setting(name)
            for name in ("default_transaction_isolation", "synchronous_commit")
        }
        self._set("synchronous_commit", "off")

    def use(self, isolation: str) -> None:
        """Make the current transaction, in which nothing has run yet, one of this level."""
        if transaction_isolation() != isolation:
            self._prepare_next(isolation)
            plpy.commit()

    def commit(self, next_isolation: str) -> None:
        """Commit without waiting for the disk; the next transaction has the given level."""
        self._prepare_next(next_isolation)
        plpy.commit()

    def commit_durably(self) -> None:
        """Commit, wait for the disk, and put the session's settings back."""
        for name, value in self._saved.items():
            self._set(name, value)
        plpy.commit()

    def restore(self) -> None:
        """Put the session's settings back, if that is still to be done; the work is over."""
        if any(self._setting(name) != value for name, value in self._saved.items()):
            self.commit_durably()

    def rollback(self, next_isolation: str) -> None:
        """Roll back; the next transaction has the given level."""
        plpy.rollback()
        self.use(next_isolation)

    def start_statement_timeout(self, timeout_ms: int) -> None:
        """Let PostgreSQL cancel what runs now after a time, as it does for a client's statement.

        A CALL is one statement however many functions it runs, so its own timeout cannot be theirs.
        """
        _backend.enable_timeout_after(_STATEMENT_TIMEOUT, timeout_ms)

    def stop_statement_timeout(self) -> None:
        """Take the timeout back."""
        _backend.disable_timeout(_STATEMENT_TIMEOUT, False)

    def _prepare_next(self, isolation: str) -> None:
        # Read from the backend: a rollback puts the setting back without telling anybody.
        if default_isolation() != isolation:
            self._set("default_transaction_isolation", isolation)

    def _set(self, name: str, value: str) -> None:
        plan = self._backend.plan("SELECT pg_catalog.set_config($1, $2, false)", ["text", "text"])
        plpy.execute(plan, [name, value])

    def _setting(self, name: str) -> str:
        plan = self._backend.plan("SELECT pg_catalog.current_setting($1) AS v", ["text"])
        return str(plpy.execute(plan, [name])[0]["v"])
