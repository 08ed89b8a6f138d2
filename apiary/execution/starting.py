"""Starting runs: check the input, choose the deployment, decide where the run takes place."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ..authoring.values import canonical, digest
from ..engine.runs import RunOutcome, RunStore, StartRequest, Superseded
from ..errors import ApiaryError, BadArgument, LeaseLost, PayloadTooLarge
from .code import CodeCache
from .ids import checked_run_id, new_run_id

__all__ = ["RunOptions", "Starter"]

# Of a run in the database. Short: claiming looks at the lock that its backend holds, and waits on
# while that lives, so this only bounds when the death of a backend is noticed.
LEASE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a run is started; everything may be left out."""

    run_id: str | None = None
    queue: str | None = None
    priority: int = 0
    queue_key: str | None = None
    deduplication: str | None = None
    start_at: datetime | None = None
    timeout_s: float | None = None  # of the whole run, from its start
    deployment: str | None = None  # None: the current one
    executor_only: bool = False  # never in the database
    trace: str | None = None
    deadline: datetime | None = None  # inherited from a parent


class Starter:
    """Starts runs of workflows."""

    def __init__(
        self, store: RunStore, code: CodeCache, *, max_payload_bytes: int = 4 * 1024 * 1024
    ) -> None:
        self._store = store
        self._code = code
        self._max_payload_bytes = max_payload_bytes

    async def prepare(
        self,
        application: str,
        workflow: str,
        document: dict[str, Any],
        principal: str,
        options: RunOptions,
    ) -> StartRequest:
        """The request for a run, its input checked against the workflow's signature."""
        deployment = options.deployment or await self._code.current(application)
        return await self._request(deployment, workflow, document, principal, options)

    async def start_new(
        self,
        application: str,
        workflow: str,
        document: dict[str, Any],
        principal: str,
        options: RunOptions,
        start: Callable[[StartRequest], Awaitable[RunOutcome]] | None = None,
    ) -> tuple[StartRequest, RunOutcome]:
        """`prepare`, and start by ``start`` (else `start`), mostly in one statement.

        The deployment that was current when that was asked for last is taken, and the start itself
        checks that it still is. If not, or if it refuses the request, it is asked for.
        """
        start = start or self.start
        last = self._code.last_current(application)
        if last is not None and options.deployment is None:
            request = None
            with suppress(ApiaryError):  # then the current deployment gives the answer
                request = await self._request(last, workflow, document, principal, options)
            if request is not None:
                with suppress(Superseded):  # nothing was started
                    request = replace(request, if_current=True)
                    return request, await start(request)
        request = await self.prepare(application, workflow, document, principal, options)
        return request, await start(request)

    async def _request(
        self,
        deployment: str,
        workflow: str,
        document: dict[str, Any],
        principal: str,
        options: RunOptions,
    ) -> StartRequest:
        run_id = new_run_id() if options.run_id is None else checked_run_id(options.run_id)
        if options.timeout_s is not None and not options.timeout_s > 0:
            raise BadArgument(
                f"timeout_s is {options.timeout_s!r}; expected more than 0", path="timeout_s"
            )
        entry = await self._code.entry(deployment, workflow)
        found = await self._code.workflow(deployment, workflow)
        _, normal = found.signature.normalise(document)
        text = canonical(normal)
        if len(text) > self._max_payload_bytes:
            size_bytes = len(text.encode())
            raise PayloadTooLarge(
                f"the input takes {size_bytes} bytes, the limit is {self._max_payload_bytes}",
                hint="store large data in a table and pass its key",
                path="args",
                size_bytes=size_bytes,
                limit_bytes=self._max_payload_bytes,
            )
        queue = options.queue or found.options.queue
        timeout_s = options.timeout_s or found.options.timeout_s
        here = entry.in_database and queue is None and options.start_at is None
        return StartRequest(
            run_id=run_id,
            application=entry.application,
            deployment=deployment,
            workflow=workflow,
            in_database=here and not options.executor_only,
            input=json.loads(text),
            input_digest=digest(text),
            principal=principal,
            trace=options.trace,
            queue=queue,
            priority=options.priority,
            queue_key=options.queue_key,
            deduplication=options.deduplication,
            start_at=options.start_at,
            deadline=_earlier(options.deadline, timeout_s, options.start_at),
            max_adoptions=found.options.max_adoptions,
        )

    async def require_deployment(self, deployment: str) -> None:
        """NotFound unless the database has the code of a deployment."""
        await self._code.code(deployment)

    async def start(self, request: StartRequest) -> RunOutcome:
        """Start a prepared run. One that lives in the database has ended when this returns.

        Unless it was there before: then the answer is where it stands.
        """
        if not request.in_database:
            return await self._store.start(request)
        try:
            return await self._store.run_in_database(request, LEASE)
        except LeaseLost:
            # Another backend is at it now. Its row is there, or comes with this statement.
            return await self._store.start(request)

    async def start_child(
        self, request: StartRequest, parent_run_id: str, parent_seq: int, parent_epoch: int
    ) -> RunOutcome:
        """Start a prepared run as a child of a run that is held; it is queued, whatever it is."""
        child = replace(
            request,
            parent_run_id=parent_run_id,
            parent_seq=parent_seq,
            parent_epoch=parent_epoch,
        )
        return await self._store.start(child)


def _earlier(
    deadline: datetime | None, timeout_s: float | None, start_at: datetime | None
) -> datetime | None:
    if timeout_s is None:
        return deadline
    own = (start_at or datetime.now(UTC)) + timedelta(seconds=timeout_s)
    return own if deadline is None else min(own, deadline)
