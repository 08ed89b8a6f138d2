"""Real training under the platform: the controller is a step, its state is in the database.

The workers are processes that outlive the executor. The next attempt of the step, in whichever
process of the machine, finds their directory in the database, is found by them through the address
that it writes there, and goes on from the stored state.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from apiary import progress, write_sources
from functions import recycle
from functions.recycle.records import RollbackRow
from functions.recycle.trainings import TrainingPlace
from workflows.recycle.database_control import DatabaseControlStore
from workflows.recycle.errors import TrainingFailed
from workflows.recycle.failures import canonical_failures
from workflows.recycle.planner import make_plan
from workflows.recycle.schedule import Schedule
from workflows.recycle.stored import load_plan
from workflows.recycle.training_run import (
    TrainingReport,
    control_training,
    report_training,
    start_workers,
)
from workflows.recycle.training_spec import SOURCES_FOLDER, SPEC_FILE, STEPS_FILE, TrainingSpec

__all__ = ["remove_place", "train_job"]


def train_job(job_id: str, spec: TrainingSpec) -> TrainingReport:
    """Train a job of the database to its last step."""
    store = DatabaseControlStore(job_id, lambda done: progress(done, spec.steps, "iterations"))
    directory, processes = _join_processes(job_id, spec)
    try:
        if store.load().iteration < spec.steps:
            plan_set_id = recycle.job_plan_set(job_id)
            control_training(
                spec,
                directory,
                store,
                processes,
                schedule_of=lambda counts: _schedule(spec, plan_set_id, counts),
            )
        for process in processes:
            process.wait(timeout=spec.patience_s)
    finally:
        _end(processes)
    recycle.record_rollbacks(job_id, _rollbacks(directory))
    return report_training(store, directory, controllers=1)


def _join_processes(job_id: str, spec: TrainingSpec) -> tuple[Path, list[subprocess.Popen[bytes]]]:
    """The directory of the job's processes, and those that were started here."""
    place = recycle.training_place(job_id)
    if place is None:
        directory, processes = _start_processes(spec)
        own = TrainingPlace(host=socket.gethostname(), directory=str(directory))
        claimed = None
        try:
            claimed = recycle.claim_place(job_id, own)
        finally:
            if claimed != own:
                _end(processes)
                shutil.rmtree(directory)
        if claimed == own:
            return directory, processes
        place = claimed
    directory = Path(place.directory)
    if place.host != socket.gethostname() or not directory.exists():
        raise TrainingFailed(
            f"the processes of job {job_id} were started on {place.host} in {directory}, which is "
            "not to be found here: their state is lost, start another run",
            job_id=job_id,
        )
    return directory, []


def _start_processes(spec: TrainingSpec) -> tuple[Path, list[subprocess.Popen[bytes]]]:
    directory = Path(tempfile.mkdtemp(prefix="recycle-training-")).resolve()
    write_sources(directory / SOURCES_FOLDER)
    (directory / SPEC_FILE).write_text(json.dumps(spec.to_json()), encoding="utf-8")
    return directory, start_workers(spec, directory)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def _schedule(spec: TrainingSpec, plan_set_id: str, counts: tuple[int, ...]) -> Schedule:
    """The stored plan of these counts, or one that is made now."""
    plan_id = recycle.find_plan(plan_set_id, list(counts))
    if plan_id is None:
        failed = canonical_failures(spec.job, counts)
        return make_plan(spec.job, failed, engine="greedy").schedule
    return load_plan(plan_id).schedule


def _rollbacks(directory: Path) -> list[RollbackRow]:
    """The steps undone, at the first iteration whose report counts them."""
    rows: list[RollbackRow] = []
    before: dict[str, int] = {}
    for line in (directory / STEPS_FILE).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for worker, count in row["rollbacks"].items():
            more = count - before.get(worker, 0)
            if more > 0:
                pipeline, stage = map(int, worker.split("."))
                rows.append((row["step"], pipeline, stage, more))
            before[worker] = count
    return rows


def remove_place(job_id: str) -> None:
    """Remove the directory of a job whose processes have ended."""
    place = recycle.training_place(job_id)
    here = place is not None and place.host == socket.gethostname()
    if place is not None and here and Path(place.directory).exists():
        shutil.rmtree(place.directory)
