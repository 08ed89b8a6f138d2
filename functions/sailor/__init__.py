"""Sailor: which GPUs train a model, how, at what cost, and what to do when they change.

The functions keep inputs, plans, availability and reconfigurations; the tables are in ``sql/``, the
model that judges is `workflows.sailor`, the workflows are in `workflows.sailor.flows`.
"""

from .availability import newest_availability, record_availability
from .inputs import (
    choose_inputs,
    load_problem,
    register_model,
    store_gpu_type,
    store_network,
    store_prices,
    store_profile,
)
from .jobs import begin_reconfiguration, commit_reconfiguration, jobs_to_replan, open_job
from .measuring import (
    measured_plans,
    store_calibration,
    store_measured_plans,
    store_replay,
    validate_platform,
)
from .plans import ask, commit_answer, commit_search, simulate_plan, store_picture
from .training import commit_segment, finish_job, newest_checkpoint, next_segment, training_course

__all__ = [
    "ask",
    "begin_reconfiguration",
    "choose_inputs",
    "commit_answer",
    "commit_reconfiguration",
    "commit_search",
    "commit_segment",
    "finish_job",
    "jobs_to_replan",
    "load_problem",
    "measured_plans",
    "newest_availability",
    "newest_checkpoint",
    "next_segment",
    "open_job",
    "record_availability",
    "register_model",
    "simulate_plan",
    "store_calibration",
    "store_gpu_type",
    "store_measured_plans",
    "store_network",
    "store_picture",
    "store_prices",
    "store_profile",
    "store_replay",
    "training_course",
    "validate_platform",
]
