"""Reference data for the Sailor tests, read from the specification's folder and never copied."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from workflows.sailor.job import Job
from workflows.sailor.problem import Problem
from workflows.sailor.published import job_from_published, problem_from_folder, read_json

JOB_FILES = {
    "OPT-350": "training_config_opt_350.json",
    "GPT-Neo-2.7": "training_config_gpt_neo27.json",
}


def data_folder() -> Path:
    root = os.environ.get("APIARY_SPEC_DATA")
    if root:
        return Path(root) / "sailor"
    return Path(__file__).resolve().parents[4] / "shared" / "specs" / "data" / "sailor"


@cache
def _problem(folder: Path, model: str) -> Problem:
    job = _job(folder, model)
    return problem_from_folder(folder, job)


def _job(folder: Path, model: str) -> Job:
    if model in JOB_FILES:
        return job_from_published(read_json(folder / "training" / JOB_FILES[model]))
    return Job(
        model=model,
        global_batch=512,
        layers=35,
        hidden=4096,
        sequence_length=8192,
        vocabulary=128256,
        heads=32,
        blocks=32,
    )


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference data; tests that need it are skipped where it is absent."""
    folder = data_folder()
    if not folder.is_dir():
        pytest.skip("the reference data of the Sailor specification is not here (APIARY_SPEC_DATA)")
    return folder


@pytest.fixture(scope="session")
def published(reference: Path) -> Callable[..., Problem]:
    """published(model, global_batch=None): the problem of a model with the published data."""

    def build(model: str = "OPT-350", global_batch: int | None = None) -> Problem:
        problem = _problem(reference, model)
        return problem if global_batch is None else problem.with_global_batch(global_batch)

    return build


@pytest.fixture(scope="session")
def vectors(reference: Path) -> list[dict[str, Any]]:
    """The eighteen planner cases."""
    cases: list[dict[str, Any]] = read_json(reference / "vectors" / "planner_reference.json")
    return cases
