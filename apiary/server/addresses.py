"""Addresses to listen on, alone or together with processes of the same server."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..errors import ConfigurationError

__all__ = ["cannot_listen", "is_path", "shared_address"]


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
        for family, _, _, _, (where, *_) in found:
            try:
                port = _free_port(family, str(where), port)
                held.enter_context(_bound(family, str(where), port, socket.SO_REUSEPORT))
            except OSError as error:
                # As gRPC: a name may have addresses (::1) that this machine does not.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise cannot_listen(address) from error
        if not port:
            raise cannot_listen(address)
        yield f"{host}:{port}"


def _free_port(family: int, host: str, port: int) -> int:
    """The port (for 0 a free one) if nobody listens there, not even one who would share it."""
    with _bound(family, host, port, socket.SO_REUSEADDR) as probe:
        probe.listen()
        return int(probe.getsockname()[1])


def _bound(family: int, host: str, port: int, option: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
