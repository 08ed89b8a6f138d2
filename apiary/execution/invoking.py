"""Invoking functions: idempotency, retries and deadlines around the engine's single attempts.

A fresh id is only inserted: the engine runs the body and the key refuses a duplicate. An id that a
caller chose is looked up first, so that a repeated call runs nothing. A serialization failure or
deadlock is tried again with growing, jittered pauses until the budget or the deadline is spent. A
connection that breaks leaves the outcome unknown: it is looked up by the id before anything is
tried again, so that a lost reply never becomes a second execution.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ..authoring.failures import rebuild_exception
from ..engine.base import DuplicateOperation, Engine, Invocation, Outcome
from ..errors import (
    ApiaryError,
    Cancelled,
    DeadlineExceeded,
    FunctionError,
    TransactionConflict,
    UnavailableError,
)
from .ids import checked_run_id

__all__ = ["Invoker", "RetryPolicy", "raise_recorded_error"]

_LAST_LOOK_S = 2.0  # for an operation that may have committed at the deadline

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How conflicts between transactions are tried again; times in seconds."""

    budget_s: float = 10.0  # from the first attempt to the last
    first_delay_s: float = 0.001
    factor: float = 1.5
    max_delay_s: float = 2.0
    reconnect_delay_s: float = 0.25  # between attempts to reach a database that is away
    log_timeout_s: float = 1.0  # logging a failed attempt must not hold the caller up

    def delay_s(self, attempt: int) -> float:
        """The pause after the ``attempt``-th attempt (from 1): half to all of its bound."""
        bound = min(self.max_delay_s, self.first_delay_s * self.factor ** (attempt - 1))
        return bound * (0.5 + random.random() / 2)


class Invoker:
    """Runs single functions to their recorded outcome."""

    def __init__(self, engine: Engine, policy: RetryPolicy | None = None) -> None:
        self._engine = engine
        self._policy = policy or RetryPolicy()
        self.on_retry: Callable[[Invocation], None] | None = None
        self._logging: set[asyncio.Task[None]] = set()  # kept alive until they are done

    async def invoke(
        self, invocation: Invocation, *, fresh: bool, deadline_s: float | None = None
    ) -> Outcome:
        """Run a function exactly once and return its recorded outcome (which may be an error).

        ``fresh`` says that the id was just made and need not be looked up; that it is unique is
        checked all the same. ``deadline_s`` counts from now. Raises what kept the function from
        an outcome: DeadlineExceeded, TransactionConflict, UnavailableError, BadArgument, ...
        """
        checked_run_id(invocation.run_id)
        started_at = datetime.now(UTC)
        try:
            if deadline_s is None:
                return await self._until_outcome(invocation, fresh)
            async with asyncio.timeout(deadline_s):
                return await self._until_outcome(invocation, fresh)
        except TimeoutError:
            return await self._at_deadline(invocation, deadline_s or 0.0, started_at)
        except asyncio.CancelledError:
            # The caller has gone; what is left to do is to say so in the log.
            gone = Cancelled(f"the caller of {invocation.function} went away")
            task = asyncio.create_task(self._log(invocation, "CANCELLED", gone, started_at))
            self._logging.add(task)
            task.add_done_callback(self._logging.discard)
            raise

    async def settle(self) -> None:
        """Wait until what is still to be logged is logged."""
        await asyncio.gather(*self._logging)

    async def _at_deadline(
        self, invocation: Invocation, deadline_s: float, started_at: datetime
    ) -> Outcome:
        """The outcome if the cancelled statement had just committed; else DeadlineExceeded."""
        rolled_back = "its transaction was rolled back"
        try:
            async with asyncio.timeout(_LAST_LOOK_S):
                outcome = await self._engine.recorded(invocation)
        except (TimeoutError, UnavailableError):
            outcome, rolled_back = None, "whether it has run is not known yet"
        if outcome is not None:
            return outcome
        error = DeadlineExceeded(
            f"{invocation.function} did not finish within {deadline_s:g} s; {rolled_back}",
            run_id=invocation.run_id,
        )
        await self._log(invocation, "TIMED_OUT", error, started_at)
        raise error

    async def _until_outcome(self, invocation: Invocation, fresh: bool) -> Outcome:
        budget_ends = time.monotonic() + self._policy.budget_s
        look_up = not fresh
        while True:
            if look_up and (outcome := await self._recorded(invocation, budget_ends)) is not None:
                return outcome
            look_up = not fresh
            started_at = datetime.now(UTC)
            try:
                return await self._engine.invoke(invocation)
            except DuplicateOperation:
                look_up = True
                continue
            except TransactionConflict as conflict:
                await self._log(invocation, "RETRIED", conflict, started_at)
                if self.on_retry is not None:
                    self.on_retry(invocation)
                delay_s = self._policy.delay_s(invocation.attempt)
                if time.monotonic() + delay_s > budget_ends:
                    raise TransactionConflict(
                        f"{invocation.function} conflicted with other transactions in each of "
                        f"{invocation.attempt} attempts within {self._policy.budget_s:g} s",
                        hint="repeat it with the same run id; conflicting writers meet on one row",
                        run_id=invocation.run_id,
                        attempts=invocation.attempt,
                    ) from conflict
            except UnavailableError as lost:
                await asyncio.sleep(self._policy.reconnect_delay_s)
                if (outcome := await self._recorded(invocation, budget_ends)) is not None:
                    return outcome  # it had committed before the connection broke
                await self._log(invocation, "RETRIED", lost, started_at)
                if time.monotonic() > budget_ends:
                    raise
                delay_s = 0.0
            except (DeadlineExceeded, Cancelled) as error:
                status = "TIMED_OUT" if isinstance(error, DeadlineExceeded) else "CANCELLED"
                await self._log(invocation, status, error, started_at)
                raise
            invocation = replace(invocation, attempt=invocation.attempt + 1)
            await asyncio.sleep(delay_s)

    async def _recorded(self, invocation: Invocation, budget_ends: float) -> Outcome | None:
        """What is recorded under the id; waits for a database that is away, within the budget."""
        while True:
            try:
                return await self._engine.recorded(invocation)
            except UnavailableError as lost:
                if time.monotonic() + self._policy.reconnect_delay_s > budget_ends:
                    raise self._unknown(invocation) from lost
                await asyncio.sleep(self._policy.reconnect_delay_s)

    def _unknown(self, invocation: Invocation) -> UnavailableError:
        return UnavailableError(
            f"the database went away; whether {invocation.function} has run is not known yet",
            hint=f"repeat the call with run id {invocation.run_id}: it runs at most once",
            run_id=invocation.run_id,
        )

    async def _log(
        self, invocation: Invocation, status: str, error: ApiaryError, started_at: datetime
    ) -> None:
        try:
            async with asyncio.timeout(self._policy.log_timeout_s):
                await self._engine.log_attempt(invocation, status, error, started_at)
        except (ApiaryError, TimeoutError) as failed:
            # The attempt itself changed nothing; only its log entry is missing.
            log.warning("attempt_not_logged run_id=%s: %s", invocation.run_id, failed)


def raise_recorded_error(outcome: Outcome) -> None:
    """Raise the error that an outcome records, if it records one."""
    if outcome.error is None:
        return
    error = rebuild_exception(outcome.error, lambda _module, _name: None)
    if isinstance(error, FunctionError):
        error.metadata["stack"] = outcome.error.get("stack")
    raise error
