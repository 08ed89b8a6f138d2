"""Which installation is used, and what is said when none can be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from apiary.errors import ConfigurationError
from apiary.local import Installation, PrivateCluster, binaries, find_installation, packages


def _program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _fake_bin(directory: Path, version: str) -> Path:
    _program(directory / "bin/postgres", f"echo 'postgres (PostgreSQL) {version}'")
    _program(directory / "bin/initdb", "exit 1")
    return directory / "bin"


def _with_libraries(bin_dir: Path, *names: str) -> Path:
    libraries = bin_dir.parent / "lib"
    libraries.mkdir(exist_ok=True)
    for name in ("plpgsql", *names):
        (libraries / f"{name}.so").touch()
    return bin_dir


def test_the_installed_server_is_found_with_its_python(installation: Installation) -> None:
    assert installation.version_major in binaries.SUPPORTED
    assert installation.has_plpython
    assert (installation.bin_dir / "postgres").is_file()
    assert installation.version_text.startswith(str(installation.version_major))
    if shutil.which("ldd"):
        assert installation.python_library_hint is not None
        assert "ython" in installation.python_library_hint


@pytest.mark.parametrize("part", ["bin", "."])
def test_a_bin_directory_or_its_prefix_can_be_named(tmp_path: Path, part: str) -> None:
    bin_dir = _with_libraries(_fake_bin(tmp_path, "16.4"), "plpython3", "pg_stat_statements")
    found = find_installation(tmp_path / part)
    assert found.bin_dir == bin_dir
    assert (found.version_major, found.version_text) == (16, "16.4")
    assert found.has_library("pg_stat_statements")
    assert not found.has_library("postgis-3")


def test_the_environment_variable_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_dir = _with_libraries(_fake_bin(tmp_path, "17beta2"), "plpython3")
    monkeypatch.setenv("APIARY_PG_BIN", str(bin_dir))
    assert find_installation().bin_dir == bin_dir
    assert find_installation().version_major == 17


def test_a_named_directory_without_a_server_is_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("APIARY_PG_BIN", str(tmp_path))
    with pytest.raises(ConfigurationError, match="APIARY_PG_BIN") as caught:
        find_installation()
    assert str(tmp_path) in caught.value.message


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    real = _with_libraries(_fake_bin(tmp_path / "real", "15.3"), "plpython3")
    links = tmp_path / "links"
    links.mkdir()
    for name in ("postgres", "initdb"):
        (links / name).symlink_to(real / name)
    assert find_installation(links).bin_dir == real


def test_without_plpython_the_command_to_install_it_is_said(tmp_path: Path) -> None:
    bin_dir = _with_libraries(_fake_bin(tmp_path, "16.4"))
    with pytest.raises(ConfigurationError, match="has no PL/Python") as caught:
        find_installation(bin_dir)
    assert str(bin_dir) in caught.value.message
    assert packages.install_command(16) in str(caught.value)


def test_a_server_without_plpython_is_not_started(tmp_path: Path) -> None:
    cluster = PrivateCluster(tmp_path / "pg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APIARY_PG_BIN", str(_with_libraries(_fake_bin(tmp_path, "15.1"))))
        with pytest.raises(ConfigurationError, match="PL/Python"):
            cluster.start()
    assert not (tmp_path / "pg").exists()


@pytest.mark.parametrize("version", ["13.16", "9.6.24", "19devel"])
def test_an_unsupported_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # asking apt takes seconds
    bin_dir = _with_libraries(_fake_bin(tmp_path, version), "plpython3")
    with pytest.raises(ConfigurationError, match="14 to 18") as caught:
        find_installation(bin_dir)
    assert version in caught.value.message


def test_without_any_server_all_places_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APIARY_PG_BIN", raising=False)
    monkeypatch.setattr(binaries, "_PLACES", (("packages", f"{tmp_path}/nothing/*/bin"),))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="no PostgreSQL server is installed") as caught:
        find_installation()
    assert caught.value.looked_at == [
        f"packages ({tmp_path}/nothing/*/bin): nothing",
        "pg_config on PATH: nothing",
        "postgres on PATH: nothing",
    ]


def test_the_newest_usable_version_of_a_place_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APIARY_PG_BIN", raising=False)
    for version in ("9.6", "14", "16"):
        _with_libraries(_fake_bin(tmp_path / version, f"{version}.1"), "plpython3")
    _with_libraries(_fake_bin(tmp_path / "17", "17.1"))
    monkeypatch.setattr(binaries, "_PLACES", (("packages", f"{tmp_path}/*/bin"),))
    assert find_installation().version_major == 16


@pytest.mark.parametrize(
    ("manager", "uid", "expected"),
    [
        ("apt-get", 0, "apt-get install -y postgresql postgresql-plpython3-16"),
        ("apt-get", 1000, "sudo apt-get install -y postgresql postgresql-plpython3-16"),
        ("dnf", 1000, "sudo dnf install -y postgresql-server postgresql-plpython3"),
        ("brew", 1000, "brew install petere/postgresql/postgresql@16"),
    ],
)
def test_the_command_is_that_of_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, uid: int, expected: str
) -> None:
    _program(tmp_path / manager, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert packages.install_command(16) == expected


def test_apt_is_asked_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path / "apt-get", "exit 0")
    _program(tmp_path / "apt-cache", "echo '  Candidate: 14+238'")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packages.install_command(None).endswith("postgresql-plpython3-14")
