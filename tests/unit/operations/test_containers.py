"""The containers: their structure, and that they fit together."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from apiary.cli.app import app
from apiary.local.binaries import SUPPORTED

REPOSITORY = Path(__file__).resolve().parents[3]
SECRETS = {
    "POSTGRES_PASSWORD": "p1",
    "APIARY_RUNTIME_PASSWORD": "p2",
    "APIARY_DEPLOYER_PASSWORD": "p3",
    "APIARY_TOKENS": "t ada invoke",
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    return document


def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def test_there_is_a_database_with_migrations_a_server_and_executors(
    compose: dict[str, Any],
) -> None:
    assert {"postgres", "migrate", "server", "executor"} <= set(services(compose))


def test_what_is_built_has_a_dockerfile(compose: dict[str, Any]) -> None:
    for service in services(compose).values():
        build = service["build"]
        context = REPOSITORY / build["context"]
        assert (context / build.get("dockerfile", "Dockerfile")).is_file()


def test_what_stays_up_is_checked_for_health(compose: dict[str, Any]) -> None:
    for name, service in services(compose).items():
        if service["restart"] != "no":
            assert service["healthcheck"]["test"], name


def test_each_starts_after_what_it_needs(compose: dict[str, Any]) -> None:
    found = services(compose)
    for service in found.values():
        for name, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if name == "migrate" else "service_healthy"
            assert how["condition"] == wanted
            assert name in found


def test_secrets_come_from_the_environment_and_have_no_default(compose: dict[str, Any]) -> None:
    text = (REPOSITORY / "compose.yaml").read_text()
    for name in SECRETS:
        for use in re.findall(rf"\$\{{{name}([^}}]*)\}}", text):
            assert use.startswith(":?"), f"{name} must be required"
    example = (REPOSITORY / ".env.example").read_text()
    assert {name for name in SECRETS if f"{name}=" in example} == set(SECRETS)


def test_servers_never_log_in_as_a_superuser(compose: dict[str, Any]) -> None:
    for name, service in services(compose).items():
        if name not in ("postgres", "migrate"):
            assert "POSTGRES_PASSWORD" not in str(service["environment"]), name


def test_the_database_is_not_reachable_from_outside(compose: dict[str, Any]) -> None:
    assert "ports" not in services(compose)["postgres"]
    for port in services(compose)["server"]["ports"]:
        assert port.startswith("127.0.0.1:")


def test_the_commands_and_options_exist(compose: dict[str, Any]) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for service in services(compose).values():
        if "command" in service:
            name, *options = service["command"]
            names = {option for parameter in known[name].params for option in parameter.opts}
            assert {option for option in options if option.startswith("--")} <= names


def test_the_image_has_pl_python_of_its_own_version() -> None:
    text = (REPOSITORY / "storage/postgres/Dockerfile").read_text()
    default = re.search(r"ARG POSTGRES_VERSION=(\d+)", text)
    assert default is not None
    assert int(default.group(1)) in SUPPORTED
    assert "FROM postgres:${POSTGRES_VERSION}" in text
    assert "postgresql-plpython3-${POSTGRES_VERSION}" in text
    copied = re.search(r"COPY .*?(\S+\.sh) ", text)
    assert copied is not None
    script = REPOSITORY / "storage/postgres" / copied.group(1)
    assert os.access(script, os.X_OK)


def test_the_engine_takes_the_file() -> None:
    docker = shutil.which("docker")
    works = docker and subprocess.run(
        [docker, "compose", "version"], capture_output=True, check=False
    )
    if not works or works.returncode != 0:
        pytest.skip("no docker compose here")
    done = subprocess.run(
        [str(docker), "compose", "config", "--quiet"],
        cwd=REPOSITORY,
        env={**os.environ, **SECRETS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_shell_scripts_have_no_error_of_syntax() -> None:
    scripts = [REPOSITORY / "storage/postgres/logins.sh"]
    for path in (REPOSITORY / ".ci").iterdir():
        if path.read_bytes().startswith(b"#!/usr/bin/env bash"):
            assert os.access(path, os.X_OK), path
            scripts.append(path)
    assert len(scripts) > 3
    for script in scripts:
        done = subprocess.run(["bash", "-n", str(script)], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
