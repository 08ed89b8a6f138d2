"""The controller of a real training run: it grants steps, commits them, and switches plans.

Everything it must not forget is in its `ControlStore`; who is connected and which configuration
they are in is found out anew by each controller. A switch of plans goes

    a connection ends -> fail event -> state "switching" (stored)
    all live workers: configure (new groups, undo, copies) -> ready
    activate event -> state "running" (stored) -> go

A controller that is killed anywhere in it leaves a stored state from which the next one starts
again with `configure`; replies to an older configuration carry its token and are dropped.
Iterations are committed under (iteration, attempt), once every live worker has done the step.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workflows.recycle.control import ControlStore
from workflows.recycle.errors import TrainingFailed
from workflows.recycle.failures import canonical_failures
from workflows.recycle.job import Worker
from workflows.recycle.planner import make_plan
from workflows.recycle.schedule import Schedule
from workflows.recycle.state import Event, JobState
from workflows.recycle.training_link import Link, LinkClosedError, publish
from workflows.recycle.training_spec import ADDRESS_FILE, STEPS_FILE, Join, TrainingSpec

__all__ = ["Controller", "die_at"]

_GRACE_S = 2.0
"""How long broken groups wait for the news of who died before they are formed again."""


class Controller:
    """One controller, from its start to the end of the run or its own."""

    def __init__(
        self,
        spec: TrainingSpec,
        directory: Path,
        store: ControlStore,
        *,
        spawn: Callable[[Worker], None],
        at_point: Callable[[str], None] | None = None,
        schedule_of: Callable[[tuple[int, ...]], Schedule] | None = None,
    ) -> None:
        """``spawn`` starts a process for a newcomer; ``at_point`` is told of named points;
        ``schedule_of`` gives the schedule for failure counts (default: a greedy plan, made now).
        """
        self.spec, self.directory, self.store = spec, directory, store
        self.schedule_of = schedule_of or self._make_schedule
        self.spawn, self.at_point = spawn, at_point or _go_on
        self.state: JobState = store.load()
        self.links: dict[Worker, Link] = {}
        self.schedules: dict[tuple[int, ...], Schedule] = {}
        self.selector = selectors.DefaultSelector()
        self.token = ""
        self.ready: set[Worker] = set()
        self.going = False
        self.broken_at: float | None = None
        self.spawned: set[Worker] = set()
        self.done: dict[int, dict[Worker, dict[str, Any]]] = {}
        self.next_step: dict[Worker, int] = {}

    def run(self) -> None:
        """Train until the last step is committed, then stop the workers."""
        listener, self.secret = publish(self.directory / ADDRESS_FILE)
        with listener:
            self.selector.register(listener, selectors.EVENT_READ, None)
            self._wait_for_all()
            self._configure()
            while self.state.iteration < self.spec.steps:
                self._wait()
            for link in self.links.values():
                self._stop(link)

    @staticmethod
    def _stop(link: Link) -> None:
        try:
            link.send({"kind": "stop"})
        except LinkClosedError:
            # All steps are committed: a worker that died after the last one is not missed.
            return
        finally:
            link.close()

    # Waiting and messages

    def _wait(self) -> None:
        """Handle what comes next; `TrainingFailed` if nothing does for too long."""
        timeout_s = self.spec.patience_s if self.broken_at is None else _GRACE_S
        ready = self.selector.select(timeout_s)
        if not ready and self.broken_at is None:
            raise TrainingFailed(f"no message within {self.spec.patience_s} s")
        for key, _ in ready:
            if key.data is None:
                self._accept(key.fileobj)
            elif key.data in self.links.values():
                self._read(key.data)
        if self.broken_at is not None and time.monotonic() - self.broken_at > _GRACE_S:
            self._configure()

    def _accept(self, listener: Any) -> None:
        connection, _ = listener.accept()
        link = Link(connection)
        try:
            hello = link.receive(self.spec.patience_s)
        except LinkClosedError:
            # It died before it said who it is; who is missing is found by other means.
            link.close()
            return
        if hello["secret"] != self.secret:
            link.close()
            return
        worker = Worker(*hello["worker"])
        self.selector.register(connection, selectors.EVENT_READ, link)
        self.links[worker] = link
        self._join_if_due()

    def _read(self, link: Link) -> None:
        worker = next(name for name, known in self.links.items() if known is link)
        try:
            messages = link.waiting()
        except LinkClosedError:
            self._lost(worker)
            return
        for message in messages:
            if message["token"] != self.token:
                continue
            if message["kind"] == "ready":
                self._on_ready(worker)
            elif message["kind"] == "done":
                self._on_done(worker, message)
            elif message["kind"] == "broken" and self.broken_at is None:
                self.broken_at = time.monotonic()

    def _drop(self, worker: Worker) -> None:
        link = self.links.pop(worker)
        self.selector.unregister(link.connection)
        link.close()

    # Members

    def _wait_for_all(self) -> None:
        """Until every worker that should live has connected; who does not is dead."""
        deadline = time.monotonic() + self.spec.patience_s
        while missing := [w for w in self.state.live().values() if w not in self.links]:
            left = deadline - time.monotonic()
            ready = self.selector.select(left) if left > 0 else []
            if not ready:
                for worker in missing:
                    self._apply_failure(worker)
                return
            for key, _ in ready:
                if key.data is None:
                    self._accept(key.fileobj)
                elif key.data in self.links.values():
                    self._read(key.data)

    def _lost(self, worker: Worker) -> None:
        self._drop(worker)
        self.spawned.discard(worker)
        if self.state.member(worker).state != "dead":
            self._apply_failure(worker)
            self._configure()

    def _apply_failure(self, worker: Worker) -> None:
        key = f"fail-{worker.pipeline}-{worker.stage}-{self.state.epoch}"
        self.store.apply(Event(event_key=key, kind="fail", worker=worker))
        self.state = self.store.load()
        if self.state.phase == "stopped":
            raise TrainingFailed(
                f"after the death of worker {tuple(worker)} a stage has no live worker: restart "
                "from a checkpoint",
                worker=list(worker),
            )

    def _due_join(self) -> Join | None:
        """A newcomer that should be in before the next step."""
        done = {o.event.event_key for o in self.store.outcomes() if o.event.kind == "join"}
        cancelled = [o.cancelled_join for o in self.store.outcomes()]
        for join in self.spec.joins:
            key = self._join_key(join, cancelled.count(join.worker))
            dead = self.state.member(join.worker).state == "dead"
            if dead and join.step <= self.state.iteration and key not in done:
                return join
        return None

    @staticmethod
    def _join_key(join: Join, attempts: int) -> str:
        return f"join-{join.worker.pipeline}-{join.worker.stage}-{join.step}-{attempts}"

    def _join_if_due(self) -> None:
        """At the boundary before a join, once nobody is in a step: let the newcomer in."""
        join = self._due_join() if self.state.phase == "running" and self.going else None
        if join is None:
            return
        if join.worker not in self.links:
            if join.worker not in self.spawned:
                self.spawned.add(join.worker)
                self.spawn(join.worker)
            return
        cancelled = [o.cancelled_join for o in self.store.outcomes()]
        key = self._join_key(join, cancelled.count(join.worker))
        self.store.apply(
            Event(event_key=key, kind="join", worker=join.worker, epoch=self.state.epoch)
        )
        self._configure()

    # Switching

    def _configure(self) -> None:
        """Send everyone into new groups under the stored state, newcomer included."""
        self.state = self.store.load()
        self.token = secrets.token_hex(8)
        self.ready, self.going, self.broken_at = set(), False, None
        self.done = {}
        members = {m.worker: m.role for m in self.state.members if m.state != "dead"}
        counts = self.state.next_counts or self.state.counts
        schedule = self._schedule(counts)
        orders = schedule.by_worker()
        for worker, role in members.items():
            if role is None or worker not in self.links:
                continue
            message = {
                "kind": "configure",
                "token": self.token,
                "step": self.state.iteration,
                "members": [{"role": list(r), "worker": list(w)} for w, r in members.items() if r],
                "executor": schedule.executor.tolist(),
                "ops": [[op.op, op.home, op.micro_batch] for op in orders[role]],
                "moves": [move.to_json() for move in self.state.moves],
            }
            try:
                self.links[worker].send(message)
            except LinkClosedError:
                # Its socket is readable now and will be handled as a loss.
                continue

    def _schedule(self, counts: tuple[int, ...]) -> Schedule:
        if counts not in self.schedules:
            self.schedules[counts] = self.schedule_of(counts)
        return self.schedules[counts]

    def _make_schedule(self, counts: tuple[int, ...]) -> Schedule:
        failed = canonical_failures(self.spec.job, counts)
        return make_plan(self.spec.job, failed, engine="greedy").schedule

    def _on_ready(self, worker: Worker) -> None:
        self.ready.add(worker)
        members = {m.worker for m in self.state.members if m.state != "dead"}
        if self.going or self.ready != members:
            return
        if self.state.phase == "switching" or self.state.joining is not None:
            self.at_point("before_activate")
            key = f"activate-{self.state.epoch}"
            self.store.apply(Event(event_key=key, kind="activate", epoch=self.state.epoch))
            self.state = self.store.load()
            self.at_point("after_activate")
        self.going = True
        self.next_step = dict.fromkeys(members, self.state.iteration)
        self._grant()

    # Steps

    def _boundary(self) -> int:
        """The first step that nobody may start yet."""
        pending = [j.step for j in self.spec.joins if j.step > self.state.iteration]
        if self._due_join() is not None:
            return self.state.iteration
        return min([*pending, self.spec.steps])

    def _grant(self) -> None:
        """Let everyone go on whose next step is before the boundary."""
        boundary = self._boundary()
        for worker, step in list(self.next_step.items()):
            if step < boundary:
                del self.next_step[worker]
                try:
                    self.links[worker].send({"kind": "go", "token": self.token})
                except LinkClosedError:
                    # Its socket is readable now and will be handled as a loss.
                    continue
        self._join_if_due()

    def _on_done(self, worker: Worker, message: dict[str, Any]) -> None:
        step = message["step"]
        self.done.setdefault(step, {})[worker] = message
        self.next_step[worker] = step + 1
        self._commit_if_complete(self.state.iteration)
        if self.state.iteration < self.spec.steps:
            self._grant()

    def _commit_if_complete(self, step: int) -> None:
        reports = self.done.get(step, {})
        live = self.state.live()
        if set(reports) != set(live.values()):
            return
        self._require_equal_peers(step, live, reports)
        loss = sum(reports[worker]["loss"] for _, worker in sorted(live.items()))
        self._record(step, loss, reports)
        attempt = self.state.attempt
        self.store.apply(
            Event(
                event_key=f"commit-{step}-{attempt}",
                kind="commit",
                epoch=self.state.epoch,
                iteration=step,
                attempt=attempt,
                loss=loss,
            )
        )
        self.state = self.store.load()
        del self.done[step]

    def _require_equal_peers(
        self, step: int, live: dict[Worker, Worker], reports: dict[Worker, dict[str, Any]]
    ) -> None:
        for stage in range(self.spec.stages):
            digests = {reports[w]["digest"] for role, w in live.items() if role.stage == stage}
            if len(digests) != 1:
                raise TrainingFailed(
                    f"after step {step} the workers of stage {stage} hold different weights",
                    step=step,
                    stage=stage,
                )

    def _record(self, step: int, loss: float, reports: dict[Worker, dict[str, Any]]) -> None:
        """A line for people; what counts is in the store."""
        row = {
            "step": step,
            "attempt": self.state.attempt,
            "loss": loss,
            "digests": {f"{w.pipeline}.{w.stage}": r["digest"] for w, r in sorted(reports.items())},
            "rollbacks": {
                f"{w.pipeline}.{w.stage}": r["rollbacks"] for w, r in sorted(reports.items())
            },
        }
        with (self.directory / STEPS_FILE).open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(row) + "\n")


def _go_on(_: str) -> None:
    """At a named point of an ordinary run nothing happens."""


def die_at(wanted: str | None) -> Callable[[str], None]:
    """A hook for `Controller.at_point` that kills this process at the wanted point."""

    def at_point(point: str) -> None:
        if point == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return at_point
