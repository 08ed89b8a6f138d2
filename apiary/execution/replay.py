"""Replaying a workflow: its recorded operations, matched with the calls that its code makes now.

A workflow's code is run again from its beginning whenever its run goes on: after a crash, after a
wait, in another process. Every call takes the next number; a number that has a record gives the
recorded outcome instead of running anything. A call that is not the recorded one means that the
code is not deterministic, or not the code that made the record.

Standard library only: this also runs inside the database process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from ..authoring.failures import rebuild_exception
from ..errors import NonDeterminismError

__all__ = ["OperationRecord", "Replay"]


@dataclass(frozen=True)
class OperationRecord:
    """One recorded operation of a run."""

    seq: int
    kind: str
    name: str
    input_digest: str | None
    output: Any  # JSON document
    error: dict[str, Any] | None  # the recorded exception; then there is no output

    def describe(self) -> str:
        """How messages show an operation."""
        return describe_operation(self.seq, self.kind, self.name, self.input_digest)


def describe_operation(seq: int, kind: str, name: str, input_digest: str | None) -> str:
    """``operation 4 = function shop.checkout, input 3f2a...``."""
    shown = f", input {input_digest[:8]}..." if input_digest else ""
    return f"operation {seq} = {kind} {name}{shown}"


class Replay:
    """The operations of one run: recorded ones, and the number of the next.

    ``seed`` is the run's id, or that of the run that it was forked from.
    """

    def __init__(
        self,
        seed: str,
        run_id: str,
        deployment: str,
        records: Iterable[OperationRecord],
        find_class: Callable[[str, str], type | None],
    ) -> None:
        self.run_id = run_id
        self.deployment = deployment
        self.last_seq = 0  # of the latest call, in program order
        self._records = {record.seq: record for record in records if record.seq > 0}
        self._find_class = find_class
        self._seed = seed
        self.broken: NonDeterminismError | None = None

    @cached_property
    def _random(self) -> random.Random:
        return random.Random(self._seed)  # made when it is asked for: few workflows do

    def next_seq(self) -> int:
        """The number of the next call."""
        self.last_seq += 1
        return self.last_seq

    def match(self, seq: int, kind: str, name: str, digest: str | None) -> OperationRecord | None:
        """The record of a call, None when it is new; NonDeterminismError for another's."""
        if self.broken is not None:  # code that swallowed it must not go on
            raise self.broken.with_traceback(None)  # each time would add to it
        record = self._records.get(seq)
        if record is None:
            return None
        same = record.kind == kind and record.name == name
        if same and (
            record.input_digest is None or digest is None or record.input_digest == digest
        ):
            return record
        raise self._mismatch(record.describe(), describe_operation(seq, kind, name, digest))

    def check_complete(self) -> None:
        """After the code has ended: NonDeterminismError when the record goes on."""
        if self.broken is not None:
            raise self.broken
        beyond = [seq for seq in self._records if seq > self.last_seq]
        if beyond:
            raise self._mismatch(self._records[min(beyond)].describe(), "the end of the workflow")

    def value(self, record: OperationRecord, decode: Callable[[Any], Any]) -> Any:
        """A recorded outcome: its value, or its error raised."""
        if record.error is not None:
            raise rebuild_exception(record.error, self._find_class)
        return decode(record.output)

    def random(self) -> float:
        """A random number in [0, 1) that is the same in every replay."""
        return self._random.random()

    def uuid4(self) -> UUID:
        """A random UUID that is the same in every replay."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def _mismatch(self, recorded: str, now: str) -> NonDeterminismError:
        self.broken = NonDeterminismError(
            f"run {self.run_id} does not replay: recorded was {recorded}; now the code does {now}",
            hint=(
                f"the run keeps deployment {self.deployment}: let its workflow code make the same "
                "calls in the same order; to go on from here with other code use "
                f"`apiary workflow fork {self.run_id} --from-seq N`"
            ),
            run_id=self.run_id,
            recorded=recorded,
            now=now,
        )
        return self.broken
