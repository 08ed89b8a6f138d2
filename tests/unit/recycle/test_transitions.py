"""What events do to a job's control state."""

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from workflows.recycle.control import ControlStore, FileControlStore, MemoryControlStore
from workflows.recycle.errors import Conflict, InvalidArgument, InvalidWorker
from workflows.recycle.failures import canonical_failures, plan_key
from workflows.recycle.job import Job, Worker
from workflows.recycle.plan_set import PlanSet, compute_plan
from workflows.recycle.plan_tasks import list_plan_tasks
from workflows.recycle.state import Event, EventKind, JobState, Move, Outcome, initial_state
from workflows.recycle.transitions import SwitchPolicy, Transition, apply_event


@pytest.fixture(scope="module")
def policy(example: Job) -> SwitchPolicy:
    tasks = list_plan_tasks(example, 8, engine="greedy", scope="counts")
    plans = PlanSet.of(map(compute_plan, tasks))
    return SwitchPolicy(job=example, iterations_us=plans.iterations_us())


@pytest.fixture
def fresh(example: Job) -> JobState:
    return initial_state("job-1", 3, 4, plan_key((0, 0, 0, 0), "stagger"))


def fail(k: int, i: int, key: str = "") -> Event:
    return Event(event_key=key or f"fail-{k}-{i}", kind="fail", worker=Worker(k, i))


def activate(state: JobState) -> Event:
    return Event(event_key=f"activate-{state.epoch}", kind="activate", epoch=state.epoch)


def after(state: JobState, policy: SwitchPolicy, *events: Event) -> JobState:
    for event in events:
        state = apply_event(state, event, policy).state
    return state


def run_switch(state: JobState, policy: SwitchPolicy, event: Event) -> JobState:
    state = after(state, policy, event)
    return after(state, policy, activate(state))


def test_a_failure_switches_to_the_plan_of_its_counts(
    fresh: JobState, policy: SwitchPolicy
) -> None:
    done = apply_event(fresh, fail(1, 2), policy)
    assert done.state.phase == "switching"
    assert done.state.counts == (0, 0, 1, 0)
    assert (done.outcome.plan_after, done.outcome.plan_stored) == ("stagger:split:0-0-1-0", True)
    assert (done.state.epoch, done.state.attempt) == (1, 1)
    running = after(done.state, policy, activate(done.state))
    assert (running.phase, running.epoch) == ("running", 2)


def test_roles_are_those_of_the_plan(fresh: JobState, policy: SwitchPolicy) -> None:
    state = run_switch(fresh, policy, fail(0, 2))
    holes = canonical_failures(policy.job, state.counts)
    roles = {Worker(k, i) for k in range(3) for i in range(4)} - set(holes)
    assert set(state.live()) == roles
    # The last pipeline's worker took over the role of the dead one: no copy, they are peers.
    assert state.member(Worker(2, 2)).role == Worker(0, 2)


def test_two_failures_of_one_stage_are_spread_if_it_pays(
    fresh: JobState, policy: SwitchPolicy
) -> None:
    state = run_switch(fresh, policy, fail(1, 2))
    done = apply_event(state, fail(2, 2), policy)
    assert sorted(done.state.counts) == [0, 0, 1, 1]
    (move,) = done.outcome.moves
    assert move.to_role.stage == 2
    assert move.from_role is not None
    assert move.from_role.stage != 2
    assert done.state.member(move.source).role == Worker(0, 2)


def test_without_time_to_gain_nobody_moves(fresh: JobState, policy: SwitchPolicy) -> None:
    short = SwitchPolicy(
        job=policy.job,
        iterations_us=policy.iterations_us,
        expected_iterations=10,
        copy_us=270,
    )
    state = run_switch(fresh, short, fail(1, 2))
    done = apply_event(state, fail(2, 2), short)
    assert (done.state.counts, done.outcome.moves) == ((0, 0, 2, 0), ())


def test_the_last_worker_of_a_stage(fresh: JobState, policy: SwitchPolicy) -> None:
    fixed = SwitchPolicy(job=policy.job, allow_moves=False)
    state = fresh
    for k in range(3):
        state = after(state, fixed, fail(k, 0))
    assert (state.phase, state.plan_key, state.counts[0]) == ("stopped", None, 3)
    restart = Event(event_key="restart", kind="restart", iteration=0)
    back = after(state, fixed, restart)
    assert (back.phase, back.counts, len(back.live())) == ("running", (0, 0, 0, 0), 12)


def test_the_same_event_again_changes_nothing(fresh: JobState, policy: SwitchPolicy) -> None:
    first = apply_event(fresh, fail(1, 2), policy)
    again = apply_event(first.state, fail(1, 2), policy, recorded=first.outcome)
    assert again == Transition(state=first.state, outcome=first.outcome)
    with pytest.raises(Conflict, match="another event"):
        apply_event(first.state, fail(1, 3, "fail-1-2"), policy, recorded=first.outcome)


@pytest.mark.parametrize("kind", ["activate", "commit", "join"])
def test_an_event_for_another_epoch(fresh: JobState, policy: SwitchPolicy, kind: EventKind) -> None:
    event = Event(event_key="late", kind=kind, worker=Worker(1, 2), epoch=7)
    with pytest.raises(Conflict, match="epoch 7"):
        apply_event(fresh, event, policy)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Event(event_key="x", kind="join", worker=Worker(0, 0)), Conflict),
        (Event(event_key="x", kind="activate", epoch=0), Conflict),
        (Event(event_key="x", kind="activate"), InvalidArgument),
        (Event(event_key="x", kind="fail"), InvalidArgument),
        (Event(event_key="x", kind="fail", worker=Worker(9, 9)), InvalidWorker),
        (Event(event_key="x", kind="commit", iteration=3, attempt=0), Conflict),
        (Event(event_key="x", kind="restart", iteration=0), Conflict),
        (Event(event_key="x", kind="explode"), InvalidArgument),  # type: ignore[arg-type]
    ],
)
def test_events_that_do_not_fit(
    fresh: JobState, policy: SwitchPolicy, event: Event, error: type[Exception]
) -> None:
    with pytest.raises(error):
        apply_event(fresh, event, policy)


def test_a_dead_worker_cannot_die(fresh: JobState, policy: SwitchPolicy) -> None:
    state = after(fresh, policy, fail(1, 2))
    with pytest.raises(Conflict, match="dead already"):
        apply_event(state, fail(1, 2, "again"), policy)


def join(k: int, i: int, key: str = "join") -> Event:
    return Event(event_key=key, kind="join", worker=Worker(k, i))


def test_a_newcomer_copies_first_and_then_takes_part(fresh: JobState, policy: SwitchPolicy) -> None:
    state = run_switch(fresh, policy, fail(1, 2))
    copying = apply_event(state, join(1, 2), policy)
    assert copying.state.counts == (0, 0, 1, 0)
    assert copying.outcome.moves == (
        Move(
            worker=Worker(1, 2),
            from_role=None,
            to_role=Worker(2, 2),
            source=copying.state.live()[Worker(0, 2)],
        ),
    )
    running = after(copying.state, policy, activate(copying.state))
    assert running.counts == (0, 0, 0, 0)
    assert len(running.live()) == 12


def test_a_failure_during_the_copy_cancels_it(fresh: JobState, policy: SwitchPolicy) -> None:
    state = after(run_switch(fresh, policy, fail(1, 2)), policy, join(1, 2))
    done = apply_event(state, fail(0, 0), policy)
    assert done.outcome.cancelled_join == Worker(1, 2)
    assert done.state.joining is None
    assert sum(done.state.counts) == 2
    own = apply_event(state, fail(1, 2, "newcomer"), policy)
    assert (own.state.phase, own.state.counts) == ("running", (0, 0, 1, 0))


def test_one_newcomer_at_a_time(fresh: JobState, policy: SwitchPolicy) -> None:
    state = run_switch(run_switch(fresh, policy, fail(1, 2)), policy, fail(0, 0))
    state = after(state, policy, join(1, 2))
    with pytest.raises(Conflict, match="another worker is joining"):
        apply_event(state, join(0, 0, "second"), policy)


def test_commits_are_counted_once(fresh: JobState, policy: SwitchPolicy) -> None:
    commit = Event(event_key="c", kind="commit", iteration=0, attempt=0, epoch=0)
    state = after(fresh, policy, commit)
    assert (state.iteration, state.epoch) == (1, 0)
    with pytest.raises(Conflict, match="iteration 0"):
        apply_event(state, commit, policy)
    switching = after(state, policy, fail(1, 2))
    stale = Event(event_key="d", kind="commit", iteration=1, attempt=0)
    with pytest.raises(Conflict):
        apply_event(switching, stale, policy)
    with pytest.raises(Conflict, match="attempt 1"):
        apply_event(after(switching, policy, activate(switching)), stale, policy)


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_keep_the_state_whole(
    fresh: JobState, policy: SwitchPolicy, seed: int
) -> None:
    """Failures, joins and activations in any order that the state allows."""
    chance = random.Random(seed)
    state, epoch = fresh, 0
    for number in range(60):
        choices = [fail(*m.worker, f"e{number}") for m in state.members if m.state != "dead"]
        choices = choices[:: max(1, len(choices) // 3)]
        if state.phase == "running" and state.joining is None:
            choices += [join(*m.worker, f"e{number}") for m in state.members if m.state == "dead"]
        if state.phase == "switching" or state.joining is not None:
            choices += [activate(state)] * 4
        state = after(state, policy, chance.choice(choices))
        assert state.epoch == epoch + 1
        epoch = state.epoch
        assert JobState.from_json(json.loads(json.dumps(state.to_json()))) == state
        if state.phase == "stopped":
            break
        live = [m for m in state.members if m.state == "live"]
        assert len(state.live()) == len(live) == 12 - sum(state.counts)
        holes = set(canonical_failures(policy.job, state.counts))
        assert not holes & set(state.live())
        for move in state.moves:
            assert state.member(move.source).state == "live"


def stores(tmp_path: Path, state: JobState, policy: SwitchPolicy) -> list[ControlStore]:
    file_store = FileControlStore.create(tmp_path / "control.json", state, policy)
    return [MemoryControlStore(state, policy), file_store]


def test_stores_record_each_event_once(
    tmp_path: Path, fresh: JobState, policy: SwitchPolicy
) -> None:
    for store in stores(tmp_path, fresh, policy):
        first = store.apply(fail(1, 2))
        assert store.apply(fail(1, 2)) == first
        assert store.outcomes() == [first]
        assert store.load().epoch == 1
        with pytest.raises(Conflict):
            store.apply(join(0, 0))
        assert store.outcomes() == [first]


def test_of_two_writers_for_one_epoch_one_wins(
    tmp_path: Path, fresh: JobState, policy: SwitchPolicy
) -> None:
    for store in stores(tmp_path, fresh, policy):
        store.apply(fail(1, 2))
        results: list[Outcome | Conflict] = []
        barrier = threading.Barrier(8)

        def write(
            number: int,
            store: ControlStore = store,
            results: list[Outcome | Conflict] = results,
            barrier: threading.Barrier = barrier,
        ) -> None:
            barrier.wait()
            try:
                results.append(store.apply(Event(event_key=f"a{number}", kind="activate", epoch=1)))
            except Conflict as conflict:
                results.append(conflict)

        run_all([lambda n=n: write(n) for n in range(8)])  # type: ignore[misc]
        assert sum(isinstance(result, Outcome) for result in results) == 1
        assert store.load().epoch == 2


def run_all(calls: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_file_store_is_created_once(
    tmp_path: Path, fresh: JobState, policy: SwitchPolicy
) -> None:
    path = tmp_path / "control.json"
    FileControlStore.create(path, fresh, policy).apply(fail(1, 2))
    with pytest.raises(Conflict, match="exists already"):
        FileControlStore.create(path, fresh, policy)
    reopened = FileControlStore(path, policy)
    assert reopened.load().counts == (0, 0, 1, 0)
    assert Outcome.from_json(reopened.outcomes()[0].to_json()) == reopened.outcomes()[0]
