"""The commands of `apiary workflow` that take a run in hand, or talk with it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from .connection import open_client
from .durations import seconds
from .following import RETRY_BUDGET_S
from .options import Server, Timeout, TlsCa, Token, Yes, confirm
from .output import note, write_json, write_text
from .runs import RunId, moment

__all__ = ["register"]

_NOT_FOUND = 3

Cascade = Annotated[bool, typer.Option("--cascade", help="Its children, and theirs, too.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Kept with the run.")]
NewTimeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="A new one, as in 90s or 1h.")
]
NewRunId = Annotated[str | None, typer.Option("--id", metavar="RUN_ID", help="The new run's id.")]
FromSeq = Annotated[
    int,
    typer.Option(
        "--from-seq", metavar="N", min=1, help="Take over the operations before this one."
    ),
]
OutputText = Annotated[
    str | None,
    typer.Option(
        "--output-json",
        metavar="JSON",
        help="Take over operation --from-seq as well, with this output.",
    ),
]
DeploymentId = Annotated[
    str | None, typer.Option("--deployment", metavar="ID", help="The version of the code to run.")
]
Topic = Annotated[str, typer.Option("--topic", metavar="TEXT", help="Under which it is received.")]
MessageKey = Annotated[
    str | None,
    typer.Option("--key", metavar="TEXT", help="The same key again sends nothing more."),
]
Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="A text; with --json a JSON document.")
]
IsJson = Annotated[bool, typer.Option("--json", help="The message is JSON, not text.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Of the event or stream.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Until the run ends.")]
Offset = Annotated[int, typer.Option("--offset", metavar="N", min=0, help="Begin with this one.")]
RunIds = Annotated[
    list[str] | None, typer.Argument(metavar="RUN_ID...", help="Runs that have ended.")
]
EndedBefore = Annotated[
    str | None,
    typer.Option(
        "--ended-before", metavar="TIME", help="All runs that ended before this (RFC 3339)."
    ),
]


def register(group: typer.Typer) -> None:
    """Add the commands to the group."""
    for command in (cancel, resume, restart, fork, send, event, stream, delete):
        group.command()(command)


def cancel(
    run_id: RunId,
    cascade: Cascade = False,
    reason: Reason = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Cancel a run; a function of it that is running in the database is interrupted.

    Example: apiary workflow cancel trip-42 --cascade --reason "booked by phone"
    """
    with open_client(server, token, tls_ca) as client:
        cancelled = client.cancel(run_id, reason, cascade=cascade)
    if not cancelled:
        note(f"run {run_id} had ended already; nothing was cancelled")
    write_text("".join(f"{each}\n" for each in cancelled))


def resume(
    run_id: RunId,
    timeout: NewTimeout = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Let a run go on that failed, was cancelled, ran out of time, or is stuck.

    What is recorded stays; the operation that failed last is tried again.

    Example: apiary workflow resume trip-42 --timeout 1h
    """
    with open_client(server, token, tls_ca) as client:
        run = client.resume(run_id, None if timeout is None else seconds(timeout, "--timeout"))
    note(f"run {run.run_id} is {run.status}")


def restart(
    run_id: RunId,
    new_run_id: NewRunId = None,
    deployment: DeploymentId = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Start a new run with the same input, from the beginning, with the current code.

    Example: apiary workflow restart trip-42 --id trip-42-again
    """
    with open_client(server, token, tls_ca, retry_budget_s=RETRY_BUDGET_S) as client:
        handle = client.restart(run_id, new_run_id, deployment=deployment)
    write_text(f"{handle.run_id}\n")


def fork(
    run_id: RunId,
    from_seq: FromSeq,
    output_text: OutputText = None,
    new_run_id: NewRunId = None,
    deployment: DeploymentId = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Start a new run that takes over the first operations of another, and goes on from there.

    It keeps the deployment of the other unless another is named: so runs are moved to new code.

    Example: apiary workflow fork trip-42 --from-seq 3 --output-json '"paid by voucher"'
    """
    with open_client(server, token, tls_ca) as client:
        if output_text is None:
            handle = client.fork(run_id, from_seq, new_run_id, deployment=deployment)
        else:
            handle = client.fork_replacing(
                run_id,
                from_seq,
                _json(output_text, "--output-json"),
                new_run_id,
                deployment=deployment,
            )
    write_text(f"{handle.run_id}\n")


def send(
    run_id: RunId,
    message: Message,
    is_json: IsJson = False,
    topic: Topic = "",
    key: MessageKey = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Send a message to a run, which its workflow receives by recv(topic).

    Example: apiary workflow send trip-42 '{"approved": true}' --json --topic approval
    """
    value = _json(message, "MESSAGE") if is_json else message
    with open_client(server, token, tls_ca) as client:
        client.send(run_id, value, topic, idempotency_key=key)


def event(
    run_id: RunId,
    key: Key,
    timeout: Timeout = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Print the value that a run has published by set_event; with --timeout wait for it.

    Example: apiary workflow event trip-42 price --timeout 30
    """
    with open_client(server, token, tls_ca, retry_budget_s=RETRY_BUDGET_S) as client:
        write_json(client.get_event(run_id, key, timeout))


def stream(
    run_id: RunId,
    key: Key,
    offset: Offset = 0,
    follow: Follow = False,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Print the values of a run's stream, a JSON document a line.

    Example: apiary workflow stream trip-42 log --follow
    """
    with open_client(server, token, tls_ca, retry_budget_s=RETRY_BUDGET_S) as client:
        for _, value in client.read_stream(run_id, key, offset, follow=follow):
            write_text(json.dumps(value, ensure_ascii=False, default=str) + "\n")


def delete(
    run_ids: RunIds = None,
    ended_before: EndedBefore = None,
    yes: Yes = False,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Delete ended runs with their operations, messages and streams, in batches.

    Example: apiary workflow delete --ended-before 2026-01-01T00:00:00Z --yes
    """
    before = moment(ended_before, "--ended-before")
    if bool(run_ids) == (before is not None):
        raise typer.BadParameter("give either run ids or --ended-before")
    what = f"the runs that ended before {before}" if before else f"{len(run_ids or ())} runs"
    confirm(f"Delete {what} and all that is recorded of them?", yes)
    with open_client(server, token, tls_ca) as client:
        deleted = client.delete_runs(run_ids or (), ended_before=before)
    note(f"deleted {deleted} run{'' if deleted == 1 else 's'}")
    if run_ids and deleted < len(set(run_ids)):
        note(f"{len(set(run_ids)) - deleted} of the runs do not exist")
        raise typer.Exit(_NOT_FOUND)


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"{text!r} is not JSON: {error}", param_hint=option) from error
