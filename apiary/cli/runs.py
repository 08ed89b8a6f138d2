"""`apiary run`: what ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from . import settings
from .connection import open_client
from .options import Application, Output, Server, TlsCa, Token
from .output import Format, write_list, write_object, write_table, write_text

if TYPE_CHECKING:
    from ..client.records import Operation, Progress

__all__ = [
    "RunId",
    "get",
    "list_runs",
    "moment",
    "progress_text",
    "register",
    "shown",
    "write_operations",
    "write_runs",
]

group = typer.Typer(help="Runs: what ran, and what came of it.", no_args_is_help=True)

RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id.")]
Name = Annotated[
    str | None, typer.Option("--name", metavar="FUNCTION", help="Of this function or workflow.")
]
Status = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="STATUS", help="With this status; may be repeated."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Begun then or later (RFC 3339, UTC if bare)."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Begun before then.")]
Prefix = Annotated[
    str | None, typer.Option("--prefix", metavar="TEXT", help="Whose id begins with this.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]

_MAX_PAGE = 1000
_LISTED = (
    "run_id",
    "kind",
    "name",
    "application",
    "deployment",
    "principal",
    "status",
    "created_at",
    "started_at",
    "finished_at",
)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group.command()(get)
    app.add_typer(group, name="run")


@group.command("list")
def list_runs(
    name: Name = None,
    status: Status = None,
    since: Since = None,
    until: Until = None,
    prefix: Prefix = None,
    limit: Limit = 50,
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """List runs, newest first.

    Example: apiary run list --name hotel.reserve --status FAILED --since 2026-07-01T00:00:00Z
    """
    write_runs(
        None, name, status, since, until, prefix, limit, application, server, token, tls_ca, output
    )


def write_runs(
    kind: str | None,
    name: str | None,
    status: list[str] | None,
    since: str | None,
    until: str | None,
    prefix: str | None,
    limit: int,
    application: str | None,
    server: str | None,
    token: str | None,
    tls_ca: str | None,
    output: Format,
) -> None:
    """List runs of a kind (None: any), as the options say."""
    with open_client(server, token, tls_ca) as client:
        found = list(
            islice(
                client.list_runs(
                    application=settings.application(application).value,
                    kind=kind,
                    name=name,
                    statuses=[each.upper() for each in status or ()],
                    since=moment(since, "--since"),
                    until=moment(until, "--until"),
                    run_id_prefix=prefix,
                    page_size=min(limit, _MAX_PAGE),
                ),
                limit,
            )
        )
    write_list(
        output,
        [{field: getattr(run, field) for field in _LISTED} for run in found],
        ("run", "name", "status", "started", "ms", "principal"),
        (
            (
                run.run_id,
                run.name,
                run.status,
                shown(run.started_at or run.created_at),
                _duration_ms(run.started_at, run.finished_at),
                run.principal,
            )
            for run in found
        ),
    )


def get(
    run_id: RunId,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Show one run with its operations and attempts, and what they printed.

    Example: apiary run get booking-42 --output json
    """
    with open_client(server, token, tls_ca) as client:
        run = client.get_run(run_id)
    write_object(
        output,
        asdict(run),
        {
            "run": run.run_id,
            "name": run.name,
            "status": run.status,
            "application": run.application,
            "deployment": run.deployment,
            "principal": run.principal,
            "queue": run.queue,
            "executor": run.executor and run.executor.partition("#")[0],
            "parent": run.parent_run_id,
            "forked from": run.forked_from,
            "created": shown(run.created_at),
            "started": shown(run.started_at),
            "finished": shown(run.finished_at),
            "deadline": shown(run.deadline),
            "progress": run.progress and progress_text(run.progress),
            "input": run.input,
            "output": run.output,
            "error": _error(run.error),
            "trace": run.trace,
        },
    )
    if output is Format.TABLE:
        write_text("\n")
        write_operations(run.operations)


def write_operations(operations: Sequence[Operation]) -> None:
    """The operations and attempts of a run, as a table."""
    write_table(
        ("seq", "kind", "operation", "attempt", "status", "ms", "xid", "log"),
        (
            (
                each.seq,
                each.kind,
                each.name,
                each.attempt,
                each.status,
                _duration_ms(each.started_at, each.finished_at),
                each.xid,
                each.log,
            )
            for each in operations
        ),
    )


def progress_text(progress: Progress) -> str:
    """``3/10 counting``."""
    of = "" if progress.total is None else f"/{progress.total:g}"
    return f"{progress.done:g}{of} {progress.message}".rstrip()


def moment(text: str | None, option: str) -> datetime | None:
    """The time of an option; a bare one is in UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a time; write it as in 2026-07-01T12:00:00Z", param_hint=option
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def shown(time: datetime | None) -> str | None:
    """A time for people."""
    return None if time is None else time.isoformat(sep=" ", timespec="milliseconds")


def _duration_ms(started: datetime | None, finished: datetime | None) -> str | None:
    if started is None or finished is None:
        return None
    return f"{(finished - started).total_seconds() * 1000:.1f}"


def _error(error: dict[str, object] | None) -> str | None:
    return None if error is None else f"{error.get('type')}: {error.get('message')}"
