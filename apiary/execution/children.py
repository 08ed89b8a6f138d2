"""Child runs and joins: what a workflow starts elsewhere, and how it waits for several things.

A child's id is its parent's and the number of the call, so that a parent which is run again finds
its children instead of starting others. A parent that waits leaves memory; the database counts the
ends of its children down and wakes it when enough of them have come, not at each.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any, cast

from ..engine.runs import RunOutcome
from ..errors import BadArgument, IdempotencyMismatch, NonDeterminismError
from .crashpoints import crash_point
from .ids import derived_id
from .operations import Pending, Suspended, operation_row
from .recording import as_record
from .replay import OperationRecord
from .starting import RunOptions

if TYPE_CHECKING:
    from .running import RunContext

__all__ = ["Children"]

_FINISHED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")


class Children:
    """The children of one run, and its joins."""

    def __init__(self, context: RunContext, known: dict[str, RunOutcome]) -> None:
        self._context = context
        self._known = known  # started before, by id

    def child_id(self, seq: int) -> str:
        """The id of the child that call ``seq`` starts."""
        return derived_id(self._context.run.run_id, str(seq))

    async def start(self, pending: Pending, document: dict[str, Any]) -> None:
        """Start the child of a call, if it has not been started before."""
        child_id = cast(str, pending.child_id)
        if child_id in self._known:
            return
        context = self._context
        await context.recorder.flush()
        run = context.run
        options = RunOptions(
            run_id=child_id, deployment=run.deployment, trace=run.trace, deadline=run.deadline
        )
        starter = context.services.starter
        request = await starter.prepare(
            run.application, pending.target.name, document, run.principal, options
        )
        try:
            await starter.start_child(request, run.run_id, pending.seq, run.epoch)
            crash_point("child-started")
        except IdempotencyMismatch as error:
            recorded, digest_then = (
                error.metadata.get(key) for key in ("recorded", "recorded_digest")
            )
            raise NonDeterminismError(
                f"run {run.run_id} does not replay: child {child_id} was {recorded} with input "
                f"{digest_then}",
                run_id=run.run_id,
                recorded=recorded,
                now=error.metadata.get("requested"),
            ) from error

    def join(self, children: Sequence[Pending], *, need: int, failures: int | None = None) -> None:
        """Record the outcomes of ended children; suspend the run until enough of them have.

        Enough are ``need`` ends. With ``failures`` only successes count, and it is also enough when
        more than that many have failed.
        """
        context = self._context
        ids = [cast(str, child.child_id) for child in children]
        crash_point("join-before")
        found = context.wait(context.services.store.status(ids))
        rows = []
        for child, child_id in zip(children, ids, strict=True):
            outcome = found[child_id]
            if outcome.status not in _FINISHED:
                continue
            row = operation_row(
                child.seq, "workflow", child.target.name, output=outcome.output,
                error=outcome.error, input_digest=child.input_digest,
            )  # fmt: skip
            rows.append(row)
            child.settle(as_record(row))
        if rows:
            context.record(rows)
        failed = sum(row["error"] is not None for row in rows)
        left = need - (len(rows) if failures is None else len(rows) - failed)
        if left <= 0 or (failures is not None and failed > failures):
            return
        waiting = [i for c, i in zip(children, ids, strict=True) if c.record is None]
        wait: dict[str, Any] = {"kind": "run", "runs": waiting, "need": left}
        if failures is not None:
            wait["failures"] = failures - failed
        raise context.suspend(Suspended(wait))

    def gather(self, pendings: list[Pending], need: int | None) -> list[Any]:
        """What `apiary.gather` returns."""
        if need is None:
            return self._all(pendings)
        if not 1 <= need <= len(pendings):
            raise BadArgument(f"need is between 1 and {len(pendings)}, not {need}", path="need")
        return self._some(pendings, need)

    def _all(self, pendings: list[Pending]) -> list[Any]:
        for pending in pendings:
            if pending.record is None and pending.running is not None:
                pending.settle(self._context.wait_for(pending.running))
        children = [pending for pending in pendings if pending.record is None]
        if children:
            self.join(children, need=len(children))
        return [self._context.result(pending) for pending in pendings]

    def _some(self, pendings: list[Pending], need: int) -> list[tuple[int, Any]]:
        context = self._context
        seq = context.replay.next_seq()
        record = context.replay.match(seq, "gather", str(need), None)
        if record is None:
            chosen = self._first_successes(pendings, need)
            # Too few: the error that is raised is that of the first failure, by its number.
            row = operation_row(seq, "gather", str(need), output=chosen)
            context.record([row])
            record = as_record(row)
        if isinstance(record.output, int):
            context.result(pendings[record.output])  # raises its error
        return [(index, context.result(pendings[index])) for index in record.output]

    def _first_successes(self, pendings: list[Pending], need: int) -> list[int] | int:
        """The first ``need`` that succeeded, in order; or one that failed when too many have."""
        while True:
            for pending in pendings:
                running = pending.running
                if pending.record is None and running is not None and running.done():
                    pending.settle(self._context.wait_for(running))
            settled = [i for i, p in enumerate(pendings) if p.record is not None]
            succeeded = [
                i for i in settled if cast(OperationRecord, pendings[i].record).error is None
            ]
            succeeded.sort(key=lambda i: pendings[i].ended_at)
            if len(succeeded) >= need:
                return succeeded[:need]
            failed = [i for i in settled if i not in set(succeeded)]
            spare = len(pendings) - need - len(failed)
            if spare < 0:
                return failed[0]
            here = [p.running for p in pendings if p.record is None and p.running is not None]
            if here:
                _wait_for_any(here)
                continue
            children = [p for p in pendings if p.record is None]
            self.join(children, need=need - len(succeeded), failures=spare)


def _wait_for_any(running: Sequence[ThreadFuture[Any]]) -> None:
    ready = threading.Event()
    for future in running:
        future.add_done_callback(lambda _: ready.set())
    ready.wait()
