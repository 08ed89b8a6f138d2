"""`apiary verify`: does what is stored agree with itself?"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from . import settings
from .options import DatabaseUrl, Output
from .output import Format, note, write_json, write_table

if TYPE_CHECKING:
    from ..execution.verifying import Report

__all__ = ["register"]

RunId = Annotated[
    str | None, typer.Argument(metavar="[RUN_ID]", help="Only what concerns this run.")
]
Patience = Annotated[
    float,
    typer.Option(
        "--patience",
        metavar="SECONDS",
        min=0.0,
        help="How long something that is due may take before it counts as stranded.",
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Show so many findings of each check.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    run_id: RunId = None,
    database_url: DatabaseUrl = None,
    patience: Patience = 60.0,
    limit: Limit = 100,
    output: Output = Format.TABLE,
) -> None:
    """Check that everything that is stored about runs agrees, and that no run is stranded.

    Reads the platform's tables in one snapshot and changes nothing; a database in use gives no
    false alarm. Each finding names its run and what to do. Exit code 1 when there is one.

    Example: apiary verify --database-url postgresql://runtime@db/app --output json
    """
    from .database import connect

    url = settings.database_url(database_url)
    connect(url).close()  # says clearly why a database cannot be reached
    report = asyncio.run(_verify(url.required, run_id, patience, limit))
    if output is Format.JSON:
        write_json(report.to_json())
    else:
        _show(report)
    if not report.sound:
        raise typer.Exit(1)


async def _verify(url: str, run_id: str | None, patience_s: float, limit: int) -> Report:
    from ..engine.postgres import PostgresEngine
    from ..execution import verifying

    async with PostgresEngine(url) as engine:
        return await verifying.verify(
            engine, run_id=run_id, patience=timedelta(seconds=patience_s), limit=limit
        )


def _show(report: Report) -> None:
    counted = ", ".join(f"{rows} {what.replace('_', ' ')}" for what, rows in report.counted.items())
    note(f"{len(report.checks)} checks over {counted}")
    if report.sound:
        note("nothing is wrong")
        return
    write_table(
        ("check", "run", "found", "what to do"),
        [(f.check, f.run_id, f.message, f.advice) for f in report.findings],
    )
    for check, more in report.left_out.items():
        note(f"{check}: {more} more findings; --limit shows them")
