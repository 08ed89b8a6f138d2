"""Read one SQL statement: which tables it reads and writes, and whether a function may run it.

`read_sql` parses PostgreSQL text with sqlglot and walks the tree once. What it promises:

* a statement of kind ``read`` changes nothing that another session could see: no rows, no row or
  advisory locks, no sequences, no notifications, no settings;
* a table name that is a CTE where it stands is not a table; the target of INSERT, UPDATE, DELETE or
  MERGE always is one;
* what cannot be known from the text (a call of a user's SQL function, a function that executes
  text) is reported in ``unknown`` and never guessed.

The target of a write is in ``writes`` alone, unless the statement also names it as a source.

Importing sqlglot takes about half a second, so only this module does, and `analysis` imports this
module when it needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError

from apiary.authoring.analysis.sqlparameters import ParameterText, parse_ready

__all__ = ["SqlProblem", "SqlReading", "read_sql"]

_STATEMENTS = frozenset(
    "SELECT INSERT UPDATE DELETE MERGE WITH VALUES TABLE TRUNCATE LOCK".split()  # noqa: SIM905
)
_TRANSACTION_CONTROL = frozenset(
    "BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE PREPARE".split()  # noqa: SIM905
)
_DDL = frozenset(
    "CREATE ALTER DROP COMMENT GRANT REVOKE REINDEX CLUSTER REFRESH SECURITY".split()  # noqa: SIM905
)
_USE_INSTEAD = {
    "SET": "use set_config(name, value, true), which lasts until the end of the transaction",
    "RESET": "use set_config(name, value, true), which lasts until the end of the transaction",
    "SHOW": "use SELECT current_setting(name)",
    "COPY": "use execute_many, or INSERT ... SELECT FROM unnest(...)",
    "DO": "write the logic in Python, or in a function under functions/<domain>/sql/",
    "CALL": "call another @function as a Python function",
    "NOTIFY": "use SELECT pg_notify(channel, payload)",
    "LISTEN": "a function cannot wait for a notification; wait in a workflow",
    "EXECUTE": "statements are prepared for you; pass the statement itself",
}

_WRITING_FUNCTIONS = frozenset(
    [
        "nextval",
        "setval",
        "set_config",
        "pg_notify",
        "lo_creat",
        "lo_create",
        "lo_from_bytea",
        "lo_import",
        "lo_export",
        "lo_open",
        "lo_put",
        "lo_truncate",
        "lo_truncate64",
        "lo_unlink",
        "lowrite",
        "pg_cancel_backend",
        "pg_terminate_backend",
        "pg_reload_conf",
        "pg_logical_emit_message",
        "pg_create_restore_point",
        "pg_switch_wal",
    ]
)
_WRITING_PREFIXES = ("pg_advisory", "pg_try_advisory", "dblink")
_FUNCTIONS_OF_SQL_TEXT = frozenset(
    [
        "query_to_xml",
        "query_to_xmlschema",
        "query_to_xml_and_xmlschema",
        "cursor_to_xml",
        "ts_stat",
        "crosstab",
        "connectby",
        "xpath_table",
    ]
)
_SYSTEM_SCHEMAS = frozenset({"pg_catalog", "information_schema"})
_TOKEN_ERROR_PLACE = re.compile(r"(?:from|line) (\d+)(?::|, col(?:umn)? )(\d+)")


class _Parser(Postgres.Parser):  # type: ignore[misc, valid-type]
    def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
        # The parser knows functions of many databases by name, and the number of their arguments;
        # a function of that name in this database (hotel.search) need not agree.
        return expression if args is not None else super().validate_expression(expression)


class _Dialect(Postgres):
    Parser = _Parser


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlProblem:
    """Something to say about a statement, at an ``offset`` (0-based characters) in its text."""

    message: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlReading:
    """What one SQL statement does.

    ``reads`` and ``writes`` hold ``schema.table``; ``functions`` the unqualified names of called
    functions that are not part of standard SQL as the parser knows it, in lower case.
    ``problems`` refuse the statement, ``unknown`` make its effects unknowable. With a problem, the
    other fields say only what could be read.
    """

    kind: Literal["read", "write"]
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    parameters: int = 0
    functions: frozenset[str] = frozenset()
    unknown: tuple[SqlProblem, ...] = ()
    problems: tuple[SqlProblem, ...] = ()


def read_sql(sql: str, default_schema: str) -> SqlReading:
    """Read a single PostgreSQL statement; unqualified tables belong to ``default_schema``.

    Raises nothing for bad SQL: what is wrong is in ``problems``, each with its offset.
    """
    ready = parse_ready(sql)
    reading = _read(ready, default_schema)
    return replace(
        reading,
        problems=tuple(_moved(problem, ready) for problem in reading.problems),
        unknown=tuple(_moved(problem, ready) for problem in reading.unknown),
    )


def _moved(problem: SqlProblem, ready: ParameterText) -> SqlProblem:
    return replace(problem, offset=ready.original(problem.offset))


def _read(ready: ParameterText, default_schema: str) -> SqlReading:
    dialect, sql = _Dialect(), ready.text
    try:
        tokens = dialect.tokenize(sql)
    except TokenError as error:
        return _refused(_token_problem(sql, error))
    problem = _statement_problem(tokens)
    if problem is not None:
        return _refused(problem)
    if tokens[0].text.upper() == "LOCK":
        return _read_lock(sql, tokens[0].end + 1, default_schema)
    try:
        trees = dialect.parse(sql)
    except ParseError as error:
        return _refused(_parse_problem(sql, error))
    tree = next(tree for tree in trees if tree is not None)
    return _read_tree(tree, ready, default_schema)


def _refused(problem: SqlProblem) -> SqlReading:
    return SqlReading(kind="write", problems=(problem,))


def _statement_problem(tokens: list[Token]) -> SqlProblem | None:
    """The problem that the first word or a second statement is, if any."""
    if not tokens or tokens[0].token_type is TokenType.SEMICOLON:
        return SqlProblem(message="the SQL statement is empty", offset=0)
    for before, after in pairwise(tokens):
        if before.token_type is TokenType.SEMICOLON and after.token_type is not before.token_type:
            return SqlProblem(
                message="more than one SQL statement in one string; "
                "call db once for each statement",
                offset=after.start,
            )
    opening = next((t for t in tokens if t.token_type is not TokenType.L_PAREN), tokens[0])
    word = opening.text.upper()
    if word in _STATEMENTS:
        return None
    return SqlProblem(message=_refusal(word, opening.text), offset=opening.start)


def _refusal(word: str, given: str) -> str:
    if word in _TRANSACTION_CONTROL:
        return (
            f"{word} is refused: a function is one transaction, which the platform begins and"
            " ends; raise an exception to roll it back"
        )
    if word in _DDL:
        return (
            f"{word} is refused: a function does not change the schema; put the statement into a"
            " file under functions/<domain>/sql/"
        )
    if word in _USE_INSTEAD:
        return f"{word} is refused in a function: {_USE_INSTEAD[word]}"
    return (
        f"SQL syntax error: {given!r} does not begin a statement that a function can run"
        " (SELECT, INSERT, UPDATE, DELETE, MERGE, WITH, VALUES, TABLE, TRUNCATE, LOCK)"
    )


def _token_problem(sql: str, error: TokenError) -> SqlProblem:
    causes: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    place = next((m for text in causes if (m := _TOKEN_ERROR_PLACE.search(text))), None)
    offset = _offset(sql, int(place[1]), int(place[2])) if place else 0
    return SqlProblem(message=f"SQL syntax error: {causes[-1]}", offset=offset)


def _parse_problem(sql: str, error: ParseError) -> SqlProblem:
    detail = error.errors[0] if error.errors else {}
    near = str(detail.get("highlight") or "").strip()
    what = str(detail.get("description") or error).rstrip(".")
    message = f"SQL syntax error at {near!r}: {what}" if near else f"SQL syntax error: {what}"
    # The parser's column is that of the token's last character.
    end = _offset(sql, int(detail.get("line") or 1), int(detail.get("col") or 1))
    return SqlProblem(message=message, offset=max(0, end - max(len(near) - 1, 0)))


def _offset(sql: str, line: int, column: int) -> int:
    """The 0-based offset of a 1-based line and column, held within the text."""
    before = sum(len(text) for text in sql.splitlines(keepends=True)[: line - 1])
    return min(max(before + column - 1, 0), max(len(sql) - 1, 0))


def _read_lock(sql: str, start: int, default_schema: str) -> SqlReading:
    """LOCK [TABLE] [ONLY] name [*] [, ...] [IN mode MODE] [NOWAIT], which sqlglot cannot read."""
    pattern = re.compile(
        r"\s*(?:TABLE\s+)?(?P<names>.+?)(?:\s+IN\s+[A-Z\s]+\s+MODE)?(?:\s+NOWAIT)?[\s;]*\Z",
        re.IGNORECASE | re.DOTALL,
    )
    found = pattern.match(sql, start)
    if found is None:
        return _refused(SqlProblem(message="SQL syntax error: LOCK names no table", offset=start))
    try:
        trees = _Dialect().parse(f"SELECT FROM {found['names']}")
    except (ParseError, TokenError) as error:
        message = f"SQL syntax error in the tables of LOCK: {str(error).splitlines()[0]}"
        return _refused(SqlProblem(message=message, offset=found.start("names")))
    tables = [table for tree in trees if tree for table in tree.find_all(exp.Table)]
    names = frozenset(_table_name(table, default_schema) for table in tables)
    return SqlReading(kind="write", writes=names)


def _read_tree(tree: exp.Expr, ready: ParameterText, default_schema: str) -> SqlReading:
    sql = ready.text
    reads: set[str] = set()
    writes: set[str] = set()
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.find_ancestor(exp.Lock, exp.Into):
            continue
        if _is_target(table):
            writes.add(_table_name(table, default_schema))
        elif not _is_cte(table):
            reads.add(_table_name(table, default_schema))
    problems = [*_tree_problems(tree, sql), *_parameter_problems(tree, ready)]
    calls = list(_calls(tree))
    acts = writes or tree.find(exp.Lock) or any(_call_writes(*call) for call in calls)
    return SqlReading(
        kind="write" if acts else "read",
        reads=frozenset(reads),
        writes=frozenset(writes),
        parameters=max(ready.offsets, default=0),
        functions=frozenset(name for schema, name in calls if schema is None),
        unknown=tuple(_unknown_calls(calls, sql)),
        problems=tuple(problems),
    )


def _is_target(table: exp.Table) -> bool:
    schema = table.parent if isinstance(table.parent, exp.Schema) else None
    child = schema or table
    parent = child.parent
    if isinstance(parent, exp.TruncateTable):
        return True
    return isinstance(parent, exp.Insert | exp.Update | exp.Delete | exp.Merge) and (
        parent.this is child
    )


def _is_cte(table: exp.Table) -> bool:
    """Whether an unqualified name is, where it stands, the name of a common table expression.

    A CTE sees those before it in its list, and with RECURSIVE all of them; what stands outside the
    list sees all of it.
    """
    if table.args.get("db") is not None:
        return False
    name = _folded(table.this)
    path: list[exp.Expr] = [table]
    while (above := path[-1].parent) is not None:
        clause = above.args.get("with_") or above.args.get("with")
        if clause is not None:
            expressions = clause.expressions
            if path[-1] is clause and not clause.args.get("recursive"):
                inside = next(i for i, cte in enumerate(expressions) if cte is path[-2])
                expressions = expressions[:inside]
            if any(_folded(cte.args["alias"].this) == name for cte in expressions):
                return True
        path.append(above)
    return False


def _folded(identifier: exp.Expr) -> str:
    name = identifier.name
    return name if identifier.args.get("quoted") else name.lower()


def _table_name(table: exp.Table, default_schema: str) -> str:
    name = _folded(table.this)
    schema = table.args.get("db")
    if schema is not None:
        return f"{_folded(schema)}.{name}"
    # pg_catalog is searched before every other schema, and reserves the prefix.
    return f"pg_catalog.{name}" if name.startswith("pg_") else f"{default_schema}.{name}"


def _tree_problems(tree: exp.Expr, sql: str) -> Iterator[SqlProblem]:
    into = tree.find(exp.Into)
    if into is not None:
        yield SqlProblem(
            message="SELECT INTO is refused: a function does not change the schema; put the table"
            " into a file under functions/<domain>/sql/ and use INSERT ... SELECT",
            offset=_position(sql, r"\binto\b"),
        )
    for delete in tree.find_all(exp.Delete):
        if not delete.this and not delete.find_ancestor(exp.Merge):
            yield SqlProblem(
                message="SQL syntax error: DELETE needs FROM before its table",
                offset=_position(sql, r"\bdelete\b"),
            )


def _parameter_problems(tree: exp.Expr, ready: ParameterText) -> Iterator[SqlProblem]:
    if tree.find(exp.Placeholder):
        yield SqlProblem(
            message="parameters are written $1, $2, ...; found another kind of placeholder",
            offset=_position(ready.text, r"%s|%\(|:\w|\?"),
        )
    named = [p for p in tree.find_all(exp.Parameter) if not isinstance(p.this, exp.Literal)]
    if named:
        yield SqlProblem(
            message=f"parameters are written $1, $2, ...; found one named {named[0].name!r}",
            offset=_position(ready.text, r"[$@][^\W\d]"),
        )
    numbers = ready.offsets.keys()
    if 0 in numbers:
        yield SqlProblem(
            message="$0 is not a parameter: the first one is $1", offset=_shown(ready, 0)
        )
    last = max(numbers, default=0)
    missing = ", ".join(f"${number}" for number in range(1, last) if number not in numbers)
    if missing:
        yield SqlProblem(
            message=f"the statement uses ${last} but not {missing}: "
            "number the parameters without gaps",
            offset=_shown(ready, last),
        )


def _shown(ready: ParameterText, number: int) -> int:
    """Where a parameter is in the spaced text."""
    offset = ready.offsets[number]
    return offset + sum(1 for other in ready.blanks if ready.original(other) <= offset)


def _position(sql: str, pattern: str) -> int:
    found = re.search(pattern, sql, re.IGNORECASE)
    return found.start() if found else 0


def _calls(tree: exp.Expr) -> Iterator[tuple[str | None, str]]:
    """The called functions as (schema or None, name), both folded.

    Functions that the parser has a class for are plain SQL (count, coalesce, now) unless they are
    qualified; those of the system schemas count as unqualified.
    """
    for call in tree.find_all(exp.Func):
        schema = _schema_of_call(call)
        if schema is not None and schema not in _SYSTEM_SCHEMAS:
            yield schema, call.name.lower() or call.sql_name().lower()
        elif isinstance(call, exp.Anonymous):
            yield None, call.name.lower()


def _schema_of_call(call: exp.Expr) -> str | None:
    parent = call.parent
    if isinstance(parent, exp.Dot) and parent.expression is call:
        left = parent.this.expression if isinstance(parent.this, exp.Dot) else parent.this
        return _folded(left.this if isinstance(left, exp.Column) else left)
    if isinstance(parent, exp.Table) and parent.this is call and parent.args.get("db"):
        return _folded(parent.args["db"])
    return None


def _call_writes(schema: str | None, name: str) -> bool:
    return schema is None and (name in _WRITING_FUNCTIONS or name.startswith(_WRITING_PREFIXES))


def _unknown_calls(calls: list[tuple[str | None, str]], sql: str) -> Iterator[SqlProblem]:
    for schema, name in calls:
        offset = _position(sql, rf"\b{re.escape(name)}\b")
        if schema is not None:
            message = f"the statement calls {schema}.{name}(), whose effects are not known"
            yield SqlProblem(message=message, offset=offset)
        elif name in _FUNCTIONS_OF_SQL_TEXT:
            message = f"the statement calls {name}(), which executes SQL given as text"
            yield SqlProblem(message=message, offset=offset)
