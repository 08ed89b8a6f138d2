"""What the database and a light deployment import needs the standard library only."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import importlib, sys
for name in ("numpy", "numba", "scipy", "torch", "matplotlib"):
    sys.modules[name] = None
sys.modules["plpy"] = sys  # as in the database process
import workflows.sailor.schedule as schedule
for name in {modules}:
    importlib.import_module(name)
chain = schedule.Chain(
    forward_s=(1.0, 2.0), backward_s=(2.0, 3.0), send_forward_s=(0.5, 0.0),
    send_backward_s=(0.0, 0.25),
)
for blocking in (True, False):
    print(list(schedule.run_chain(chain, 5, blocking=blocking).end_s))
"""
MODULES = [
    "functions.sailor",
    "workflows.sailor.flows",
    "workflows.sailor.importing",
    "workflows.sailor.elastic",
    "workflows.sailor.measured",
]


def test_the_service_is_imported_and_simulates_without_the_heavy_packages() -> None:
    pytest.importorskip("numba", reason="compares with the compiled kernel")
    from workflows.sailor.schedule import Chain, run_chain

    program = PROGRAM.format(modules=MODULES)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    chain = Chain(
        forward_s=(1.0, 2.0),
        backward_s=(2.0, 3.0),
        send_forward_s=(0.5, 0.0),
        send_backward_s=(0.0, 0.25),
    )
    compiled = [
        [float(x) for x in run_chain(chain, 5, blocking=blocking).end_s]
        for blocking in (True, False)
    ]
    assert [json.loads(line) for line in done.stdout.splitlines()] == compiled
