"""What the service refuses: the errors of the model library, declared as outcomes.

The library knows no platform, so its errors are raised again here under the same names and with
the same message and attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from apiary import ApplicationError
from workflows.sailor import errors as model

__all__ = [
    "BadJob",
    "BadLink",
    "BadPlan",
    "BadProfileFile",
    "Conflict",
    "LiveRunError",
    "MissingLink",
    "MissingPrice",
    "MissingProfile",
    "NoFeasiblePlan",
    "NotAvailable",
    "SailorFailure",
    "UnknownName",
    "declared",
]


class SailorFailure(ApplicationError):
    """An outcome that is no plan; what it is about are its attributes."""


class Conflict(SailorFailure):
    """Other data is stored under this name; nothing was changed."""

    code = "CONFLICT"


class BadJob(SailorFailure):
    """A number of the job, the plan or the search is out of its range."""

    code = "BAD_JOB"


class UnknownName(SailorFailure):
    """A name that no table holds: its ``kind`` (model, gpu, zone, planner, job) and ``name``."""

    code = "UNKNOWN_NAME"


class MissingProfile(SailorFailure):
    """No measurement for (model, GPU type, microbatch, tensor degree)."""

    code = "MISSING_PROFILE"


class MissingLink(SailorFailure):
    """No bandwidth is known between two endpoints."""

    code = "MISSING_LINK"


class BadLink(SailorFailure):
    """A bandwidth is zero or negative at the size it is needed for."""

    code = "BAD_LINK"


class MissingPrice(SailorFailure):
    """A GPU type has no price in a zone."""

    code = "MISSING_PRICE"


class BadPlan(SailorFailure):
    """A plan breaks a rule of its own."""

    code = "BAD_PLAN"


class NotAvailable(SailorFailure):
    """A plan uses more GPUs than there are."""

    code = "NOT_AVAILABLE"


class BadProfileFile(SailorFailure):
    """A file to import does not have the published form."""

    code = "BAD_PROFILE_FILE"


class LiveRunError(SailorFailure):
    """A process of a live measurement or run failed."""

    code = "LIVE_RUN_FAILED"


class NoFeasiblePlan(SailorFailure):
    """No plan fits: ``reason`` is memory, budget or throughput; see `model.NoFeasiblePlan`."""

    code = "NO_FEASIBLE_PLAN"


_DECLARED: dict[type[model.SailorError], type[SailorFailure]] = {
    model.BadJob: BadJob,
    model.UnknownName: UnknownName,
    model.MissingProfile: MissingProfile,
    model.MissingLink: MissingLink,
    model.BadLink: BadLink,
    model.MissingPrice: MissingPrice,
    model.BadPlan: BadPlan,
    model.NotAvailable: NotAvailable,
    model.BadProfileFile: BadProfileFile,
    model.LiveRunError: LiveRunError,
    model.NoFeasiblePlan: NoFeasiblePlan,
}


@contextmanager
def declared() -> Iterator[None]:
    """Raise the library's errors in this block as the service's."""
    try:
        yield
    except model.SailorError as error:
        raise _DECLARED[type(error)](str(error), **vars(error)) from error
