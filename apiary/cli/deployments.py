"""`apiary deployment`: the stored versions of an application."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import settings
from .connection import open_client
from .options import Application, Output, Server, TlsCa, Token, Yes, confirm
from .output import Format, note, write_list
from .runs import shown

__all__ = ["register"]

group = typer.Typer(help="Deployments: stored versions of the code.", no_args_is_help=True)

DeploymentId = Annotated[str, typer.Argument(metavar="DEPLOYMENT", help="Its id.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(group, name="deployment")


@group.command("list")
def list_deployments(
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """List the stored deployments, newest first, with the runs that still need them.

    Example: apiary deployment list
    """
    with open_client(server, token, tls_ca) as client:
        found = client.deployments(settings.application(application).value)
    write_list(
        output,
        [asdict(each) for each in found],
        ("deployment", "application", "state", "live runs", "deployed", "by"),
        (
            (
                d.id,
                d.application,
                "current" if d.current else "",
                d.live_runs,
                shown(d.created_at),
                d.created_by,
            )
            for d in found
        ),
    )


@group.command()
def remove(
    deployment: DeploymentId,
    application: Application = None,
    yes: Yes = False,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Remove the code of a deployment. It is refused for the current one, and while runs need it.

    Example: apiary deployment remove 3f2a9c --yes
    """
    name = settings.application(application).required
    confirm(f"Remove deployment {deployment} of {name}?", yes)
    with open_client(server, token, tls_ca) as client:
        client.remove_deployment(name, deployment)
    note(f"removed deployment {deployment} of {name}")
