"""Published files into tables, and the simulator beside what was measured, as workflows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from apiary import progress, run_id, step, workflow
from functions import sailor
from functions.sailor.errors import declared
from functions.sailor.records import Imported, Inputs, MeasuredPlan, Validated

from .catalogue import JOBS
from .flows import stored_problem
from .job import Job
from .plan import Plan
from .published import (
    job_from_published,
    links_from_published,
    prices_from_published,
    profile_from_published,
    read_json,
)
from .validation import Measured, measured_from_published

__all__ = ["calibrate", "import_measured", "import_profile", "validate"]

PUBLISHED = "published"


@workflow
def import_profile(folder: str, models: list[str] | None = None) -> list[Imported]:
    """Import a folder in the published layout: models, profiles, links and prices.

    ``models`` are those of the profile files whose figures are known (all of them by default): from
    ``training/*.json`` of the folder, the catalogue, or a registration. Importing the same files
    again changes nothing. The folder is read on the executor's machine.
    """
    return import_folder(folder, models, run_id())


@step
def import_folder(folder: str, models: list[str] | None, for_run: str) -> list[Imported]:
    """Read the files and store them, a function call for each; safe to repeat."""
    place = Path(folder)
    with declared():
        times = read_json(place / "profiles_sim.json")
        sizes = read_json(place / "llm_info.json")
        jobs = _jobs(place)
        prices = read_json(place / "prices" / "gpu_prices.json")
        egress = read_json(place / "prices" / "communication_cost.json")
        links = links_from_published(
            read_json(place / "network" / "multizone_bandwidths_het.json")
        ).to_json()
        chosen = [name for name in times if name in jobs] if models is None else models
        profiles = [profile_from_published(name, times, sizes) for name in chosen]
        table = prices_from_published(prices["simulator"], egress)
    done: list[Imported] = []
    for number, profile in enumerate(profiles):
        progress(number, len(profiles) + 2, f"profile of {profile.model}")
        if profile.model in jobs:
            sailor.register_model(jobs[profile.model].to_json(), for_run)
        done.append(sailor.store_profile(profile.to_json(), for_run))
    done.append(sailor.store_network(links, PUBLISHED, for_run))
    done.append(sailor.store_prices(table.to_json(), PUBLISHED, for_run))
    return done


def _jobs(place: Path) -> dict[str, Job]:
    """The models whose figures are known, by name."""
    files = sorted((place / "training").glob("*.json"))
    return dict(JOBS) | {job.model: job for job in map(job_from_published, map(read_json, files))}


@workflow
def import_measured(files: str, platform: str, model: str = "OPT-350") -> Imported:
    """Import measured plans: ``files`` is a pattern such as ``/data/validation/mit/**/*.json``."""
    plans = read_measured(files)
    return sailor.store_measured_plans(platform, model, plans, run_id())


@step
def read_measured(files: str) -> list[MeasuredPlan]:
    """The measured plans of published files, by a name of folder and file."""
    pattern = Path(files)
    root = Path(*[part for part in pattern.parts if "*" not in part])
    if root.is_file():
        found = [root]
    else:
        found = sorted(root.glob(str(pattern.relative_to(root)) or "*.json"))
    with declared():
        return [_measured(path) for path in found]


def _measured(path: Path) -> MeasuredPlan:
    row = measured_from_published(path.stem.removeprefix("plan_config_"), read_json(path))
    return MeasuredPlan(
        name=row.name,
        global_batch=row.global_batch,
        iteration_s=row.iteration_s,
        reduce_s=row.reduce_s,
        peak_bytes=row.peak_bytes,
        layout=row.plan.to_json(),
    )


@workflow
def validate(
    platform: str,
    mode: Literal["exact", "published"] = "exact",
    profile: str = "best",
    leave_out: list[str] | None = None,
) -> Validated:
    """The simulator beside a platform's measured plans: error of each, mean, median, largest."""
    result = sailor.validate_platform(platform, mode, profile, leave_out or [], run_id())
    svg = draw_errors({f"{platform}, {mode}": list(result.errors.values())})
    sailor.store_picture("errors", svg, run_id())
    return result


@step(process=True)
def draw_errors(errors: dict[str, list[float]]) -> str:
    """A box plot of errors, as SVG."""
    from . import pictures  # noqa: PLC0415

    with declared():
        return pictures.error_svg(errors)


@workflow
def calibrate(
    platform: str, profile: str = "best", leave_out: list[str] | None = None
) -> dict[str, Any]:
    """Fit factors of computing, sends and reductions to a platform's measured plans."""
    inputs, plans = sailor.measured_plans(platform, profile, run_id())
    kept = [row for row in plans if row.name not in (leave_out or [])]
    factors = fit_factors(platform, inputs, kept)
    sailor.store_calibration(factors, run_id())
    return factors


@step(process=True)
def fit_factors(platform: str, inputs: Inputs, plans: list[MeasuredPlan]) -> dict[str, Any]:
    """The factors, with the error of predicting each plan without itself."""
    from .calibration import calibrate as fit  # noqa: PLC0415

    rows = [_row(measured) for measured in plans]
    places = {place: 1 for row in rows for place in row.plan.gpus_used()}
    with declared():
        problem = stored_problem(inputs, places)
        return fit(problem, platform, rows).to_json()


def _row(measured: MeasuredPlan) -> Measured:
    return Measured(
        name=measured.name,
        plan=Plan.from_json(measured.layout),
        global_batch=measured.global_batch,
        iteration_s=measured.iteration_s,
        reduce_s=measured.reduce_s,
        peak_bytes=measured.peak_bytes,
    )
