"""Running jobs: events once, under compare-and-set, with the stored plan in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier
from typing import Any

import pytest

from apiary.errors import FunctionError
from tests.integration.services.recycle.conftest import Service

pytest.importorskip("numpy", reason="the models need numpy: install the services extra")
pytest.importorskip("ortools", reason="plans need ortools: install the services extra")
pytest.importorskip("matplotlib", reason="pictures need matplotlib: install the services extra")

UNIT = {"forward": [1.0], "input_grad": [1.0], "weight_grad": [1.0]}


@pytest.fixture(scope="module")
def plan_set(service: Service) -> str:
    """A plan set of 2x2x2 with a plan for every vector of counts."""
    profile_id = service.run("recycle.profile", samples=[UNIT] * 2)
    request = {
        "profile_id": profile_id,
        "pipelines": 2,
        "micro_batches": 2,
        "f_max": 2,
        "engine": "greedy",
        "scope": "counts",
    }
    return str(service.run("recycle.plan", request=request)["plan_set_id"])


@pytest.fixture
def job(service: Service, plan_set: str, numbers: Callable[[], int]) -> str:
    """A job of its own, with all workers live."""
    job_id = f"job-{numbers()}"
    service.call(
        "recycle.create_job", job_id=job_id, plan_set_id=plan_set, run="t", allow_moves=False
    )
    return job_id


@pytest.fixture(scope="module")
def numbers() -> Callable[[], int]:
    counter = count()
    return lambda: next(counter)


def worker(pipeline: int, stage: int) -> dict[str, int]:
    return {"pipeline": pipeline, "stage": stage}


def event(service: Service, job: str, key: str, kind: str, **document: Any) -> dict[str, Any]:
    answer: dict[str, Any] = service.call(
        "recycle.on_event", job_id=job, event_key=key, kind=kind, **document
    )
    return answer


def events(service: Service, job: str) -> list[dict[str, Any]]:
    return service.query(
        "SELECT event_key, kind, epoch, plan_before, plan_after, plan_id FROM recycle.event"
        " WHERE job_id = %s ORDER BY number",
        job,
    )


def refused(service: Service, job: str, key: str, kind: str, **document: Any) -> str | None:
    with pytest.raises(FunctionError) as caught:
        event(service, job, key, kind, **document)
    return caught.value.code


def test_a_failure_finds_its_plan(service: Service, plan_set: str, job: str) -> None:
    answer = event(service, job, "e1", "fail", worker=worker(1, 1))
    expected = service.call("recycle.find_plan", plan_set_id=plan_set, counts=[0, 1])
    assert answer["plan_id"] == expected
    assert answer["outcome"]["phase"] == "switching"
    assert answer["outcome"]["plan_after"] == "stagger:split:0-1"
    (row,) = service.query(
        "SELECT epoch, phase, counts, active_plan FROM recycle.job WHERE job_id = %s", job
    )
    assert row == {"epoch": 1, "phase": "switching", "counts": [0, 1], "active_plan": expected}
    dead = service.query(
        "SELECT pipeline, stage FROM recycle.worker WHERE job_id = %s AND state = 'dead'", job
    )
    assert dead == [worker(1, 1)]


def test_the_whole_life_of_a_failure(service: Service, job: str) -> None:
    event(service, job, "c0", "commit", epoch=0, iteration=0, attempt=0, loss=0.5)
    event(service, job, "e1", "fail", worker=worker(1, 1))
    event(service, job, "a1", "activate", epoch=1)
    event(service, job, "c1", "commit", epoch=2, iteration=1, attempt=1, loss=0.25)
    joined = event(service, job, "j1", "join", worker=worker(1, 1), epoch=2)
    assert joined["outcome"]["moves"][0]["source"] == worker(0, 1)
    event(service, job, "a2", "activate", epoch=3)
    state = service.call("recycle.job_state", job_id=job)
    assert (state["phase"], state["epoch"], state["iteration"]) == ("running", 4, 2)
    assert state["plan_key"] == "stagger:split:0-0"
    rows = service.query(
        "SELECT iteration, attempt, loss FROM recycle.iteration WHERE job_id = %s ORDER BY 1", job
    )
    assert [tuple(row.values()) for row in rows] == [(0, 0, 0.5), (1, 1, 0.25)]
    kinds = [row["kind"] for row in events(service, job)]
    assert kinds == ["commit", "fail", "activate", "commit", "join", "activate"]


def test_the_same_event_has_the_same_answer(service: Service, job: str) -> None:
    first = event(service, job, "e1", "fail", worker=worker(1, 1))
    event(service, job, "a1", "activate", epoch=1)
    assert event(service, job, "e1", "fail", worker=worker(1, 1)) == first
    assert len(events(service, job)) == 2
    assert service.call("recycle.job_state", job_id=job)["epoch"] == 2


def test_refused_events_change_nothing(service: Service, job: str) -> None:
    event(service, job, "e1", "fail", worker=worker(1, 1))
    before = service.call("recycle.job_state", job_id=job)
    assert refused(service, job, "e1", "fail", worker=worker(0, 1)) == "CONFLICT"
    assert refused(service, job, "e2", "fail", worker=worker(1, 1)) == "CONFLICT"
    assert refused(service, job, "j1", "join", worker=worker(0, 0)) == "CONFLICT"
    assert refused(service, job, "a1", "activate", epoch=0) == "CONFLICT"
    assert refused(service, job, "e3", "fail", worker=worker(2, 0)) == "INVALID_WORKER"
    assert refused(service, job, "e4", "fail") == "INVALID_ARGUMENT"
    assert refused(service, job, "", "fail", worker=worker(0, 0)) == "INVALID_ARGUMENT"
    assert refused(service, "none", "e1", "fail", worker=worker(0, 0)) == "UNKNOWN_ID"
    assert service.call("recycle.job_state", job_id=job) == before
    assert len(events(service, job)) == 1


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls side by side, all beginning at the same time."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.mark.parametrize("_attempt", range(5))
def test_of_two_events_at_once_none_is_lost(service: Service, job: str, _attempt: int) -> None:
    answers = at_once(
        lambda: event(service, job, "a", "fail", worker=worker(1, 0)),
        lambda: event(service, job, "b", "fail", worker=worker(1, 1)),
    )
    assert sorted(answer["outcome"]["epoch"] for answer in answers) == [1, 2]
    state = service.call("recycle.job_state", job_id=job)
    assert (state["epoch"], state["counts"], state["attempt"]) == (2, [1, 1], 2)
    first, second = events(service, job)
    assert second["plan_before"] == first["plan_after"]
    assert second["plan_after"] == "stagger:split:1-1"


def test_one_event_reported_by_many_counts_once(service: Service, job: str) -> None:
    report = lambda: event(service, job, "e1", "fail", worker=worker(1, 0))  # noqa: E731
    answers = at_once(report, report, report, report)
    assert all(answer == answers[0] for answer in answers)
    assert [row["epoch"] for row in events(service, job)] == [1]


def test_of_two_events_for_one_epoch_one_is_refused(service: Service, job: str) -> None:
    def report(key: str, pipeline: int, stage: int) -> str | None:
        try:
            event(service, job, key, "fail", worker=worker(pipeline, stage), epoch=0)
        except FunctionError as error:
            return error.code
        return None

    codes = at_once(lambda: report("a", 1, 0), lambda: report("b", 1, 1))
    assert sorted(map(str, codes)) == ["CONFLICT", "None"]
    assert len(events(service, job)) == 1


def test_a_stage_without_a_worker_stops_the_job(service: Service, job: str) -> None:
    event(service, job, "e1", "fail", worker=worker(0, 1))
    answer = event(service, job, "e2", "fail", worker=worker(1, 1))
    assert answer["outcome"]["phase"] == "stopped"
    assert answer["plan_id"] is None
    assert refused(service, job, "c", "commit", epoch=2, iteration=0, attempt=2) == "CONFLICT"
    again = event(service, job, "r", "restart", iteration=0)
    assert again["outcome"]["plan_after"] == "stagger:split:0-0"
    assert again["plan_id"] is not None
    states = service.query("SELECT DISTINCT state FROM recycle.worker WHERE job_id = %s", job)
    assert states == [{"state": "live"}]


def test_a_job_is_created_once(service: Service, plan_set: str, job: str) -> None:
    event(service, job, "e1", "fail", worker=worker(1, 1))
    document = {"job_id": job, "plan_set_id": plan_set, "run": "t"}
    again = service.call("recycle.create_job", **document, allow_moves=False)
    assert again["epoch"] == 1
    with pytest.raises(FunctionError) as caught:
        service.call("recycle.create_job", **document, allow_moves=True)
    assert caught.value.code == "CONFLICT"


def test_a_plan_that_is_not_stored_is_made_on_demand(service: Service, plan_set: str) -> None:
    (row,) = service.query(
        "SELECT profile_id FROM recycle.plan_set WHERE plan_set_id = %s", plan_set
    )
    request = {**row, "pipelines": 2, "micro_batches": 2, "f_max": 0, "engine": "greedy"}
    only_fault_free = service.run("recycle.plan", request=request)["plan_set_id"]
    service.call(
        "recycle.create_job", job_id="bare", plan_set_id=only_fault_free, run="t",
        allow_moves=False,
    )  # fmt: skip
    answer = event(service, "bare", "e1", "fail", worker=worker(0, 1))
    assert (answer["plan_id"], answer["outcome"]["plan_stored"]) == (None, False)
    plan_id = service.run("recycle.ensure_plan", job_id="bare")
    assert service.call("recycle.stored_plan", plan_id=plan_id)["iteration_us"] == 12
    (row,) = service.query("SELECT active_plan FROM recycle.job WHERE job_id = 'bare'")
    assert row["active_plan"] == plan_id


def test_workers_move_when_it_pays(service: Service) -> None:
    """Two of three dead in one stage: moving one from the other stage costs one copy."""
    profile_id = service.run("recycle.profile", samples=[UNIT] * 2)
    request = {
        "profile_id": profile_id, "pipelines": 3, "micro_batches": 6, "f_max": 2,
        "engine": "greedy", "scope": "counts",
    }  # fmt: skip
    plan_set = service.run("recycle.plan", request=request)["plan_set_id"]
    service.call("recycle.create_job", job_id="moves", plan_set_id=plan_set, run="t")
    event(service, "moves", "e1", "fail", worker=worker(1, 1))
    answer = event(service, "moves", "e2", "fail", worker=worker(2, 1))
    assert answer["outcome"]["plan_after"] == "stagger:split:1-1"
    (move,) = answer["outcome"]["moves"]
    assert (move["to_role"]["stage"], move["source"]) == (1, worker(0, 1))


def test_which_stage_is_the_bottleneck_in_sql(service: Service, plan_set: str) -> None:
    rows = service.query(
        "SELECT p.plan_key, o.stage, max(o.end_us) - min(o.start_us) AS window_us"
        " FROM recycle.plan p JOIN recycle.op o USING (plan_id) WHERE p.plan_set_id = %s"
        " GROUP BY p.plan_id, o.stage ORDER BY p.plan_key, window_us DESC",
        plan_set,
    )
    first = next(row for row in rows if row["plan_key"] == "stagger:split:0-1")
    assert (first["stage"], first["window_us"]) == (1, 12)
