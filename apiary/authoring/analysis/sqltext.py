"""Constant SQL expressions: their text, and where each character of it is in the source.

Constant are string literals (implicitly concatenated ones too), ``+`` of constants, f-strings whose
placeholders are constants, names and dotted names that are bound once to a constant (in the
function, its module, another module of the application, or a class), and ``textwrap.dedent`` of
one. Everything else is `NotConstantError`.
"""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from apiary.authoring.analysis.sourceindex import Assigned, External, Scope, SourceIndex

__all__ = ["NotConstantError", "SqlText", "sql_text"]

_MAX_DEPTH = 200
_DIGITS_OF_ESCAPE = {"x": 2, "u": 4, "U": 8}


class NotConstantError(Exception):
    """The expression is not constant; ``node`` is the part of it that is not."""

    def __init__(self, node: ast.expr) -> None:
        super().__init__(ast.unparse(node))
        self.node = node


@dataclass(frozen=True, slots=True)
class SqlText:
    """A constant string. ``runs`` are (first offset, file, line), ascending, beginning with 0."""

    text: str
    runs: tuple[tuple[int, str, int], ...]

    def place(self, offset: int) -> tuple[str, int]:
        """The file and line of the character at ``offset``."""
        index = bisect_right(self.runs, offset, key=lambda run: run[0]) - 1
        _, file, line = self.runs[max(index, 0)]
        return file, line


def sql_text(index: SourceIndex, scope: Scope, node: ast.expr, depth: int = 0) -> SqlText:
    """The constant that ``node`` is in ``scope``.

    Raises NotConstantError with the innermost part that is not constant.
    """
    if depth > _MAX_DEPTH:
        raise NotConstantError(node)
    match node:
        case ast.Constant(value=str()):
            return _literal(scope, node)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined(
                sql_text(index, scope, left, depth + 1), sql_text(index, scope, right, depth + 1)
            )
        case ast.JoinedStr():
            return _f_string(index, scope, node, depth)
        case ast.Name() | ast.Attribute():
            resolved = index.resolve(scope, node)
            if isinstance(resolved, Assigned):
                try:
                    return sql_text(index, resolved.scope, resolved.node, depth + 1)
                except NotConstantError as error:
                    raise NotConstantError(node) from error
        case ast.Call(func=func, args=[argument], keywords=[]):
            if index.resolve(scope, func) == External("textwrap.dedent"):
                return _dedented(sql_text(index, scope, argument, depth + 1))
    raise NotConstantError(node)


def _joined(*parts: SqlText) -> SqlText:
    text = ""
    runs: list[tuple[int, str, int]] = []
    for part in parts:
        runs.extend((start + len(text), file, line) for start, file, line in part.runs)
        text += part.text
    return SqlText(text, tuple(runs))


def _dedented(text: SqlText) -> SqlText:
    """Dedenting changes lines, never their number."""
    runs = []
    before = after = 0
    result = textwrap.dedent(text.text)
    for old, new in zip(text.text.split("\n"), result.split("\n"), strict=True):
        runs.append((after, *text.place(before)))
        before, after = before + len(old) + 1, after + len(new) + 1
    return SqlText(result, tuple(runs))


def _literal(scope: Scope, node: ast.Constant) -> SqlText:
    file = scope.source.module.file
    value = str(node.value)
    lines = _literal_lines(scope, node) if node.end_lineno != node.lineno else []
    if len(lines) != len(value):
        lines = []
    changes = (at for at in range(1, len(lines)) if lines[at] != lines[at - 1])
    starts = [(0, lines[0] if lines else node.lineno), *((at, lines[at]) for at in changes)]
    return SqlText(value, tuple((start, file, line) for start, line in starts))


def _literal_lines(scope: Scope, node: ast.Constant) -> list[int]:
    """The source line of every character of a literal that spans lines.

    The segment is put in parentheses, without which its second line would begin a new statement.
    """
    segment = ast.get_source_segment(scope.source.module.source, node) or ""
    tokens = tokenize.generate_tokens(io.StringIO(f"({segment})").readline)
    return [
        node.lineno + line
        for token in tokens
        if token.type == tokenize.STRING
        for line in _character_lines(token.string, token.start[0] - 1)
    ]


def _character_lines(literal: str, line: int) -> Iterator[int]:
    """The line of each character that one string token stands for."""
    quote = next(i for i, character in enumerate(literal) if character in "'\"")
    width = 3 if literal[quote : quote + 3] in ("'''", '"""') else 1
    body = literal[quote + width : -width]
    raw = "r" in literal[:quote].lower()
    position = 0
    while position < len(body):
        length, characters = (1, 1) if raw or body[position] != "\\" else _escape(body, position)
        for _ in range(characters):
            yield line
        line += body.count("\n", position, position + length)
        position += length


def _escape(body: str, position: int) -> tuple[int, int]:
    """The length of an escape sequence and the number of characters it stands for."""
    kind = body[position + 1]
    if kind == "\n":
        return 2, 0
    if kind in _DIGITS_OF_ESCAPE:
        return 2 + _DIGITS_OF_ESCAPE[kind], 1
    if kind == "N":
        return body.index("}", position) + 1 - position, 1
    if kind in "01234567":
        digits = 1
        while digits < 3 and body[position + 1 + digits : position + 2 + digits] in tuple(
            "01234567"
        ):
            digits += 1
        return 1 + digits, 1
    return (2, 1) if kind in "\\'\"abfnrtv" else (2, 2)


def _f_string(index: SourceIndex, scope: Scope, node: ast.JoinedStr, depth: int) -> SqlText:
    """The parts of an f-string; the words of its literal parts are searched in the source."""
    source = scope.source.module
    segment = ast.get_source_segment(source.source, node) or ""
    cursor = 0
    parts: list[SqlText] = []
    for value in node.values:
        match value:
            case ast.Constant(value=str(text)):
                runs, cursor = _word_runs(text, segment, cursor)
                places = tuple((start, source.file, node.lineno + line) for start, line in runs)
                parts.append(SqlText(text, places))
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                parts.append(_placeholder(index, scope, inner, depth))
            case _:
                raise NotConstantError(value)
    return _joined(*parts) if parts else SqlText("", ((0, source.file, node.lineno),))


def _word_runs(text: str, segment: str, cursor: int) -> tuple[list[tuple[int, int]], int]:
    """(offset in text, line in segment) of each word of ``text``, sought from ``cursor`` on."""
    runs = [(0, segment.count("\n", 0, cursor))]
    position = 0
    for word in text.split():
        position = text.index(word, position)
        found = segment.find(word, cursor)
        if found >= 0:
            runs.append((position, segment.count("\n", 0, found)))
            cursor = found + len(word)
        position += len(word)
    return runs, cursor


def _placeholder(index: SourceIndex, scope: Scope, node: ast.expr, depth: int) -> SqlText:
    """A placeholder of an f-string: a constant string or integer."""
    place = ((0, scope.source.module.file, node.lineno),)
    resolved = index.resolve(scope, node)
    constant = resolved.node if isinstance(resolved, Assigned) else node
    if isinstance(constant, ast.Constant) and type(constant.value) is int:
        return SqlText(str(constant.value), place)
    return sql_text(index, scope, node, depth + 1)
