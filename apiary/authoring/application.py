"""An application folder, read into memory: its modules, its table scripts, its settings.

    my_app/
      pyproject.toml  with [tool.apiary], or apiary.toml
      functions/<domain>/*.py and functions/<domain>/sql/NNN_*.sql
      workflows/<domain>/*.py

Reading runs none of the application's code.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, DeployError
from .loader import SourceModule

__all__ = ["Application", "TableScript"]

_ROOTS = ("functions", "workflows")
_SETTINGS = {"name", "packages", "provenance"}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SCRIPT = re.compile(r"(\d{3,})_[\w\-]+\.sql")
_PROVENANCE_LEVELS = ("off", "writes", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScript:
    """One file of a domain's tables, applied once, in the order of its number."""

    domain: str
    name: str  # NNN_what.sql
    file: str  # relative to the application's folder
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application as it stands in a folder."""

    name: str
    root: Path
    modules: tuple[SourceModule, ...]
    scripts: tuple[TableScript, ...]
    provenance: str = "full"  # off, writes, full: how much each call's provenance holds
    packages: tuple[str, ...] = field(default=())

    @classmethod
    def read(cls, folder: Path) -> Application:
        """Read the application in ``folder``.

        Raises ConfigurationError when there is none or its settings are wrong, and DeployError
        for a misnamed script.
        """
        settings, origin = _settings(folder)
        unknown = sorted(set(settings) - _SETTINGS)
        if unknown:
            raise ConfigurationError(
                f"unknown setting {unknown[0]!r} in {origin}",
                hint=f"known settings are {', '.join(sorted(_SETTINGS))}",
            )
        name = settings.get("name", folder.resolve().name)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"the application's name {name!r} is not usable",
                hint=f"set name in {origin}: a lower-case letter, then up to 39 of a-z, 0-9, _",
            )
        provenance = settings.get("provenance", "full")
        if provenance not in _PROVENANCE_LEVELS:
            raise ConfigurationError(
                f"provenance = {provenance!r} in {origin}",
                hint=f"it is one of {', '.join(_PROVENANCE_LEVELS)}",
            )
        packages = settings.get("packages", [])
        if not isinstance(packages, list) or not all(_is_package(folder, p) for p in packages):
            raise ConfigurationError(
                f"packages = {packages!r} in {origin}",
                hint="list the names of package folders beside functions/, as in ['shared']",
            )
        if not any((folder / root).is_dir() for root in _ROOTS):
            raise ConfigurationError(
                f"no application in {folder}: it has neither functions/ nor workflows/",
                hint="apiary init NAME makes one",
            )
        return cls(
            name=name,
            root=folder,
            modules=tuple(_modules(folder, (*_ROOTS, *packages))),
            scripts=tuple(_scripts(folder)),
            provenance=provenance,
            packages=tuple(packages),
        )


def _is_package(folder: Path, name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and (folder / name).is_dir()


def _read(path: Path, shown: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DeployError(
            f"{shown} is not UTF-8 text: {error.reason} at byte {error.start}", file=shown
        ) from error


def _settings(folder: Path) -> tuple[dict[str, Any], Path]:
    own, project = folder / "apiary.toml", folder / "pyproject.toml"
    try:
        if own.is_file():
            return tomllib.loads(_read(own, own.name)), own
        if project.is_file():
            table = tomllib.loads(_read(project, project.name)).get("tool", {}).get("apiary", {})
            return dict(table), project
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"cannot read the settings in {folder}: {error}") from error
    return {}, own


def _modules(folder: Path, roots: tuple[str, ...]) -> list[SourceModule]:
    found = []
    for root in roots:
        for path in sorted((folder / root).rglob("*.py")):
            relative = path.relative_to(folder)
            parts = relative.with_suffix("").parts
            if not all(part.isidentifier() for part in parts):
                continue  # not importable, so not part of the application
            is_package = parts[-1] == "__init__"
            found.append(
                SourceModule(
                    name=".".join(parts[:-1] if is_package else parts),
                    file=relative.as_posix(),
                    source=_read(path, relative.as_posix()),
                    is_package=is_package,
                )
            )
    return found


def _scripts(folder: Path) -> list[TableScript]:
    found = []
    for path in sorted((folder / "functions").glob("*/sql/*.sql")):
        relative = path.relative_to(folder).as_posix()
        if not _SCRIPT.fullmatch(path.name):
            raise DeployError(
                f"{relative} is not named NNN_what.sql",
                hint="scripts are applied in the order of their numbers, as in 001_tables.sql",
                file=relative,
            )
        found.append(
            TableScript(
                domain=path.parent.parent.name,
                name=path.name,
                file=relative,
                sql=_read(path, relative),
            )
        )
    found.sort(key=lambda script: (script.domain, int(script.name.split("_")[0])))
    for before, after in pairwise(found):
        if (before.domain, before.name.split("_")[0]) == (after.domain, after.name.split("_")[0]):
            raise DeployError(
                f"{before.file} and {after.file} have the same number", file=after.file
            )
    return found
