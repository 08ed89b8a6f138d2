"""An executor dies at a named point; another takes the run over. Each point, each workflow."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from apiary.engine.postgres import PostgresEngine
from apiary.engine.runs import RunOutcome
from apiary.execution.crashpoints import CRASH_POINTS
from tests.chaos.conftest import Place
from tests.chaos.driving import PATIENCE_S, Driver, Job
from tests.chaos.processes import executors

WORKFLOWS: dict[str, dict[str, Any]] = {
    "flows.mixed": {"number": 1},
    "flows.five": {"me": "run", "number": 1},
    "flows.limited": {"number": 1},
    "flows.napping": {"seconds": 0.2},
}
ONLY_MIXED = {"child-started", "join-before", "message-taken"}
PARKING = {"park-before", "park-after"}
STEPS = {"step-before", "step-after", "step-recorded"}
# Only a run that lasts gets there: see test_faults.py.
NOT_HERE = {"renewed", "draining"}


def reaches(workflow: str, point: str) -> bool:
    if point in NOT_HERE:
        return False
    if workflow in ("flows.five", "flows.limited") and point in PARKING | ONLY_MIXED:
        return False
    if workflow == "flows.napping" and point in ONLY_MIXED | STEPS:
        return False
    return not (workflow == "flows.five" and point in STEPS)


CASES = [
    (workflow, point)
    for workflow in WORKFLOWS
    for point in CRASH_POINTS
    if reaches(workflow, point)
]


def job(workflow: str) -> Job:
    return Job(
        run_id="run",
        workflow=workflow,
        input=WORKFLOWS[workflow],
        queue="narrow" if workflow == "flows.limited" else None,
        executor_only=True,
    )


async def _start(url: str, wanted: Job) -> None:
    async with PostgresEngine(url) as engine:
        await Driver(engine).start(wanted)


async def _finish(url: str, wanted: Job) -> RunOutcome:
    async with PostgresEngine(url) as engine:
        return await Driver(engine).finish(wanted, within_s=PATIENCE_S)


@pytest.mark.parametrize(("workflow", "point"), CASES)
def test_a_run_survives_its_executor(place: Place, workflow: str, point: str) -> None:
    wanted = job(workflow)
    asyncio.run(_start(place.url, wanted))
    with executors(place.url, place.side, place.log, ["dies"], crash_point=point) as [doomed]:
        assert doomed.wait() == -signal.SIGKILL
    with executors(place.url, place.side, place.log, ["lives"]):
        first = asyncio.run(_finish(place.url, wanted))
        assert asyncio.run(_finish(place.url, wanted)) == first
    place.check()
