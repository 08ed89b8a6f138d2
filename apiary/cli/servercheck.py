"""Whether a gRPC server answers, and whether it is well; by the standard health service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ..errors import ConfigurationError
from .checks import Check, State
from .settings import Setting

__all__ = ["open_channel", "server_checks"]

_TIMEOUT_S = 5.0


def server_checks(address: Setting, token: Setting, tls_ca: Setting) -> Iterator[Check]:
    """Reachable, and serving."""
    where = f"{address.value} ({address.origin})"
    started = time.monotonic()
    try:
        with open_channel(str(address.value), tls_ca.value) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(),
                timeout=_TIMEOUT_S,
                metadata=_metadata(token.value),
            )
    except grpc.RpcError as error:
        yield _unreachable(where, error)
        return
    except ConfigurationError as error:
        yield Check(name="server", state=State.FAILED, found=error.message, mend=error.hint)
        return
    elapsed_ms = (time.monotonic() - started) * 1000
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        yield Check(name="server", state=State.OK, found=f"{where} serves ({elapsed_ms:.0f} ms)")
        return
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    yield Check(
        name="server",
        state=State.FAILED,
        found=f"{where} says {status}",
        mend="its database is away, or it is stopping: see its log",
    )


def open_channel(address: str, tls_ca: str | None) -> grpc.Channel:
    """A channel, with TLS where certificates to trust are named."""
    if tls_ca is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(certificates(tls_ca)))


def certificates(tls_ca: str) -> bytes | None:
    """The PEM text of a file; None for the system's own."""
    if tls_ca == "system":
        return None
    try:
        return Path(tls_ca).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read the certificates in {tls_ca}: {error}") from error


def _metadata(token: str | None) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")] if token else []


def _unreachable(where: str, error: grpc.RpcError) -> Check:
    code, details = error.code(), error.details()
    mends = {
        grpc.StatusCode.UNAVAILABLE: "start one: `apiary dev` here, or `apiary serve`",
        grpc.StatusCode.UNAUTHENTICATED: "set APIARY_TOKEN",
    }
    return Check(
        name="server",
        state=State.FAILED,
        found=f"{where}: {code.name} {details}",
        mend=mends.get(code, "see the server's log"),
    )
