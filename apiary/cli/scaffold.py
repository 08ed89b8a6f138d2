"""The files of a new application."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

from ..errors import BadArgument, ConflictError

__all__ = ["write_application"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")

# Names that PostgreSQL does not take as a schema without quotes, or that are taken.
_RESERVED = frozenset(
    [
        "all",
        "analyse",
        "analyze",
        "and",
        "any",
        "apiary",
        "apiary_app",
        "array",
        "as",
        "asc",
        "asymmetric",
        "both",
        "case",
        "cast",
        "check",
        "collate",
        "column",
        "constraint",
        "create",
        "current_catalog",
        "current_date",
        "current_role",
        "current_time",
        "current_timestamp",
        "current_user",
        "default",
        "deferrable",
        "desc",
        "distinct",
        "do",
        "else",
        "end",
        "except",
        "false",
        "fetch",
        "for",
        "foreign",
        "from",
        "functions",
        "grant",
        "group",
        "having",
        "in",
        "information_schema",
        "initially",
        "intersect",
        "into",
        "lateral",
        "leading",
        "limit",
        "localtime",
        "localtimestamp",
        "not",
        "null",
        "offset",
        "on",
        "only",
        "or",
        "order",
        "placing",
        "primary",
        "provenance",
        "public",
        "references",
        "returning",
        "select",
        "session_user",
        "some",
        "symmetric",
        "system_user",
        "table",
        "then",
        "to",
        "trailing",
        "true",
        "union",
        "unique",
        "user",
        "using",
        "variadic",
        "when",
        "where",
        "window",
        "with",
        "workflows",
    ]
)

_FILES = {
    "pyproject.toml": """\
[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["apiary"]

[tool.apiary]
name = "$name"

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
""",
    "README.md": """\
# $name

    apiary dev --deploy                                  # a database and a server, with this folder
    apiary call $name.sign visitor=ada message=hello
    pytest
""",
    ".gitignore": """\
.apiary/
__pycache__/
""",
    "functions/$name/__init__.py": '''\
"""A guest book: sign it, and see who signed last."""

from __future__ import annotations

from apiary import Database, function


@function
def sign(db: Database, visitor: str, message: str) -> int:
    """Add an entry; return its number."""
    entry_id: int = db.value(
        "INSERT INTO $name.entry (visitor, message) VALUES ($$1, $$2) RETURNING entry_id",
        visitor,
        message,
    )
    return entry_id


@function
def latest(db: Database, limit: int = 10) -> list[str]:
    """The newest messages, newest first."""
    return db.values("SELECT message FROM $name.entry ORDER BY entry_id DESC LIMIT $$1", limit)
''',
    "functions/$name/sql/001_entry.sql": """\
CREATE TABLE $name.entry (
    entry_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    visitor     text NOT NULL,
    message     text NOT NULL,
    signed_at   timestamptz NOT NULL DEFAULT now()
);
""",
    "tests/test_$name.py": '''\
"""The application in a database of its own."""

from __future__ import annotations

from apiary.testing import Platform
from functions import $name


def test_the_newest_message_comes_first(apiary_app: Platform) -> None:
    apiary_app.call($name.sign, "ada", "hello")
    apiary_app.call($name.sign, "grace", "good morning")
    assert apiary_app.call($name.latest) == ["good morning", "hello"]


def test_every_row_knows_the_call_that_wrote_it(apiary_app: Platform) -> None:
    apiary_app.call($name.sign, "ada", "hello")
    [event] = apiary_app.query(
        "SELECT i.function, e.after ->> 'visitor' AS visitor"
        "  FROM provenance.data_event e JOIN provenance.invocation i USING (run_id, seq)"
        " WHERE e.relation = '$name.entry'"
    )
    assert event == {"function": "$name.sign", "visitor": "ada"}
''',
}


def write_application(folder: Path, name: str) -> list[Path]:
    """Write the files of a new application; return them.

    Raises BadArgument for a name that is unusable, ConflictError when the folder has something in
    it already; nothing is written then.
    """
    _check_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConflictError(
            f"{folder.name} exists and is not an empty folder", hint="choose another name"
        )
    written = []
    for path, text in _FILES.items():
        file = folder / Template(path).substitute(name=name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Template(text).substitute(name=name), encoding="utf-8")
        written.append(file)
    return written


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadArgument(
            f"{name!r} is not usable as a name",
            hint="a lower-case letter, then up to 39 of a-z, 0-9 and _",
            path="NAME",
        )
    if keyword.iskeyword(name) or name in _RESERVED or name.startswith("pg_"):
        raise BadArgument(
            f"{name!r} is a reserved word, or taken by the platform",
            hint="the name becomes a Python module and a database schema: choose another one",
            path="NAME",
        )
