"""Arguments on the command line: ``key=text``, ``key:=json``, a JSON document, a file."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadArgument, UsageError

__all__ = ["Arguments", "read_arguments", "text_for_another_type"]

_PAIR = re.compile(r"([A-Za-z_]\w*)(:=|=)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments by name, and which of them were given as text."""

    document: dict[str, Any]
    texts: frozenset[str]

    def to_json(self) -> str:
        """The document as JSON text."""
        return json.dumps(self.document, ensure_ascii=False)


def read_arguments(
    pairs: Sequence[str], *, json_text: str | None = None, file: Path | None = None
) -> Arguments:
    """Read the arguments. Raises UsageError for two forms at once, BadArgument for a wrong one."""
    given = [bool(pairs), json_text is not None, file is not None]
    if sum(given) > 1:
        raise UsageError(
            "the arguments are given in two ways",
            hint="either as key=text and key:=json, or by --json, or by --file",
        )
    if json_text is not None:
        return Arguments(document=_object(json_text, "--json"), texts=frozenset())
    if file is not None:
        return Arguments(document=_object(_read(file), f"--file {file}"), texts=frozenset())
    return _from_pairs(pairs)


def _from_pairs(pairs: Iterable[str]) -> Arguments:
    document: dict[str, Any] = {}
    texts = set()
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if match is None:
            raise BadArgument(
                f"{pair!r} is not an argument",
                hint="write key=text, or key:=json for numbers, lists, true, null, ...",
                path=pair,
            )
        name, sign, value = match.groups()
        if name in document:
            raise BadArgument(f"{name} is given twice", path=f"args.{name}")
        if sign == "=":
            texts.add(name)
            document[name] = value
        else:
            document[name] = _json(value, f"{name}:=")
    return Arguments(document=document, texts=frozenset(texts))


def text_for_another_type(arguments: Arguments, signature: dict[str, Any], path: str) -> str | None:
    """What to write instead, when the argument at ``path`` was text and the function wants no text.

    ``signature`` is a function's description: ``parameters`` with ``name`` and ``type``.
    """
    name = path.removeprefix("args.").partition(".")[0].partition("[")[0]
    if name not in arguments.texts:
        return None
    declared = {str(each["name"]): str(each["type"]) for each in signature["parameters"]}
    wanted = declared.get(name)
    if wanted in (None, "str"):
        return None
    value = arguments.document[name]
    return f"{name} is {wanted}: write {name}:={value} (key=value is text, key:=value is JSON)"


def _object(text: str, origin: str) -> dict[str, Any]:
    value = _json(text, origin)
    if not isinstance(value, dict):
        raise BadArgument(
            f"{origin} is not a JSON object",
            hint='the arguments by name, as in {"hotel_id": 3}',
            path=origin,
        )
    return value


def _json(text: str, origin: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadArgument(
            f"{origin} is not JSON: {error}",
            hint="text is written key=text, or with quotes in JSON",
            path=origin,
        ) from error


def _read(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"cannot read {file}: {error}", path=str(file)) from error
