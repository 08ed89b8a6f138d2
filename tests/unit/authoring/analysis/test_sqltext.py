"""Where the characters of a constant SQL expression are in the source."""

from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiary.authoring.analysis.findings import Module
from apiary.authoring.analysis.sourceindex import SourceIndex
from apiary.authoring.analysis.sqltext import NotConstantError, SqlText, sql_text


def text_of(expression: str, before: str = "") -> SqlText:
    """The constant that ``expression`` is at the end of a module, whose file is q.py."""
    index = SourceIndex([Module("functions.q", "q.py", f"{before}({expression})\n")])
    source = index.sources["functions.q"]
    statement = source.tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return sql_text(index, source.scope, statement.value)


# One word in each way to write a literal; every literal ends on its own line.
WAYS = [
    "'w{} '",
    '"w{} "',
    "r'w{} '",
    "'\\x20w{}\\n'",
    "'\\u0020\\N{{SPACE}}\\40w{} \\d '",
    "'''\nw{}\n'''",
    "'''\\\n w{} \\\n'''",
    'r"""\\\n w{} \\\n"""',
    "f'w{} '",
    "f'''\n\nw{}\n'''",
]


def eval_literal(literal: str) -> str:
    """The value of one literal; those of f-strings have no placeholders here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(ast.literal_eval(literal.removeprefix("f")))


@given(st.lists(st.sampled_from(WAYS), min_size=1, max_size=8), st.sampled_from(["", "+"]))
def test_every_word_is_found_on_its_line(ways: list[str], joint: str) -> None:
    literals = [way.format(number) for number, way in enumerate(ways)]
    source = f"{joint}\n".join(literals)
    text = text_of(source)
    values = [eval_literal(literal) for literal in literals]
    assert text.text == "".join(values)
    lines = source.splitlines()
    for number in range(len(ways)):
        word = f"w{number}"
        line = next(at for at, line in enumerate(lines, start=1) if word in line)
        assert text.place(text.text.index(word)) == ("q.py", line)


def test_a_name_is_found_where_it_is_bound() -> None:
    text = text_of("f'{A} b ' + A", "A = 'a'\n\n")
    assert text.text == "a b a"
    assert [text.place(offset) for offset in (0, 2, 4)] == [("q.py", 1), ("q.py", 3), ("q.py", 1)]


def test_dedent_keeps_lines() -> None:
    text = text_of("dedent('''\n    a\n      b\n    ''')", "from textwrap import dedent\n")
    assert text.text == "\na\n  b\n"
    assert text.place(text.text.index("b")) == ("q.py", 4)


def test_the_part_that_is_not_constant_is_named() -> None:
    with pytest.raises(NotConstantError) as caught:
        text_of("'a' + f'{A}' + 'b'", "import os\nA = os.sep\n")
    assert ast.unparse(caught.value.node) == "A"
