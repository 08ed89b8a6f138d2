"""SYMI: popularity of experts, placements decided by it, and training that follows them.

`step` commits an iteration of a training job and returns the placement of the next one; the other
functions keep traces, simulations, costs and pictures. The tables are in ``sql/``, the model that
decides is `workflows.symi`, and the workflows are in `workflows.symi.flows`.
"""

from .checking import violations
from .courses import store_course
from .reports import price, store_picture
from .studies import make_plan, open_study
from .traces import (
    describe_run,
    finish_trace,
    open_trace,
    popularity,
    store_layer_profiles,
    store_popularity,
)
from .training import (
    close_training,
    committed,
    iterations,
    note_rank,
    open_training,
    step,
    training_report,
)

__all__ = [
    "close_training",
    "committed",
    "describe_run",
    "finish_trace",
    "iterations",
    "make_plan",
    "note_rank",
    "open_study",
    "open_trace",
    "open_training",
    "popularity",
    "price",
    "step",
    "store_course",
    "store_layer_profiles",
    "store_picture",
    "store_popularity",
    "training_report",
    "violations",
]
