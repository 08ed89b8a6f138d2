"""Addresses to listen on, alone or together with processes of the same server."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..errors import ConfigurationError

__all__ = ["cannot_listen", "is_path", "shared_address"]

_MEETINGS = 100  # with others that start at the same moment, each some microseconds long


def is_path(address: str) -> bool:
    """Whether the address is a socket of this machine's files, and has no port."""
    return address.startswith("unix")


def cannot_listen(address: str) -> ConfigurationError:
    """The error for an address that cannot be listened on."""
    return ConfigurationError(
        f"cannot listen on {address}: the address is in use, or not of this machine",
        hint="stop what listens there, or choose another address (port 0 takes a free one)",
        address=address,
    )


@contextmanager
def shared_address(address: str) -> Iterator[str]:
    """Keep an address for processes that listen on it together; gives it with its real port.

    Nothing is accepted here. ConfigurationError when somebody listens there already, or when
    processes cannot share such an address.
    """
    if is_path(address) or not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigurationError(
            f"several processes cannot listen on {address} together on this system",
            hint="serve with --processes 1, or listen on a TCP port (on Linux or macOS)",
            address=address,
        )
    host, _, given = address.rpartition(":")
    try:
        found = socket.getaddrinfo(
            host.strip("[]") or None, int(given), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, ValueError) as error:
        raise cannot_listen(address) from error
    with ExitStack() as held:
        port = int(given)
        # Once each and in the same order by everybody: of two with several addresses one gets all.
        for family, where in sorted({(family, str(to[0])) for family, _, _, _, to in found}):
            try:
                keeping = held.enter_context(_kept(family, where, port))
            except OSError as error:
                # As gRPC: a name may have addresses (::1) that this machine does not.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise cannot_listen(address) from error
            else:
                port = int(keeping.getsockname()[1])
        if not port:
            raise cannot_listen(address)
        yield f"{host}:{port}"


def _kept(family: int, host: str, port: int) -> socket.socket:
    """A socket that keeps the port (for 0 a free one) for those who share it, and for nobody else.

    The kernel lets one socket alone listen there. Only while that one listens is the port opened
    to sharing and the socket made that stays: at no moment could another one come between.
    """
    with _alone(family, host, port) as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port = int(first.getsockname()[1])
        keeping = _bound(family, host, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
        # It was for connections that have just ended; now it would let others bind.
        keeping.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        return keeping


def _alone(family: int, host: str, port: int) -> socket.socket:
    """The one socket that listens there. Who shares a port does not share it with this one."""
    for _ in range(_MEETINGS):
        made = _bound(family, host, port, socket.SO_REUSEADDR)
        try:
            made.listen()
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE:
                raise
            # Bound, as nobody listened then: somebody began at this very moment. The kernel may
            # refuse both of them, so this is no answer yet.
            continue
        return made
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _bound(family: int, host: str, port: int, *options: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
