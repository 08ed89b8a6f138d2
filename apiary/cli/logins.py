"""The logins that `apiary dev` makes in its private database: one per kind of role.

Their passwords are in a libpq password file that only its owner may read, so that no URL holds a
secret, and psql can use the same file (`PGPASSFILE=.apiary/pgpass psql ...`).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from urllib.parse import quote

from psycopg import sql

from .database import Connection

__all__ = ["DATABASE", "LOGINS", "ensure_logins", "login_url"]

DATABASE = "apiary"
LOGINS = {
    "runtime": "apiary_dev_runtime",
    "deployer": "apiary_dev_deployer",
    "reader": "apiary_dev_reader",
}
_GROUPS = {
    "runtime": "apiary_runtime",
    "deployer": "apiary_deployer",
    "reader": "apiary_reader",
}


def ensure_logins(connection: Connection, password_file: Path) -> None:
    """Make the logins, each with the password in the file (made when there is none)."""
    passwords = _read(password_file)
    missing = [login for login in LOGINS.values() if login not in passwords]
    if missing:
        passwords |= {login: secrets.token_urlsafe(24) for login in missing}
        _write(password_file, passwords)
    for kind, login in LOGINS.items():
        _ensure_login(connection, login, _GROUPS[kind], passwords[login])


def login_url(kind: str, port: int, password_file: Path) -> str:
    """The URL of one of the logins on the private server; it holds no secret."""
    return (
        f"postgresql://{LOGINS[kind]}@127.0.0.1:{port}/{DATABASE}"
        f"?passfile={quote(str(password_file), safe='')}"
    )


def _ensure_login(connection: Connection, login: str, group: str, password: str) -> None:
    name = sql.Identifier(login)
    known = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [login]).fetchone()
    if known is None:
        connection.execute(sql.SQL("CREATE ROLE {}").format(name))
    connection.execute(
        sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(password))
    )
    connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), name))


def _read(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    return {line.split(":")[3]: line.split(":")[4] for line in lines if line.count(":") == 4}


def _write(file: Path, passwords: dict[str, str]) -> None:
    """Replace the file; nobody else may read it at any moment."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        for login, password in passwords.items():
            out.write(f"127.0.0.1:*:{DATABASE}:{login}:{password}\n")
    new.replace(file)
