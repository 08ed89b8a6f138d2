"""Closed forms: 1F1B and zero-bubble iterations, loads, lower bounds, the free-failure budget.

Sources: 1F1B and zero-bubble sizes, arXiv 2401.10241; loads and adaptive pipelining, ReCycle
(arXiv 2405.14009). Times in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from workflows.recycle.failures import check_counts
from workflows.recycle.job import Job, Objective, StageTimes

__all__ = [
    "bubble_ratio_1f1b",
    "fault_scaled_us",
    "free_failures",
    "lower_bound_us",
    "peak_activations_1f1b",
    "stage_load",
    "uniform_1f1b_us",
    "zero_bubble_size_us",
]


def uniform_1f1b_us(job: Job) -> int:
    """T_1F1B = (M + S - 1)(t_F + t_B) + t_Opt, exact for uniform stages without transfers.

    For uneven stages t is that of the slowest one (an upper estimate); the exact value is the
    makespan of `one_f_one_b`.
    """
    slowest = max(t.total_us for t in job.times)
    return (job.micro_batches + job.stages - 1) * slowest + job.optimizer_us


def bubble_ratio_1f1b(job: Job) -> float:
    """(S - 1)/(M + S - 1), the idle share of a 1F1B iteration."""
    return (job.stages - 1) / (job.micro_batches + job.stages - 1)


def peak_activations_1f1b(job: Job, stage: int) -> int:
    """min(M, S - i) micro-batches held at stage i."""
    return min(job.micro_batches, job.stages - stage)


def zero_bubble_size_us(
    stages: int, times: StageTimes, kind: Literal["1f1b", "zb-h1", "zb-h2"]
) -> int:
    """The bubble of one worker: (S-1)(t_F + t_I + c*t_W), c = 1 (1F1B), -1 (ZB-H1), -2 (ZB-H2)."""
    factor = {"1f1b": 1, "zb-h1": -1, "zb-h2": -2}[kind]
    per_stage = times.forward_us + times.input_grad_us + factor * times.weight_grad_us
    return (stages - 1) * per_stage


def stage_load(job: Job, failed: int) -> int:
    """load_i = ceil(P*M / (P - x_i)), micro-batches on the busiest survivor of a stage."""
    return -(-job.batch // (job.pipelines - failed))


def fault_scaled_us(job: Job, failed: int, fault_free_us: float) -> float:
    """T * P*S / (P*S - f): all work shared by the live workers, with no new bubbles."""
    return fault_free_us * job.workers / (job.workers - failed)


def _staggered_us(job: Job, counts: Sequence[int], stage: int) -> int:
    """load_i * t_i + t_Opt,i: the work of the busiest worker of the stage."""
    times = job.times[stage]
    return stage_load(job, counts[stage]) * times.total_us + times.optimizer_us


def _synchronous_us(job: Job, counts: Sequence[int], stage: int, split: bool) -> int:
    """Time to reach the stage, its work, and for a fused backward the way back to stage 0."""
    reach = sum(t.forward_us + t.transfer_us for t in job.times[:stage])
    work = stage_load(job, counts[stage]) * job.times[stage].total_us
    back = 0 if split else sum(t.backward_us + t.transfer_us for t in job.times[:stage])
    return reach + work + back + job.optimizer_us


def lower_bound_us(
    job: Job, counts: Sequence[int], *, objective: Objective, split: bool = True
) -> int:
    """No schedule of this job with x_i failures in stage i has a shorter iteration.

    Staggered: max_i(load_i*t_i + t_Opt,i). Synchronous: max_i over the stages of the way in,
    the load and, with a fused backward, the way out.
    """
    check_counts(job, counts)
    stages = range(job.stages)
    if objective == "stagger":
        return max(_staggered_us(job, counts, i) for i in stages)
    return max(_synchronous_us(job, counts, i, split) for i in stages)


def free_failures(job: Job) -> int:
    """x_max = floor(P*(S-1)/(M+S-1)): failures in each stage that the 1F1B bubbles absorb.

    Holds for the staggered step with uniform stages, and if memory permits.
    """
    return job.pipelines * (job.stages - 1) // (job.micro_batches + job.stages - 1)
