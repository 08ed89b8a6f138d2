"""Live measurements and runs as a program: a JSON line in, a JSON document out.

    echo '{"kind": "network", "processes": 2}' | python -m workflows.sailor.live

It ends when its standard input does: whoever asked is gone, and nobody waits for the answer.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from workflows.sailor.errors import SailorError
from workflows.sailor.live_checkpoint import Checkpoint
from workflows.sailor.live_model import TinyGpt
from workflows.sailor.live_network import ROUNDS, fit_network, measure_network
from workflows.sailor.live_pipeline import LiveJob, run_live
from workflows.sailor.live_profile import profile_live


def profile(request: Mapping[str, Any]) -> dict[str, Any]:
    """A small GPT as a job, and its profile on this machine, under the name that it is given."""
    shape, name = TinyGpt.from_json(request["shape"]), request["model"]
    measured = profile_live(
        shape,
        request["microbatches"],
        gpu=request["gpu"],
        threads=request["threads"],
        slow_down=request["slow_down"],
    )
    return {
        "job": replace(shape.job(request["global_batch"]), model=name).to_json(),
        "profile": replace(measured, model=name).to_json(),
    }


def network(request: Mapping[str, Any]) -> dict[str, Any]:
    """Bandwidth over loopback and the polynomial through it."""
    samples = measure_network(request["processes"], rounds=request.get("rounds", ROUNDS))
    return fit_network(samples).to_json()


def train(request: Mapping[str, Any]) -> dict[str, Any]:
    """Some steps of real 1F1B training, from one checkpoint to the next."""
    start = request["start"]
    run = run_live(
        LiveJob(
            shape=TinyGpt.from_json(request["shape"]),
            split=tuple(request["split"]),
            replicas=request["replicas"],
            microbatch=request["microbatch"],
            global_batch=request["global_batch"],
            steps=request["steps"],
            start=None if start is None else Checkpoint.from_json(start),
            save_to=request["save_to"],
        )
    )
    return run.to_json()


KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "network": network,
    "profile": profile,
    "train": train,
}


def _end_with_input() -> None:
    sys.stdin.read()
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(1)


def main() -> None:
    """Answer one request; an error of the library is an answer too."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    answer: dict[str, Any]
    try:
        answer = {"result": KINDS[request["kind"]](request)}
    except SailorError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    # A daemon thread still reads: leave without waiting for the interpreter to take it down.
    os._exit(0)


if __name__ == "__main__":
    main()
