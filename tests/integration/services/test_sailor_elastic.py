"""Sailor's jobs under changing availability: killed controllers, and real training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.services.running import Service

pytest.importorskip("numba", reason="planning needs the services extra")

CONTROLLER = """
import asyncio, sys
from apiary.engine.postgres import PostgresEngine, PostgresSettings
from apiary.execution.executor import Executor, ExecutorSettings
from apiary.execution.listening import Listener

async def main(url):
    async with PostgresEngine(url, PostgresSettings(pool_size=8)) as engine:
        listener = Listener(url)
        await Executor(engine, listener, ExecutorSettings(lease_s=2.0, poll_s=0.2)).start()
        await asyncio.Event().wait()

if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
"""

ZONE = "us-central1-a"

MOMENTS = (
    "SELECT 1 AS x FROM sailor.reconfiguration r JOIN sailor.availability_version v"
    " USING (version) WHERE v.run_id = %s AND r.state = 'REPLANNING'",
    "SELECT 1 AS x FROM sailor.availability_version WHERE run_id = %s",
)


class Controllers:
    """Executors as processes of their own, which can be killed."""

    def __init__(self, url: str, program: str) -> None:
        self._command = [sys.executable, program, url]
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Another one."""
        process = subprocess.Popen(self._command, start_new_session=True)
        self._running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL, and its step workers with it, as when a machine dies."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._running.remove(process)

    def close(self) -> None:
        """Kill what still runs."""
        for process in list(self._running):
            self.kill(process)


@pytest.fixture
def controllers(deployed: Service, tmp_path_factory: Any) -> Iterator[Controllers]:
    """Controllers of the module's database."""
    program = tmp_path_factory.mktemp("controller") / "controller.py"
    program.write_text(CONTROLLER)
    made = Controllers(deployed.url, str(program))
    try:
        yield made
    finally:
        made.close()


def changes_of_the_job(service: Service, job: str) -> dict[int, int]:
    """How often the job's row came to each version, from the provenance of its table."""
    rows = service.query(
        "SELECT (after ->> 'version')::int AS version, count(DISTINCT event_id)"
        " FROM provenance.data_event"
        " WHERE relation = 'sailor.job' AND operation = 'U' AND after ->> 'job_id' = %s"
        " GROUP BY 1 ORDER BY 1",
        job,
    )
    return {row["version"]: row["count"] for row in rows}


def test_a_job_is_changed_once_per_version_though_its_controller_is_killed(
    deployed: Service, controllers: Controllers
) -> None:
    service = deployed
    controller = controllers.start()
    counts = [{f"A100-40_{ZONE}": n} for n in (8, 4, 8)]
    service.run("sailor.availability_changed", changes=counts[0])
    job = {"job_id": "j", "model": "OPT-350", "reconfiguration_s": 1.0}
    assert service.run("sailor.submit", job=job)["state"] == "APPLIED"
    for number, change in enumerate(counts[1:]):
        run = service.start("sailor.availability_changed", changes=change)
        # once in the middle of the child's search, once as soon as the version is there
        service.until(partial(service.query, MOMENTS[number], run))
        controllers.kill(controller)
        controller = controllers.start()
        row = service.wait(run)
        assert row["status"] == "SUCCEEDED", row["error"]
        assert [each["state"] for each in row["output"]["jobs"]] == ["APPLIED"]
    versions = [
        row["version"]
        for row in service.query("SELECT version FROM sailor.availability_version ORDER BY 1")
    ]
    assert len(versions) == 3
    assert changes_of_the_job(service, "j") == dict.fromkeys(versions, 1)
    plans = service.query("SELECT version, count(*) FROM sailor.search GROUP BY 1 ORDER BY 1")
    assert [row["count"] for row in plans] == [1, 1, 1]
    (kept,) = service.query("SELECT sum(adoptions) AS n FROM apiary.run")
    assert kept["n"] >= 1  # the killed controller's runs were taken over
    again = service.wait(service.start("sailor.reconfigure", job_id="j", version=versions[-1]))
    assert again["output"]["state"] == "APPLIED"
    assert changes_of_the_job(service, "j")[versions[-1]] == 1
    late = service.wait(service.start("sailor.reconfigure", job_id="j", version=versions[1]))
    assert late["output"]["version"] == versions[1]
    loads = service.query(
        "SELECT kind, count(*) FROM sailor.reconfiguration_action WHERE version = %s GROUP BY 1",
        versions[-1],
    )
    assert {row["kind"] for row in loads} & {"join", "move"}


@pytest.mark.campaign
def test_training_goes_on_from_checkpoints_through_changes_of_the_plan(
    deployed: Service, controllers: Controllers, tmp_path: Any
) -> None:
    pytest.importorskip("torch", reason="live runs need the services extra")
    service = deployed
    controllers.start()
    shape = {"blocks": 2, "hidden": 32, "heads": 2, "sequence_length": 16, "vocabulary": 50}
    profile = service.run("sailor.profile_live", model="tiny", shape=shape, microbatches=[4])
    assert profile["stored"]
    network = service.run("sailor.profile_network_live", rounds=5)
    (samples,) = service.query(
        "SELECT count(*) FROM sailor.link_sample WHERE network_id = %s", network["checksum"]
    )
    assert samples["count"] == 9
    service.run("sailor.availability_changed", changes={"cpu_local": 2}, only_these=True)
    job = {
        "job_id": "live",
        "model": "tiny",
        "planner": "pipeline",
        "reconfiguration_s": 0.0,
        "shape": shape,
    }
    assert service.run("sailor.submit", job=job)["state"] == "APPLIED"
    for step, processes in ((2, 1), (4, 2)):
        service.run(
            "sailor.run_live",
            job_id="live",
            steps=step,
            every=2,
            folder=str(tmp_path),
            finish=False,
        )
        changed = service.run("sailor.availability_changed", changes={"cpu_local": processes})
        assert "APPLIED" in [each["state"] for each in changed["jobs"] if each["job_id"] == "live"]
    elastic = service.run("sailor.run_live", job_id="live", steps=6, every=2, folder=str(tmp_path))
    depths = service.query(
        "SELECT step, stages FROM sailor.measured JOIN sailor.plan USING (plan_id)"
        " WHERE job_id = 'live' ORDER BY step"
    )
    assert [row["stages"] for row in depths] == [2, 2, 1, 1, 2, 2]
    still = job | {"job_id": "still"}
    assert service.run("sailor.submit", job=still)["state"] == "APPLIED"
    steady = service.run(
        "sailor.run_live", job_id="still", steps=6, every=6, folder=str(tmp_path / "still")
    )
    assert elastic["losses"] == pytest.approx(steady["losses"], rel=1e-4)
    assert elastic["losses"][-1] < elastic["losses"][0]
    times = service.query(
        "SELECT resumed_at >= changed_at AS ordered FROM sailor.reconfiguration"
        " WHERE job_id = 'live' AND state = 'APPLIED'"
    )
    assert times == [{"ordered": True}] * 3
    named = service.query("SELECT step FROM sailor.checkpoint WHERE job_id = 'live' AND complete")
    assert {row["step"] for row in named} == {4, 6}
