"""The handle through which a function reaches its database.

A function body sees only these few operations, so that it runs unchanged inside PostgreSQL (the
in-backend runtime), against an ordinary connection (unit tests), and later on another engine.
Statements use ``$1, $2, ...``; parameters are bound by the server with the types it infers.

    execute       run a statement, return the number of rows it affected
    execute_many  the same INSERT for many rows, as one statement over arrays
    query         all rows            first   the first row or None
    one           exactly one row     value   the first column of the first row, or None
                                      values  the first column of every row
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import BadArgument, NotFound

__all__ = ["Database", "Row"]


class Row(dict[str, Any]):
    """One result row: columns by name, as items (``row["price"]``) or as ``row.price``."""

    __slots__ = ()

    def __getattr__(self, column: str) -> Any:
        try:
            return self[column]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"no column {column!r} in this row; it has {known}") from None


class Database(ABC):
    """The transaction that a function runs in. All of it commits, or none of it."""

    @abstractmethod
    def execute(self, sql: str, *parameters: Any) -> int:
        """Run one statement; return how many rows it inserted, updated, deleted or selected."""

    @abstractmethod
    def query(self, sql: str, *parameters: Any) -> list[Row]:
        """Run one statement; return all its rows."""

    @abstractmethod
    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Insert many rows by one statement; return how many were inserted.

        ``sql`` is ``INSERT INTO table (columns) VALUES ($1, $2, ...)``, optionally followed by
        ON CONFLICT. One set-based statement takes one subtransaction, where a loop takes one per
        row (and more than 64 of them in a transaction slow every session down).
        """

    def first(self, sql: str, *parameters: Any) -> Row | None:
        """The first row, or None when there is none."""
        rows = self.query(sql, *parameters)
        return rows[0] if rows else None

    def one(self, sql: str, *parameters: Any) -> Row:
        """The only row; NotFound when there is none, BadArgument when there are several."""
        rows = self.query(sql, *parameters)
        if not rows:
            raise NotFound("expected one row, found none", statement=sql)
        if len(rows) > 1:
            raise BadArgument(f"expected one row, found {len(rows)}", statement=sql)
        return rows[0]

    def value(self, sql: str, *parameters: Any) -> Any:
        """The first column of the first row, or None when there is no row."""
        row = self.first(sql, *parameters)
        return None if row is None else next(iter(row.values()))

    def values(self, sql: str, *parameters: Any) -> list[Any]:
        """The first column of every row."""
        rows = self.query(sql, *parameters)
        if not rows:
            return []
        column = next(iter(rows[0]))
        return [row[column] for row in rows]


_INSERT_VALUES = re.compile(
    r"^\s*(INSERT\s+INTO\s+.+?)\s+VALUES\s*\(\s*(\$\d+(?:\s*,\s*\$\d+)*)\s*\)\s*(.*?);?\s*$",
    re.IGNORECASE | re.DOTALL,
)


def insert_over_arrays(sql: str, parameter_types: Sequence[str]) -> str:
    """Rewrite ``INSERT ... VALUES ($1, ..., $n)`` to insert from one array per parameter."""
    match = _INSERT_VALUES.match(sql)
    placeholders = [f"${number + 1}" for number in range(len(parameter_types))]
    if match is None or re.split(r"\s*,\s*", match[2]) != placeholders:
        raise BadArgument(
            "execute_many takes INSERT INTO ... VALUES ($1, $2, ...) with each parameter once, "
            f"in order; got: {sql.strip()}",
            hint="write anything else as one statement over arrays (unnest($1::bigint[]), ...)",
        )
    arrays = [
        f"{placeholder}::{type_name}[]"
        for placeholder, type_name in zip(placeholders, parameter_types, strict=True)
    ]
    return f"{match[1]} SELECT * FROM unnest({', '.join(arrays)}) {match[3]}"
