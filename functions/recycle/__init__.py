"""ReCycle: profiles, plans ahead of failures, running jobs and simulations, as transactions.

The computing is in `workflows.recycle`; what is stored, and how a failure finds its plan, is here.

    profiles      measured times and memory of a job's stages
    plans         plan sets, plans (immutable) and their operations
    jobs          the control state of running jobs; on_event
    trainings     where the processes of a training job meet
    simulations   systems on failure traces; pictures
"""

from __future__ import annotations

from functions.recycle.jobs import (
    attach_plan,
    create_job,
    job_outcomes,
    job_plan_set,
    job_state,
    on_event,
)
from functions.recycle.plans import (
    add_cells,
    begin_plan,
    find_plan,
    open_plan_set,
    plan_cells,
    plan_ops,
    plan_setting,
    plan_summary,
    planned_ops,
    seal_plan,
    stored_plan,
)
from functions.recycle.profiles import store_profile
from functions.recycle.simulations import picture, store_intervals, store_picture, store_simulation
from functions.recycle.trainings import claim_place, record_rollbacks, training_place

__all__ = [
    "add_cells",
    "attach_plan",
    "begin_plan",
    "claim_place",
    "create_job",
    "find_plan",
    "job_outcomes",
    "job_plan_set",
    "job_state",
    "on_event",
    "open_plan_set",
    "picture",
    "plan_cells",
    "plan_ops",
    "plan_setting",
    "plan_summary",
    "planned_ops",
    "record_rollbacks",
    "seal_plan",
    "store_intervals",
    "store_picture",
    "store_profile",
    "store_simulation",
    "stored_plan",
    "training_place",
]
