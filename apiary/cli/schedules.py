"""`apiary schedule`: runs that start by the clock."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from . import settings
from .call import File, JsonText, Pairs
from .connection import open_client
from .durations import seconds
from .options import Application, Output, Server, TlsCa, Token, Yes, confirm
from .output import Format, note, write_json, write_list, write_text
from .runs import moment
from .workflows import explain_argument

if TYPE_CHECKING:
    from ..client.records import Schedule

__all__ = ["register"]

group = typer.Typer(help="Schedules: runs that start by the clock.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
Workflow = Annotated[str, typer.Argument(metavar="WORKFLOW", help="As in trips.report.")]
Cron = Annotated[
    str | None,
    typer.Option("--cron", metavar="EXPRESSION", help="5 fields, or 6 with seconds first."),
]
Zone = Annotated[str, typer.Option("--zone", metavar="ZONE", help="As in Europe/Berlin.")]
Dst = Annotated[
    str,
    typer.Option(
        "--dst", metavar="once|skip|all", help="On days on which clocks change, see the docs."
    ),
]
Every = Annotated[
    str | None, typer.Option("--every", metavar="TIME", help="Or a fixed interval, as in 5m.")
]
Anchor = Annotated[
    str | None,
    typer.Option("--anchor", metavar="TIME", help="From which intervals count; default: now."),
]
Missed = Annotated[
    str,
    typer.Option(
        "--missed", metavar="skip|one|all", help="What to start of slots that nobody was there for."
    ),
]
QueueName = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Start its runs from this queue.")
]
Paused = Annotated[bool, typer.Option("--paused", help="Start nothing for now.")]
Since = Annotated[str, typer.Option("--since", metavar="TIME", help="After this (RFC 3339).")]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Up to this (RFC 3339).")]
Count = Annotated[int, typer.Option("--count", metavar="N", min=1, max=1000, help="How many.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(group, name="schedule")


@group.command()
def put(
    name: Name,
    workflow: Workflow,
    pairs: Pairs = None,
    json_text: JsonText = None,
    file: File = None,
    cron: Cron = None,
    zone: Zone = "UTC",
    dst: Dst = "once",
    every: Every = None,
    anchor: Anchor = None,
    missed: Missed = "one",
    queue: QueueName = None,
    paused: Paused = False,
    application: Application = None,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """Store a schedule, or replace the one of that name; its runs' input is checked now.

    Example: apiary schedule put nightly trips.report day:=1 --cron "30 2 * * *" --zone Europe/Rome
    """
    from ..client.records import Schedule
    from ..errors import BadArgument
    from .arguments import read_arguments

    arguments = read_arguments(pairs or [], json_text=json_text, file=file)
    of_application = settings.application(application).value
    wanted = Schedule(
        name=name,
        workflow=workflow,
        input=arguments.document,
        application=of_application,
        cron=cron,
        zone=zone,
        dst_policy=dst,
        every_s=None if every is None else seconds(every, "--every"),
        anchor=moment(anchor, "--anchor"),
        missed=missed,
        queue=queue,
        paused=paused,
    )
    with open_client(server, token, tls_ca) as client:
        try:
            stored = client.put_schedule(wanted)
        except BadArgument as error:
            explain_argument(error, arguments, client, workflow, of_application)
            raise
    _show([stored], output)


@group.command("list")
def list_schedules(
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """List the schedules with their next fires.

    Example: apiary schedule list
    """
    with open_client(server, token, tls_ca) as client:
        _show(client.schedules(), output)


@group.command("next")
def next_fires(
    name: Name,
    count: Count = 10,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    output: Output = Format.TABLE,
) -> None:
    """List the next times at which a schedule fires, in its own zone.

    Example: apiary schedule next nightly --count 3
    """
    from zoneinfo import ZoneInfo

    from ..errors import NotFound

    with open_client(server, token, tls_ca) as client:
        found = [each for each in client.schedules(count) if each.name == name]
    if not found:
        raise NotFound(f"no schedule {name!r}", hint="apiary schedule list shows what there is")
    times = [slot.astimezone(ZoneInfo(found[0].zone)).isoformat() for slot in found[0].next]
    if output is Format.JSON:
        write_json(times)
        return
    if found[0].paused:
        note(f"schedule {name} is paused")
    write_text("".join(f"{time}\n" for time in times))


@group.command()
def pause(name: Name, server: Server = None, token: Token = None, tls_ca: TlsCa = None) -> None:
    """Let a schedule fire no more. What it misses meanwhile is not made up for.

    Example: apiary schedule pause nightly
    """
    with open_client(server, token, tls_ca) as client:
        client.pause_schedule(name)
    note(f"schedule {name} is paused")


@group.command()
def resume(name: Name, server: Server = None, token: Token = None, tls_ca: TlsCa = None) -> None:
    """Let a paused schedule go on, with its next slot from now.

    Example: apiary schedule resume nightly
    """
    with open_client(server, token, tls_ca) as client:
        schedule = client.pause_schedule(name, paused=False)
    note(f"schedule {name} fires next at {_time(schedule.next[0])}")


@group.command()
def delete(
    name: Name,
    yes: Yes = False,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Delete a schedule; the runs that it has started stay.

    Example: apiary schedule delete nightly --yes
    """
    confirm(f"Delete schedule {name}?", yes)
    with open_client(server, token, tls_ca) as client:
        client.delete_schedule(name)
    note(f"deleted schedule {name}")


@group.command()
def backfill(
    name: Name,
    since: Since,
    until: Until,
    server: Server = None,
    token: Token = None,
    tls_ca: TlsCa = None,
) -> None:
    """Start the runs of past slots that have not fired, and print their ids.

    Example: apiary schedule backfill nightly --since 2026-06-01 --until 2026-06-08
    """
    after, up_to = moment(since, "--since"), moment(until, "--until")
    assert after is not None  # both are given
    assert up_to is not None
    with open_client(server, token, tls_ca) as client:
        run_ids = client.backfill_schedule(name, after, up_to)
    note(f"started {len(run_ids)} runs")
    write_text("".join(f"{run_id}\n" for run_id in run_ids))


def _show(schedules: list[Schedule], output: Format) -> None:
    write_list(
        output,
        [asdict(schedule) for schedule in schedules],
        ("schedule", "workflow", "when", "queue", "missed", "next"),
        (
            (
                s.name,
                s.workflow,
                f"every {s.every_s:g} s" if s.cron is None else f"{s.cron} ({s.zone})",
                s.queue,
                s.missed,
                "paused" if s.paused else _time(s.next[0]),
            )
            for s in schedules
        ),
    )


def _time(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="seconds")
