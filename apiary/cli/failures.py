"""How the command line ends: what is written about an error, and the exit code.

    0    done
    1    the function (or a check) failed, or something broke inside
    2    the request itself is wrong: arguments, or an application that cannot be deployed
    3    no such function, run, deployment
    4    it clashes with what exists: another content under the same id, a second `apiary dev`
    5    not allowed, or not known who asks
    69   the server or the database is not there
    75   conflicting transactions: try again
    78   the installation or its settings are wrong
    124  out of time
    130  interrupted

The numbers are the errors' own (`ApiaryError.exit_code`); this is the only place that uses them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ..errors import ApiaryError, FunctionError

__all__ = ["INTERRUPTED", "guarded", "report"]

INTERRUPTED = 130


def guarded(command: Callable[[], object]) -> int:
    """Run a command; write what went wrong to standard error; return the exit code."""
    try:
        command()
    except ApiaryError as error:
        report(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Nothing more can be written, not even by
        # the interpreter when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def report(error: ApiaryError) -> None:
    """Write an error to standard error: what happened, then what to do."""
    from rich.text import Text

    from .output import console

    text = Text.assemble(("error: ", "bold red"), _message(error))
    if error.hint:
        text.append("\nhint:  ", style="bold")
        text.append(error.hint.strip())
    stack = error.metadata.get("stack")
    if stack:
        text.append(f"\n{str(stack).rstrip()}", style="dim")
    console().print(text, soft_wrap=True, highlight=False)


def _message(error: ApiaryError) -> str:
    kind = error.metadata.get("type") if isinstance(error, FunctionError) else None
    if kind and not error.message.startswith(str(kind)):
        return f"{kind}: {error.message}"
    return error.message
