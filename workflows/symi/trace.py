"""Popularity traces: how many tokens the router sent to each expert, per iteration and layer.

Rows are ``(run, iter, layer, expert, tokens)``, as a table or a CSV file has them; a `Trace` is the
same as one array ``tokens[iteration, layer, expert]``. A trace is whole: every iteration from the
first to the last has every layer, and every layer every expert, so that nothing later has to guess
what a gap meant.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import arguments
from .errors import Conflict

__all__ = ["COLUMNS", "Trace", "ingest", "read_csv"]

COLUMNS = ("run", "iter", "layer", "expert", "tokens")

_Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A whole popularity trace of one run."""

    run: str
    first_iteration: int
    tokens: NDArray[np.int64]
    """``[T, L, E]``, tokens routed before drops."""

    def __post_init__(self) -> None:
        if self.tokens.ndim != 3 or not self.tokens.size:
            raise arguments.refused(
                "tokens", self.tokens.shape, "shape [T, L, E], none of them 0", "reshape the array"
            )
        if self.tokens.min() < 0:
            raise arguments.refused(
                "tokens", int(self.tokens.min()), "counts of at least 0", "count tokens"
            )

    @property
    def iterations(self) -> int:
        """T."""
        return int(self.tokens.shape[0])

    @property
    def layers(self) -> int:
        """L."""
        return int(self.tokens.shape[1])

    @property
    def experts(self) -> int:
        """E."""
        return int(self.tokens.shape[2])

    def popularity(self, iteration: int, layer: int) -> list[int]:
        """Tokens per expert, by the iteration's own number."""
        index = iteration - self.first_iteration
        if not (0 <= index < self.iterations and 0 <= layer < self.layers):
            last = self.first_iteration + self.iterations - 1
            raise arguments.refused(
                "iteration, layer",
                (iteration, layer),
                f"{self.first_iteration}..{last} and 0..{self.layers - 1}",
                "the trace has no such row",
            )
        return [int(count) for count in self.tokens[index, layer]]

    def rows(self) -> Iterator[tuple[str, int, int, int, int]]:
        """The trace as rows, in order of iteration, layer, expert."""
        for (index, layer, expert), count in np.ndenumerate(self.tokens):
            yield self.run, self.first_iteration + index, layer, expert, int(count)


def read_csv(lines: Iterable[str]) -> Trace:
    """A trace from CSV lines with the header ``run,iter,layer,expert,tokens``.

    Raises:
        InvalidArgument: another header, a field that is no number, or what `ingest` refuses.
        Conflict: as `ingest`.
    """
    reader = csv.reader(lines)
    header = tuple(next(reader, ()))
    if header != COLUMNS:
        raise arguments.refused("header", header, ",".join(COLUMNS), "name the columns so")
    return ingest(_parsed(number, row) for number, row in enumerate(reader, start=2) if row)


def ingest(rows: Iterable[Sequence[Any]]) -> Trace:
    """Check rows ``(run, iter, layer, expert, tokens)``, in any order, and make a trace of them.

    A repeated row is accepted when it says the same.

    Raises:
        InvalidArgument: no row, several runs, a field of the wrong type or below 0, or a gap.
        Conflict: two rows give different tokens for the same iteration, layer and expert.
    """
    cells: dict[_Key, int] = {}
    run: Any = None
    for number, row in enumerate(rows):
        name, key, tokens = _checked(number, row)
        if number == 0:
            run = name
        elif name != run:
            raise arguments.refused(
                f"rows[{number}].run", name, f"{run!r} as in the first row", "ingest one run a time"
            )
        if cells.setdefault(key, tokens) != tokens:
            raise _conflict(run, key, cells[key], tokens)
    if not cells:
        raise arguments.refused("rows", [], "at least one row", "give rows of " + ",".join(COLUMNS))
    return Trace(run=run, first_iteration=min(cells)[0], tokens=_whole_array(cells))


def _checked(number: int, row: Sequence[Any]) -> tuple[str, _Key, int]:
    if isinstance(row, str) or len(row) != len(COLUMNS):
        raise arguments.refused(f"rows[{number}]", row, ",".join(COLUMNS), "give five fields")
    run, *numbers = row
    if not isinstance(run, str) or not run:
        raise arguments.refused(f"rows[{number}].run", run, "a name", "name the run")
    for column, value in zip(COLUMNS[1:], numbers, strict=True):
        if type(value) is not int or value < 0:
            raise arguments.refused(
                f"rows[{number}].{column}", value, "a whole number of at least 0", "correct the row"
            )
    iteration, layer, expert, tokens = numbers
    return run, (iteration, layer, expert), tokens


def _whole_array(cells: dict[_Key, int]) -> NDArray[np.int64]:
    keys = np.array(list(cells), dtype=np.int64)
    first = keys[:, 0].min()
    shape = tuple(int(size) for size in keys.max(axis=0) + 1 - [first, 0, 0])
    # Counted before the array is made: one stray large number must not allocate gigabytes.
    if len(cells) != shape[0] * shape[1] * shape[2]:
        raise _gap(cells, int(first), shape)
    tokens = np.zeros(shape, dtype=np.int64)
    tokens[keys[:, 0] - first, keys[:, 1], keys[:, 2]] = list(cells.values())
    return tokens


def _gap(cells: dict[_Key, int], first: int, shape: tuple[int, ...]) -> Exception:
    missing = next(
        (iteration, layer, expert)
        for iteration in range(first, first + shape[0])
        for layer in range(shape[1])
        for expert in range(shape[2])
        if (iteration, layer, expert) not in cells
    )
    return arguments.refused(
        "rows",
        f"{len(cells)} cells",
        f"{shape[0]} iterations of {shape[1]} layers of {shape[2]} experts",
        f"iteration {missing[0]}, layer {missing[1]}, expert {missing[2]} is missing; "
        "write 0 for an expert without tokens",
    )


def _conflict(run: str, key: _Key, stored: int, given: int) -> Conflict:
    iteration, layer, expert = key
    return Conflict(
        f"run {run!r}, iteration {iteration}, layer {layer}, expert {expert} has {stored} tokens "
        f"and again {given}: remove one of the rows, or ingest it as another run",
        run=run,
        iteration=iteration,
        layer=layer,
        expert=expert,
        stored=stored,
        given=given,
    )


def _parsed(number: int, row: Sequence[str]) -> tuple[Any, ...]:
    try:
        return (row[0], *(int(field) for field in row[1:]))
    except ValueError as error:
        raise arguments.refused(
            f"line {number}", row, "whole numbers after the run's name", "correct the line"
        ) from error
