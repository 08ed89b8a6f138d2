"""Jobs under changing availability, as parent and child workflows.

`availability_changed` makes a version and starts a `reconfigure` for every open job; what such a
child decides is committed with the job in one transaction, once per job and version, however often
its executor dies in between. `follow` applies a trace for real, `replay` only on paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from apiary import gather, run_id, sleep, step, workflow
from functions import sailor
from functions.sailor.errors import BadJob, declared
from functions.sailor.plans import goal_of
from functions.sailor.records import (
    GoalSpec,
    JobSpec,
    Question,
    Reconfigured,
    ReplaySegment,
)

from .flows import Answer, judge, search_plans, stored_problem
from .plan import Plan, parse_availability
from .search_result import Candidate
from .simulator import simulate as judged
from .switching import RECONFIGURATION_S, Policy, Segment

__all__ = [
    "Changed",
    "ReplayReport",
    "TraceSegment",
    "availability_changed",
    "follow",
    "reconfigure",
    "replay",
    "submit",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A change of availability and what the jobs made of it."""

    version: int
    jobs: list[Reconfigured]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSegment:
    """A stretch of a trace with one availability ("<gpu>_<zone>" -> GPUs)."""

    start_s: float
    duration_s: float
    available: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a job would have done under a trace."""

    segments: list[ReplaySegment]
    iterations: float
    cost_usd: float
    reconfigurations: int


@workflow
def submit(job: JobSpec) -> Reconfigured:
    """Open a job and plan it for the newest availability; from then on changes replan it."""
    sailor.open_job(job, run_id())
    return reconfigure(job.job_id, sailor.newest_availability(run_id()))


@workflow
def availability_changed(changes: dict[str, int], only_these: bool = False) -> Changed:
    """GPUs came or went: {"A100-40_us-central1-a": 12} are the counts from now on.

    All other counts stay, unless ``only_these``. Every open job is planned again, side by side.
    """
    version = sailor.record_availability(changes, run_id(), only_these)
    jobs = sailor.jobs_to_replan()
    return Changed(version=version, jobs=gather(*(reconfigure.start(job, version) for job in jobs)))


@workflow
def reconfigure(job_id: str, version: int) -> Reconfigured:
    """A job's answer to an availability version; asked again, the same answer."""
    begun = sailor.begin_reconfiguration(job_id, version, run_id())
    if begun.decided is not None:
        return begun.decided
    assert begun.question is not None
    found = search_plans(
        begun.question, begun.planner, "exact", begun.time_limit_s, or_nothing=True
    )
    return sailor.commit_reconfiguration(job_id, version, found, run_id())


@workflow
def follow(segments: list[TraceSegment], seconds_per_second: float = 1.0) -> list[Changed]:
    """Apply a trace to the open jobs as it goes on, at some speed."""
    done = []
    for segment in segments:
        done.append(availability_changed(segment.available, True))
        sleep(segment.duration_s / seconds_per_second)
    return done


@workflow
def replay(
    trace: str | None = None,
    segments: list[TraceSegment] | None = None,
    model: str = "OPT-350",
    gpu: str = "A100-40",
    zone: str = "us-central1-a",
    goal: GoalSpec | None = None,
    profile: str = "best",
    reconfiguration_s: float = sum(RECONFIGURATION_S.values()),
    hysteresis: bool = True,
    time_limit_s: float | None = 30.0,
) -> ReplayReport:
    """What a job would have done under a trace: each availability is planned by a child run.

    ``trace`` is a file on the executor's machine: a CSV with a column per "<gpu>_<zone>", or a JSON
    list of {"Time", "GPUs"} of one ``gpu`` and ``zone``. Or give the segments themselves.
    """
    if (trace is None) == (segments is None):
        raise BadJob("give either a trace file or segments")
    rows = read_trace(trace, gpu, zone) if trace is not None else (segments or [])
    everything = {key: 1 for row in rows for key in row.available}
    asked = sailor.ask(model, everything, goal or GoalSpec(), profile, run_id())
    distinct: list[dict[str, int]] = []
    for row in rows:
        if row.available not in distinct:
            distinct.append(row.available)
    answers = gather(
        *(
            plan_segment.start(replace(asked, available=available), time_limit_s)
            for available in distinct
        )
    )
    policy = (reconfiguration_s, hysteresis)
    done, svg = replay_on_paper(asked, rows, distinct, answers, policy)
    sailor.store_replay(done, run_id())
    sailor.store_picture("replay", svg, run_id())
    return ReplayReport(
        segments=done,
        iterations=sum(row.iterations for row in done),
        cost_usd=sum(row.cost_usd for row in done),
        reconfigurations=sum(row.switched for row in done),
    )


@workflow
def plan_segment(asked: Question, time_limit_s: float | None) -> Answer:
    """The best plan for one availability of a trace, if there is one."""
    return judge(asked, "sailor", "exact", time_limit_s, run_id())


@step
def read_trace(trace: str, gpu: str, zone: str) -> list[TraceSegment]:
    """The segments of a trace file."""
    from .published import read_json  # noqa: PLC0415
    from .trace import segments_from_csv, segments_from_json  # noqa: PLC0415

    path = Path(trace)
    with declared():
        if path.suffix == ".json":
            found = segments_from_json(read_json(path), gpu, zone)
        else:
            found = segments_from_csv(path.read_text(encoding="utf-8"))
    return [
        TraceSegment(
            start_s=row.start_s,
            duration_s=row.duration_s,
            available={f"{g}_{z}": count for (g, z), count in row.available.items()},
        )
        for row in found
    ]


@step(process=True)
def replay_on_paper(
    asked: Question,
    rows: list[TraceSegment],
    distinct: list[dict[str, int]],
    answers: list[Answer],
    policy: tuple[float, bool],
) -> tuple[list[ReplaySegment], str]:
    """Iterations, money and switches of every segment, and the picture."""
    from . import pictures, trace  # noqa: PLC0415

    places = {key: 1 for row in rows for key in parse_availability(row.available)}
    reconfiguration_s, hysteresis = policy
    with declared():
        problem = stored_problem(asked.inputs, places)
        found: dict[Any, Candidate | None] = {}
        for available, answer in zip(distinct, answers, strict=True):
            key = tuple(sorted(parse_availability(available).items()))
            layout = None if answer.chosen is None else Plan.from_json(answer.chosen.layout)
            found[key] = (
                None if layout is None else Candidate(plan=layout, estimate=judged(problem, layout))
            )
        replayed = trace.replay(
            problem,
            [
                Segment(
                    start_s=row.start_s,
                    duration_s=row.duration_s,
                    available=parse_availability(row.available),
                )
                for row in rows
            ],
            Policy(
                goal=goal_of(asked.goal),
                reconfiguration_s=reconfiguration_s,
                hysteresis=hysteresis,
            ),
            finder=lambda _problem, available, _policy: found[tuple(sorted(available.items()))],
        )
        return [_segment(step) for step in replayed.steps], pictures.replay_svg(replayed)


def _segment(done: Any) -> ReplaySegment:
    chosen = done.chosen
    return ReplaySegment(
        start_s=done.segment.start_s,
        duration_s=done.segment.duration_s,
        available={f"{g}_{z}": n for (g, z), n in done.segment.available.items()},
        used={}
        if chosen is None
        else {f"{g}_{z}": n for (g, z), n in chosen.plan.gpus_used().items()},
        switched=done.switched,
        iterations=done.iterations,
        iterations_per_s=done.iterations_per_s,
        cost_usd=done.cost_usd,
        layout=None if chosen is None else chosen.plan.to_json(),
    )
