"""The command line: one module per command group, and `main`.

Nothing heavy is imported before a command runs, so that `apiary --help` answers at once.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run `apiary` with the process's arguments and exit by the table in `failures`."""
    from .app import app
    from .failures import guarded

    sys.exit(guarded(lambda: app(prog_name="apiary")))
