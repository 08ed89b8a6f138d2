"""`apiary serve`: a server for a database that exists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from . import settings
from .options import DatabaseUrl
from .output import note

__all__ = ["register"]

Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        envvar="APIARY_LISTEN",
        metavar="HOST:PORT",
        help="Where to listen; beyond this machine only with tokens.",
    ),
]
DeployUrl = Annotated[
    str | None,
    typer.Option(
        "--deploy-url",
        envvar="APIARY_DEPLOY_URL",
        metavar="URL",
        help="The database as a member of apiary_deployer; without it, it deploys nothing.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="APIARY_TOKEN_FILE",
        metavar="FILE",
        help="Who may call, a line each: token principal role[,role]. Or in APIARY_TOKENS.",
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option("--tls-cert", envvar="APIARY_TLS_CERT", metavar="FILE", help="PEM chain."),
]
Key = Annotated[
    Path | None, typer.Option("--tls-key", envvar="APIARY_TLS_KEY", metavar="FILE", help="PEM key.")
]
ClientCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-client-ca",
        envvar="APIARY_TLS_CLIENT_CA",
        metavar="FILE",
        help="Take only clients with a certificate that this one signed.",
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        metavar="N",
        envvar="APIARY_PROCESSES",
        min=1,
        help="Server processes on the port; at most the cores that the database leaves.",
    ),
]
PoolSize = Annotated[
    int,
    typer.Option(
        "--pool-size",
        metavar="N",
        envvar="APIARY_POOL_SIZE",
        min=1,
        help="Database connections per isolation level, of each process.",
    ),
]
Grace = Annotated[
    float,
    typer.Option(
        "--grace", min=0, metavar="SECONDS", help="For calls that run when it is to stop."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)


def serve(
    database_url: DatabaseUrl = None,
    deploy_url: DeployUrl = None,
    listen: Listen = settings.DEFAULT_ADDRESS,
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    tls_client_ca: ClientCa = None,
    processes: Processes = 1,
    pool_size: PoolSize = 16,
    grace: Grace = 30.0,
) -> None:
    """Run a server for a database that `apiary migrate` has prepared.

    Log in to the database as a member of apiary_runtime; a server needs no other right, and any
    number of them serve one database. SIGTERM lets running calls finish; a second one does not.

    One process uses one core. With --processes several share the port, each with its own pool; a
    connection stays with one of them, and one that dies is started again.

    Variable: APIARY_TOKENS, lines of tokens instead of a file.

    Example: apiary serve --listen 0.0.0.0:7432 --token-file tokens --tls-cert s.pem --tls-key s.key
    """
    from ..server import ServerSettings, Tokens, serve_processes
    from ..server import serve as run

    wanted = ServerSettings(
        database_url=settings.database_url(database_url, runtime=True).required,
        deploy_url=deploy_url or None,
        address=listen,
        tokens=Tokens.read(token_file, os.environ),
        tls_certificate=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        pool_size=pool_size,
        drain_grace_s=grace,
    )
    if processes > 1:
        serve_processes(wanted, processes, lambda address: note(f"serving on {address}"))
    else:
        run(wanted, lambda server: note(f"serving on {server.address}"))
