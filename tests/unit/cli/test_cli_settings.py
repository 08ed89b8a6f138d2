"""Flag over environment over file over default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apiary.cli import settings
from apiary.cli.devstate import DevRecord, running_dev
from apiary.errors import ConfigurationError, UsageError
from apiary.local.processes import ProcessMark
from apiary.server.settings import DEFAULT_ADDRESS

VARIABLES = (
    *("APIARY_ADDRESS", "APIARY_TOKEN", "APIARY_TLS_CA", "APIARY_APPLICATION"),
    *("APIARY_DATABASE_URL", "APIARY_PG_BIN"),
    *("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and no variables."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dev_runs(folder: Path, process: dict[str, object] | None = None) -> DevRecord:
    """Pretend that this process is the folder's `apiary dev`."""
    record = DevRecord(
        file=DevRecord.path(folder),
        process=process or ProcessMark.of_self().to_json(),
        address="127.0.0.1:1234",
        database_url="postgresql://deployer@127.0.0.1:5/apiary?passfile=x",
        runtime_url="postgresql://runtime@127.0.0.1:5/apiary?passfile=x",
        reader_url="postgresql://reader@127.0.0.1:5/apiary?passfile=x",
        postgres_log=None,
    )
    record.file.parent.mkdir()
    record.write()
    return record


def test_the_server_is_the_usual_one_when_nothing_says_otherwise() -> None:
    assert settings.DEFAULT_ADDRESS == DEFAULT_ADDRESS
    assert settings.address(None).value == DEFAULT_ADDRESS


def test_the_dev_of_a_folder_is_found_from_below(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev_runs(folder)
    below = folder / "functions" / "hotel"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert settings.address(None).value == "127.0.0.1:1234"
    assert (
        settings.database_url(None).value == "postgresql://deployer@127.0.0.1:5/apiary?passfile=x"
    )


def test_what_is_given_wins_over_the_dev_of_the_folder(folder: Path) -> None:
    dev_runs(folder)
    assert settings.address("db:1").value == "db:1"
    assert settings.database_url("postgresql://x/y").value == "postgresql://x/y"


def test_a_dead_dev_does_not_count(folder: Path) -> None:
    dev_runs(folder, process={"pid": 1, "started": "long ago"})
    assert running_dev(folder) is None
    assert settings.address(None).value == DEFAULT_ADDRESS


def test_the_record_of_a_dev_can_be_read_by_its_owner_only(folder: Path) -> None:
    record = dev_runs(folder)
    assert record.file.stat().st_mode & 0o777 == 0o600
    assert running_dev(folder) == record
    assert json.loads(record.file.read_text())["address"] == "127.0.0.1:1234"


def test_libpq_variables_name_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db")
    found = settings.database_url(None)
    assert (found.value, found.origin) == ("", "PGHOST")


def test_no_database_says_how_to_name_one() -> None:
    with pytest.raises(UsageError, match="APIARY_DATABASE_URL"):
        _ = settings.database_url(None).required


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("apiary.toml", 'name = "shop"', "shop"),
        ("pyproject.toml", '[tool.apiary]\nname = "shop"', "shop"),
        ("pyproject.toml", "[tool.apiary]", None),
    ],
)
def test_the_application_is_the_one_of_the_folder(
    folder: Path, file: str, text: str, name: str | None
) -> None:
    (folder / file).write_text(text)
    assert settings.application(None).value == (name or folder.name)
    assert settings.application("other").value == "other"


def test_a_project_that_is_no_application_is_passed_over(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'")
    with pytest.raises(UsageError, match="--application"):
        _ = settings.application(None).required


def test_a_broken_file_is_named(folder: Path) -> None:
    (folder / "apiary.toml").write_text("name = ")
    with pytest.raises(ConfigurationError, match=r"apiary\.toml"):
        settings.application(None)


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APIARY_TOKEN", "s3cret")
    monkeypatch.setenv("APIARY_DATABASE_URL", "postgresql://ada:s3cret@db:5432/app?sslmode=require")
    shown = {each.name: each.shown for each in settings.every_setting()}
    assert shown["database_url"] == "postgresql://ada:********@db:5432/app?sslmode=require"
    assert "s3cret" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("127.0.0.1:7432", "127.0.0.1:7432"),
        ("postgresql://ada@db/app", "postgresql://ada@db/app"),
        ("postgresql://ada:p%40ss@db/app", "postgresql://ada:********@db/app"),
        ("postgresql://db/app?password=s3&user=a", "postgresql://db/app?password=********&user=a"),
        ("host=db password=s3cret user=ada", "host=db password=******** user=ada"),
        (r"password = 'it\'s s3cret' host=db", "password = ******** host=db"),
    ],
)
def test_a_password_is_masked_however_it_is_written(given: str, shown: str) -> None:
    assert settings.masked(given) == shown
