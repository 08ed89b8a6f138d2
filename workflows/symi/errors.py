"""What this library raises, in one tree.

    SymiError
    ├── InvalidArgument     a value is outside what the model is defined for (also a ValueError)
    │   └── InvalidPlacement    experts do not fit the slots, or a placement is malformed
    ├── Conflict            other data is already stored under the same key
    ├── InvariantViolated   two copies that must be equal differ: a defect, never the caller's fault
    └── RunFailed           a rank died; the run can be resumed from its last committed iteration

Every error keeps its facts as attributes (``error.given``) and survives pickling, since it crosses
process borders. Standard library only: it is also raised inside a database.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "Conflict",
    "InvalidArgument",
    "InvalidPlacement",
    "InvariantViolated",
    "RunFailed",
    "SymiError",
]


class SymiError(Exception):
    """Base of the errors of this library; ``details`` holds the facts, also as attributes."""

    code: ClassVar[str] = "SYMI"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        for name, value in details.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the message alone and lose the details.
        return (_rebuild, (type(self), self.message, self.details))


class InvalidArgument(SymiError, ValueError):
    """A value is outside what the model is defined for: ``argument``, ``given``, ``expected``."""

    code = "INVALID_ARGUMENT"
    argument: str
    given: Any
    expected: Any


class InvalidPlacement(InvalidArgument):
    """The experts do not fit the slots, or a placement is malformed."""

    code = "INVALID_PLACEMENT"


class Conflict(SymiError):
    """Other data is already stored under the same key; nothing was changed."""

    code = "CONFLICT"


class InvariantViolated(SymiError):
    """Copies that must be bit-identical are not."""

    code = "INVARIANT_VIOLATED"


class RunFailed(SymiError):
    """A rank died: ``rank``, ``exit_code``, ``committed`` (last committed iteration, 0 if none)."""

    code = "RUN_FAILED"
    rank: int
    exit_code: int
    committed: int


def _rebuild(error_class: type[SymiError], message: str, details: dict[str, Any]) -> SymiError:
    return error_class(message, **details)
