"""Table scripts, taken apart into their statements.

Statements are sent one by one, so that an error has the line of its statement even where the
server gives no position, and so that a transaction command is refused before anything of the
script has run. Where a statement ends is told by the rules of psql: at a semicolon outside of
quotes, comments, parentheses and the BEGIN ATOMIC ... END of a function's body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["ScriptStatement", "split_script"]

_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<quoted>[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)|'(?:[^']|'')*(?:'|\Z)|"(?:[^"]|"")*(?:"|\Z))
      | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
      | (?P<word>[^\W\d][\w$]*|\d[\w.]*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ROUTINE = re.compile(r"CREATE (OR REPLACE )?(FUNCTION|PROCEDURE)\b")
_TRANSACTION_COMMANDS = frozenset(
    "BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStatement:
    """One statement of a script."""

    text: str
    line: int  # of its first word, from 1
    words: tuple[str, ...]  # its first four words, in capitals

    @property
    def is_transaction_command(self) -> bool:
        """Whether it would begin or end a transaction or a part of one."""
        return (self.words[:1] != () and self.words[0] in _TRANSACTION_COMMANDS) or self.words[
            :2
        ] == ("PREPARE", "TRANSACTION")

    def line_of(self, position: int) -> int:
        """The script's line of the ``position``-th character (from 1) of this statement."""
        return self.line + self.text[: position - 1].count("\n")


def split_script(text: str) -> Iterator[ScriptStatement]:
    """The statements of a script, in order; empty ones are left out."""
    start: int | None = None
    words: list[str] = []
    parentheses = blocks = 0
    offset = 0
    while offset < len(text):
        token = _TOKEN.match(text, offset)
        assert token is not None  # the last alternative takes any character
        end = _end_of(text, token)
        if token.lastgroup in ("blank", "comment"):
            offset = end
            continue
        if token.lastgroup == "other" and token[0] == ";" and not parentheses and not blocks:
            if start is not None:
                yield _statement(text, start, offset, words)
            start, words, offset = None, [], end
            continue
        start = offset if start is None else start
        if token.lastgroup == "word":
            word = token[0].upper()
            if len(words) < 4:
                words.append(word)
            blocks = max(0, blocks + _block_change(words, word, blocks))
        elif token[0] in "()":
            parentheses = max(0, parentheses + (1 if token[0] == "(" else -1))
        offset = end
    if start is not None:
        yield _statement(text, start, len(text), words)


def _statement(text: str, start: int, end: int, words: list[str]) -> ScriptStatement:
    return ScriptStatement(
        text=text[start:end], line=text.count("\n", 0, start) + 1, words=tuple(words)
    )


def _end_of(text: str, token: re.Match[str]) -> int:
    """Where a token ends; one that is never closed takes the rest of the text."""
    if token.lastgroup == "dollar":
        closing = text.find(token[0], token.end())
        return len(text) if closing < 0 else closing + len(token[0])
    if token.lastgroup != "comment":
        return token.end()
    depth, offset = 1, token.end()
    while depth:
        edge = _COMMENT_EDGE.search(text, offset)
        if edge is None:
            return len(text)
        depth += 1 if edge[0] == "/*" else -1
        offset = edge.end()
    return offset


def _block_change(words: list[str], word: str, blocks: int) -> int:
    """How a word changes the depth of BEGIN ATOMIC ... END in a routine's definition."""
    if not _ROUTINE.match(" ".join(words)):
        return 0
    if word == "BEGIN" or (word == "CASE" and blocks):
        return 1
    return -1 if word == "END" else 0
