"""Where a command's settings come from: flag, environment, file, default, in this order.

A flag and its variable arrive here as one value (the parser has put the flag first). The files are
the application's own (`apiary.toml` or `[tool.apiary]`: its name, nothing else) and the state file
of a running `apiary dev`. Both are looked for in the current folder, then in those above it.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ..errors import ConfigurationError, UsageError
from .devstate import running_dev

__all__ = [
    "DEFAULT_ADDRESS",
    "Setting",
    "address",
    "application",
    "database_url",
    "every_setting",
    "masked",
    "tls_ca",
    "token",
]

DEFAULT_ADDRESS = "127.0.0.1:7432"

_PASSWORD = re.compile(r"(\b(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)")
_LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value and where it comes from; ``value`` is None where nothing sets it."""

    name: str
    value: str | None
    origin: str
    secret: bool = False

    @property
    def required(self) -> str:
        """The value. Raises UsageError when there is none."""
        if self.value is None:
            raise UsageError(f"no {self.name} is given", hint=self.origin)
        return self.value

    @property
    def shown(self) -> str | None:
        """The value as it may be shown."""
        if self.value is None:
            return None
        return "********" if self.secret else masked(self.value)


def masked(value: str) -> str:
    """A database URL, or a libpq string of key=value, without its password."""
    hidden = _PASSWORD.sub(r"\1********", value)
    parts = urlsplit(hidden) if "://" in hidden else None
    if parts is None or parts.password is None:
        return hidden
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:********@{host}"))


def address(given: str | None) -> Setting:
    """Where the gRPC server listens."""
    name = "server"
    if given:
        return Setting(name=name, value=given, origin=_given("--server", "APIARY_ADDRESS"))
    dev = running_dev(Path.cwd())
    if dev is not None:
        return Setting(name=name, value=dev.address, origin=str(dev.file))
    return Setting(name=name, value=DEFAULT_ADDRESS, origin="default")


def token(given: str | None) -> Setting:
    """The bearer token to show to the server."""
    origin = _given("--token", "APIARY_TOKEN") if given else "not set"
    return Setting(name="token", value=given or None, origin=origin, secret=True)


def tls_ca(given: str | None) -> Setting:
    """The certificates to trust; None means a connection without TLS."""
    origin = _given("--tls-ca", "APIARY_TLS_CA") if given else "not set"
    return Setting(name="tls_ca", value=given or None, origin=origin)


def application(given: str | None) -> Setting:
    """The application's name."""
    name = "application"
    if given:
        return Setting(name=name, value=given, origin=_given("--application", "APIARY_APPLICATION"))
    for folder in (Path.cwd(), *Path.cwd().parents):
        found = _application_of(folder)
        if found is not None:
            return Setting(name=name, value=found[0], origin=str(found[1]))
    return Setting(
        name=name,
        value=None,
        origin="name it with --application or APIARY_APPLICATION, or run in its folder",
    )


def database_url(given: str | None, *, runtime: bool = False) -> Setting:
    """The database, as a libpq URL (empty: all of it from the PG* variables).

    In the folder of an `apiary dev` it is the deployer's, or with ``runtime`` the one that servers
    and executors log in with.
    """
    name = "database_url"
    if given:
        return Setting(
            name=name, value=given, origin=_given("--database-url", "APIARY_DATABASE_URL")
        )
    variables = [each for each in _LIBPQ_VARIABLES if os.environ.get(each)]
    if variables:
        return Setting(name=name, value="", origin=", ".join(variables))
    dev = running_dev(Path.cwd())
    if dev is not None:
        url = dev.runtime_url if runtime else dev.database_url
        return Setting(name=name, value=url, origin=str(dev.file))
    return Setting(
        name=name,
        value=None,
        origin="name it with --database-url or APIARY_DATABASE_URL, or run `apiary dev` here",
    )


def every_setting() -> list[Setting]:
    """All of them as a command without flags has them here."""
    environ = os.environ
    settings = [
        address(environ.get("APIARY_ADDRESS")),
        token(environ.get("APIARY_TOKEN")),
        tls_ca(environ.get("APIARY_TLS_CA")),
        application(environ.get("APIARY_APPLICATION")),
        database_url(environ.get("APIARY_DATABASE_URL")),
    ]
    binaries = environ.get("APIARY_PG_BIN")
    origin = "APIARY_PG_BIN" if binaries else "default: looked for in the usual places"
    return [*settings, Setting(name="pg_bin", value=binaries, origin=origin)]


def _given(flag: str, variable: str) -> str:
    return variable if os.environ.get(variable) else flag


def _application_of(folder: Path) -> tuple[str, Path] | None:
    """The name of the application in a folder, and the file that makes it one."""
    own, project = folder / "apiary.toml", folder / "pyproject.toml"
    file = own if own.is_file() else project
    if not file.is_file():
        return None
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from error
    table = document if file == own else document.get("tool", {}).get("apiary")
    if table is None:
        return None
    return str(table.get("name", folder.resolve().name)), file
