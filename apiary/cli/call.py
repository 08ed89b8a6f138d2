"""`apiary call`: run a function in the database."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import settings
from .connection import open_client
from .options import Application, Server, Timeout, TlsCa, Token
from .output import note, write_json

if TYPE_CHECKING:
    from ..client import Client
    from ..errors import BadArgument
    from .arguments import Arguments

__all__ = ["register"]


class Form(StrEnum):
    """The bare result, or all that is known of the call."""

    RESULT = "result"
    JSON = "json"


Function = Annotated[str, typer.Argument(metavar="FUNCTION", help="As in hotel.reserve.")]
Pairs = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=TEXT|KEY:=JSON", help="Its arguments by name.", show_default=False),
]
JsonText = Annotated[
    str | None, typer.Option("--json", metavar="TEXT", help="The arguments as a JSON object.")
]
File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The same from a file; - is standard input."),
]
RunId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="RUN_ID",
        help="Name the run. The same id again returns the recorded result and runs nothing.",
    ),
]
Output = Annotated[
    Form,
    typer.Option(
        "--output",
        "-o",
        metavar="result|json",
        help="The bare result, or the run around it too.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(call)


def call(
    function: Function,
    pairs: Pairs = None,
    json_text: JsonText = None,
    file: File = None,
    run_id: RunId = None,
    timeout: Timeout = None,
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Form.RESULT,
) -> None:
    """Run a function as one transaction, exactly once, and print its result as JSON.

    key=text gives a text, key:=json anything else.

    Example: apiary call hotel.reserve hotel_id:=3 customer_id:=7 --id booking-42
    """
    from ..errors import BadArgument
    from .arguments import read_arguments

    arguments = read_arguments(pairs or [], json_text=json_text, file=file)
    of_application = settings.application(application).value
    with open_client(server, token, tls_ca) as client:
        try:
            result = client.invoke_document(
                function,
                arguments.document,
                run_id=run_id,
                timeout_s=timeout,
                application=of_application,
            )
        except BadArgument as error:
            _explain(error, arguments, client, function, of_application)
            raise
    if output is Form.JSON:
        fields = ("run_id", "output", "replayed", "deployment", "xid")
        write_json({name: getattr(result, name) for name in fields})
        return
    note(f"run {result.run_id}{' (recorded before; nothing ran)' if result.replayed else ''}")
    write_json(result.output)


def _explain(
    error: BadArgument, arguments: Arguments, client: Client, function: str, application: str | None
) -> None:
    """Put what to write instead into the hint, where text was given for something else."""
    from ..errors import ApiaryError
    from .arguments import text_for_another_type

    path = str(error.metadata.get("path", ""))
    if arguments.texts and path.startswith("args."):
        # Only the hint depends on it: where the function cannot be described, the error stands.
        with suppress(ApiaryError):
            signature = client.describe_function(function, application).signature
            error.hint = text_for_another_type(arguments, signature, path) or error.hint
