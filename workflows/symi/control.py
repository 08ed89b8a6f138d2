"""The control state of a training run: what must survive the processes that train.

Training calls three things, collected in `Control`: where to go on, the commit of an iteration, and
the state of each rank. The commit stores an iteration's popularity and answers with the placements
of the next one; the same data again gives the same answer, other data is a `Conflict`. Whoever
implements it with a database gets exactly that from one transaction and a key.

`MemoryControl` and `FileControl` are complete implementations for a notebook: one forgets, the
other keeps a journal from which a new process goes on. Standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from . import arguments
from .errors import Conflict
from .placement import contiguous
from .policies import Policy, PolicyState, advance, initial_state

__all__ = [
    "Committed",
    "Control",
    "FileControl",
    "IterationRecord",
    "MemoryControl",
    "Placements",
    "next_states",
    "placements_of",
]

Placements = list[list[int]]
"""Expert of each global slot, per layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationRecord:
    """What an iteration did; ``popularity`` decides the next placement, the rest is observed."""

    iteration: int
    """From 1."""
    popularity: list[list[int]]
    """Tokens routed to each expert before drops, per layer."""
    loss: float
    """What is minimised: cross-entropy and load balance."""
    cross_entropy: float
    """Per token, over all ranks."""
    dropped: list[int]
    """Tokens over capacity, per layer."""
    gradient_bytes: int
    """Gradient shards sent between ranks, all layers; without the all-reduce among replicas."""
    weight_bytes: int
    """Weight shards sent between ranks to fill this iteration's slots, all layers."""
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The last committed iteration, 0 before the first, and the placements of the next one."""

    iteration: int
    placements: Placements


class Control(Protocol):
    """The control state of one run."""

    def begin(self) -> Committed:
        """Where to go on."""
        ...

    def step(self, record: IterationRecord) -> Placements:
        """Commit an iteration and return the placements of the next.

        Raises:
            Conflict: the iteration is committed with other popularity.
            InvalidArgument: it is neither committed nor the next one.
        """
        ...

    def rank_state(self, rank: int, pid: int, state: str) -> None:
        """Note that a rank's process is RUNNING, SUCCEEDED or FAILED."""
        ...


class MemoryControl:
    """Control state in this process."""

    def __init__(self, policy: Policy, *, layers: int, experts: int, slots: int) -> None:
        """Start before the first iteration, every layer uniform.

        Raises:
            InvalidPlacement: fewer slots than experts.
            InvalidArgument: the policy does not fit, see `initial_state`.
        """
        arguments.positive_int("layers", layers)
        self.policy = policy
        self.records: list[IterationRecord] = []
        self.ranks: dict[int, tuple[int, str]] = {}
        first = [initial_state(policy, experts=experts, slots=slots) for _ in range(layers)]
        self._states = [first]

    def begin(self) -> Committed:
        """Where to go on."""
        done = len(self.records)
        return Committed(iteration=done, placements=placements_of(self._states[done]))

    def step(self, record: IterationRecord) -> Placements:
        """Commit an iteration; see `Control.step`."""
        done = len(self.records)
        if 1 <= record.iteration <= done:
            _same(self.records[record.iteration - 1], record)
        elif record.iteration == done + 1:
            states = next_states(self.policy, self._states[done], record)
            self._store(record)
            self.records.append(record)
            self._states.append(states)
        else:
            raise arguments.refused(
                "iteration", record.iteration, f"at most {done + 1}", "commit iterations in order"
            )
        return placements_of(self._states[record.iteration])

    def rank_state(self, rank: int, pid: int, state: str) -> None:
        """Remember the rank's process and state."""
        self.ranks[rank] = (pid, state)

    def _store(self, record: IterationRecord) -> None:
        """Make the record durable; memory has nothing to do."""


class FileControl(MemoryControl):
    """Control state in a journal, one JSON line per committed iteration."""

    def __init__(
        self, path: Path, policy: Policy, *, layers: int, experts: int, slots: int
    ) -> None:
        """Read the journal, if there is one, and go on from its last whole line."""
        super().__init__(policy, layers=layers, experts=experts, slots=slots)
        self._path = path
        self._size = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            # A line without its end was being written when the process died: not committed.
            if not line.endswith(b"\n"):
                break
            record = IterationRecord(**json.loads(line))
            self._states.append(next_states(policy, self._states[-1], record))
            self.records.append(record)
            self._size += len(line)

    def _store(self, record: IterationRecord) -> None:
        line = json.dumps(asdict(record)).encode("ascii") + b"\n"
        with self._path.open("r+b" if self._path.exists() else "w+b") as journal:
            journal.truncate(self._size)
            journal.seek(self._size)
            journal.write(line)
            journal.flush()
            os.fsync(journal.fileno())
        self._size += len(line)


def next_states(
    policy: Policy, states: Sequence[PolicyState], record: IterationRecord
) -> list[PolicyState]:
    """Every layer's policy state after an iteration; what a durable `Control` stores."""
    if len(record.popularity) != len(states):
        raise arguments.refused(
            "popularity",
            f"{len(record.popularity)} layers",
            f"{len(states)} layers",
            "give one list of counts per layer",
        )
    return [
        advance(policy, state, completed=record.iteration, popularity=tokens)
        for state, tokens in zip(states, record.popularity, strict=True)
    ]


def placements_of(states: Sequence[PolicyState]) -> Placements:
    """The contiguous placement of every layer."""
    return [contiguous(state.counts) for state in states]


def _same(stored: IterationRecord, given: IterationRecord) -> None:
    # Latency differs between two runs of the same iteration; only what decides must be equal.
    if stored.popularity != given.popularity:
        raise Conflict(
            f"iteration {stored.iteration} is committed with other popularity: it was computed "
            "from other data or another state; start another run, or resume from its checkpoint",
            iteration=stored.iteration,
            stored=stored.popularity,
            given=given.popularity,
        )
