"""`apiary demo`: the built-in application, deployed and called by the real commands."""

from __future__ import annotations

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command. It is for `make demo`, and not in the list of commands."""
    app.command(hidden=True)(demo)


def demo() -> None:
    """Deploy the built-in application into a throw-away database, call it, and ask the log.

    Exit code 1 when something is not as it should be.

    Example: apiary demo
    """
    from .tour import Tour

    Tour().run()
