"""Making a data directory, and checking one that exists before a server is started on it."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from apiary.errors import ConfigurationError
from apiary.local.account import Account
from apiary.local.binaries import Installation
from apiary.local.layout import Layout, choose_place, read_record, write_record

ADMIN_USER = "postgres"
_UNSAFE_METHODS = frozenset({"trust", "password"})


def open_data(
    directory: Path, installation: Installation, account: Account, *, sync: bool
) -> tuple[Layout, str]:
    """The layout of the cluster in ``directory`` and its admin password, with the data made if
    there is none yet.

    Raises ConfigurationError when the data and its credentials are not both there, or the data
    belongs to another account.
    """
    credentials = Layout(directory=directory, place=directory).credentials
    record = read_record(credentials)
    place = choose_place(directory, account) if record is None else Path(record["place"])
    layout = Layout(directory=directory, place=place)
    if layout.data.exists() and record is None:
        raise ConfigurationError(
            f"{layout.data} exists, but {credentials} does not",
            hint="Restore the file, or remove the directory to begin with an empty database.",
        )
    if not layout.data.exists():
        # With new data beside it, initdb had finished and only the last renaming is missing.
        if record is not None and not layout.new_data.exists():
            raise ConfigurationError(
                f"the data of {directory} was in {layout.data}, which is gone",
                hint=f"Restore it, or remove {directory} to begin with an empty database.",
            )
        record = _make(layout, installation, account, sync=sync)
    if record is None:  # pragma: no cover - excluded above
        raise RuntimeError("data without credentials")
    _check_owner(layout, account)
    return layout, str(record["password"])


def _make(
    layout: Layout, installation: Installation, account: Account, *, sync: bool
) -> dict[str, str]:
    password = secrets.token_urlsafe(24)
    try:
        initialise(layout, installation, account, password, sync=sync)
    except BaseException:
        if layout.place != layout.directory:
            shutil.rmtree(layout.place)
        raise
    record = {"user": ADMIN_USER, "password": password, "place": str(layout.place)}
    write_record(layout.credentials, record)
    layout.new_data.rename(layout.data)
    return record


def _check_owner(layout: Layout, account: Account) -> None:
    owner = layout.data.stat().st_uid
    if owner != account.uid:
        raise ConfigurationError(
            f"the data in {layout.data} belongs to uid {owner}, but PostgreSQL would run as "
            f"{account.name!r} (uid {account.uid})",
            hint="Run as the user who made it, or choose another directory.",
        )


def initialise(
    layout: Layout, installation: Installation, account: Account, password: str, *, sync: bool
) -> None:
    """Run initdb into ``layout.new_data``; the caller renames it when all else is recorded.

    ``sync=False`` leaves writing to disk to the operating system, for data that may be lost.
    """
    if layout.new_data.exists():  # an initdb that did not finish
        shutil.rmtree(layout.new_data)
    layout.new_data.mkdir(mode=0o700)
    account.own(layout.new_data)
    with tempfile.NamedTemporaryFile("w", dir=layout.place, prefix=".pw-") as password_file:
        password_file.write(password + "\n")
        password_file.flush()
        account.own(Path(password_file.name))
        _run_initdb(layout, installation, account, password_file.name, sync=sync)
    check_authentication(layout.new_data)


def _run_initdb(
    layout: Layout, installation: Installation, account: Account, pwfile: str, *, sync: bool
) -> None:
    command = [
        str(installation.bin_dir / "initdb"),
        f"--pgdata={layout.new_data}",
        "--encoding=UTF8",
        *_locale_options(installation),
        "--data-checksums",
        f"--username={ADMIN_USER}",
        f"--pwfile={pwfile}",
        "--auth-local=scram-sha-256",
        "--auth-host=scram-sha-256",
        *([] if sync else ["--no-sync"]),
    ]
    try:
        finished = subprocess.run(
            command,
            cwd=layout.place,
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **account.popen_options,
        )
    except OSError as error:
        raise ConfigurationError(
            f"{command[0]} cannot be run as account {account.name!r}: {error.strerror}",
            hint="The account needs access to the directory of the PostgreSQL programs.",
        ) from error
    if finished.returncode != 0:
        raise ConfigurationError(
            f"initdb of PostgreSQL {installation.version_text} in {layout.place} failed "
            f"(exit {finished.returncode}):\n{finished.stdout.strip()}"
        )


def _locale_options(installation: Installation) -> list[str]:
    """Byte order for comparisons everywhere; Unicode's letters for case where that is known."""
    if installation.version_major >= 17:
        return ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if "c.utf8" in _system_locales():
        return ["--locale=C", "--lc-ctype=C.UTF-8"]
    return ["--locale=C"]


def _system_locales() -> frozenset[str]:
    program = shutil.which("locale")
    if program is None:
        return frozenset()
    answer = subprocess.run([program, "-a"], capture_output=True, text=True, check=False)
    return frozenset(line.lower().replace("utf-8", "utf8") for line in answer.stdout.split())


def server_environment() -> dict[str, str]:
    """The environment of the server. Nothing of the caller's: ``PG*`` would change what is run,
    and ``PYTHON*`` or a virtual environment would reach the Python inside the database, which
    also takes its file system encoding from the locale.
    """
    utf8 = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": utf8, "TZ": "UTC"}


def check_version(layout: Layout, installation: Installation) -> None:
    """Raise ConfigurationError when the data was made by another major version."""
    written = (layout.data / "PG_VERSION").read_text(encoding="ascii").strip()
    if written == str(installation.version_major):
        return
    raise ConfigurationError(
        f"the data in {layout.data} was made by PostgreSQL {written}, but the installation in "
        f"{installation.bin_dir} is version {installation.version_major}",
        hint=f"Set APIARY_PG_BIN to the bin directory of PostgreSQL {written}; or take the data "
        f"over with pg_upgrade, or with pg_dumpall from {written} into a new directory.",
        data_version=written,
        installed_version=installation.version_major,
    )


def check_authentication(data: Path) -> None:
    """Raise ConfigurationError when pg_hba.conf lets anyone in over TCP without a password, or
    sends passwords in the clear.
    """
    path = data / "pg_hba.conf"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.partition("#")[0].split()
        if fields and fields[0].startswith("host") and _UNSAFE_METHODS & set(fields[4:]):
            raise ConfigurationError(
                f"{path}, line {number}: TCP connections without a protected password: "
                f"{line.strip()!r}",
                hint="Use scram-sha-256 as the method.",
                file=str(path),
                line=number,
            )
