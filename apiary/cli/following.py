"""Waiting for a run at a terminal: a bar while it goes on, then its result or its error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from .failures import INTERRUPTED, report
from .output import console, note, write_json

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from ..client import Client
    from ..client.records import Progress, Run, RunEvent

__all__ = ["RETRY_BUDGET_S", "conclude", "follow"]

RETRY_BUDGET_S = 30.0  # a server that is restarted meanwhile is waited for
_FAILED = 1
_TIMED_OUT = 124


def follow(client: Client, run_id: str, timeout_s: float | None = None) -> Run:
    """Wait until a run ends, or is stuck, and show how far it is on standard error.

    DeadlineExceeded after ``timeout_s``. Ctrl-C stops the waiting, not the run.
    """
    from ..errors import DeadlineExceeded

    try:
        with _bar() as bar:
            shown = _Shown(bar, run_id)
            for event in client.watch(run_id, timeout_s):
                shown.take(event)
                if shown.run is not None and shown.run.status == "STUCK":
                    break
    except DeadlineExceeded as error:
        raise DeadlineExceeded(
            f"run {run_id} has not ended within {timeout_s:g} s; it goes on",
            hint=f"apiary workflow why {run_id}",
        ) from error
    except KeyboardInterrupt:
        note(
            f"stopped waiting; the run goes on. To wait again: apiary workflow wait {run_id}; "
            f"to cancel it: apiary workflow cancel {run_id}"
        )
        raise typer.Exit(INTERRUPTED) from None
    assert shown.run is not None  # the first event is the run
    return shown.run


def conclude(run: Run) -> None:
    """Print the result of a run; exit with 1 for one that failed, 124 for one out of time."""
    if run.status == "SUCCEEDED":
        write_json(run.output)
        return
    from ..client.workflow_requests import outcome_of
    from ..errors import ApiaryError

    try:
        outcome_of(run, lambda output: output)
    except ApiaryError as error:
        report(error)
    raise typer.Exit(_TIMED_OUT if run.status == "TIMED_OUT" else _FAILED)


class _Shown:
    """What the bar shows of a run."""

    def __init__(self, bar: Bar, run_id: str) -> None:
        self.run: Run | None = None
        self._bar = bar
        self._operations = 0
        self._task = bar.add_task(run_id, total=None, operations="", message="")

    def take(self, event: RunEvent) -> None:
        """Show one change."""
        if event.run is not None:
            self.run = event.run
            self._bar.update(self._task, description=f"{event.run.name} {event.run.status}")
        elif event.operation is not None:
            self._operations += 1
            counted = f"{self._operations} operation{'' if self._operations == 1 else 's'}"
            self._bar.update(self._task, operations=counted)
        elif event.progress is not None:
            self._progress(event.progress)

    def _progress(self, progress: Progress) -> None:
        self._bar.update(
            self._task, completed=progress.done, total=progress.total, message=progress.message
        )


@contextmanager
def _bar() -> Iterator[Bar]:
    """A live bar on standard error; nothing when that is no terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown_on = console()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[operations]}"),
        TextColumn("{task.fields[message]}"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=shown_on, transient=True, disable=not shown_on.is_terminal
    ) as bar:
        yield bar
