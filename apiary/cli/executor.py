"""`apiary executor`: a process that runs the code of workflows and steps."""

from __future__ import annotations

from typing import Annotated

import typer

from . import settings
from .options import DatabaseUrl
from .output import note

__all__ = ["register"]

Name = Annotated[
    str | None,
    typer.Option(
        "--name", envvar="APIARY_EXECUTOR_NAME", metavar="NAME", help="Default: host and process."
    ),
]
Applications = Annotated[
    list[str] | None,
    typer.Option(
        "--application",
        "-A",
        metavar="NAME",
        help="Take runs of this application only; may be repeated.",
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="NAME", help="Take runs of this queue only; may be repeated."),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", min=1, help="Runs at the same time.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", min=1, help="For steps; default: as many as --concurrency."
    ),
]
Lease = Annotated[
    float,
    typer.Option(
        "--lease",
        metavar="SECONDS",
        min=1,
        help="How long its runs are its own without a sign of life.",
    ),
]
Processes = Annotated[
    int,
    typer.Option("--processes", metavar="N", min=1, help="For steps with a process of their own."),
]
Grace = Annotated[
    float,
    typer.Option(
        "--grace", metavar="SECONDS", min=0, help="For steps that run when it is to stop."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(executor)


def executor(
    database_url: DatabaseUrl = None,
    name: Name = None,
    application: Applications = None,
    queue: Queues = None,
    concurrency: Concurrency = 32,
    threads: Threads = None,
    processes: Processes = 2,
    lease: Lease = 30.0,
    grace: Grace = 10.0,
) -> None:
    """Run workflows and steps of a database, until a signal.

    Log in as a member of apiary_runtime. Any number of executors, on any machines, share the work;
    the runs of one that dies are gone on with by others. SIGTERM gives back what does not finish
    within --grace; a second one ends the process at once.

    Example: apiary executor --database-url postgresql://app_server@db/app --concurrency 8
    """
    from ..execution.executor import ExecutorSettings
    from .executing import execute

    wanted = ExecutorSettings(
        name=name,
        concurrency=concurrency,
        step_threads=threads or concurrency,
        step_processes=processes,
        lease_s=lease,
        grace_s=grace,
        applications=application or None,
        queues=queue or None,
    )
    url = settings.database_url(database_url, runtime=True).required
    execute(url, wanted, lambda running: note(f"executing as {running.name}"))
