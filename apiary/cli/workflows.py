"""`apiary workflow`: start runs, wait for them, see where they stand."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from . import runs, settings, workflowcontrol
from .call import File, JsonText, Pairs
from .connection import open_client
from .durations import seconds
from .following import RETRY_BUDGET_S, conclude, follow
from .options import Application, Output, Server, Timeout, TlsCa, Token
from .output import Format, note, write_json, write_list, write_object, write_text

if TYPE_CHECKING:
    from ..client import Client
    from ..client.records import WorkflowInfo
    from ..errors import BadArgument
    from .arguments import Arguments

__all__ = ["register"]

group = typer.Typer(
    help="Workflows: start runs, follow them, take them in hand.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="WORKFLOW", help="As in trips.book.")]
NewRunId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="RUN_ID",
        help="Name the run. The same id again finds that run and starts nothing.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait for its end, and print its result.")]
QueueName = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Start it from this queue.")
]
Priority = Annotated[
    int, typer.Option("--priority", metavar="N", help="Lower goes first in its queue.")
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="TEXT", help="For the queue's key concurrency.")
]
Dedup = Annotated[
    str | None,
    typer.Option(
        "--dedup",
        metavar="TEXT",
        help="While an unfinished run of the queue has this, that one is the answer.",
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Start it then (RFC 3339, UTC if bare)."),
]
RunTimeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="TIME", help="End the run after this, as in 90s or 1h: TIMED_OUT."
    ),
]
DeploymentId = Annotated[
    str | None,
    typer.Option(
        "--deployment", metavar="ID", help="Of this version of the code; default: the current one."
    ),
]
ExecutorOnly = Annotated[
    bool, typer.Option("--executor", help="Never in the database, also where that can be.")
]
Definitions = Annotated[
    bool, typer.Option("--definitions", help="The workflows that there are, not their runs.")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group.command()(start)
    group.command("list")(list_workflows)
    group.command()(get)
    group.command()(steps)
    group.command()(why)
    group.command()(explain)
    group.command()(wait)
    workflowcontrol.register(group)
    app.add_typer(group, name="workflow")


def start(
    workflow: Name,
    pairs: Pairs = None,
    json_text: JsonText = None,
    file: File = None,
    run_id: NewRunId = None,
    wait_for_it: Wait = False,
    queue: QueueName = None,
    priority: Priority = 0,
    key: Key = None,
    dedup: Dedup = None,
    at: At = None,
    timeout: RunTimeout = None,
    deployment: DeploymentId = None,
    executor_only: ExecutorOnly = False,
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Start a run of a workflow and print its id; with --wait, its result as JSON.

    key=text gives a text, key:=json anything else. Ctrl-C stops the waiting, not the run.

    Exit codes with --wait: 1 when the run failed, 124 when it was out of time, 130 for Ctrl-C.

    Example: apiary workflow start trips.book customer_id:=9 longitude:=2.35 latitude:=48.85 --wait
    """
    from ..client.records import StartOptions
    from ..errors import BadArgument
    from .arguments import read_arguments

    arguments = read_arguments(pairs or [], json_text=json_text, file=file)
    of_application = settings.application(application).value
    options = StartOptions(
        queue=queue,
        priority=priority,
        queue_key=key,
        deduplication=dedup,
        start_at=runs.moment(at, "--at"),
        timeout_s=None if timeout is None else seconds(timeout, "--timeout"),
        deployment=deployment,
        executor_only=executor_only,
    )
    with open_client(server, token, tls_ca, retry_budget_s=RETRY_BUDGET_S) as client:
        try:
            handle = client.start_document(
                workflow,
                arguments.document,
                run_id=run_id,
                application=of_application,
                options=options,
            )
        except BadArgument as error:
            explain_argument(error, arguments, client, workflow, of_application)
            raise
        if not handle.created:
            note(f"run {handle.run_id} was there already; nothing was started")
        if not wait_for_it:
            write_text(f"{handle.run_id}\n")
            return
        if handle.created:
            note(f"run {handle.run_id}")
        run = follow(client, handle.run_id)
    conclude(run)


def explain_argument(
    error: BadArgument, arguments: Arguments, client: Client, workflow: str, application: str | None
) -> None:
    """Put what to write instead into the hint, where text was given for something else."""
    from ..errors import ApiaryError
    from .arguments import text_for_another_type

    path = str(error.metadata.get("path", ""))
    if arguments.texts and path.startswith("args."):
        # Only the hint depends on it: where it cannot be described, the error stands.
        with suppress(ApiaryError):
            signature = client.explain_workflow(workflow, application).signature
            error.hint = text_for_another_type(arguments, signature, path) or error.hint


def list_workflows(
    definitions: Definitions = False,
    name: runs.Name = None,
    status: runs.Status = None,
    since: runs.Since = None,
    until: runs.Until = None,
    prefix: runs.Prefix = None,
    limit: runs.Limit = 50,
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """List runs of workflows, newest first; with --definitions the workflows themselves.

    Example: apiary workflow list --status RUNNING --status WAITING
    """
    if not definitions:
        runs.write_runs(
            "workflow",
            name,
            status,
            since,
            until,
            prefix,
            limit,
            application,
            server,
            token,
            tls_ca,
            output,
        )
        return
    with open_client(server, token, tls_ca) as client:
        found = client.workflows(settings.application(application).value)
    write_list(
        output,
        [asdict(each) for each in found],
        ("workflow", "application", "runs", "what it does"),
        ((w.name, w.application, _place(w), w.doc.partition("\n")[0]) for w in found),
    )


def get(
    run_id: runs.RunId,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Show one run: where it stands, its input and result, its operations and attempts.

    Example: apiary workflow get trip-42 --output json
    """
    runs.get(run_id, server, token, tls_ca, output)


def steps(
    run_id: runs.RunId,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the recorded operations of a run, and the attempts that failed.

    Example: apiary workflow steps trip-42
    """
    with open_client(server, token, tls_ca) as client:
        operations = client.get_run(run_id).operations
    if output is Format.JSON:
        write_json([asdict(each) for each in operations])
    else:
        runs.write_operations(operations)


def why(
    run_id: runs.RunId, server: Server = None, token: Token = None, tls_ca: TlsCa = None
) -> None:
    """Say in one sentence why a run does not move, or what it is at.

    Example: apiary workflow why trip-42
    """
    with open_client(server, token, tls_ca) as client:
        write_text(f"{client.explain(run_id)}\n")


def explain(
    workflow: Name,
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Show where the runs of a workflow take place, in the database or in executors, and why.

    Example: apiary workflow explain trips.book
    """
    with open_client(server, token, tls_ca) as client:
        found = client.explain_workflow(workflow, settings.application(application).value)
    write_object(
        output,
        asdict(found),
        {
            "workflow": found.name,
            "application": found.application,
            "deployment": found.deployment,
            "runs": _place(found),
            "because": "\n".join(found.reasons)
            if found.reasons
            else "it calls nothing but functions: one CALL, a transaction per function",
            "source": f"{found.file}:{found.line}",
            "doc": found.doc,
        },
    )


def wait(
    run_id: runs.RunId,
    timeout: Timeout = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Wait for the end of a run, and print its result as JSON.

    Exit codes: 1 when the run failed, 124 when it was out of time or --timeout is over (the run
    goes on then), 130 for Ctrl-C.

    Example: apiary workflow wait trip-42 --timeout 60
    """
    with open_client(server, token, tls_ca, retry_budget_s=RETRY_BUDGET_S) as client:
        run = follow(client, run_id, timeout)
    conclude(run)


def _place(workflow: WorkflowInfo) -> str:
    return "in the database" if workflow.in_database else "in an executor"
