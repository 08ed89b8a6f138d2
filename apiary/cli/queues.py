"""`apiary queue`: how many runs go on at once, and in which order."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .connection import open_client
from .durations import seconds
from .options import Output, Server, TlsCa, Token, Yes, confirm
from .output import Format, note, write_list

if TYPE_CHECKING:
    from ..client.records import Queue

__all__ = ["register"]

group = typer.Typer(help="Queues: limits for runs that start from them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", metavar="N", min=1, help="Runs at once.")
]
PerExecutor = Annotated[
    int | None,
    typer.Option("--executor-concurrency", metavar="N", min=1, help="Of them in one executor."),
]
PerKey = Annotated[
    int | None,
    typer.Option("--key-concurrency", metavar="N", min=1, help="Of them with the same key."),
]
Rate = Annotated[
    int | None, typer.Option("--rate", metavar="N", min=1, help="Starts within --per.")
]
Per = Annotated[
    str, typer.Option("--per", metavar="TIME", help="The time of --rate, as in 1s or 5m.")
]
Paused = Annotated[bool, typer.Option("--paused", help="Start nothing for now.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(group, name="queue")


@group.command()
def put(
    name: Name,
    concurrency: Concurrency = None,
    executor_concurrency: PerExecutor = None,
    key_concurrency: PerKey = None,
    rate: Rate = None,
    per: Per = "1s",
    paused: Paused = False,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a queue, or replace the limits of the one of that name. What is left out has no limit.

    Example: apiary queue put mail --concurrency 10 --rate 100 --per 1m
    """
    from ..client.records import Queue

    wanted = Queue(
        name=name,
        concurrency=concurrency,
        executor_concurrency=executor_concurrency,
        key_concurrency=key_concurrency,
        rate_limit=rate,
        rate_period_s=None if rate is None else seconds(per, "--per"),
        paused=paused,
    )
    with open_client(server, token, tls_ca) as client:
        _show([client.put_queue(wanted)], output)


@group.command("list")
def list_queues(
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """List the queues with their limits, and how many runs wait and are active.

    Example: apiary queue list
    """
    with open_client(server, token, tls_ca) as client:
        _show(client.queues(), output)


@group.command()
def pause(name: Name, server: Server = None, token: Token = None, tls_ca: TlsCa = None) -> None:
    """Let a queue start no more runs; those that have started go on.

    Example: apiary queue pause mail
    """
    with open_client(server, token, tls_ca) as client:
        queue = client.pause_queue(name)
    note(f"queue {name} is paused; {queue.waiting} runs wait in it")


@group.command()
def resume(name: Name, server: Server = None, token: Token = None, tls_ca: TlsCa = None) -> None:
    """Let a paused queue start runs again.

    Example: apiary queue resume mail
    """
    with open_client(server, token, tls_ca) as client:
        queue = client.pause_queue(name, paused=False)
    note(f"queue {name} goes on; {queue.waiting} runs wait in it")


@group.command()
def delete(
    name: Name,
    yes: Yes = False,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Delete a queue. It is refused while unfinished runs or schedules are in it.

    Example: apiary queue delete mail --yes
    """
    confirm(f"Delete queue {name}?", yes)
    with open_client(server, token, tls_ca) as client:
        client.delete_queue(name)
    note(f"deleted queue {name}")


def _show(queues: list[Queue], output: Format) -> None:
    write_list(
        output,
        [asdict(queue) for queue in queues],
        ("queue", "waiting", "active", "at once", "per executor", "per key", "rate", "state"),
        (
            (
                q.name,
                q.waiting,
                q.active,
                q.concurrency,
                q.executor_concurrency,
                q.key_concurrency,
                None if q.rate_limit is None else f"{q.rate_limit} per {q.rate_period_s:g} s",
                "paused" if q.paused else "open",
            )
            for q in queues
        ),
    )
