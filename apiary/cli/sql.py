"""`apiary sql`: ask the log and the applications' tables."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .connection import open_client
from .options import Server, Timeout, TlsCa, Token
from .output import RowFormat, note, write_rows

__all__ = ["register"]

Statement = Annotated[
    str, typer.Argument(metavar="STATEMENT", help="One statement; - reads it from standard input.")
]
Output = Annotated[
    RowFormat,
    typer.Option(
        "--output",
        "-o",
        metavar="table|json|jsonl|csv",
        help="jsonl and csv are written as rows come.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sql)


def sql(
    statement: Statement,
    output: Output = RowFormat.TABLE,
    timeout: Timeout = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Run one read-only SQL statement over the log and the applications' tables.

    It runs in a read-only transaction, as a role that can only read, for 30 seconds at most unless
    --timeout says otherwise.

    Example: apiary sql "SELECT function, status, count(*) FROM provenance.invocation GROUP BY 1, 2"
    """
    text = sys.stdin.read() if statement == "-" else statement
    with open_client(server, token, tls_ca) as client:
        result = client.query(text, timeout)
        count = write_rows(output, [column.name for column in result.columns], result)
    note(f"{count} row{'' if count == 1 else 's'}")
