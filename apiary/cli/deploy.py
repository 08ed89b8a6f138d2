"""`apiary deploy`: put an application into the database."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import settings
from .connection import open_client
from .options import Output, Server, TlsCa, Token
from .output import Format, note, write_fields, write_json

if TYPE_CHECKING:
    from ..authoring.bundle import Bundle
    from ..client.records import Deployed, ReplayReport
    from ..execution.checking_replay import ReplayReport as Found

__all__ = ["as_document", "register", "show"]

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="The folder with functions/ and workflows/.", file_okay=False
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Try all of it in the database, and undo it.")]
DirectUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="Straight into this database, without a server; as a member of apiary_deployer.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(deploy)


def deploy(
    path: Folder = Path(),
    check: Check = False,
    database_url: DirectUrl = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Check an application and let it serve; a failure at any point changes nothing.

    Its tables' new scripts are applied in the same transaction. The same content again does
    nothing, and runs that have begun go on with the version that they began with.

    Example: apiary deploy . --check
    """
    from ..authoring.application import Application
    from ..authoring.bundle import build_bundle

    bundle = build_bundle(Application.read(path))
    if database_url is not None:
        done = _straight(bundle, database_url, check)
    else:
        with open_client(server, token, tls_ca) as client:
            done = client.deploy(bundle, check_only=check)
    if output is Format.JSON:
        document = {**as_document(done), "checked_only": check}
        if done.replay is not None:
            document["replay"] = asdict(done.replay)
        write_json(document)
        return
    if check:
        note("it can be deployed; nothing was changed")
        if done.replay is not None:
            _tell(done.replay)
    elif not done.changed:
        note("this content is serving already; nothing was changed")
    show(done)


def _tell(replay: ReplayReport) -> None:
    """Which unfinished runs would not replay with the new code; runs keep theirs, so it is news."""
    if replay.checked < replay.live_runs:
        note(f"replayed {replay.checked} of {replay.live_runs} unfinished runs, the newest")
    elif replay.live_runs:
        note(f"replayed {replay.live_runs} unfinished runs with the new code")
    for problem in replay.problems:
        note(f"warning: run {problem.run_id} of {problem.workflow} would break: {problem.reason}")
        if problem.recorded is not None:
            note(f"  recorded: {problem.recorded}\n  now:      {problem.now}")
    if replay.problems:
        note("unfinished runs keep their deployment; do not fork these to the new one")


def _straight(bundle: Bundle, url: str, check: bool) -> Deployed:
    from getpass import getuser

    from ..client.records import Deployed
    from ..engine import deploying
    from ..execution.checking_replay import check_replays
    from .database import connect

    with connect(settings.database_url(url)) as connection:
        done = deploying.deploy(connection, bundle, principal=getuser(), check_only=check)
        replay = check_replays(connection, bundle) if check else None
    fields = {
        name: getattr(done, name) for name in Deployed.__dataclass_fields__ if name != "replay"
    }
    return Deployed(**fields, replay=None if replay is None else _report(replay))


def _report(found: Found) -> ReplayReport:
    from ..client.records import ReplayProblem, ReplayReport

    return ReplayReport(
        live_runs=found.live_runs,
        checked=found.checked,
        problems=tuple(
            ReplayProblem(
                run_id=each.run_id,
                workflow=each.workflow,
                reason=each.reason,
                recorded=each.recorded,
                now=each.now,
            )
            for each in found.problems
        ),
    )


def as_document(done: Deployed) -> dict[str, object]:
    """A deploy or rollback as JSON."""
    return {
        "application": done.application,
        "deployment": done.deployment,
        "previous": done.previous,
        "changed": done.changed,
        "functions": list(done.functions),
        "workflows": list(done.workflows),
        "scripts": list(done.scripts),
    }


def show(done: Deployed) -> None:
    """A deploy or rollback for people."""
    write_fields(
        {
            "application": done.application,
            "deployment": done.deployment,
            "previous": done.previous,
            "scripts": "\n".join(done.scripts),
            "functions": "\n".join(done.functions),
            "workflows": "\n".join(done.workflows),
        }
    )
