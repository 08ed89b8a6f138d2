"""Pictures of what the database holds, for the bodies of steps: stored under the run's id."""

from __future__ import annotations

from apiary import run_id
from functions import recycle
from functions.recycle.records import PlanSummary
from workflows.recycle.one_f_one_b import one_f_one_b
from workflows.recycle.pictures import gantt_svg, iteration_steps_svg, memory_svg
from workflows.recycle.stored import load_plan

__all__ = ["MAX_DRAWN_CELLS", "draw_plans"]

MAX_DRAWN_CELLS = 2_000
"""P*S*M up to which a timeline is drawn: beyond it nobody could read it."""


def draw_plans(summary: PlanSummary) -> list[str]:
    """The timeline before and after the first failure, its memory, and T against failures."""
    setting = recycle.plan_setting(summary.plan_set_id)
    cells = setting.job["pipelines"] * setting.job["stages"] * setting.job["micro_batches"]
    if cells > MAX_DRAWN_CELLS or not summary.plans:
        return []
    plans = [load_plan(stored.plan_id) for stored in summary.plans]
    after = next((plan for plan in plans if sum(plan.counts) == 1), plans[0])
    counts = ", ".join(map(str, after.counts))
    pictures = {
        "timeline": gantt_svg(
            {
                f"fault-free 1F1B ({one_f_one_b(after.job).iteration_us(after.objective)} µs)": (
                    one_f_one_b(after.job)
                ),
                f"dead workers by stage: {counts} ({after.iteration_us} µs)": after.schedule,
            }
        ),
        "iterations": iteration_steps_svg(plans),
    }
    if after.job.memory is not None:
        pictures["memory"] = memory_svg(after.schedule)
    for name, svg in pictures.items():
        recycle.store_picture(run_id(), name, svg)
    return sorted(pictures)
