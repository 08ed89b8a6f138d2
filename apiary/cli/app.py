"""The command tree. Each group's module adds itself by `register`."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer

from . import (
    bench,
    call,
    config,
    demo,
    deploy,
    deployments,
    dev,
    doctor,
    executor,
    functions,
    initialise,
    log,
    migrate,
    queues,
    runs,
    schedules,
    serve,
    sql,
    verify,
    workflows,
)
from .output import write_text

__all__ = ["app"]

app = typer.Typer(
    name="apiary",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

# In the order of `apiary --help`.
_GROUPS = (
    dev,
    initialise,
    deploy,
    call,
    workflows,
    runs,
    queues,
    schedules,
    functions,
    deployments,
    sql,
    log,
    doctor,
    executor,
    verify,
    migrate,
    serve,
    bench,
    config,
    demo,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            write_text(f"apiary {version('apiary')}\n")
        except PackageNotFoundError:
            write_text("apiary, from a checkout\n")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
]
NoColor = Annotated[
    bool, typer.Option("--no-color", help="No colours; the variable NO_COLOR does the same.")
]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, help="More log lines; twice for all.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors in the log.")]


@app.callback()
def options(
    version: Version = False, no_color: NoColor = False, verbose: Verbose = 0, quiet: Quiet = False
) -> None:
    """Functions inside the database, workflows that run exactly once, provenance in SQL.

    Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 failed,
    2 usage, 3 not found, 4 conflict, 5 not allowed, 69 unavailable, 75 try again, 78 configuration,
    124 out of time, 130 interrupted.
    """
    del version
    if no_color:
        os.environ["NO_COLOR"] = "1"
    level = (
        logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    )
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")


for _group in _GROUPS:
    _group.register(app)
