"""Where the parts of a private cluster are.

The cluster's directory always holds what belongs to its owner: the credentials, the state and the
log. The data and the socket belong to the server's account. They are in the same directory unless
that account cannot get there (root's home, say): then they are in a place of their own, which is
recorded in the credentials file and told by ``describe()``.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiary.errors import ConfigurationError
from apiary.local.account import Account

SOCKET_PATH_LIMIT_BYTES = 107 if sys.platform.startswith("linux") else 103
"""``sun_path`` without its terminating zero."""

SYSTEM_PLACE = Path("/var/lib/apiary-dev")
_LONGEST_SOCKET_NAME = ".s.PGSQL.65535"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The paths of one cluster."""

    directory: Path
    """What the caller named."""
    place: Path
    """What holds ``data``; the same as ``directory`` unless the account cannot get there."""

    @property
    def data(self) -> Path:
        return self.place / "data"

    @property
    def new_data(self) -> Path:
        """Where initdb works, so that ``data`` is either complete or absent."""
        return self.place / "data.new"

    @property
    def socket(self) -> Path:
        """Where the socket is if its path will do."""
        return self.place / "socket"

    @property
    def log(self) -> Path:
        return self.directory / "postgres.log"

    @property
    def credentials(self) -> Path:
        return self.directory / "credentials.json"

    @property
    def state(self) -> Path:
        return self.directory / "state.json"

    @property
    def lock(self) -> Path:
        return self.directory / "start.lock"


def prepare_directory(directory: Path, account: Account) -> None:
    """Create the cluster's directory. Only when the server runs under another account are others
    let through it (not let read it).
    """
    mode = 0o711 if account.switch else 0o700
    if not directory.exists():
        directory.mkdir(parents=True)
        directory.chmod(mode)
    elif not directory.is_dir():
        raise ConfigurationError(
            f"{directory} is not a directory", hint="Name a directory for the private PostgreSQL."
        )
    elif not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{directory} belongs to another user (uid {directory.stat().st_uid}) and cannot be "
            f"written by {account.name!r}",
            hint="Run as that user, or choose another directory.",
        )
    elif account.switch and not any(directory.iterdir()):
        directory.chmod(directory.stat().st_mode & 0o777 | 0o011)


def choose_place(directory: Path, account: Account) -> Path:
    """The directory itself, or a new one where the account can get to.

    What is asked for under the temporary directory stays temporary. Raises ConfigurationError
    naming the directory that is in the way when there is no such place.
    """
    if account.can_enter(directory):
        return directory
    temporary = temporary_directories()
    is_temporary = any(directory.is_relative_to(each.resolve()) for each in temporary)
    candidates = temporary if is_temporary else [SYSTEM_PLACE, *temporary]
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]
    for parent in candidates:
        if parent == SYSTEM_PLACE:
            parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        if account.can_enter(parent):
            prefix = "" if parent == SYSTEM_PLACE else "apiary-dev-"
            place = parent / f"{prefix}{digest}-{secrets.token_hex(4)}"
            place.mkdir()
            place.chmod(0o711)
            return place
    raise ConfigurationError(
        f"account {account.name!r}, which runs PostgreSQL for root, cannot enter "
        f"{account.first_closed(directory)} on the way to {directory}",
        hint="Choose another directory, or let others through it: "
        f"chmod o+x {account.first_closed(directory)}",
        directory=str(directory),
    )


def temporary_directories() -> list[Path]:
    """This process's own, and the system's for when that is closed to others."""
    return [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]


def prepare_socket_directory(layout: Layout, account: Account) -> tuple[Path, bool]:
    """A directory for the socket, private to the account; whether it is a temporary one."""
    if _fits_a_socket(layout.socket):
        layout.socket.mkdir(mode=0o700, exist_ok=True)
        account.own(layout.socket)
        return layout.socket, False
    for parent in temporary_directories():
        if _fits_a_socket(parent / "apiary-12345678") and account.can_enter(parent):
            directory = Path(tempfile.mkdtemp(prefix="apiary-", dir=parent))
            account.own(directory)
            return directory, True
    raise ConfigurationError(
        f"no directory fits a Unix socket: neither {layout.socket} nor {tempfile.gettempdir()} is, "
        f"with the socket's name, at most {SOCKET_PATH_LIMIT_BYTES} bytes long, without commas, "
        f"and open to account {account.name!r}",
        hint="Set TMPDIR to a short path that the account can enter.",
    )


def remove(layout: Layout) -> None:
    """Remove all parts of a cluster, and its directories if nothing else is in them."""
    for directory in (layout.data, layout.new_data, layout.socket):
        if directory.exists():
            shutil.rmtree(directory)
    for file in (layout.log, layout.log.with_name(f"{layout.log.name}.1"), layout.state):
        file.unlink(missing_ok=True)
    for file in (layout.credentials, layout.lock):
        file.unlink(missing_ok=True)
    for directory in {layout.place, layout.directory}:
        if directory.exists() and not any(directory.iterdir()):
            directory.rmdir()


def _fits_a_socket(directory: Path) -> bool:
    """Short enough for the operating system, and one host for libpq, which splits at commas."""
    path = os.fsencode(directory / _LONGEST_SOCKET_NAME)
    return len(path) <= SOCKET_PATH_LIMIT_BYTES and b"," not in path


def read_record(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None when there is no file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(document, dict):
        raise _damaged(path)
    return document


def write_record(path: Path, document: dict[str, Any]) -> None:
    """Replace a JSON file as a whole; only its owner may read it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _damaged(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is not what was written there (a JSON object)",
        hint="Restore it, or remove the cluster's directory to begin with an empty database.",
    )
