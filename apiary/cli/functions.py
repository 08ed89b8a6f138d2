"""`apiary function`: what is deployed, and what it said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import settings
from .connection import open_client
from .deploy import as_document, show
from .options import Application, Output, Server, TlsCa, Token, Yes, confirm
from .output import Format, note, write_json, write_list, write_object, write_text

if TYPE_CHECKING:
    from ..client.records import FunctionInfo

__all__ = ["register"]

group = typer.Typer(help="Functions: what is deployed, and what they said.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="FUNCTION", help="As in hotel.reserve.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many runs.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(group, name="function")


@group.command("list")
def list_functions(
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """List the functions that serve now; without an application, those of all.

    Example: apiary function list --output json
    """
    with open_client(server, token, tls_ca) as client:
        found = client.functions(settings.application(application).value)
    write_list(
        output,
        [_document(each) for each in found],
        ("function", "application", "kind", "tables", "what it does"),
        ((f.name, f.application, _kind(f), _tables(f), f.doc.partition("\n")[0]) for f in found),
    )


@group.command()
def describe(
    function: Name,
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Show one function: its parameters, what it reads and writes, where its source is.

    Example: apiary function describe hotel.reserve
    """
    with open_client(server, token, tls_ca) as client:
        found = client.describe_function(function, settings.application(application).value)
    write_object(
        output,
        _document(found),
        {
            "function": found.name,
            "application": found.application,
            "deployment": found.deployment,
            "parameters": "\n".join(map(_parameter, found.signature["parameters"])),
            "returns": found.signature["returns"],
            "kind": _kind(found),
            "isolation": found.isolation,
            "timeout": "the server's" if found.timeout_s is None else f"{found.timeout_s:g} s",
            "reads": ", ".join(found.reads),
            "writes": ", ".join(found.writes),
            "source": f"{found.file}:{found.line}",
            "doc": found.doc,
        },
    )


@group.command()
def rollback(
    application: Application = None,
    yes: Yes = False,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Let the deployment before the current one serve again. Tables stay as they are.

    Example: apiary function rollback --application shop --yes
    """
    name = settings.application(application).required
    confirm(f"Let the deployment before the current one of {name} serve again?", yes)
    with open_client(server, token, tls_ca) as client:
        done = client.rollback(name)
    if output is Format.JSON:
        write_json(as_document(done))
    else:
        show(done)


@group.command()
def logs(
    function: Name,
    limit: Limit = 20,
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what a function printed and logged in its last runs, oldest first.

    Example: apiary function logs hotel.reserve --limit 5
    """
    name = settings.application(application).value
    of_application = "" if name is None else f" AND application = {_quoted(name)}"
    columns = ("started_at", "run_id", "seq", "attempt", "status", "log")
    statement = (
        f"SELECT {', '.join(columns)} FROM provenance.invocation"
        f" WHERE function = {_quoted(function)}{of_application} AND log <> ''"
        f" ORDER BY started_at DESC, seq DESC, attempt DESC LIMIT {limit}"
    )
    with open_client(server, token, tls_ca) as client:
        rows = list(reversed(list(client.query(statement))))
    if output is Format.JSON:
        write_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    if not rows:
        note(f"{function} has said nothing yet")
    for started_at, run_id, seq, attempt, status, log in rows:
        write_text(f"{started_at} {run_id}/{seq} attempt {attempt} {status}\n")
        write_text("".join(f"  {line}\n" for line in str(log).splitlines()))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _kind(function: FunctionInfo) -> str:
    if function.dynamic:
        return "dynamic (may write anything)"
    return "reads" if function.read_only else "writes"


def _tables(function: FunctionInfo) -> str:
    return ", ".join(sorted({*function.reads, *function.writes}))


def _parameter(parameter: dict[str, Any]) -> str:
    default = "" if parameter["required"] else f" = {parameter['default']!r}"
    return f"{parameter['name']}: {parameter['type']}{default}"


def _document(function: FunctionInfo) -> dict[str, object]:
    return {
        "name": function.name,
        "application": function.application,
        "deployment": function.deployment,
        "doc": function.doc,
        "signature": function.signature,
        "isolation": function.isolation,
        "timeout_s": function.timeout_s,
        "read_only": function.read_only,
        "dynamic": function.dynamic,
        "reads": list(function.reads),
        "writes": list(function.writes),
        "file": function.file,
        "line": function.line,
    }
