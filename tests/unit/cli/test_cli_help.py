"""Help: quick, with an example each, in step with the documentation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from apiary.cli.app import app
from apiary.cli.reference import reference

REPOSITORY = Path(__file__).resolve().parents[3]
HEAVY = ("grpc", "psycopg", "sqlglot", "sqlalchemy", "opentelemetry", "rich.table")


def commands(path: str = "apiary", command: Any = None) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by the words that run it."""
    command = command or typer.main.get_command(app)
    inner = getattr(command, "commands", None)
    if not inner:
        yield path, command
        return
    for name, each in inner.items():
        yield from commands(f"{path} {name}", each)


def test_the_documentation_is_what_the_commands_say() -> None:
    written = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "docs/cli.md is not current: make docs"


@pytest.mark.parametrize(
    ("path", "command"), list(commands()), ids=lambda each: each if isinstance(each, str) else ""
)
def test_each_command_has_an_example_and_names_its_variables(path: str, command: Any) -> None:
    help_text = " ".join((command.help or "").split())
    assert f"Example: {path}" in help_text
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert parameter.help, f"{path}: {parameter.name} has no help"
    # The parser itself shows the variables of options; the others are named in the text.
    context = command.context_class(command, info_name=path)
    shown = command.get_help(context)
    for parameter in command.params:
        if parameter.envvar:
            assert str(parameter.envvar) in shown


def test_help_imports_nothing_heavy() -> None:
    program = (
        f"import sys, apiary.cli.app\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_the_version_is_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "apiary.cli", "--version"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("apiary")
