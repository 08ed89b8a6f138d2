"""Where a server is and how to get in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from ..errors import ConfigurationError
from ..proto.apiary.v1 import apiary_pb2

__all__ = ["DEFAULT_ADDRESS", "OPTIONS", "RETRY_BUDGET_S", "Connection", "Metadata", "methods"]

Metadata = tuple[tuple[str, str], ...]
DEFAULT_ADDRESS = "127.0.0.1:7432"
RETRY_BUDGET_S = 5.0  # of a call whose server does not answer
_LIMIT_BYTES = 16 * 1024 * 1024
_SERVICES = apiary_pb2.DESCRIPTOR.services_by_name.values()
OPTIONS: Sequence[tuple[str, Any]] = (
    ("grpc.max_receive_message_length", _LIMIT_BYTES),
    ("grpc.max_send_message_length", _LIMIT_BYTES),
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Each client has its own connection, so that one that is backing off delays no other.
    ("grpc.use_local_subchannel_pool", 1),
    # A line that died without a word is noticed while a call waits on it.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach a server; what is not given is taken from the environment.

    ``tls`` uses the system's certificate authorities, ``tls_ca`` a file's; ``tls_certificate`` and
    ``tls_key`` are this client's own, where the server asks for one.
    """

    address: str
    token: str | None
    credentials: grpc.ChannelCredentials | None

    @classmethod
    def of(
        cls,
        address: str | None,
        token: str | None,
        *,
        tls: bool,
        tls_ca: Path | str | None,
        tls_certificate: Path | str | None,
        tls_key: Path | str | None,
    ) -> Connection:
        """The connection of these settings, APIARY_ADDRESS, APIARY_TOKEN and APIARY_TLS_CA."""
        tls_ca = tls_ca or os.environ.get("APIARY_TLS_CA")
        credentials = None
        if tls or tls_ca or tls_certificate:
            credentials = grpc.ssl_channel_credentials(
                root_certificates=_bytes(tls_ca),
                private_key=_bytes(tls_key),
                certificate_chain=_bytes(tls_certificate),
            )
        return cls(
            address=address or os.environ.get("APIARY_ADDRESS") or DEFAULT_ADDRESS,
            token=token or os.environ.get("APIARY_TOKEN"),
            credentials=credentials,
        )

    @property
    def metadata(self) -> Metadata:
        """What is sent with each call."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)


def methods(channel: Any) -> dict[str, Any]:
    """The callables of a channel (sync or async) by the names of the services' methods."""
    found = {}
    for method in (method for service in _SERVICES for method in service.methods):
        make = channel.unary_stream if method.server_streaming else channel.unary_unary
        request = getattr(apiary_pb2, method.input_type.name)
        answer = getattr(apiary_pb2, method.output_type.name)
        found[method.name] = make(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
    return found


def _bytes(file: Path | str | None) -> bytes | None:
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
