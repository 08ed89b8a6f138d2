"""Every error of the Sailor model, in one tree.

    SailorError
    ├── BadJob           a number of the job or of the plan is out of its range
    ├── UnknownName      a model, GPU type or zone that no table holds (`kind`, `name`)
    ├── MissingProfile   no measurement for this (model, GPU type, microbatch, tensor degree)
    ├── MissingLink      no bandwidth between two endpoints
    ├── BadLink          a fitted bandwidth that is zero or negative where it is used
    ├── MissingPrice     no price of a GPU type in a zone at that time
    ├── BadPlan          a plan that breaks a rule of its own (layers, degrees, regions)
    ├── NotAvailable     a plan that needs more GPUs than there are
    ├── BadProfileFile   an imported file does not have the published form
    ├── LiveRunError     a worker process of a live measurement failed
    └── NoFeasiblePlan   nothing fits; carries the nearest plan or the missing memory

This module imports only the standard library. Every error survives pickling.
"""

from __future__ import annotations

from typing import Any, Literal

Reason = Literal["memory", "budget", "throughput"]


class SailorError(Exception):
    """Base of the errors of the Sailor model. The message names the culprit."""


class BadJob(SailorError):
    """A number of the job, the plan or a search is out of its range."""


class UnknownName(SailorError):
    """A model, GPU type, zone or planner that is in no table."""

    def __init__(self, message: str, *, kind: str = "", name: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name


class MissingProfile(SailorError):
    """No measurement for (model, GPU type, microbatch, degree): the point is infeasible."""


class MissingLink(SailorError):
    """No bandwidth is known between two endpoints."""


class BadLink(SailorError):
    """A bandwidth polynomial is zero or negative at the size it is asked for."""


class MissingPrice(SailorError):
    """No price of a GPU type in a zone at a time."""


class BadPlan(SailorError):
    """A plan that breaks a rule of its own: layers, empty stage, tensor degree, regions."""


class NotAvailable(SailorError):
    """A plan that uses more GPUs than there are."""


class BadProfileFile(SailorError):
    """A file to import does not have the published form."""


class LiveRunError(SailorError):
    """A worker process of a live measurement failed; the message ends with its own traceback."""


class NoFeasiblePlan(SailorError):
    """No plan fits.

    ``reason`` is "memory" (no plan fits the cards: ``best_stage``, ``needed_bytes`` and
    ``available_bytes`` describe the nearest miss), "budget" or "throughput" (``best`` is the plan
    that comes nearest to the limit, as its JSON form).
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Reason = "memory",
        best: dict[str, Any] | None = None,
        best_stage: int | None = None,
        needed_bytes: float | None = None,
        available_bytes: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.best = best
        self.best_stage = best_stage
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
