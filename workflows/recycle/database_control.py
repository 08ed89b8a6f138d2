"""A training job's control state in the database: each event is one transaction there.

For the bodies of steps. An event that a killed controller has reported is answered again as it
was, so the next one goes on from where the database says the job is.
"""

from __future__ import annotations

from collections.abc import Callable

from functions import recycle
from workflows.recycle.state import Event, JobState, Outcome

__all__ = ["DatabaseControlStore"]


class DatabaseControlStore:
    """The `ControlStore` of a job in the database."""

    def __init__(self, job_id: str, on_commit: Callable[[int], None]) -> None:
        """``on_commit`` is told how many iterations are committed."""
        self.job_id, self.on_commit = job_id, on_commit

    def load(self) -> JobState:
        """The present state."""
        return recycle.job_state(self.job_id)

    def apply(self, event: Event) -> Outcome:
        """Apply the event and record its outcome."""
        answer = recycle.on_event(
            self.job_id,
            event.event_key,
            event.kind,
            worker=event.worker,
            epoch=event.epoch,
            iteration=event.iteration,
            attempt=event.attempt,
            loss=event.loss,
        )
        if event.kind == "commit" and event.iteration is not None:
            self.on_commit(event.iteration + 1)
        return answer.outcome

    def outcomes(self) -> list[Outcome]:
        """All recorded outcomes, oldest first."""
        return recycle.job_outcomes(self.job_id)
