"""`apiary doctor`: what is wrong with a set-up, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator
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
    Path, typer.Option("--path", help="The application's folder.", metavar="PATH", file_okay=False)
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    path: Folder = Path(),
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
    from .checks import State  # noqa: PLC0415

    found = list(_checks(path, database_url, server, token, tls_ca))
    if output is Format.JSON:
        write_json(
            [
                {"check": c.name, "state": c.state, "found": c.found, "mend": c.mend}
                for c in found
            ]
        )
    else:
        _show(found)
    if any(check.state is State.FAILED for check in found):
        raise typer.Exit(1)


def _checks(
    path: Path, database_url: str | None, server: str | None, token: str | None, tls_ca: str | None
) -> Iterator[Check]:
    from .checks import database_checks, local_checks  # noqa: PLC0415
    from .servercheck import server_checks  # noqa: PLC0415

    yield from local_checks(path)
    yield from database_checks(settings.database_url(database_url))
    yield from server_checks(
        settings.address(server), settings.token(token), settings.tls_ca(tls_ca)
    )


def _show(found: list[Check]) -> None:
    """One line per check; under what failed, what to do."""
    from rich.text import Text  # noqa: PLC0415

    styles = {"ok": "green", "failed": "bold red", "skipped": "yellow"}
    out = console(result=True)
    width = max(len(check.name) for check in found)
    for check in found:
        mark = Text(f"{check.state.upper():<8}", style=styles[check.state])
        out.print(Text.assemble(mark, f"{check.name:<{width}}  {check.found}"), soft_wrap=True)
        if check.mend and check.state != "ok":
            out.print(Text(f"{'':<8}{'':<{width}}  -> {check.mend}"), soft_wrap=True)
