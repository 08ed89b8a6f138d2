"""An executor: claims runs, drives them, keeps their leases, and drains when it is told to stop.

One event loop does the waiting; each run's code has a thread while it runs. A run that waits has
neither. What an executor holds is known to the database by leases alone, so one that dies needs no
clean-up: its runs become claimable when their leases end.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from ..authoring.failures import encode_exception
from ..engine.postgres import PostgresEngine
from ..engine.runs import ClaimedRun, RunStore
from ..errors import (
    ApiaryError,
    Cancelled,
    ConfigurationError,
    LeaseLost,
    TransactionConflict,
    UnavailableError,
)
from .code import CodeCache
from .crashpoints import crash_point
from .ending import end_tasks
from .invoking import Invoker
from .listening import CONTROL, READY, Listener
from .operations import Abandoned
from .replay import OperationRecord
from .running import RunContext, Services
from .scheduling import Scheduler
from .starting import Starter
from .steps import StepRunner
from .threads import run_code
from .workers import Workers

__all__ = ["Executor", "ExecutorSettings"]

log = logging.getLogger(__name__)

_HEARTBEAT_S = 10.0  # at most between two signs of life


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """How an executor works; times in seconds."""

    name: str | None = None  # None: host, process and a random part
    concurrency: int = 32  # runs with a thread at once
    step_threads: int = 32
    step_processes: int = 2
    lease_s: float = 30.0
    poll_s: float = 2.0  # looking for work without a notification
    grace_s: float = 10.0  # for running steps when it drains
    applications: Sequence[str] | None = None  # None: all
    queues: Sequence[str] | None = None  # None: all, and runs without a queue


def _are_all(claimed: Sequence[ClaimedRun]) -> bool:
    """Whether a look would tell nothing that claiming these runs has not told.

    Having found none, it would tell when there will be one; and so it would for a queue, whose
    limits may let the next run start at some time.
    """
    return bool(claimed) and all(run.queue is None for run in claimed)


class Executor:
    """One executor, on the running event loop."""

    def __init__(
        self,
        engine: PostgresEngine,
        listener: Listener,
        settings: ExecutorSettings | None = None,
    ) -> None:
        self.settings = settings or ExecutorSettings()
        self.name = self.settings.name or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        # Two executors may have been given the same name: what they hold must not be mixed up.
        self._identity = f"{self.name}#{uuid4().hex[:8]}"
        self._lease = timedelta(seconds=self.settings.lease_s)
        self._engine = engine
        self._listener = listener
        self.store = RunStore(engine)
        self._code = CodeCache(engine)
        self.starter = Starter(self.store, self._code)
        self._workers = Workers()
        self._steps = StepRunner(
            self._workers,
            threads=self.settings.step_threads,
            processes=self.settings.step_processes,
        )
        self._running: dict[str, tuple[RunContext, asyncio.Task[None]]] = {}
        self._driving: set[asyncio.Task[None]] = set()
        self.scheduler = Scheduler(engine, self.store, self.starter)
        self._wake = asyncio.Event()
        self._ready = False  # a run may be there to be claimed
        self._look_at = 0.0  # when time alone may have made something due; of the loop's clock
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._renewing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to claim and drive runs."""
        self._services = Services(
            loop=asyncio.get_running_loop(),
            store=self.store,
            invoker=Invoker(self._engine),
            starter=self.starter,
            steps=self._steps,
            workers=self._workers,
            executor=self._identity,
            function_timeout_s=self._engine.settings.statement_timeout_s,
        )
        await self._listener.start()
        self._unsubscribe = [
            self._listener.subscribe(READY, self._on_ready),
            self._listener.subscribe(CONTROL, self._on_control),
        ]
        self._tasks = [
            asyncio.create_task(self._for_ever(self._work, self._pause)),
            asyncio.create_task(
                self._for_ever(self._renew, self._pause_between_renewals, also_draining=True)
            ),
        ]

    async def drain(self, grace_s: float | None = None) -> None:
        """Stop claiming, let what runs come to a stop, give the runs back, and end."""
        self._stopping = True
        self._wake.set()
        crash_point("draining")
        for context, _ in self._running.values():
            context.draining = True
        grace_s = self.settings.grace_s if grace_s is None else grace_s
        if self._driving:
            await asyncio.wait(list(self._driving), timeout=grace_s)
        for context, _ in list(self._running.values()):
            context.abandon(Abandoned("the executor drains"))
        if self._driving:
            await asyncio.wait(list(self._driving), timeout=5.0)
        await self.close()

    async def close(self) -> None:
        """End at once; runs that are still held are adopted when their leases end."""
        self._stopping = True
        for context, _ in list(self._running.values()):
            context.abandon(Abandoned("the executor ends"))
        ending = [*self._renewing, *self._driving]
        for task in ending:
            task.cancel()
        await end_tasks(self._tasks)
        await asyncio.gather(*ending, return_exceptions=True)
        for unsubscribe in getattr(self, "_unsubscribe", []):
            unsubscribe()
        with suppress(ApiaryError):  # only a courtesy to people who look
            await self.store.unregister_executor(self._identity)
        await self._steps.close()

    # The loops.

    async def _for_ever(self, work: Any, pause: Any, *, also_draining: bool = False) -> None:
        registered = False
        while also_draining or not self._stopping:
            try:
                if not registered:
                    await self._register()
                    registered = True
                await work()
            except UnavailableError as error:
                log.warning("executor_waits name=%s: %s", self.name, error.message)
            # Whatever goes wrong in one look, the executor looks again.
            except Exception:
                log.exception("executor_trouble name=%s", self.name)
            await pause()

    async def _register(self) -> None:
        await self.store.register_executor(
            self._identity,
            socket.gethostname(),
            os.getpid(),
            "apiary",
            applications=self.settings.applications,
            queues=self.settings.queues,
        )

    async def _work(self) -> None:
        """Claim what a notification told of; look for what is due when that may not be all."""
        self._wake.clear()
        claimed: list[ClaimedRun] | None = None
        if self._ready and self._room > 0:
            claimed = await self._claim()
            if _are_all(claimed) and self._loop_time() < self._look_at:
                return
        # An upper bound; what is told of meanwhile (`_look_within`) may not be in the answer.
        self._look_at = self._loop_time() + self.settings.poll_s
        look = await self.store.look()
        self._look_within(timedelta(seconds=look.wait_s(self.settings.poll_s)))
        if look.is_due(look.deadline):
            await self.store.time_out()
        if look.is_due(look.schedule_at):
            await self.scheduler.fire_due()
            self._on_ready()
            self._look_at = self._loop_time()  # for the slots after these
        if look.is_due(look.ready_at) and self._room > 0 and claimed != []:
            claimed = await self._claim()
            if claimed and not _are_all(claimed):
                self._look_within(timedelta(0))

    @property
    def _room(self) -> int:
        """How many more runs may be driven."""
        return 0 if self._stopping else self.settings.concurrency - len(self._driving)

    async def _claim(self) -> list[ClaimedRun]:
        """Claim runs, as many as there is room for, and drive them."""
        room = self._room
        self._ready = False
        claimed = await self.store.claim(
            self._identity, room, self._lease, self.settings.applications, self.settings.queues
        )
        if claimed:
            crash_point("claimed")
        for run in claimed:
            if run.deadline is not None:
                self._look_within(run.deadline - (run.lease_until - self._lease))
            task = asyncio.create_task(self._drive(run))
            self._driving.add(task)
            task.add_done_callback(self._driven)
        if len(claimed) == room:  # there may be more, for when there is room again
            self._ready = True
            if self._room > 0:
                self._wake.set()
        return claimed

    def _driven(self, task: asyncio.Task[None]) -> None:
        self._driving.discard(task)
        if not self._listener.works:  # nothing tells of what this run has made ready
            self._ready = True
        if self._ready:
            self._wake.set()  # there is room for another run

    def _on_ready(self, _payload: str = "") -> None:
        self._ready = True
        self._wake.set()

    def _look_within(self, wait: timedelta) -> None:
        """Something will be due then, by the database's clock."""
        look_at = self._loop_time() + max(0.0, wait.total_seconds())
        if look_at < self._look_at:
            self._look_at = look_at
            self._wake.set()

    def _loop_time(self) -> float:
        return self._services.loop.time()

    async def _pause(self) -> None:
        """Until a notification, the next timer, or the next look."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.01, self._look_at - self._loop_time())):
                await self._wake.wait()

    async def _renew(self) -> None:
        held = [(run_id, context.run.epoch) for run_id, (context, _) in self._running.items()]
        # Also when it holds nothing: this is how others know that it is alive.
        leases = await self.store.renew(self._identity, held, self._lease)
        crash_point("renewed")
        for run_id, epoch in held:
            entry = self._running.get(run_id)
            if entry is None or entry[0].run.epoch != epoch:
                continue
            if run_id in leases:
                entry[0].lease_until = leases[run_id]
            else:
                entry[0].abandon(LeaseLost(f"the lease on run {run_id} is lost", run_id=run_id))

    async def _pause_between_renewals(self) -> None:
        await asyncio.sleep(min(self.settings.lease_s / 3, _HEARTBEAT_S))

    def _on_control(self, payload: str) -> None:
        """A run was cancelled or timed out, perhaps one of ours; empty: perhaps any."""
        for run_id, (context, _) in list(self._running.items()):
            if payload == hashlib.md5(run_id.encode(), usedforsecurity=False).hexdigest():
                context.abandon(Cancelled(f"run {run_id} was cancelled", run_id=run_id))
        if not payload and self._running:
            task = asyncio.create_task(self._renew_now())
            self._renewing.add(task)
            task.add_done_callback(self._renewing.discard)

    async def _renew_now(self) -> None:
        try:
            await self._renew()
        except ApiaryError as error:
            log.warning("executor_waits name=%s: %s", self.name, error.message)

    # One run.

    async def _drive(self, run: ClaimedRun) -> None:
        try:
            if run.in_database:
                await self.store.run_in_database(run, self._lease)
            else:
                await self._run(run)
        except (LeaseLost, Cancelled) as error:
            log.info("run_lost run_id=%s: %s", run.run_id, error.message)
        except (UnavailableError, TransactionConflict) as error:
            # The lease ends by itself, and the run goes on then, here or elsewhere.
            log.warning("run_interrupted run_id=%s: %s", run.run_id, error.message)
        except ApiaryError as error:
            await self._fail(run, error)
        # A run must not take the executor with it, whatever its code or the platform does.
        except Exception as error:
            log.exception("run_crashed run_id=%s", run.run_id)
            await self._fail(run, error)
        finally:
            self._running.pop(run.run_id, None)

    async def _fail(self, run: ClaimedRun, error: Exception) -> None:
        try:
            await self.store.finish(
                run.run_id, run.epoch, "FAILED", None, encode_exception(error), None, []
            )
        except ApiaryError as failed:
            log.warning("run_not_ended run_id=%s: %s", run.run_id, failed)

    async def _run(self, run: ClaimedRun) -> None:
        code = await self._code.code(run.deployment)
        workflow = await self._code.workflow(run.deployment, run.workflow)
        records: list[OperationRecord] = []
        children: dict[str, Any] = {}
        attempts: dict[int, int] = {}
        if run.epoch > 1 or run.waiting_for is not None or run.forked:
            records = [OperationRecord(*row) for row in await self.store.operations(run.run_id)]
            children = await self.store.children(run.run_id)
            attempts = await self.store.step_attempts(run.run_id, run.started_at)
        context = RunContext(self._services, run, code, records, children, attempts, self._lease)
        context.draining = self._stopping
        current = asyncio.current_task()
        assert current is not None
        self._running[run.run_id] = (context, current)
        try:
            ended = await run_code(workflow, context)
        finally:
            # Whatever was begun side by side comes to its record before the run is put aside.
            await context.settle_tasks()
        await self._conclude(run, context, ended)

    async def _conclude(
        self, run: ClaimedRun, context: RunContext, ended: tuple[str | None, BaseException | None]
    ) -> None:
        output, error = ended
        if context.gone is not None:
            await self._give_up(run, context)
        elif context.suspended is not None:
            waiting = context.suspended
            operations = [*context.recorder.take(), *waiting.operations]
            crash_point("park-before")
            await self.store.park(
                run.run_id, run.epoch, waiting.waiting_for, waiting.wake_at, operations
            )
            crash_point("park-after")
            if waiting.wake_at is not None:
                self._look_within(waiting.wake_at - context.database_now())
        elif isinstance(error, Abandoned):
            await self._give_up(run, context)
        else:
            crash_point("finish-before")
            await self.store.finish(
                run.run_id,
                run.epoch,
                "SUCCEEDED" if error is None else "FAILED",
                output,
                None if error is None else encode_exception(error),
                context.replay.last_seq,
                context.recorder.take(),
            )
            crash_point("finish-after")

    async def _give_up(self, run: ClaimedRun, context: RunContext) -> None:
        if isinstance(context.gone, (ConfigurationError, UnavailableError)):
            # It would fail again at once: let the lease end first.
            log.warning("run_interrupted run_id=%s: %s", run.run_id, context.gone)
            return
        # Nothing depends on reads that are not recorded; after a lost reply they may have been.
        reads = context.recorder.take() if context.gone is None else []
        await self.store.release(run.run_id, run.epoch, reads)
        log.info("run_released run_id=%s", run.run_id)
