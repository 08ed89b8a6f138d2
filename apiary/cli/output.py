"""What commands write: results to standard output, everything else to standard error."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Format",
    "RowFormat",
    "console",
    "note",
    "write_fields",
    "write_json",
    "write_list",
    "write_object",
    "write_rows",
    "write_table",
    "write_text",
]

_UNLIMITED = 100_000  # columns: output that no terminal shows is never wrapped or cut


class Format(StrEnum):
    """For people, or for programs."""

    TABLE = "table"
    JSON = "json"


class RowFormat(StrEnum):
    """The same for rows, which other programs read in other forms too."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def console(*, result: bool = False) -> Console:
    """A console on standard error, or for results on standard output."""
    from rich.console import Console

    stream = sys.stdout if result else sys.stderr
    width = None if stream.isatty() else _UNLIMITED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def note(message: str) -> None:
    """One line for people, on standard error."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def write_text(text: str) -> None:
    """Text to standard output, as it is."""
    sys.stdout.write(text)
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """A JSON document to standard output."""
    write_text(json.dumps(value, indent=2, ensure_ascii=False, default=_other) + "\n")


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table to standard output; cells are shown as `_cell` says."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console(result=True).print(table)


def write_fields(fields: dict[str, object]) -> None:
    """One object to standard output: a line per field that has a value."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            first, *rest = _cell(value).splitlines() or [""]
            write_text(f"{name:<{width}}  {first}\n")
            for line in rest:
                write_text(f"{'':<{width}}  {line}\n")


def write_object(form: Format, document: Any, fields: dict[str, object]) -> None:
    """One object to standard output: its document for programs, its fields for people."""
    if form is Format.JSON:
        write_json(document)
    else:
        write_fields(fields)


def write_list(
    form: Format, document: Any, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Some objects to standard output: their document for programs, a table for people."""
    if form is Format.JSON:
        write_json(document)
    else:
        write_table(columns, rows)


def write_rows(form: RowFormat, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Rows to standard output, as they come where the form allows it; return how many."""
    if form is RowFormat.TABLE:
        kept = list(rows)
        write_table(columns, kept)
        return len(kept)
    if form is RowFormat.JSON:
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        write_json(objects)
        return len(objects)
    count = 0
    if form is RowFormat.CSV:
        write_text(_csv_line(columns))
    for row in rows:
        count += 1
        if form is RowFormat.CSV:
            write_text(_csv_line(row))
        else:
            document = dict(zip(columns, row, strict=True))
            write_text(json.dumps(document, ensure_ascii=False, default=_other) + "\n")
    return count


def _csv_line(row: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(
        "" if value is None else _cell(value) for value in row
    )
    return line.getvalue()


def _cell(value: object) -> str:
    """Text as it is, nothing for NULL, JSON for what has parts, and else what it is written as."""
    if value is None:
        return ""
    if isinstance(value, bool | dict | list | float):
        return json.dumps(value, ensure_ascii=False, default=_other)
    return str(_other(value))


def _other(value: object) -> object:
    """What JSON does not know: exact numbers, times, UUIDs, bytes, as PostgreSQL writes them."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "\\x" + bytes(value).hex()
    if isinstance(value, int | float):
        return value
    return str(value)
