"""What an event does to a job's control state: a pure function, (state, event) -> state.

It reads no clock and no store. The caller runs it inside one transaction that also stores the
outcome under its event key, so that a switch and the event behind it are one. An event that was
recorded before gets its recorded outcome again and changes nothing. An event made for another
epoch, or that does not fit the state, raises `Conflict`.

After a failure the survivors either keep the counts as they are, or move workers between stages
towards the best counts if the saving until the next event pays for the copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from workflows.recycle.bounds import lower_bound_us
from workflows.recycle.errors import Conflict, InvalidArgument
from workflows.recycle.failures import plan_key
from workflows.recycle.job import Job, Objective, Worker
from workflows.recycle.normalize import best_counts, move_pays, value_of
from workflows.recycle.roles import assign_roles
from workflows.recycle.state import Event, JobState, Member, Move, Outcome

__all__ = ["SwitchPolicy", "Transition", "apply_event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPolicy:
    """What a switch is decided by."""

    job: Job
    objective: Objective = "stagger"
    split: bool = True
    iterations_us: Mapping[tuple[int, ...], int] = field(default_factory=dict)
    """T of the stored plans, by counts; other counts are judged by their lower bound."""
    expected_iterations: float = 1000.0
    """Iterations until the next event."""
    copy_us: float = 0.0
    """Time to copy one worker's parameters and optimizer state."""
    allow_moves: bool = True

    def iteration_us(self, counts: tuple[int, ...]) -> int:
        """T of these counts: of the stored plan, or else the bound."""
        stored = self.iterations_us.get(counts)
        if stored is not None:
            return stored
        return lower_bound_us(self.job, counts, objective=self.objective, split=self.split)

    def key(self, counts: tuple[int, ...]) -> str:
        """The key of the plan for these counts."""
        return plan_key(counts, self.objective, split=self.split)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The state after an event, and what to record of it."""

    state: JobState
    outcome: Outcome


def apply_event(
    state: JobState, event: Event, policy: SwitchPolicy, *, recorded: Outcome | None = None
) -> Transition:
    """The next state.

    ``recorded`` is the outcome stored under the event's key, if any. Raises `Conflict`,
    `InvalidArgument` for an incomplete event, and `InvalidWorker`.
    """
    if recorded is not None:
        if recorded.event != event:
            raise Conflict(
                f"event key {event.event_key!r} was used for another event; a new event needs a "
                "new key",
                event_key=event.event_key,
            )
        return Transition(state=state, outcome=recorded)
    if event.epoch is not None and event.epoch != state.epoch:
        raise Conflict(
            f"event {event.event_key!r} is for epoch {event.epoch}, the job is in epoch "
            f"{state.epoch}: read the state again",
            expected=event.epoch,
            found=state.epoch,
        )
    handler = {
        "fail": _fail,
        "join": _join,
        "activate": _activate,
        "commit": _commit,
        "restart": _restart,
    }.get(event.kind)
    if handler is None:
        raise InvalidArgument(f"event kind {event.kind!r} is unknown", kind=event.kind)
    return handler(state, event, policy)


def _record(
    before: JobState,
    after: JobState,
    event: Event,
    policy: SwitchPolicy,
    cancelled: Worker | None = None,
) -> Transition:
    outcome = Outcome(
        event=event,
        epoch=after.epoch,
        phase=after.phase,
        plan_before=before.plan_key,
        plan_after=after.plan_key,
        plan_stored=after.plan_key is not None and after.counts in policy.iterations_us,
        moves=after.moves,
        cancelled_join=cancelled,
    )
    return Transition(state=after, outcome=outcome)


def _named(state: JobState, event: Event) -> Member:
    if event.worker is None:
        raise InvalidArgument(f"a {event.kind} event needs a worker", event_key=event.event_key)
    return state.member(event.worker)


def _with(state: JobState, changed: Member) -> tuple[Member, ...]:
    return tuple(changed if m.worker == changed.worker else m for m in state.members)


def _fail(state: JobState, event: Event, policy: SwitchPolicy) -> Transition:
    member = _named(state, event)
    if member.state == "dead":
        raise Conflict(
            f"worker {tuple(member.worker)} of job {state.job_id} is dead already",
            worker=list(member.worker),
        )
    joining = state.joining
    cancelled = joining.worker if joining else None
    dead = Member(worker=member.worker, state="dead", role=None)
    after = replace(state, members=_with(state, dead), epoch=state.epoch + 1)
    if joining and joining.worker == member.worker:
        # Only the newcomer died: the others never left their plan.
        after = replace(after, next_counts=None, moves=())
        return _record(state, after, event, policy, cancelled)
    if joining:
        put_off = Member(worker=joining.worker, state="dead", role=None)
        after = replace(after, members=_with(after, put_off), next_counts=None, moves=())
    if state.phase == "stopped":
        return _record(state, after, event, policy, cancelled)
    after = _switch(after, policy, pending=state.moves if state.phase == "switching" else ())
    return _record(state, after, event, policy, cancelled)


def _switch(state: JobState, policy: SwitchPolicy, pending: tuple[Move, ...]) -> JobState:
    """The survivors' new plan; stopped if a stage has lost all who hold its parameters."""
    # A move that was not activated has not happened: the worker holds its old stage's parameters.
    unmoved = {move.worker: move.from_role for move in pending}
    holders: dict[Worker, Worker] = {}
    for m in state.members:
        role = unmoved.get(m.worker, m.role)
        if m.state == "live" and role is not None:
            holders[role if role not in holders else _free_role(holders, role)] = m.worker
    counts = _holes(holders, state)
    attempt = state.attempt + 1
    if max(counts) >= state.pipelines:
        return replace(
            state, phase="stopped", plan_key=None, counts=counts, moves=(), attempt=attempt
        )
    target = _target_counts(counts, policy)
    roles, moves = assign_roles(holders, state.pipelines, target)
    return replace(
        state,
        phase="switching",
        attempt=attempt,
        counts=target,
        plan_key=policy.key(target),
        members=_with_roles(state, roles),
        moves=moves,
    )


def _free_role(taken: Mapping[Worker, Worker], role: Worker) -> Worker:
    """Another role of the same stage, for a worker whose old one was given away meanwhile."""
    pipeline = next(k for k in range(len(taken) + 1) if Worker(k, role.stage) not in taken)
    return Worker(pipeline, role.stage)


def _holes(live: Mapping[Worker, Worker], state: JobState) -> tuple[int, ...]:
    present = [0] * state.stages
    for role in live:
        present[role.stage] += 1
    return tuple(state.pipelines - n for n in present)


def _with_roles(state: JobState, roles: Mapping[Worker, Worker]) -> tuple[Member, ...]:
    of_worker = {worker: role for role, worker in roles.items()}
    return tuple(
        replace(m, role=of_worker[m.worker]) if m.state == "live" else m for m in state.members
    )


def _target_counts(counts: tuple[int, ...], policy: SwitchPolicy) -> tuple[int, ...]:
    """The counts to run with: as they are, or the best ones if moving there pays."""
    if not policy.allow_moves:
        return counts
    best = best_counts(policy.job, sum(counts), objective=policy.objective, current=counts)
    pays = move_pays(
        stay_us=policy.iteration_us(counts),
        moved_us=policy.iteration_us(best.counts),
        expected_iterations=policy.expected_iterations,
        # Workers copy at the same time, but a common source sends one after the other.
        copy_us=policy.copy_us * best.moves,
    )
    return best.counts if best.moves and pays else counts


def _join(state: JobState, event: Event, policy: SwitchPolicy) -> Transition:
    member = _named(state, event)
    if member.state != "dead":
        raise Conflict(
            f"worker {tuple(member.worker)} of job {state.job_id} is {member.state}: only a dead "
            "worker can join",
            worker=list(member.worker),
        )
    if state.phase != "running" or state.joining is not None:
        raise Conflict(
            f"job {state.job_id} is {state.phase}"
            + (", another worker is joining" if state.joining else "")
            + ": join again once it runs",
            phase=state.phase,
        )
    counts = _counts_after_join(state, policy)
    stage = next(i for i, (a, b) in enumerate(zip(state.counts, counts, strict=True)) if a != b)
    role = Worker(state.pipelines - state.counts[stage], stage)
    live = state.live()
    source = live[min(r for r in live if r.stage == stage)]
    newcomer = Member(worker=member.worker, state="joining", role=role)
    after = replace(
        state,
        members=_with(state, newcomer),
        epoch=state.epoch + 1,
        next_counts=counts,
        moves=(Move(worker=member.worker, from_role=None, to_role=role, source=source),),
    )
    return _record(state, after, event, policy)


def _counts_after_join(state: JobState, policy: SwitchPolicy) -> tuple[int, ...]:
    """The best counts with one failure less: the newcomer fills a hole, nobody else moves."""
    options = []
    for stage, count in enumerate(state.counts):
        if count > 0:
            counts = list(state.counts)
            counts[stage] -= 1
            options.append(tuple(counts))

    def rank(counts: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        value = value_of(policy.job, counts)
        other = value.synchronous_us if policy.objective == "stagger" else value.staggered_us
        return (policy.iteration_us(counts), other, counts)

    return min(options, key=rank)


def _activate(state: JobState, event: Event, policy: SwitchPolicy) -> Transition:
    """The switch or the copy is done: the new plan is what everyone runs."""
    if event.epoch is None:
        raise InvalidArgument("an activate event needs the epoch that it completes")
    joining = state.joining
    if state.phase == "switching":
        after = replace(state, phase="running", epoch=state.epoch + 1, moves=())
    elif joining is not None and state.next_counts is not None:
        after = replace(
            state,
            epoch=state.epoch + 1,
            members=_with(state, replace(joining, state="live")),
            counts=state.next_counts,
            plan_key=policy.key(state.next_counts),
            next_counts=None,
            moves=(),
        )
    else:
        raise Conflict(f"job {state.job_id} has no switch to activate", phase=state.phase)
    return _record(state, after, event, policy)


def _commit(state: JobState, event: Event, policy: SwitchPolicy) -> Transition:
    """One more iteration is done; counted once for (iteration, attempt)."""
    if state.phase != "running":
        raise Conflict(f"job {state.job_id} is {state.phase}: nothing to commit", phase=state.phase)
    if (event.iteration, event.attempt) != (state.iteration, state.attempt):
        raise Conflict(
            f"commit of iteration {event.iteration}, attempt {event.attempt}: job {state.job_id} "
            f"is at iteration {state.iteration}, attempt {state.attempt}",
            iteration=state.iteration,
            attempt=state.attempt,
        )
    return _record(state, replace(state, iteration=state.iteration + 1), event, policy)


def _restart(state: JobState, event: Event, policy: SwitchPolicy) -> Transition:
    """All workers are back, from the checkpoint taken before ``event.iteration``."""
    if state.phase != "stopped":
        raise Conflict(f"job {state.job_id} is {state.phase}, not stopped", phase=state.phase)
    if event.iteration is None or not 0 <= event.iteration <= state.iteration:
        raise InvalidArgument(
            f"restart at iteration {event.iteration}: expected one of 0..{state.iteration}"
        )
    counts = (0,) * state.stages
    after = replace(
        state,
        phase="running",
        epoch=state.epoch + 1,
        attempt=state.attempt + 1,
        iteration=event.iteration,
        counts=counts,
        plan_key=policy.key(counts),
        members=tuple(Member(worker=m.worker, state="live", role=m.worker) for m in state.members),
        moves=(),
        next_counts=None,
    )
    return _record(state, after, event, policy)
