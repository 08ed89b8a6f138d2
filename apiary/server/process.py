"""One of several server processes on a port, as the program that `processes` starts.

    python -m apiary.server.process PIPE

Its settings come by the pipe, and what came of its start goes back: null or an error, in a line. It
drains when the pipe closes: its keeper wants that, or has died.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import socket
import sys
from contextlib import suppress

from ..errors import ApiaryError
from ..loops import run_main
from .main import Server, serve_until
from .settings import ServerSettings

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d] %(message)s"

log = logging.getLogger("apiary.server.process")


def _serve(pipe: socket.socket) -> int:
    """A server process: settings from the pipe, back what came of the start; drains at its end."""
    try:
        with pipe.makefile("rb") as file:
            settings, log_level = pickle.load(file)
    except (EOFError, ConnectionError):
        return 0  # the keeper has gone
    logging.basicConfig(level=log_level, format=_LOG_FORMAT)
    try:
        run_main(_until_closed(pipe, settings))
    except ApiaryError as error:
        _tell(pipe, error)
        return error.exit_code
    return 0


async def _until_closed(pipe: socket.socket, settings: ServerSettings) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def closed() -> None:
        loop.remove_reader(pipe)
        stopping.set()

    def started(server: Server) -> None:
        _tell(pipe, None)
        log.info("server_process_serves address=%s", server.address)

    loop.add_reader(pipe, closed)
    await serve_until(stopping, settings, started)


def _tell(pipe: socket.socket, error: ApiaryError | None) -> None:
    line = json.dumps(None if error is None else error.to_json(), default=str)
    with suppress(ConnectionError):  # the keeper has gone; that is seen by the pipe's end
        pipe.sendall(line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1]))))
