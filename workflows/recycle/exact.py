"""What the exact solvers share: their answer, and the reduction of a fault-free job.

Both solvers look for a schedule better than one in hand (the greedy one), of the same job, dead
workers and executors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workflows.recycle.routing import reroute
from workflows.recycle.schedule import Schedule

__all__ = ["Answer", "first_pipeline", "on_all_pipelines"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a solver found."""

    schedule: Schedule | None
    """Its best schedule; None if it found none within its limits."""
    bound_us: int
    """No schedule that the solver considered has a shorter iteration."""
    proved: bool
    """Whether the schedule is optimal among those considered."""
    in_order: bool
    """Whether only schedules were considered in which the forwards of one home pipeline start in
    micro-batch order in every stage. A bound under this assumption is no bound without it."""
    wall_s: float


def first_pipeline(schedule: Schedule) -> Schedule:
    """The schedule of pipeline 0 of a fault-free job, as a job of one pipeline.

    Without failures the pipelines meet only in the stage windows, so a schedule of one pipeline
    repeated on all of them is as short as any: the optimum of one is the optimum of P.
    """
    return Schedule(
        job=schedule.job.replace(pipelines=1),
        failed=(),
        split=schedule.split,
        executor=schedule.executor[:1],
        forward_start_us=schedule.forward_start_us[:1],
        input_grad_start_us=schedule.input_grad_start_us[:1],
        weight_grad_start_us=schedule.weight_grad_start_us[:1],
    )


def on_all_pipelines(single: Schedule, pipelines: int) -> Schedule:
    """A fault-free schedule of one pipeline, repeated on all."""
    job = single.job.replace(pipelines=pipelines)
    shape = (pipelines, job.stages, job.micro_batches)
    return Schedule(
        job=job,
        failed=(),
        split=single.split,
        executor=reroute(job, ()),
        forward_start_us=np.broadcast_to(single.forward_start_us, shape).copy(),
        input_grad_start_us=np.broadcast_to(single.input_grad_start_us, shape).copy(),
        weight_grad_start_us=np.broadcast_to(single.weight_grad_start_us, shape).copy(),
    )
