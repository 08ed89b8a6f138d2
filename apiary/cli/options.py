"""The options that several commands have, once each."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from .output import Format

__all__ = [
    "Application",
    "DatabaseUrl",
    "Output",
    "Server",
    "Timeout",
    "TlsCa",
    "Token",
    "Yes",
    "confirm",
]

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="APIARY_ADDRESS",
        metavar="HOST:PORT",
        help="The server's address; default: the `apiary dev` of this folder.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="APIARY_TOKEN",
        metavar="TOKEN",
        help="Bearer token. Prefer the variable: other users see a process's arguments.",
    ),
]
TlsCa = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        envvar="APIARY_TLS_CA",
        metavar="FILE",
        help="Use TLS, and trust the certificates in this file ('system' for the system's own).",
    ),
]
Application = Annotated[
    str | None,
    typer.Option(
        "--application",
        "-A",
        envvar="APIARY_APPLICATION",
        metavar="NAME",
        help="The application; default: the one of this folder.",
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="APIARY_DATABASE_URL",
        metavar="URL",
        help="A PostgreSQL database; default: libpq's PG* variables, then the `apiary dev` of this"
        " folder.",
    ),
]
Output = Annotated[
    Format, typer.Option("--output", "-o", metavar="table|json", help="For people or for programs.")
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Give up after this time."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; implied by the variable CI.")]


def confirm(question: str, yes: bool) -> None:
    """Ask before something that cannot simply be undone; exit 130 unless the answer is yes."""
    if yes or os.environ.get("CI"):
        return
    if not typer.confirm(question, err=True):
        raise typer.Exit(130)
