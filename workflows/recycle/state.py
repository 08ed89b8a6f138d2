"""The control state of a running job: who lives, which role each has, which plan is active.

A worker is named by its home (pipeline, stage) and keeps that name for life; the role is what it
does now. A role without a live worker is a hole. The state is a value: `transitions` makes the
next one, and a store replaces it under compare-and-set on ``epoch``.

    running ──fail──> switching ──activate──> running
    running ──join──> running, one worker joining ──activate──> running
    any     ──fail that empties a stage──> stopped ──restart──> running
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from workflows.recycle.errors import InvalidArgument, InvalidWorker
from workflows.recycle.job import Worker, whole

__all__ = ["Event", "EventKind", "JobState", "Member", "Move", "Outcome", "initial_state"]

EventKind = Literal["fail", "join", "activate", "commit", "restart"]
Phase = Literal["running", "switching", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker of the job."""

    worker: Worker
    """Its name for life."""
    state: Literal["live", "joining", "dead"]
    role: Worker | None
    """What it does now; None while dead, the role-to-be while joining."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A worker that copies the state of another stage, or that of its stage when it joins."""

    worker: Worker
    from_role: Worker | None
    """None for a newcomer."""
    to_role: Worker
    source: Worker
    """The live worker of the target stage to copy parameters and optimizer state from."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "worker": list(self.worker),
            "from_role": None if self.from_role is None else list(self.from_role),
            "to_role": list(self.to_role),
            "source": list(self.source),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Move:
        """The move that `to_json` wrote."""
        return cls(
            worker=Worker(*data["worker"]),
            from_role=None if data["from_role"] is None else Worker(*data["from_role"]),
            to_role=Worker(*data["to_role"]),
            source=Worker(*data["source"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Everything a controller must know to go on."""

    job_id: str
    pipelines: int
    stages: int
    epoch: int
    """Grows with every change of members or plan; never with a commit."""
    phase: Phase
    iteration: int
    """The next iteration to commit."""
    attempt: int
    """Grows whenever an iteration has to be replayed: stale messages carry an older one."""
    counts: tuple[int, ...]
    """Failures in each stage under the active (or, while switching, the coming) plan."""
    plan_key: str | None
    """The active plan, or the coming one while switching; None if stopped."""
    next_counts: tuple[int, ...] | None
    """The counts once the joining worker is in."""
    members: tuple[Member, ...]
    moves: tuple[Move, ...]
    """Copies that must be done before the switch or the join can be activated."""

    def member(self, worker: Worker) -> Member:
        """The member of this name; `InvalidWorker` if the job has none."""
        for member in self.members:
            if member.worker == worker:
                return member
        raise InvalidWorker(
            f"job {self.job_id} has no worker ({worker.pipeline}, {worker.stage})",
            pipeline=worker.pipeline,
            stage=worker.stage,
        )

    @property
    def joining(self) -> Member | None:
        """The worker that is copying its state, if any."""
        return next((m for m in self.members if m.state == "joining"), None)

    def live(self) -> dict[Worker, Worker]:
        """The live workers: role to name."""
        return {m.role: m.worker for m in self.members if m.state == "live" and m.role is not None}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        data = asdict(self)
        data["counts"] = list(self.counts)
        data["next_counts"] = None if self.next_counts is None else list(self.next_counts)
        data["members"] = [
            {
                "worker": list(m.worker),
                "state": m.state,
                "role": None if m.role is None else list(m.role),
            }
            for m in self.members
        ]
        data["moves"] = [move.to_json() for move in self.moves]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JobState:
        """The state that `to_json` wrote."""
        members = tuple(
            Member(
                worker=Worker(*m["worker"]),
                state=m["state"],
                role=None if m["role"] is None else Worker(*m["role"]),
            )
            for m in data["members"]
        )
        following = data["next_counts"]
        changed = {
            "counts": tuple(data["counts"]),
            "next_counts": None if following is None else tuple(following),
            "members": members,
            "moves": tuple(Move.from_json(move) for move in data["moves"]),
        }
        return cls(**(data | changed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a job; ``event_key`` makes it count once."""

    event_key: str
    kind: EventKind
    worker: Worker | None = None
    """For fail and join."""
    epoch: int | None = None
    """The epoch for which the event was made; None for a fact that holds in any epoch."""
    iteration: int | None = None
    """For commit and restart."""
    attempt: int | None = None
    """For commit."""
    loss: float | None = None
    """For commit: the mean loss of the iteration."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return asdict(self) | {"worker": None if self.worker is None else list(self.worker)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Event:
        """The event that `to_json` wrote."""
        worker = data.get("worker")
        return cls(**(data | {"worker": None if worker is None else Worker(*worker)}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an event did. The same event gets the same outcome, however often it is reported."""

    event: Event
    epoch: int
    """The epoch after it."""
    phase: Phase
    plan_before: str | None
    plan_after: str | None
    plan_stored: bool
    """Whether the plan set has ``plan_after``; if not it must be made on demand."""
    moves: tuple[Move, ...]
    cancelled_join: Worker | None
    """The newcomer whose copy the event put an end to."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back."""
        return {
            "event": self.event.to_json(),
            "epoch": self.epoch,
            "phase": self.phase,
            "plan_before": self.plan_before,
            "plan_after": self.plan_after,
            "plan_stored": self.plan_stored,
            "moves": [move.to_json() for move in self.moves],
            "cancelled_join": None if self.cancelled_join is None else list(self.cancelled_join),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """The outcome that `to_json` wrote."""
        cancelled = data["cancelled_join"]
        changed = {
            "event": Event.from_json(data["event"]),
            "moves": tuple(Move.from_json(move) for move in data["moves"]),
            "cancelled_join": None if cancelled is None else Worker(*cancelled),
        }
        return cls(**(data | changed))


def initial_state(job_id: str, pipelines: int, stages: int, plan_key: str) -> JobState:
    """A job with every worker live in its home role, before its first iteration."""
    whole("pipelines", pipelines, 1)
    whole("stages", stages, 1)
    if not job_id:
        raise InvalidArgument("a job needs an id")
    homes = [Worker(k, i) for k in range(pipelines) for i in range(stages)]
    return JobState(
        job_id=job_id,
        pipelines=pipelines,
        stages=stages,
        epoch=0,
        phase="running",
        iteration=0,
        attempt=0,
        counts=(0,) * stages,
        plan_key=plan_key,
        next_counts=None,
        members=tuple(Member(worker=home, state="live", role=home) for home in homes),
        moves=(),
    )
