"""The client of the commands, made of the settings that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import settings

if TYPE_CHECKING:
    from ..client import Client

__all__ = ["open_client"]

# Somebody waits at a terminal: a server that is not there is told soon.
_RETRY_BUDGET_S = 1.0


def open_client(
    server: str | None,
    token: str | None,
    tls_ca: str | None,
    *,
    retry_budget_s: float = _RETRY_BUDGET_S,
) -> Client:
    """A client; the values are those of the flags or variables, None where neither is given."""
    from ..client import Client

    trusted = settings.tls_ca(tls_ca).value
    return Client(
        settings.address(server).value,
        token=settings.token(token).value,
        tls=trusted == "system",
        tls_ca=None if trusted == "system" else trusted,
        retry_budget_s=retry_budget_s,
    )
