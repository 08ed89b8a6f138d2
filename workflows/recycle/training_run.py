"""Real training runs: start the processes, restart a killed controller, report.

`run_training` is the whole of it, with a file as control store or with the caller's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workflows.recycle.control import ControlStore, FileControlStore
from workflows.recycle.errors import InvalidArgument, TrainingFailed
from workflows.recycle.failures import plan_key
from workflows.recycle.job import Worker
from workflows.recycle.schedule import Schedule
from workflows.recycle.state import Event, JobState, initial_state
from workflows.recycle.training_controller import Controller, die_at
from workflows.recycle.training_spec import (
    CONTROL_FILE,
    SOURCES_FOLDER,
    SPEC_FILE,
    STEPS_FILE,
    TrainingSpec,
)
from workflows.recycle.transitions import SwitchPolicy

__all__ = [
    "TrainingReport",
    "control_training",
    "first_state",
    "report_training",
    "run_training",
    "spawn_worker",
    "start_workers",
    "switch_policy",
]

_MAX_CONTROLLERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """What a run did."""

    losses: tuple[float, ...]
    """Mean loss of each step, as committed."""
    digests: tuple[dict[str, str], ...]
    """Hash of the weights of every live worker ("pipeline.stage") after each step."""
    events: tuple[Event, ...]
    """Failures, joins and activations, in order."""
    rollbacks: int
    """Steps that stages had done too early and undid."""
    controllers: int
    """How many controllers it took."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self) | {"events": [event.to_json() for event in self.events]}


def switch_policy(spec: TrainingSpec) -> SwitchPolicy:
    """Plans are made on demand, and workers stay in their stages."""
    return SwitchPolicy(job=spec.job, allow_moves=False)


def run_training(
    spec: TrainingSpec, directory: Path, *, store: ControlStore | None = None
) -> TrainingReport:
    """Train in ``directory`` (empty, local); the report once all steps are committed.

    Without a ``store`` the control state is a file there and the controllers are processes of
    their own, so that they can be killed. With one, the controller runs in this process and goes
    on from the stored state. Raises `TrainingFailed` if the run cannot go on.
    """
    if store is not None and spec.kill_controller is not None:
        raise InvalidArgument(
            "kill_controller needs a controller process: leave the store out, or kill this process"
        )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / SPEC_FILE).write_text(json.dumps(spec.to_json()), encoding="utf-8")
    processes = start_workers(spec, directory)
    try:
        if store is None:
            path = directory / CONTROL_FILE
            store = FileControlStore.create(path, first_state(spec), switch_policy(spec))
            controllers = _run_controllers(spec, directory, store)
        else:
            controllers = 1
            control_training(spec, directory, store, processes)
        for process in processes:
            process.wait(timeout=spec.patience_s)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    return report_training(store, directory, controllers)


def first_state(spec: TrainingSpec, job_id: str = "training") -> JobState:
    """The control state of a run before its first step."""
    key = plan_key((0,) * spec.stages, "stagger")
    return initial_state(job_id, spec.pipelines, spec.stages, key)


def control_training(
    spec: TrainingSpec,
    directory: Path,
    store: ControlStore,
    processes: list[subprocess.Popen[bytes]],
    *,
    die_at_point: str | None = None,
    schedule_of: Callable[[tuple[int, ...]], Schedule] | None = None,
) -> None:
    """Run a controller in this process; the newcomers it starts are added to ``processes``.

    ``schedule_of`` gives the schedule for failure counts; by default it is made when it is needed.
    """

    def spawn(worker: Worker) -> None:
        processes.append(spawn_worker(directory, worker, mortal=False))

    Controller(
        spec,
        directory,
        store,
        spawn=spawn,
        at_point=die_at(die_at_point),
        schedule_of=schedule_of,
    ).run()


def _run_controllers(spec: TrainingSpec, directory: Path, store: ControlStore) -> int:
    """Controller processes, one after another, until the last step; how many it took."""
    for number in range(_MAX_CONTROLLERS):
        _run_controller(directory, first=number == 0)
        if store.load().iteration == spec.steps:
            return number + 1
    raise TrainingFailed(f"{_MAX_CONTROLLERS} controllers were killed")


def start_workers(spec: TrainingSpec, directory: Path) -> list[subprocess.Popen[bytes]]:
    """One process for each worker of the job; they wait for a controller."""
    return [
        spawn_worker(directory, Worker(k, i), mortal=True)
        for k in range(spec.pipelines)
        for i in range(spec.stages)
    ]


def spawn_worker(directory: Path, worker: Worker, *, mortal: bool) -> subprocess.Popen[bytes]:
    """A worker's process. A ``mortal`` one obeys the kill list and starts with fresh weights."""
    arguments = [str(worker.pipeline), str(worker.stage), *(["mortal"] if mortal else [])]
    name = f"worker-{worker.pipeline}-{worker.stage}"
    return _start("workflows.recycle.training_worker", directory, arguments, name)


def _start(
    module: str, directory: Path, arguments: Sequence[str], name: str
) -> subprocess.Popen[bytes]:
    # A service writes the sources that its processes are to run; else those of this process.
    places = [directory / SOURCES_FOLDER, *map(Path, sys.path)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(place.resolve()) for place in places),
        # Gloo otherwise asks for the name of the machine, which need not resolve.
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    with (directory / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, str(directory.resolve()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            # Python looks into the working directory first, whatever modules that has.
            cwd=directory,
            # A controller's end must not end the workers that it started.
            start_new_session=True,
        )


def _run_controller(directory: Path, *, first: bool) -> None:
    """A controller process, to its end. Being killed is part of the plan; failing is not."""
    name = "controller"
    arguments = ["first"] if first else []
    process = _start("workflows.recycle.training_run", directory, arguments, name)
    try:
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code not in (0, -signal.SIGKILL):
        log = (directory / f"{name}.log").read_text(encoding="utf-8")
        raise TrainingFailed(f"the controller ended with {code}: {log[-2000:]}", code=code)


def report_training(store: ControlStore, directory: Path, controllers: int) -> TrainingReport:
    """The report of a run whose steps are all committed."""
    outcomes = store.outcomes()
    commits = [o.event for o in outcomes if o.event.kind == "commit"]
    rows = [
        json.loads(line)
        for line in (directory / STEPS_FILE).read_text(encoding="utf-8").splitlines()
    ]
    by_step = {(row["step"], row["attempt"]): row for row in rows}
    committed = [by_step[event.iteration, event.attempt] for event in commits]
    rollbacks: dict[str, int] = {}
    for row in committed:
        for worker, count in row["rollbacks"].items():
            rollbacks[worker] = max(count, rollbacks.get(worker, 0))
    return TrainingReport(
        losses=tuple(event.loss for event in commits if event.loss is not None),
        digests=tuple(row["digests"] for row in committed),
        events=tuple(o.event for o in outcomes if o.event.kind != "commit"),
        rollbacks=sum(rollbacks.values()),
        controllers=controllers,
    )


def main(arguments: list[str]) -> None:
    """Entry point of a controller process."""
    directory = Path(arguments[0])
    spec = TrainingSpec.from_json(json.loads((directory / SPEC_FILE).read_text("utf-8")))
    store = FileControlStore(directory / CONTROL_FILE, switch_policy(spec))
    wanted = spec.kill_controller if arguments[1:] == ["first"] else None
    newcomers: list[subprocess.Popen[bytes]] = []
    control_training(spec, directory, store, newcomers, die_at_point=wanted)
    for newcomer in newcomers:
        newcomer.wait(timeout=spec.patience_s)


if __name__ == "__main__":
    main(sys.argv[1:])
