"""Finding an installed PostgreSQL that can run PL/Python.

Looked at in this order; within one place the newest supported version with PL/Python wins:
the caller's directory, ``APIARY_PG_BIN``, Debian and PGDG packages, RHEL packages, Homebrew,
``pg_config`` on the PATH, ``postgres`` on the PATH. A directory that was named explicitly is used
or refused, never passed over.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apiary.errors import ConfigurationError
from apiary.local.packages import install_command

SUPPORTED = range(14, 19)
ENVIRONMENT_VARIABLE = "APIARY_PG_BIN"

_PLACES = (
    ("Debian and PGDG packages", "/usr/lib/postgresql/*/bin"),
    ("RHEL packages", "/usr/pgsql-*/bin"),
    ("Homebrew", "/opt/homebrew/opt/postgresql@*/bin"),
    ("Homebrew", "/usr/local/opt/postgresql@*/bin"),
)
_LIBRARY_SUFFIXES = (".so", ".dylib")


@dataclass(frozen=True, kw_only=True)
class Installation:
    """One installed PostgreSQL server."""

    bin_dir: Path
    """Holds ``postgres`` and ``initdb``; symbolic links resolved."""
    version_major: int
    version_text: str
    """What ``postgres --version`` says, e.g. ``15.14 (Debian 15.14-0+deb12u1)``."""
    has_plpython: bool
    python_library_hint: str | None
    """The Python library that PL/Python is linked with, e.g. ``libpython3.11.so.1.0``; None when
    there is no PL/Python or the linker does not tell."""
    library_dir: Path | None
    """Where loadable modules are (``pg_config --pkglibdir``)."""

    @property
    def supported(self) -> bool:
        return self.version_major in SUPPORTED

    def has_library(self, name: str) -> bool:
        """Whether a loadable module of that name is installed."""
        return self.library_dir is not None and _library(self.library_dir, name) is not None


def find_installation(preferred: Path | None = None) -> Installation:
    """The installation to use.

    ``preferred`` is a directory with ``postgres`` in it, or one whose ``bin`` has it.

    Raises ConfigurationError (with ``looked_at`` and the command that mends it) when there is no
    installation, none of a supported version, or none with PL/Python.
    """
    if preferred is not None:
        return _explicit(preferred, "the given directory")
    from_environment = os.environ.get(ENVIRONMENT_VARIABLE)
    if from_environment:
        return _explicit(Path(from_environment), ENVIRONMENT_VARIABLE)
    looked_at: list[str] = []
    found: list[Installation] = []
    for place, bin_dirs in _places():
        here = [inspect(bin_dir) for bin_dir in bin_dirs]
        looked_at.append(f"{place}: {', '.join(map(_summary, here)) or 'nothing'}")
        usable = [each for each in here if each.supported and each.has_plpython]
        if usable:
            return max(usable, key=lambda each: each.version_major)
        found.extend(here)
    raise _nothing_usable(found, looked_at)


def inspect(bin_dir: Path) -> Installation:
    """What is installed in a directory of binaries. Raises ConfigurationError when its
    ``postgres`` does not run.
    """
    resolved = (bin_dir / "postgres").resolve().parent
    version_text = _version_text(resolved / "postgres")
    library_dir = _library_dir(resolved)
    plpython = _library(library_dir, "plpython3") if library_dir else None
    return Installation(
        bin_dir=resolved,
        version_major=_major(version_text),
        version_text=version_text,
        has_plpython=plpython is not None,
        python_library_hint=_linked_python(plpython) if plpython else None,
        library_dir=library_dir,
    )


def _explicit(directory: Path, origin: str) -> Installation:
    candidates = [directory, directory / "bin"]
    bin_dir = next((each for each in candidates if _is_bin_dir(each)), None)
    if bin_dir is None:
        raise ConfigurationError(
            f"no PostgreSQL server in {directory} ({origin}): postgres and initdb were expected",
            hint=f"Name the directory that holds them, or install it: {install_command(None)}",
            looked_at=[str(each) for each in candidates],
        )
    installation = inspect(bin_dir)
    if not (installation.supported and installation.has_plpython):
        raise _nothing_usable([installation], [f"{origin}: {_summary(installation)}"])
    return installation


def _places() -> Iterator[tuple[str, list[Path]]]:
    for place, pattern in _PLACES:
        root, relative = Path(pattern).anchor, pattern.lstrip("/")
        yield f"{place} ({pattern})", [p for p in Path(root).glob(relative) if _is_bin_dir(p)]
    yield "pg_config on PATH", list(_from_pg_config())
    on_path = shutil.which("postgres")
    beside = [] if on_path is None else [Path(on_path).resolve().parent]
    yield "postgres on PATH", [each for each in beside if _is_bin_dir(each)]


def _from_pg_config() -> Iterator[Path]:
    program = shutil.which("pg_config")
    bin_dir = _ask(program, "--bindir") if program else None
    if bin_dir and _is_bin_dir(Path(bin_dir)):
        yield Path(bin_dir)


def _is_bin_dir(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb"))


def _version_text(postgres: Path) -> str:
    answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=False)
    _, marker, version = answer.stdout.strip().partition("(PostgreSQL) ")
    if answer.returncode != 0 or not marker:
        raise ConfigurationError(
            f"{postgres} --version does not answer like a PostgreSQL server: "
            f"{(answer.stdout + answer.stderr).strip()!r}",
            hint=f"Reinstall it, or point {ENVIRONMENT_VARIABLE} to another bin directory.",
        )
    return version


def _major(version_text: str) -> int:
    # "15.14 (Debian ...)", "18beta2", "9.6.24": the leading number is enough to know it.
    match = re.match(r"\d+", version_text)
    return int(match.group()) if match else 0


def _library_dir(bin_dir: Path) -> Path | None:
    """``pg_config --pkglibdir`` beside the server; servers packaged without it are searched."""
    beside = bin_dir / "pg_config"
    answer = _ask(str(beside), "--pkglibdir") if os.access(beside, os.X_OK) else None
    prefix = bin_dir.parent
    usual = [prefix / "lib", prefix / "lib/postgresql", prefix / "lib64/pgsql"]
    candidates = [Path(answer)] if answer else usual
    # PL/pgSQL is in every server: the directory that has it is the right one.
    return next((each for each in candidates if _library(each, "plpgsql")), None)


def _library(directory: Path, name: str) -> Path | None:
    paths = (directory / f"{name}{suffix}" for suffix in _LIBRARY_SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def _linked_python(library: Path) -> str | None:
    command = ["otool", "-L"] if sys.platform == "darwin" else ["ldd"]
    if shutil.which(command[0]) is None:
        return None
    answer = subprocess.run(
        [*command, library], capture_output=True, text=True, check=False, cwd="/"
    )
    match = re.search(r"(libpython3[^\s/]*|Python\.framework[^\s]*)", answer.stdout)
    return match.group(1) if match else None


def _ask(program: str, option: str) -> str | None:
    answer = subprocess.run([program, option], capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else None


def _summary(installation: Installation) -> str:
    missing = "" if installation.has_plpython else ", no PL/Python"
    unsupported = "" if installation.supported else ", not supported"
    return f"{installation.bin_dir} ({installation.version_text}{unsupported}{missing})"


def _nothing_usable(found: list[Installation], looked_at: list[str]) -> ConfigurationError:
    supported = [each for each in found if each.supported]
    wanted = f"PostgreSQL {SUPPORTED[0]} to {SUPPORTED[-1]} with PL/Python"
    if supported:
        newest = max(supported, key=lambda each: each.version_major)
        problem = f"PostgreSQL {newest.version_major} in {newest.bin_dir} has no PL/Python"
        command = install_command(newest.version_major, newest.bin_dir)
    elif found:
        problem = f"no supported PostgreSQL: {', '.join(map(_summary, found))}"
        command = install_command(None)
    else:
        problem = "no PostgreSQL server is installed"
        command = install_command(None)
    places = "\n".join(f"    {each}" for each in looked_at)
    return ConfigurationError(
        f"{problem}; {wanted} is needed",
        hint=f"Install it: {command}\n  or point {ENVIRONMENT_VARIABLE} to the bin directory of "
        f"another one. Looked at:\n{places}",
        command=command,
        looked_at=looked_at,
    )
