"""`apiary log`: keeping the log of what ran in bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .connection import open_client
from .durations import seconds
from .failures import INTERRUPTED
from .following import RETRY_BUDGET_S
from .options import Output, Server, Timeout, TlsCa, Token, Yes, confirm
from .output import Format, console, note, write_object
from .runs import moment, shown

if TYPE_CHECKING:
    from ..client.records import TrimmedLog

__all__ = ["register"]

group = typer.Typer(help="The log of what ran: keeping it in bounds.", no_args_is_help=True)

OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="TIME", help="What is older than this, as in 12h or 90d."),
]
Before = Annotated[
    str | None,
    typer.Option("--before", metavar="TIME", help="What is from before this (RFC 3339)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(group, name="log")


@group.command()
def trim(
    older_than: OlderThan = None,
    before: Before = None,
    dry_run: DryRun = False,
    timeout: Timeout = None,
    yes: Yes = False,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete direct invocations with their attempts, and row changes, that are old.

    Their run ids are forgotten: a direct call that is repeated with such an id runs again. Runs of
    workflows and their operations stay, which `apiary workflow delete` deletes; row changes of
    runs that have not ended stay, too.

    It goes in batches that hold nobody up. One that is stopped leaves deleted what is, and the next
    one goes on.

    Example: apiary log trim --older-than 90d --yes
    """
    if (older_than is None) == (before is None):
        raise typer.BadParameter("give either --older-than or --before")
    age_s = None if older_than is None else seconds(older_than, "--older-than")
    time = moment(before, "--before")
    if not dry_run:
        what = f"from before {time}" if time else f"older than {older_than}"
        confirm(f"Delete the invocations, attempts and row changes that are {what}?", yes)
    with (
        open_client(server, token, tls_ca, retry_budget_s=RETRY_BUDGET_S) as client,
        _progress() as progress,
    ):
        trimmed = client.trim_log(
            before=time, older_than_s=age_s, dry_run=dry_run, timeout_s=timeout, progress=progress
        )
    note(f"{'would delete' if dry_run else 'deleted'} what is from before {shown(trimmed.before)}")
    write_object(
        output,
        asdict(trimmed),
        {
            "direct invocations": trimmed.invocations,
            "attempts": trimmed.attempts,
            "row changes": trimmed.row_changes,
        },
    )


@contextmanager
def _progress() -> Iterator[Callable[[TrimmedLog], None]]:
    """Shows sums on standard error while they grow; Ctrl-C tells the last ones."""
    last = "nothing yet"

    def show(so_far: TrimmedLog) -> None:
        nonlocal last
        last = (
            f"{so_far.invocations:,} direct invocations, {so_far.attempts:,} attempts,"
            f" {so_far.row_changes:,} row changes"
        )
        status.update(last)

    try:
        with console().status(last) as status:
            yield show
    except KeyboardInterrupt:
        note(f"stopped: {last}; the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
