"""Groups of worker processes that talk over gloo on this machine.

Workers meet through a file in a directory of their own, so no port has to be free. A worker that
fails ends the others and its traceback reaches the caller as `LiveRunError`.
"""

from __future__ import annotations

import os
import queue
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from workflows.sailor.errors import LiveRunError

TIMEOUT_S: Final = 120.0

Work = Callable[[int, int, Any], Any]
"""(rank, world size, argument) -> a plain result"""


def _main(work: Work, rank: int, world: int, meeting: str, argument: Any, results: Any) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=Path(meeting).as_uri(),
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=TIMEOUT_S),
        )
        result = work(rank, world, argument)
        dist.barrier()
        results.put((rank, result, None))
        dist.destroy_process_group()
    except Exception:  # noqa: BLE001 - whatever happened is handed to the caller with its traceback
        results.put((rank, None, traceback.format_exc()))


def run_group(work: Work, world: int, argument: Any, *, timeout_s: float = TIMEOUT_S) -> list[Any]:
    """Run `work` in that many processes; their results in order of rank."""
    context = mp.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        workers = [
            context.Process(
                target=_main, args=(work, rank, world, meeting, argument, results), daemon=True
            )
            for rank in range(world)
        ]
        for worker in workers:
            worker.start()
        try:
            return _collect(results, world, timeout_s)
        finally:
            for worker in workers:
                worker.join(timeout=5)
                if worker.is_alive():
                    worker.terminate()
                    worker.join()


def _collect(results: Any, world: int, timeout_s: float) -> list[Any]:
    found: dict[int, Any] = {}
    while len(found) < world:
        try:
            rank, result, failure = results.get(timeout=timeout_s)
        except queue.Empty as error:
            missing = sorted(set(range(world)) - set(found))
            raise LiveRunError(f"workers {missing} gave no result within {timeout_s} s") from error
        if failure is not None:
            raise LiveRunError(f"worker {rank} of {world} failed:\n{failure}")
        found[rank] = result
    return [found[rank] for rank in range(world)]
