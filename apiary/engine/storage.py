"""The database side of the platform, as files: migrations, functions, the in-backend runtime.

In a wheel they lie in the package's data; in a checkout beside the package.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import apiary

from ..authoring.loader import SourceModule
from ..errors import ConfigurationError

__all__ = ["SqlFile", "application_root", "code_files", "migrations", "runtime_modules"]

_PACKAGE = Path(apiary.__file__).parent
# What user code imports from `apiary` inside the database; all of it is standard library only.
_CLIENT_ONLY = {"application.py", "bundle.py"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFile:
    """One SQL file."""

    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of its text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def _data(name: str, in_wheel: str) -> Path:
    for candidate in (_PACKAGE / "_data" / in_wheel, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise ConfigurationError(
        f"this installation of apiary lacks its {name} folder", hint="install the package again"
    )


def application_root() -> Path:
    """The folder of the built-in application (the one with functions/ and workflows/)."""
    return _data("functions", "application/functions").parent


def _postgres() -> Path:
    return _data("storage", "storage") / "postgres"


def migrations() -> list[SqlFile]:
    """The numbered files that are applied once each, in order."""
    return _sql_files(_postgres())


def code_files() -> list[SqlFile]:
    """The files that are applied again whenever one of them changed: functions, views, grants."""
    return _sql_files(_postgres() / "code")


def _sql_files(folder: Path) -> list[SqlFile]:
    return [
        SqlFile(name=path.name, sql=path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("[0-9]*.sql"))
    ]


def runtime_modules() -> list[SourceModule]:
    """The modules that run inside a backend, by the names under which they are imported there."""
    found = [
        _module("apiary", _PACKAGE / "__init__.py"),
        _module("apiary.errors", _PACKAGE / "errors.py"),
        _module("apiary.execution", _PACKAGE / "execution" / "__init__.py"),
        _module("apiary.execution.replay", _PACKAGE / "execution" / "replay.py"),
    ]
    for folder, package in (
        (_PACKAGE / "authoring", "apiary.authoring"),
        (_postgres() / "runtime", "apiary_runtime"),
    ):
        for path in sorted(folder.glob("*.py")):
            if path.name not in _CLIENT_ONLY:
                name = package if path.name == "__init__.py" else f"{package}.{path.stem}"
                found.append(_module(name, path))
    return found


def _module(name: str, path: Path) -> SourceModule:
    return SourceModule(
        name=name,
        file=path.name,
        source=path.read_text(encoding="utf-8"),
        is_package=path.name == "__init__.py",
    )
