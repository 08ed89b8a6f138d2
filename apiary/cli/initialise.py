"""`apiary init`: an application folder to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import note, write_text

__all__ = ["register"]

Name = Annotated[str, typer.Argument(help="Its name, and the name of its folder.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def init(name: Name) -> None:
    """Make an application: one function, its table, one test that passes.

    Example: apiary init guestbook && cd guestbook && apiary dev --deploy
    """
    from .scaffold import write_application

    for file in write_application(Path.cwd() / name, name):
        write_text(f"{file.relative_to(Path.cwd())}\n")
    note(
        f"\nnext:\n  cd {name}\n  apiary dev --deploy        # in one terminal"
        f"\n  apiary call {name}.sign visitor=ada message=hello     # in another"
        f"\n  pytest"
    )
