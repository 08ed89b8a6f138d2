"""`apiary config`: which settings the other commands have here."""

from __future__ import annotations

import typer

from . import settings
from .options import Output
from .output import Format, write_list

__all__ = ["register"]

group = typer.Typer(help="Settings: what they are here, and where they come from.")


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(group, name="config")


@group.command()
def show(output: Output = Format.TABLE) -> None:
    """Show each setting, its value and where it comes from; secrets are masked.

    A flag wins over its variable, a variable over a file, a file over the default.

    Variables: APIARY_ADDRESS, APIARY_TOKEN, APIARY_TLS_CA, APIARY_APPLICATION,
    APIARY_DATABASE_URL, APIARY_PG_BIN.

    Example: apiary config show --output json
    """
    found = settings.every_setting()
    write_list(
        output,
        {each.name: {"value": each.shown, "origin": each.origin} for each in found},
        ("setting", "value", "origin"),
        ((each.name, each.shown, each.origin) for each in found),
    )
