"""How a server is set up."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigurationError
from .authentication import Tokens

__all__ = ["DEFAULT_ADDRESS", "ServerSettings"]

DEFAULT_ADDRESS = "127.0.0.1:7432"
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of one server process; files are read when it starts."""

    database_url: str  # of the runtime role: a member of apiary_runtime
    deploy_url: str | None = None  # of a member of apiary_deployer; None: it cannot deploy
    address: str = DEFAULT_ADDRESS  # host:port, [v6]:port or unix:path; port 0: any free one
    shares_port: bool = False  # with other processes of the same server, see `processes`
    tokens: Tokens | None = None  # None: whoever reaches the address may do everything
    tls_certificate: Path | None = None  # PEM chain
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # clients must show a certificate that it signed
    pool_size: int = 16  # database connections per isolation level
    max_message_bytes: int = 16 * _MEBIBYTE
    max_payload_bytes: int = 4 * _MEBIBYTE  # of a call's arguments
    statement_timeout_s: float = 60.0  # of functions that state none
    query_timeout_s: float = 30.0  # of queries that state none
    drain_grace_s: float = 30.0

    def check(self) -> None:
        """ConfigurationError for settings that contradict each other."""
        if self.tokens is None and not self.is_local:
            raise ConfigurationError(
                f"listening on {self.address} needs tokens: others can reach it",
                hint="give a token file (lines of: token principal role[,role]) or set "
                "APIARY_TOKENS, or listen on 127.0.0.1",
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigurationError(
                "TLS needs both a certificate and its key", hint="give both files, or neither"
            )
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ConfigurationError(
                "a client CA needs TLS", hint="give the server's certificate and key as well"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.address.startswith(("unix:", "unix-abstract:")):
            return True
        host = self.address.rpartition(":")[0].strip("[]")
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False
