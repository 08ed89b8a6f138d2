"""A server process: started, draining, stopped.

async with Server(settings) as server:
    await server.wait()
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ..engine.catalogue import Catalogue
from ..engine.postgres import PostgresEngine, PostgresSettings
from ..engine.querying import Querying
from ..engine.queues import QueueStore
from ..engine.runs import RunStore
from ..engine.trimming import LogTrimmer
from ..engine.workflows import WorkflowCatalogue
from ..errors import ConfigurationError
from ..execution.code import CodeCache
from ..execution.explaining import Explainer
from ..execution.invoking import Invoker
from ..execution.listening import Listener
from ..execution.scheduling import Scheduler
from ..execution.signals import stop_on_signals
from ..execution.starting import Starter
from ..execution.topics import Topics
from ..execution.watching import Watcher
from ..loops import run_main
from ..proto.apiary.v1 import apiary_pb2, apiary_pb2_grpc
from ..telemetry import Telemetry, from_environment
from .addresses import cannot_listen, is_path
from .calls import Gate
from .deployer import Deployer
from .health import Health
from .observing import ObservedInvoker
from .preflight import check_database
from .running import StartingRuns
from .service import ApiaryService
from .settings import ServerSettings
from .workflow_service import Parts, WorkflowsService

__all__ = ["Server", "serve", "serve_until"]

SERVICES = tuple(
    apiary_pb2.DESCRIPTOR.services_by_name[name].full_name for name in ("Apiary", "Workflows")
)
_CUT_GRACE_S = 0.5  # for answers on their way, and those who watch the health

log = logging.getLogger(__name__)


class Server:
    """The gRPC server of one process; observed as the OTEL_* variables say, or by ``telemetry``."""

    def __init__(self, settings: ServerSettings, telemetry: Telemetry | None = None) -> None:
        settings.check()
        self.telemetry = telemetry or from_environment()
        self.settings = settings
        self.address = settings.address  # with the real port, once started
        self._grpc: grpc.aio.Server | None = None
        self._engine: PostgresEngine | None = None
        self._gate: Gate | None = None
        self._invoker: Invoker | None = None
        self._health: Health | None = None
        self._listener: Listener | None = None
        self._topics: Topics | None = None
        self._starting: StartingRuns | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not stopped."""
        return self._grpc is not None

    async def start(self) -> None:
        """Check the database, listen, and serve.

        Raises ConfigurationError (wrong role, password or database, not migrated, address in use)
        or UnavailableError (no database there); nothing is left open then.
        """
        await asyncio.to_thread(check_database, self.settings.database_url)
        settings = self.settings
        self._engine = PostgresEngine(
            settings.database_url,
            PostgresSettings(
                pool_size=settings.pool_size,
                statement_timeout_s=settings.statement_timeout_s,
                application_name="apiary server",
            ),
        )
        self._gate = Gate(settings.tokens)
        self._health = Health(self._engine, settings.database_url, SERVICES)
        self._listener = Listener(settings.database_url, application_name="apiary server listener")
        self._topics = Topics(self._engine, self._listener)
        try:
            self._grpc = self._listen(
                self._service(self._engine, self._gate),
                self._workflows(self._engine, self._gate, self._topics),
                self._health,
            )
            await self._topics.start()
            await self._grpc.start()
            await self._health.start()
        except BaseException:
            await self._close()
            raise
        log.info("server_started address=%s", self.address)

    async def drain(self, grace_s: float | None = None) -> None:
        """Take no new calls, let those that run finish within the grace, and stop."""
        if self._grpc is None or not (self._engine and self._gate and self._health):
            return
        log.info("server_draining")
        grace_s = self.settings.drain_grace_s if grace_s is None else grace_s
        ends = time.monotonic() + grace_s
        await self._health.stop()
        self._gate.close()
        if self._topics is not None:  # who waits for a run can do that elsewhere
            self._topics.drain()
        await self._gate.drain(grace_s)
        await self._grpc.stop(_CUT_GRACE_S)
        if self._starting is not None:
            await self._starting.settle(max(_CUT_GRACE_S, ends - time.monotonic()))
        if self._invoker is not None:
            await self._invoker.settle()
        await self._close()
        self._grpc = None
        log.info("server_stopped")

    async def _close(self) -> None:
        if self._topics is not None:
            await self._topics.close()
        if self._listener is not None:
            await self._listener.close()
        if self._engine is not None:
            await self._engine.close()

    async def wait(self) -> None:
        """Wait until the server has stopped."""
        if self._grpc is not None:
            await self._grpc.wait_for_termination()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.drain()

    def _service(self, engine: PostgresEngine, gate: Gate) -> ApiaryService:
        telemetry = self.telemetry
        invoker = self._invoker = Invoker(engine)
        if telemetry is not None:
            invoker = self._invoker = ObservedInvoker(engine, telemetry)
            telemetry.watch_pool(lambda: engine.waiting)
        return ApiaryService(
            gate,
            invoker,
            Catalogue(engine),
            Querying(self.settings.database_url),
            Deployer(self.settings.deploy_url),
            LogTrimmer(engine),
            telemetry=telemetry,
            max_payload_bytes=self.settings.max_payload_bytes,
            query_timeout_s=self.settings.query_timeout_s,
        )

    def _workflows(self, engine: PostgresEngine, gate: Gate, topics: Topics) -> WorkflowsService:
        store = RunStore(engine)
        limit_bytes = self.settings.max_payload_bytes
        starter = Starter(store, CodeCache(engine), max_payload_bytes=limit_bytes)
        self._starting = StartingRuns(starter)
        catalogue = Catalogue(engine)
        parts = Parts(
            store=store,
            starter=starter,
            starting=self._starting,
            catalogue=catalogue,
            workflows=WorkflowCatalogue(engine),
            queues=QueueStore(engine),
            scheduler=Scheduler(engine, store, starter),
            watcher=Watcher(engine, catalogue, topics),
            explainer=Explainer(engine),
            deployer=Deployer(self.settings.deploy_url),
        )
        return WorkflowsService(
            gate, parts, telemetry=self.telemetry, max_payload_bytes=limit_bytes
        )

    def _listen(
        self, service: ApiaryService, workflows: WorkflowsService, watched: Health
    ) -> grpc.aio.Server:
        limit = self.settings.max_message_bytes
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                # Two servers must not share a port without knowing of each other.
                ("grpc.so_reuseport", int(self.settings.shares_port)),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ]
        )
        found_by_name = _FoundByName(server)
        apiary_pb2_grpc.add_ApiaryServicer_to_server(service, found_by_name)  # type: ignore[no-untyped-call]
        apiary_pb2_grpc.add_WorkflowsServicer_to_server(workflows, found_by_name)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(watched.servicer, found_by_name)
        reflection.enable_server_reflection(
            (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        self.address = self._bind(server)
        return server

    def _bind(self, server: grpc.aio.Server) -> str:
        """Listen on the address; return it with the port that it got."""
        address = self.settings.address
        credentials = _credentials(self.settings)
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise cannot_listen(address) from error
        if is_path(address):
            return address
        return f"{address.rpartition(':')[0]}:{port}"


class _FoundByName:
    """What generated code adds services to, without registering each method with gRPC's core.

    For each registered method the server keeps a future, and waits on all of them anew at every
    call: with forty methods that costs ten times what finding a method by its name does.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Nothing: their generic handler finds them."""


def _credentials(settings: ServerSettings) -> grpc.ServerCredentials | None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    try:
        # gRPC would only say that it cannot listen.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_certificate, settings.tls_key
        )
    except OSError as error:
        raise ConfigurationError(
            f"the certificate {settings.tls_certificate} and the key {settings.tls_key} "
            f"cannot be used: {error.strerror or error}",
            hint="both are PEM files, the key without a passphrase and of this certificate",
        ) from error
    client_ca = _bytes(settings.tls_client_ca) if settings.tls_client_ca else None
    return grpc.ssl_server_credentials(
        [(_bytes(settings.tls_key), _bytes(settings.tls_certificate))],
        root_certificates=client_ca,
        require_client_auth=client_ca is not None,
    )


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error


def serve(settings: ServerSettings, started: Callable[[Server], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the process at once.

    ``started`` is called when the server listens.
    """
    run_main(serve_until(asyncio.Event(), settings, started))


async def serve_until(
    stopping: asyncio.Event, settings: ServerSettings, started: Callable[[Server], None] | None
) -> None:
    """Serve until ``stopping`` is set, by a signal or by others; a second signal ends the process.

    ``started`` is called when the server listens.
    """
    stop_on_signals(stopping)
    async with Server(settings) as server:
        if started is not None:
            started(server)
        await stopping.wait()
