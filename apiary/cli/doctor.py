"""`apiary doctor`: what is wrong with a set-up, and how to mend it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import settings
from .options import DatabaseUrl, Output, Server, TlsCa, Token
from .output import Format, console, write_json

if TYPE_CHECKING:
    from .checks import Check

__all__ = ["register"]

Folder = Annotated[
    Path | None,
    typer.Option(
        "--path",
        metavar="PATH",
        file_okay=False,
        help="The application's folder; default: this one, if it is one.",
    ),
]


class Part(StrEnum):
    """What can be checked by itself."""

    LOCAL = "local"
    DATABASE = "database"
    SERVER = "server"


Only = Annotated[
    list[Part] | None,
    typer.Option(
        "--only",
        metavar="local|database|server",
        help="Check this part; may be repeated.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    only: Only = None,
    path: Folder = None,
    database_url: DatabaseUrl = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Check this set-up, and say how to mend what is wrong.

    Looks at Python, PostgreSQL's programs, the database with its roles and privileges, the server,
    and the application in this folder. Exit code 1 when something is wrong.

    Example: apiary doctor --database-url postgresql://deployer@db/app --output json
    """
    from .checks import State, database_checks, local_checks
    from .servercheck import server_checks

    found: list[Check] = []
    for part in only or list(Part):
        if part is Part.LOCAL:
            found += local_checks(path)
        elif part is Part.DATABASE:
            found += database_checks(settings.database_url(database_url))
        else:
            where, secret = settings.address(server), settings.token(token)
            found += server_checks(where, secret, settings.tls_ca(tls_ca))
    if output is Format.JSON:
        write_json(
            [{"check": c.name, "state": c.state, "found": c.found, "mend": c.mend} for c in found]
        )
    else:
        _show(found)
    if any(check.state is State.FAILED for check in found):
        raise typer.Exit(1)


def _show(found: list[Check]) -> None:
    """One line per check; under what failed, what to do."""
    from rich.text import Text

    styles = {"ok": "green", "failed": "bold red", "skipped": "yellow"}
    out = console(result=True)
    width = max(len(check.name) for check in found)
    for check in found:
        mark = Text(f"{check.state.upper():<8}", style=styles[check.state])
        out.print(Text.assemble(mark, f"{check.name:<{width}}  {check.found}"), soft_wrap=True)
        if check.mend and check.state != "ok":
            out.print(Text(f"{'':<8}{'':<{width}}  -> {check.mend}"), soft_wrap=True)
