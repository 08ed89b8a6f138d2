"""Every error of this library, in one tree.

    RecycleError
    ├── InvalidArgument     a value is out of its domain
    │   ├── InvalidWorker       no such worker in this job
    │   └── DuplicateFailure    the same worker is listed as dead twice
    ├── NoLiveStage         a stage has lost all its parameters: restart from a checkpoint
    ├── InfeasibleMemory    no schedule fits the memory of a stage
    ├── UnknownPlan         the plan set has no plan under this key
    ├── Conflict            the event does not fit the present state or epoch
    ├── SolverFailed        an exact solver ended without an answer it should have had
    └── TrainingFailed      a real training run could not go on

Each carries its data in ``details`` and survives JSON and pickle.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Conflict",
    "DuplicateFailure",
    "InfeasibleMemory",
    "InvalidArgument",
    "InvalidWorker",
    "NoLiveStage",
    "RecycleError",
    "SolverFailed",
    "TrainingFailed",
    "UnknownPlan",
]


class RecycleError(Exception):
    """Base of all errors of this library; ``details`` names the objects it is about."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        # The keyword arguments are not in ``args``, so the default would lose them.
        return (_rebuild, (type(self).__name__, self.message, self.details))

    def to_json(self) -> dict[str, Any]:
        """The error as plain JSON: its type, message and details."""
        return {"type": type(self).__name__, "message": self.message, "details": self.details}

    @staticmethod
    def from_json(data: dict[str, Any]) -> RecycleError:
        """The error that `to_json` wrote."""
        return _rebuild(data["type"], data["message"], data["details"])


class InvalidArgument(RecycleError):
    """A value is outside its domain."""


class InvalidWorker(InvalidArgument):
    """The job has no such worker."""


class DuplicateFailure(InvalidArgument):
    """The same worker is listed as failed twice."""


class NoLiveStage(RecycleError):
    """No live worker holds the parameters of a stage: only a checkpoint can help."""


class InfeasibleMemory(RecycleError):
    """A stage cannot hold even one micro-batch in its memory."""


class UnknownPlan(RecycleError):
    """The plan set holds no plan under the requested key."""


class Conflict(RecycleError):
    """The event does not fit the state or the epoch it was made for."""


class SolverFailed(RecycleError):
    """An exact solver ended in a way that contradicts what is known of the instance."""


class TrainingFailed(RecycleError):
    """A real training run could not go on."""


_TYPES: dict[str, type[RecycleError]] = {
    cls.__name__: cls
    for cls in (
        RecycleError,
        InvalidArgument,
        InvalidWorker,
        DuplicateFailure,
        NoLiveStage,
        InfeasibleMemory,
        UnknownPlan,
        Conflict,
        SolverFailed,
        TrainingFailed,
    )
}


def _rebuild(name: str, message: str, details: dict[str, Any]) -> RecycleError:
    return _TYPES[name](message, **details)
