"""What the service refuses: the model's errors, declared as outcomes.

The model library knows no platform, so its errors are raised again here under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from apiary import ApplicationError
from workflows.recycle import errors as model

__all__ = [
    "Conflict",
    "DuplicateFailure",
    "InfeasibleMemory",
    "InvalidArgument",
    "InvalidWorker",
    "NoLiveStage",
    "SolverFailed",
    "TrainingFailed",
    "UnknownId",
    "UnknownPlan",
    "declared",
]


class InvalidArgument(ApplicationError):
    """A value is out of its domain."""

    code = "INVALID_ARGUMENT"


class InvalidWorker(InvalidArgument):
    """The job has no such worker."""

    code = "INVALID_WORKER"


class DuplicateFailure(InvalidArgument):
    """The same worker is listed as failed twice."""

    code = "DUPLICATE_FAILURE"


class NoLiveStage(ApplicationError):
    """A stage would have no live worker: only a checkpoint can help."""

    code = "NO_LIVE_STAGE"


class InfeasibleMemory(ApplicationError):
    """A stage cannot hold even one micro-batch in its memory."""

    code = "INFEASIBLE_MEMORY"


class UnknownId(ApplicationError):
    """Nothing is stored under this id: ``kind`` and ``id``."""

    code = "UNKNOWN_ID"


class UnknownPlan(ApplicationError):
    """The plan set has no plan under this key."""

    code = "UNKNOWN_PLAN"


class Conflict(ApplicationError):
    """It does not fit what is stored: another epoch, another state, other data under a key."""

    code = "CONFLICT"


class SolverFailed(ApplicationError):
    """A schedule did not pass the checker, or a solver contradicts itself."""

    code = "SOLVER_FAILED"


class TrainingFailed(ApplicationError):
    """A training run could not go on."""

    code = "TRAINING_FAILED"


# The most special first.
_DECLARED: tuple[tuple[type[model.RecycleError], type[ApplicationError]], ...] = (
    (model.InvalidWorker, InvalidWorker),
    (model.DuplicateFailure, DuplicateFailure),
    (model.InvalidArgument, InvalidArgument),
    (model.NoLiveStage, NoLiveStage),
    (model.InfeasibleMemory, InfeasibleMemory),
    (model.UnknownPlan, UnknownPlan),
    (model.Conflict, Conflict),
    (model.SolverFailed, SolverFailed),
    (model.TrainingFailed, TrainingFailed),
)


@contextmanager
def declared() -> Iterator[None]:
    """Raise the model's errors in this block as the service's."""
    try:
        yield
    except model.RecycleError as error:
        kind = next(ours for theirs, ours in _DECLARED if isinstance(error, theirs))
        raise kind(error.message, **error.details) from error
