"""Where the control state lives: a Protocol, and two real stores for use without a database.

A controller holds nothing that it cannot read back from its store, so that any controller can go
on where a killed one stopped.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from workflows.recycle.errors import Conflict
from workflows.recycle.state import Event, JobState, Outcome
from workflows.recycle.transitions import SwitchPolicy, apply_event

__all__ = ["ControlStore", "FileControlStore", "MemoryControlStore"]


class ControlStore(Protocol):
    """The durable control state of one job."""

    def load(self) -> JobState:
        """The present state."""
        ...

    def apply(self, event: Event) -> Outcome:
        """Apply the event and record its outcome, as one atomic step.

        The same event key gives the same outcome and changes nothing. Raises `Conflict`.
        """
        ...

    def outcomes(self) -> list[Outcome]:
        """All recorded outcomes, oldest first."""
        ...


class MemoryControlStore:
    """A store in this process, for threads."""

    def __init__(self, state: JobState, policy: SwitchPolicy) -> None:
        self._state, self._policy = state, policy
        self._outcomes: dict[str, Outcome] = {}
        self._lock = threading.Lock()

    def load(self) -> JobState:
        """The present state."""
        with self._lock:
            return self._state

    def apply(self, event: Event) -> Outcome:
        """Apply the event and record its outcome."""
        with self._lock:
            recorded = self._outcomes.get(event.event_key)
            after = apply_event(self._state, event, self._policy, recorded=recorded)
            self._state = after.state
            self._outcomes[event.event_key] = after.outcome
            return after.outcome

    def outcomes(self) -> list[Outcome]:
        """All recorded outcomes, oldest first."""
        with self._lock:
            return list(self._outcomes.values())


class FileControlStore:
    """A store in one JSON file, for processes of one machine.

    A lock file serialises the writers; the data file is replaced as a whole after it has reached
    the disk, so that a kill at any point leaves the old or the new state.
    """

    def __init__(self, path: Path, policy: SwitchPolicy) -> None:
        self._path, self._policy = path, policy

    @classmethod
    def create(cls, path: Path, state: JobState, policy: SwitchPolicy) -> FileControlStore:
        """A new store at ``path``; `Conflict` if there is one."""
        store = cls(path, policy)
        with store._locked():
            if path.exists():
                raise Conflict(f"{path.name} exists already: open it instead", path=str(path))
            store._write(state, [])
        return store

    def load(self) -> JobState:
        """The present state."""
        return JobState.from_json(self._read()["state"])

    def apply(self, event: Event) -> Outcome:
        """Apply the event and record its outcome."""
        with self._locked():
            data = self._read()
            outcomes = [Outcome.from_json(row) for row in data["outcomes"]]
            recorded = next((o for o in outcomes if o.event.event_key == event.event_key), None)
            state = JobState.from_json(data["state"])
            after = apply_event(state, event, self._policy, recorded=recorded)
            if recorded is None:
                self._write(after.state, [*outcomes, after.outcome])
            return after.outcome

    def outcomes(self) -> list[Outcome]:
        """All recorded outcomes, oldest first."""
        return [Outcome.from_json(row) for row in self._read()["outcomes"]]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._path.with_suffix(".lock")
        with lock.open("w", encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        return data

    def _write(self, state: JobState, outcomes: list[Outcome]) -> None:
        draft = self._path.with_suffix(".draft")
        data = {"state": state.to_json(), "outcomes": [o.to_json() for o in outcomes]}
        with draft.open("w", encoding="utf-8") as handle:
            json.dump(data, handle)
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(self._path)
