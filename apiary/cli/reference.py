"""docs/cli.md, written from the commands themselves.

`python -m apiary.cli.reference > docs/cli.md` (`make docs`); a test holds the file against it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from .app import app

__all__ = ["reference"]

_HEAD = """\
# The command line

Written from the commands' own help by `make docs`; every page of it is `apiary COMMAND --help` too.

Results go to standard output, everything else to standard error. A flag wins over its environment
variable, a variable over a file, a file over the default: the files are `apiary.toml` or
`[tool.apiary]` in `pyproject.toml` for the application's name, and the state of a running
`apiary dev`, both looked for in the current folder and those above it. `apiary config show` tells
what holds here. `NO_COLOR` or `--no-color` turns colours off; `CI` or `--yes` answers questions.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the function, or a check, failed |
| 2 | the request itself is wrong: arguments, an application that cannot be deployed |
| 3 | no such function, run, deployment |
| 4 | it clashes with what exists: the same id for another call, a second `apiary dev` |
| 5 | not allowed, or not known who asks |
| 69 | the server or the database is not there |
| 75 | conflicting transactions: try again |
| 78 | the installation or its settings are wrong |
| 124 | out of time |
| 130 | interrupted |
"""


def reference() -> str:
    """The text of docs/cli.md."""
    root = typer.main.get_command(app)
    return "\n".join([_HEAD, *_command("apiary", root)]).rstrip() + "\n"


def _command(path: str, command: Any) -> Iterator[str]:
    """A command's section, and those of the commands in it."""
    if command.hidden:
        return
    yield f"## {path}\n"
    yield f"    {_usage(path, command)}\n"
    for paragraph in (command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        name, colon, example = text.partition("Example: ")
        yield f"    {example}\n" if colon and not name else f"{text}\n"
    rows = [row for row in map(_parameter, command.params) if row is not None]
    if rows:
        yield "| option | what it is |\n|---|---|\n" + "\n".join(rows) + "\n"
    for name, inner in getattr(command, "commands", {}).items():
        yield from _command(f"{path} {name}", inner)


def _usage(path: str, command: Any) -> str:
    if getattr(command, "commands", None):
        return f"{path} COMMAND ..."
    arguments = [
        parameter.metavar
        if parameter.required
        else f"[{parameter.metavar}]{' ...' if parameter.nargs == -1 else ''}"
        for parameter in command.params
        if parameter.param_type_name == "argument"
    ]
    return " ".join([path, *arguments, "[OPTION ...]"])


def _parameter(parameter: Any) -> str | None:
    if getattr(parameter, "hidden", False) or parameter.name in (
        "install_completion",
        "show_completion",
    ):
        return None
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = [*parameter.opts, *parameter.secondary_opts]
        name = f"`{' '.join([', '.join(names), parameter.metavar or '']).strip()}`"
    notes = []
    if parameter.envvar:
        notes.append(f"Variable: `{parameter.envvar}`.")
    default = parameter.default
    if parameter.metavar and default not in (None, False, (), []) and not parameter.required:
        notes.append(f"Default: `{getattr(default, 'value', default)}`.")
    text = " ".join([(parameter.help or "").strip(), *notes])
    cells = (each.replace("|", "\\|") for each in (name, text))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
