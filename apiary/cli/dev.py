"""`apiary dev`: a private database and a server for one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="APIARY_DATABASE_URL",
        metavar="URL",
        help="Use this database instead of a private one; a superuser's URL the first time.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="PORT",
        min=0,
        max=65535,
        help="The server's port on 127.0.0.1; 0 for any free one. Default: 7432, or any free one.",
    ),
]
Deploy = Annotated[bool, typer.Option("--deploy", help="Deploy this folder at the start.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(dev)


def dev(database_url: DatabaseUrl = None, port: Port = None, deploy: Deploy = False) -> None:
    """Run a private PostgreSQL and a server for this folder, until Ctrl-C.

    Everything is kept in .apiary/ and is there again at the next start. The other commands find
    the server by themselves when they are run in this folder.

    PostgreSQL's programs are looked for in the usual places, or in APIARY_PG_BIN.

    Example: apiary dev --deploy
    """
    from .development import Development

    Development(Path.cwd(), database_url=database_url or None, port=port, deploy=deploy).run()
