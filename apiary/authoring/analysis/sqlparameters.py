"""Find the parameters ``$1``, ``$2``, ... in SQL text, outside strings, names and comments.

sqlglot takes ``$1,$`` in ``f($1,$2)`` for the tag of a dollar-quoted string, and then misses its
end. A blank after each parameter prevents it, so `parse_ready` gives the text with those blanks
and the way back to offsets of the original. It also blanks out ``OVERRIDING SYSTEM VALUE``, which
sqlglot does not know and which changes no table that a statement reads or writes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

__all__ = ["ParameterText", "parse_ready"]

_LEXEMES = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'      # string with escapes
      | '(?:[^']|'')*'                       # string
      | "(?:[^"]|"")*"                       # quoted name
      | --[^\n]*                             # comments
      | /\*.*?\*/
      | (?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$   # dollar-quoted string
      | (?<![\w$])\$(?P<number>\d+)          # parameter
      | (?P<clause>\boverriding\s+(?:system|user)\s+value\b)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterText:
    """SQL text that sqlglot can parse, with a blank after each parameter.

    ``offsets`` maps each parameter's number to the offset of its first use in the original text;
    ``blanks`` are the offsets, in ``text``, of what was inserted.
    """

    text: str
    offsets: dict[int, int]
    blanks: tuple[int, ...]

    def original(self, offset: int) -> int:
        """The offset in the original text of an offset in ``text``."""
        return offset - bisect_left(self.blanks, offset)


def parse_ready(sql: str) -> ParameterText:
    """Put a blank after each parameter of ``sql``, and blank out what sqlglot does not know."""
    pieces: list[str] = []
    blanks: list[int] = []
    offsets: dict[int, int] = {}
    done = 0
    for lexeme in _LEXEMES.finditer(sql):
        if lexeme["clause"] is not None:
            pieces.append(sql[done : lexeme.start()] + " " * len(lexeme["clause"]))
            done = lexeme.end()
        if lexeme["number"] is None:
            continue
        offsets.setdefault(int(lexeme["number"]), lexeme.start())
        pieces.append(sql[done : lexeme.end()] + " ")
        blanks.append(lexeme.end() + len(blanks))
        done = lexeme.end()
    return ParameterText(text="".join(pieces) + sql[done:], offsets=offsets, blanks=tuple(blanks))
