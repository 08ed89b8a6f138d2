"""A server as a process: starting, tokens, TLS, health, draining, and databases that go away."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from apiary import Client
from apiary.authoring.bundle import Bundle
from apiary.engine.deploying import deploy
from apiary.engine.migrating import apply
from apiary.errors import (
    ConfigurationError,
    Draining,
    PermissionDenied,
    Unauthenticated,
    UnavailableError,
)
from apiary.local import PrivateCluster
from apiary.server import ServerSettings, Tokens
from apiary.testing import FAST_SETTINGS, TestServer, rows
from tests.integration.server.proxy import LossyProxy
from tests.integration.server.running import RunningServer, Servers

Eventually = Callable[..., None]
TOKENS = """
# token   principal   roles
t-ada     ada         invoke,query   # a person
t-ci      pipeline    deploy
"""


# Tokens


@pytest.fixture
def tokens() -> Tokens:
    return Tokens.parse(TOKENS, "tokens")


def test_a_token_tells_who_calls_and_what_they_may(
    odd_servers: Servers, tokens: Tokens, odd_bundle: Bundle
) -> None:
    address = odd_servers.start(tokens=tokens).address
    with Client(address, token="t-ada") as ada, Client(address, token="t-ci") as pipeline:
        run_id = ada.invoke("odd.put", value=1).run_id
        assert ada.get_run(run_id).principal == "ada"
        assert list(ada.query("SELECT principal FROM provenance.invocation")) == [("ada",)]
        assert not pipeline.deploy(odd_bundle).changed
        assert pipeline.functions() == ada.functions()
        with pytest.raises(PermissionDenied, match="ada may not deploy"):
            ada.deploy(odd_bundle)
        with pytest.raises(PermissionDenied, match="pipeline may not invoke"):
            pipeline.call("odd.put", value=2)
        with pytest.raises(PermissionDenied, match="pipeline may not query"):
            list(pipeline.query("SELECT 1"))


def test_without_the_right_token_nothing_is_done(
    odd_servers: Servers, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = odd_servers.start(tokens=tokens).address
    for token in (None, "t-nobody", "", "t-ada x"):
        with Client(address, token=token) as client, pytest.raises(Unauthenticated) as refused:
            client.call("odd.put", value=1)
        assert refused.value.exit_code == 5
    monkeypatch.setenv("APIARY_TOKEN", "t-ada")
    monkeypatch.setenv("APIARY_ADDRESS", address)
    with Client() as client:
        assert client.call("odd.put", value=1) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no token"),
        ("only-token", "tokens:1: 1 words"),
        ("\nt p invoke,admin", "tokens:2: unknown role 'admin'"),
    ],
)
def test_token_files_are_checked(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        Tokens.parse(text, "tokens")


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(TOKENS)
    from_file = Tokens.read(file, {})
    assert from_file is not None
    assert from_file.authenticate("Bearer t-ada").name == "ada"
    from_variable = Tokens.read(None, {"APIARY_TOKENS": TOKENS})
    assert from_variable is not None
    assert from_variable.authenticate("bearer t-ci").name == "pipeline"
    assert Tokens.read(None, {}) is None
    with pytest.raises(ConfigurationError, match="cannot read the tokens"):
        Tokens.read(tmp_path / "missing", {})
    assert "t-ada" not in repr(from_file)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.1.2.3:7432", "example:7432"])
def test_listening_beyond_this_machine_needs_tokens(
    servers: Servers, tokens: Tokens, address: str
) -> None:
    with pytest.raises(ConfigurationError, match="needs tokens"):
        servers.start(address=address)


# Starting


def test_a_port_in_use_is_named(servers: Servers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=re.escape(address)) as refused:
            servers.start(address=address)
    assert refused.value.exit_code == 78
    first = servers.start()
    with pytest.raises(ConfigurationError, match="in use"):
        servers.start(address=first.address)


def _changed(url: str, **changes: Any) -> str:
    return psycopg.conninfo.make_conninfo(url, **changes)


@pytest.mark.parametrize(
    "change", [{"password": "wrong"}, {"user": "nobody"}, {"dbname": "nothing"}], ids=str
)
def test_wrong_credentials_are_a_matter_of_configuration(
    servers: Servers, change: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        servers.start(database_url=_changed(servers.settings.database_url, **change))
    assert "\n" not in refused.value.message
    assert servers.settings.database_url not in str(refused.value)


def test_a_database_that_is_not_there_is_unavailable(servers: Servers) -> None:
    with pytest.raises(UnavailableError) as refused:
        servers.start(database_url=_changed(servers.settings.database_url, port=1))
    assert refused.value.exit_code == 69


def test_a_url_that_cannot_be_read_is_said(servers: Servers) -> None:
    with pytest.raises(ConfigurationError):
        servers.start(database_url="postgresql://host/db?nonsense=1")


def test_a_database_without_the_platform_is_refused(
    apiary_server: TestServer, servers: Servers
) -> None:
    with psycopg.connect(apiary_server.admin_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE empty_one")
    try:
        with pytest.raises(ConfigurationError, match="apiary migrate"):
            servers.start(database_url=apiary_server.url("empty_one"))
    finally:
        apiary_server.drop_database("empty_one")


@pytest.fixture
def login(odd_database: str) -> Iterator[str]:
    """A URL of a plain role, which may log in and nothing else."""
    with psycopg.connect(odd_database, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
    yield _changed(odd_database, user="plain", password="plain")
    with psycopg.connect(odd_database, autocommit=True) as connection:
        connection.execute("DROP ROLE plain")


def test_a_role_that_may_not_run_functions_is_refused(odd_servers: Servers, login: str) -> None:
    with pytest.raises(ConfigurationError, match="plain") as refused:
        odd_servers.start(database_url=login)
    assert 'GRANT apiary_runtime TO "plain"' in (refused.value.hint or "")


def test_the_runtime_role_is_enough(
    odd_servers: Servers, login: str, odd_database: str, apiary_bundle: Bundle
) -> None:
    with psycopg.connect(odd_database, autocommit=True) as connection:
        connection.execute("GRANT apiary_runtime TO plain")
    running = odd_servers.start(database_url=login, deploy_url=login)
    with Client(running.address) as client:
        run_id = client.invoke("odd.put", value=1).run_id
        assert client.get_run(run_id).status == "SUCCEEDED"
        assert list(client.query("SELECT value FROM odd.item")) == [(1,)]
        assert client.functions()
        with pytest.raises(PermissionDenied, match="may not deploy"):
            client.deploy(apiary_bundle)
        with pytest.raises(PermissionDenied):
            list(client.query("SELECT set_config('role', 'postgres', true)"))
    running.close()


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate for 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl program to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def test_tls_is_for_those_who_trust_the_certificate(
    odd_servers: Servers, certificates: Path
) -> None:
    certificate, key = certificates / "certificate.pem", certificates / "key.pem"
    address = odd_servers.start(tls_certificate=certificate, tls_key=key).address
    with Client(address, tls_ca=certificate) as client:
        assert client.call("odd.put", value=1) == 1
    for distrusting in (Client(address, tls=True, retry_budget_s=0), Client(address)):
        with distrusting, pytest.raises(UnavailableError):
            distrusting.call("odd.put", value=2)


def test_a_client_shows_its_certificate_where_asked(
    odd_servers: Servers, certificates: Path
) -> None:
    certificate, key = certificates / "certificate.pem", certificates / "key.pem"
    address = odd_servers.start(
        tls_certificate=certificate, tls_key=key, tls_client_ca=certificate
    ).address
    with Client(address, tls_ca=certificate, tls_certificate=certificate, tls_key=key) as client:
        assert client.call("odd.put", value=1) == 1
    with (
        Client(address, tls_ca=certificate, retry_budget_s=0) as nameless,
        pytest.raises(UnavailableError),
    ):
        nameless.call("odd.put", value=2)


def test_tls_settings_are_checked(servers: Servers, certificates: Path) -> None:
    certificate, key = certificates / "certificate.pem", certificates / "key.pem"
    for settings, says in (
        ({"tls_certificate": certificate}, "both a certificate and its key"),
        ({"tls_client_ca": certificate}, "needs TLS"),
        ({"tls_certificate": certificate, "tls_key": certificates / "missing"}, "cannot be used"),
        ({"tls_certificate": key, "tls_key": certificate}, "cannot be used"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            servers.start(**settings)


# Health, reflection


def _health(address: str, service: str = "") -> str:
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def test_health_is_told_overall_and_for_the_service(odd: Client) -> None:
    assert _health(odd.address) == "SERVING"
    assert _health(odd.address, "apiary.v1.Apiary") == "SERVING"


def test_reflection_lists_the_service(odd: Client) -> None:
    with grpc.insecure_channel(odd.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([request]))
    names = {service.name for service in answer.list_services_response.service}
    assert {"apiary.v1.Apiary", "grpc.health.v1.Health"} <= names


# Draining


def test_draining_finishes_what_runs_and_takes_nothing_new(
    odd_servers: Servers, odd_database: str, eventually: Eventually
) -> None:
    running = odd_servers.start()
    results: list[Any] = []
    with (
        Client(running.address) as client,
        Client(running.address, retry_budget_s=0) as other,
        psycopg.connect(odd_database) as holder,
    ):
        other.functions()  # connected before
        holder.execute("LOCK TABLE odd.item")
        calling = threading.Thread(target=lambda: results.append(client.call("odd.put", value=3)))
        calling.start()
        eventually(lambda: _waiting(odd_database))
        draining = threading.Thread(target=running.close, args=(30.0,))
        draining.start()
        eventually(lambda: _health(running.address) == "NOT_SERVING")
        with pytest.raises(Draining) as refused:
            other.call("odd.put", value=4)
        assert (refused.value.reason, refused.value.grpc_code) == ("DRAINING", "UNAVAILABLE")
        holder.rollback()
        calling.join(20)
        draining.join(20)
    assert results == [3]
    assert rows(odd_database, "SELECT value FROM odd.item") == [{"value": 3}]
    assert not running.server.running


def _waiting(url: str) -> bool:
    return bool(
        rows(
            url,
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock'",
        )
    )


def test_a_drain_that_takes_too_long_cancels(
    odd_servers: Servers, odd_database: str, eventually: Eventually
) -> None:
    running = odd_servers.start()
    failed: list[Draining] = []

    def call() -> None:
        with (
            Client(running.address, retry_budget_s=0) as client,
            pytest.raises(Draining, match="was cancelled") as cut,
        ):
            client.call("odd.sleep", duration_s=60.0, run_id="cut")
        failed.append(cut.value)

    calling = threading.Thread(target=call)
    calling.start()
    active = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    eventually(lambda: bool(rows(odd_database, active)))
    running.close(grace_s=0.1)
    calling.join(20)
    assert len(failed) == 1
    assert not rows(odd_database, active)
    logged = "SELECT status FROM provenance.invocation WHERE run_id = 'cut'"
    assert rows(odd_database, logged) == [{"status": "CANCELLED"}]
    assert rows(odd_database, "SELECT count(*) AS n FROM odd.item") == [{"n": 0}]


SERVE = """
import sys
from apiary.server import ServerSettings, serve
serve(
    ServerSettings(address="127.0.0.1:0", database_url=sys.argv[1], drain_grace_s=30),
    started=lambda server: print(server.address, flush=True),
)
"""


@pytest.fixture
def process(odd_database: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE, odd_database],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert child.stdout is not None
    yield child, child.stdout.readline().strip()
    if child.poll() is None:
        child.kill()
    child.wait()
    child.stdout.close()


def test_sigterm_drains_the_process(process: tuple[subprocess.Popen[str], str]) -> None:
    child, address = process
    with Client(address) as client:
        assert client.call("odd.put", value=1) == 1
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0


def test_a_second_signal_ends_the_process_at_once(
    process: tuple[subprocess.Popen[str], str], odd_database: str, eventually: Eventually
) -> None:
    child, address = process
    with Client(address, retry_budget_s=0) as client:
        calling = threading.Thread(target=_ignoring, args=(client,))
        calling.start()
        eventually(
            lambda: bool(
                rows(odd_database, "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
            )
        )
        child.send_signal(signal.SIGINT)
        eventually(lambda: _health(address) == "NOT_SERVING")
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 128 + signal.SIGINT
        calling.join(20)


def _ignoring(client: Client) -> None:
    with pytest.raises(UnavailableError):
        client.call("odd.sleep", duration_s=60.0)


# A database that goes away


@pytest.fixture
def own_cluster(tmp_path: Path, odd_bundle: Bundle) -> Iterator[PrivateCluster]:
    """A database server of the test's own, to be stopped and started."""
    with PrivateCluster(tmp_path / "postgres", settings=FAST_SETTINGS) as cluster:
        with psycopg.connect(cluster.url(), autocommit=True) as connection:
            apply(connection)
            deploy(connection, odd_bundle, principal="test")
        yield cluster


def test_a_database_that_goes_away_comes_back(
    own_cluster: PrivateCluster, eventually: Eventually
) -> None:
    settings = ServerSettings(address="127.0.0.1:0", database_url=own_cluster.url(), pool_size=4)
    running = RunningServer(settings)
    try:
        with (
            Client(running.address) as client,
            Client(running.address, retry_budget_s=0) as hasty,
        ):
            assert client.call("odd.put", value=1, run_id="one") == 1
            own_cluster.stop("immediate")
            eventually(lambda: _health(running.address) == "NOT_SERVING")
            with pytest.raises(UnavailableError) as away:
                hasty.call("odd.put", value=2, run_id="two")
            assert away.value.exit_code == 69
            own_cluster.start()
            eventually(lambda: _health(running.address) == "SERVING")
            assert client.call("odd.put", value=1, run_id="one") == 1
            assert client.call("odd.put", value=2, run_id="two") == 2
            counted = client.query("SELECT value FROM odd.item ORDER BY 1")
            assert list(counted) == [(1,), (2,)]
    finally:
        running.close()


def test_a_lost_answer_is_asked_for_again_and_takes_effect_once(
    odd_servers: Servers, odd_database: str
) -> None:
    proxy = LossyProxy(odd_servers.start().address)
    try:
        with Client(proxy.address) as client:
            assert client.call("odd.put", value=1) == 1
            proxy.lose_answers(
                lambda: bool(rows(odd_database, "SELECT 1 FROM odd.item WHERE value = 2"))
            )
            result = client.invoke("odd.put", value=2)
            assert proxy.cut == 1
            assert (result.output, result.replayed) == (2, True)
    finally:
        proxy.close()
    assert rows(odd_database, "SELECT value FROM odd.item ORDER BY 1") == [
        {"value": 1},
        {"value": 2},
    ]
