"""`apiary migrate`: install the platform into a database, or bring it up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from . import settings
from .options import DatabaseUrl, Output
from .output import Format, note, write_json, write_table, write_text

__all__ = ["register"]

Plan = Annotated[bool, typer.Option("--plan", help="Show what would be done, and do nothing.")]
Print = Annotated[
    bool, typer.Option("--print", help="Write the SQL that would be run, and run nothing.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(migrate)


def migrate(
    database_url: DatabaseUrl = None,
    plan: Plan = False,
    print_sql: Print = False,
    output: Output = Format.TABLE,
) -> None:
    """Install the platform into a database, or bring it up to date.

    One transaction under one lock: a failure changes nothing. It takes a superuser, because
    PL/Python is an untrusted language; the servers and executors need none afterwards.

    Example: apiary migrate --database-url postgresql://postgres@db/app --plan
    """
    from ..engine import migrating
    from .database import connect

    with connect(settings.database_url(database_url)) as connection:
        if print_sql:
            write_text(migrating.script(migrating.plan(connection)))
            return
        done = migrating.plan(connection) if plan else migrating.apply(connection)
    names = [file.name for file in done.migrations]
    if output is Format.JSON:
        write_json({"applied": not plan, "migrations": names, "code": done.code})
        return
    if done.empty:
        note("the database is up to date")
        return
    what = "to be applied" if plan else "applied"
    rows = [(name, what) for name in names]
    if done.code:
        rows.append(("functions, views and the runtime", what))
    write_table(("part", "state"), rows)
