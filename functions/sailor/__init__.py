"""Sailor: which GPUs train a model, how, at what cost, and what to do when they change.

The functions keep inputs, plans, availability and reconfigurations; the tables are in ``sql/``, the
model that judges is `workflows.sailor`, the workflows are in `workflows.sailor.flows`.
"""

from .availability import record_availability
from .inputs import (
    choose_inputs,
    load_problem,
    register_model,
    store_gpu_type,
    store_network,
    store_prices,
    store_profile,
)
from .plans import ask, commit_search, simulate_plan, store_picture

__all__ = [
    "ask",
    "choose_inputs",
    "commit_search",
    "load_problem",
    "record_availability",
    "register_model",
    "simulate_plan",
    "store_gpu_type",
    "store_network",
    "store_picture",
    "store_prices",
    "store_profile",
]
