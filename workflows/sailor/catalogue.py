"""What needs no registration: public model shapes, with the global batch of published figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from workflows.sailor.job import Job

JOBS: Final[Mapping[str, Job]] = {
    job.model: job
    for job in (
        Job(
            model="OPT-350",
            global_batch=1024,
            layers=26,
            blocks=24,
            hidden=1024,
            heads=16,
            sequence_length=2048,
            vocabulary=50272,
        ),
        Job(
            model="GPT-Neo-2.7",
            global_batch=2048,
            layers=34,
            blocks=32,
            hidden=2560,
            heads=32,
            sequence_length=2048,
            vocabulary=128256,
        ),
    )
}

EXAMPLE_CLUSTER: Final[Mapping[str, int]] = {
    "A100-40_us-central1-a": 16,
    "V100-16_us-central1-a": 16,
}
"""What is planned for where nobody ever said what can be had."""

COMPARED: Final = ("sailor", "reference", "amp", "varuna", "atlas", "dtfm")
"""The planners of a comparison."""
