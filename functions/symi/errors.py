"""What the service refuses: the model's errors, declared as outcomes.

The model library knows no platform, so its errors are raised again here under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from apiary import ApplicationError
from workflows.symi import errors as model

__all__ = [
    "Conflict",
    "InvalidArgument",
    "InvalidPlacement",
    "InvariantViolated",
    "RunFailed",
    "UnknownRun",
    "declared",
    "refused",
]


class InvalidArgument(ApplicationError):
    """A value is outside what the model is defined for: ``argument``, ``given``, ``expected``."""

    code = "INVALID_ARGUMENT"


class InvalidPlacement(InvalidArgument):
    """The experts do not fit the slots, or a placement is malformed."""

    code = "INVALID_PLACEMENT"


class Conflict(ApplicationError):
    """Other data is already stored under the same key; nothing was changed."""

    code = "CONFLICT"


class UnknownRun(ApplicationError):
    """Nothing is stored under this name."""

    code = "UNKNOWN_RUN"


class InvariantViolated(ApplicationError):
    """What must be equal is not: a defect of whoever computed it."""

    code = "INVARIANT_VIOLATED"


class RunFailed(ApplicationError):
    """A rank died; ``committed`` is the iteration after which the same call goes on."""

    code = "RUN_FAILED"


# The most special first.
_DECLARED: tuple[tuple[type[model.SymiError], type[ApplicationError]], ...] = (
    (model.InvalidPlacement, InvalidPlacement),
    (model.InvalidArgument, InvalidArgument),
    (model.Conflict, Conflict),
    (model.InvariantViolated, InvariantViolated),
    (model.RunFailed, RunFailed),
)


@contextmanager
def declared() -> Iterator[None]:
    """Raise the model's errors in this block as the service's."""
    try:
        yield
    except model.SymiError as error:
        kind = next(ours for theirs, ours in _DECLARED if isinstance(error, theirs))
        raise kind(error.message, **error.details) from error


def refused(argument: str, given: Any, expected: str, hint: str) -> InvalidArgument:
    """The error for one argument, in the model's template; the caller raises it."""
    return InvalidArgument(
        f"{argument} is {given!r}; expected {expected}: {hint}",
        argument=argument,
        given=given,
        expected=expected,
    )
