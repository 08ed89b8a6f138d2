"""Real measurements and real training on the executor's machine, as workflows.

A step writes the deployment's sources to a folder and starts `workflows.sailor.live` there, so that
the processes of a live run import the code that was deployed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from apiary import progress, run_id, step, workflow, write_sources
from functions import sailor
from functions.sailor import errors as failures
from functions.sailor.errors import LiveRunError, declared
from functions.sailor.records import Imported, LiveSegment, LiveShape

from .hardware import GIB, GpuType
from .network import LinkTable

__all__ = ["LiveReport", "profile_live", "profile_network_live", "run_live", "train_segment"]

MEASURED = "measured"
CPU_BYTES = 2 * GIB
CPU_FIXED_BYTES = 0.3e9


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReport:
    """A live job's training."""

    job_id: str
    steps: int
    losses: list[float]
    plans: list[int]
    """the plan of every step"""


@workflow
def profile_live(
    model: str = "tiny-gpt",
    shape: LiveShape | None = None,
    global_batch: int = 16,
    microbatches: list[int] | None = None,
    gpu: str = "cpu",
    threads: int = 1,
    slow_down: float = 1.0,
) -> Imported:
    """Measure a small GPT layer by layer on this machine; the result is stored once, as a whole.

    A machine has no GPU types, so the name is yours; ``threads`` and ``slow_down`` tell them apart.
    """
    job, measured = measure_profile(
        model,
        shape or LiveShape(),
        global_batch,
        microbatches or [1, 2, 4],
        gpu,
        threads,
        slow_down,
    )
    sailor.register_model(job, run_id())
    card = GpuType(name=gpu, memory_bytes=CPU_BYTES, gpus_per_node=1, fixed_bytes=CPU_FIXED_BYTES)
    sailor.store_gpu_type(card.to_json())
    return sailor.store_profile(measured, run_id())


@workflow
def profile_network_live(
    processes: int = 2, gpu: str = "cpu", zone: str = "local", rounds: int = 20
) -> Imported:
    """Measure the bandwidth between processes over loopback, and fit the polynomial."""
    fit = measure_link(processes, rounds)
    key = (zone, gpu, 1, zone, gpu, 1)
    row = [*key, fit["c0"], fit["c1"], fit["c2"], fit["max_bytes_per_s"]]
    samples = [(sample["size_bytes"], sample["gb_per_s"]) for sample in fit["samples"]]
    return sailor.store_network([row], MEASURED, run_id(), samples, fit["r_squared"])


@workflow
def run_live(
    job_id: str, steps: int = 10, every: int = 5, folder: str | None = None, finish: bool = True
) -> LiveReport:
    """Train a live job to a step, always under the plan that it has by then.

    After ``every`` steps the state is in a checkpoint and the plan is looked up again: a change of
    availability takes effect there. ``folder`` must be seen by every executor; by default it is
    one in this machine's temporary directory. Unless it is ``finish``ed the job stays open.
    """
    place = checkpoint_folder(job_id) if folder is None else folder
    while True:
        segment = sailor.next_segment(job_id, every, steps, place, run_id())
        if segment is None:
            break
        run = train_segment(segment)
        sailor.commit_segment(segment, run["step_s"], run["losses"], run_id())
    if finish:
        sailor.finish_job(job_id)
    losses, plans = sailor.training_course(job_id)
    return LiveReport(job_id=job_id, steps=len(losses), losses=losses, plans=plans)


@step
def checkpoint_folder(job_id: str) -> str:
    """A folder of a job's own on this machine."""
    place = Path(tempfile.gettempdir()) / "apiary-sailor" / job_id.replace(os.sep, "_")
    place.mkdir(parents=True, exist_ok=True)
    return str(place)


@step
def measure_profile(
    model: str,
    shape: LiveShape,
    global_batch: int,
    microbatches: list[int],
    gpu: str,
    threads: int,
    slow_down: float,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job and the profile of a shape."""
    answer = _ask(
        {
            "kind": "profile",
            "model": model,
            "shape": asdict(shape),
            "global_batch": global_batch,
            "microbatches": microbatches,
            "gpu": gpu,
            "threads": threads,
            "slow_down": slow_down,
        }
    )
    return answer["job"], answer["profile"]


@step
def measure_link(processes: int, rounds: int) -> dict[str, Any]:
    """Samples and fit of the loopback, refused where the fit is not positive."""
    fit = _ask({"kind": "network", "processes": processes, "rounds": rounds})
    key = ("local", "cpu", 1, "local", "cpu", 1)
    table = LinkTable.from_json([[*key, fit["c0"], fit["c1"], fit["c2"], fit["max_bytes_per_s"]]])
    with declared():
        for _, link in table.items():
            for sample in fit["samples"]:
                link.gb_per_s(sample["size_bytes"])
    return fit


@step
def train_segment(segment: LiveSegment) -> dict[str, Any]:
    """Real training of a segment in P·D processes; tried again it ends the same."""
    progress(segment.first_step, segment.first_step + segment.steps, f"plan {segment.plan_id}")
    start = segment.start
    return _ask(
        {
            "kind": "train",
            "shape": asdict(segment.shape),
            "split": segment.split,
            "replicas": segment.replicas,
            "microbatch": segment.microbatch,
            "global_batch": segment.global_batch,
            "steps": segment.steps,
            "start": None
            if start is None
            else {"folder": start.location, "slot": start.slot, "step": start.step},
            "save_to": segment.folder,
        }
    )


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    """The answer of `live`, run as a program with the deployment's sources."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as complaints:
        write_sources(folder)
        with subprocess.Popen(
            [sys.executable, "-m", "workflows.sailor.live"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                child.stdin.write(json.dumps(request) + "\n")
                child.stdin.flush()
                text = child.stdout.read()
            finally:
                child.stdin.close()  # it ends with its input
        if not text:
            complaints.seek(0)
            told = complaints.read().decode(errors="replace")[-4000:]
            raise LiveRunError(f"the live program ended with {child.returncode}:\n{told}")
    answer: dict[str, Any] = json.loads(text)
    if "error" in answer:
        raise getattr(failures, answer["error"])(answer["message"])
    result: dict[str, Any] = answer["result"]
    return result
