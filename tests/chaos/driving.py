"""A client that does not give up: it asks again, with the same id, until there is an answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from apiary.engine.postgres import PostgresEngine
from apiary.engine.runs import RunOutcome, RunStore
from apiary.errors import LeaseLost, TransactionConflict, UnavailableError
from apiary.execution.code import CodeCache
from apiary.execution.starting import RunOptions, Starter

APPLICATION = "chaos"
PATIENCE_S = 120.0  # a stall is found by it, not a slow machine
FINISHED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")
# What says that the platform was not able to answer now; anything else is an answer, or a bug.
PASSING = (UnavailableError, LeaseLost, TransactionConflict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run that a client wants."""

    run_id: str
    workflow: str
    input: dict[str, Any] = field(default_factory=dict)
    queue: str | None = None
    executor_only: bool = False


class Driver:
    """Starts runs and waits for them, whatever happens meanwhile."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.store = RunStore(engine)
        self._starter = Starter(self.store, CodeCache(engine))
        self.retries = 0

    async def start(self, job: Job) -> RunOutcome:
        """Start a run; one that lives in the database has ended then. Raises what goes wrong."""
        options = RunOptions(run_id=job.run_id, queue=job.queue, executor_only=job.executor_only)
        request = await self._starter.prepare(
            APPLICATION, job.workflow, job.input, "chaos", options
        )
        return await self._starter.start(request)

    async def finish(self, job: Job, within_s: float) -> RunOutcome:
        """Start a run, if need be again, and wait for its end."""
        ends = time.monotonic() + within_s
        started = False
        while True:
            try:
                if not started:
                    await self.start(job)
                    started = True
                found = (await self.store.status([job.run_id])).get(job.run_id)
                if found is not None and found.status in FINISHED:
                    return found
            except PASSING:
                self.retries += 1
            if time.monotonic() > ends:
                raise AssertionError(f"{job} has not ended within {within_s:g} s")
            await asyncio.sleep(0.05)
