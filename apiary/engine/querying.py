"""One read-only SQL statement for a user, streamed.

The statement runs as the reader (`apiary_reader`), in a read-only transaction that is always rolled
back, on a connection of its own. It is declared as a cursor: PostgreSQL itself then takes exactly
one SELECT (or VALUES, TABLE, WITH), and memory stays bounded however many rows there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
import sqlglot
from psycopg import AsyncConnection, sql
from psycopg.abc import AdaptContext
from psycopg.adapt import Loader
from psycopg.types import datetime as loaders
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from ..authoring.codec import ValueProblem
from ..authoring.dynamic import ANY
from ..authoring.values import dumps
from ..errors import (
    ApiaryError,
    BadArgument,
    DeadlineExceeded,
    PermissionDenied,
    UnavailableError,
)
from .sqlstates import translate

__all__ = ["Batch", "QueryColumn", "Querying"]

READER = "apiary_reader"
_BATCH_ROWS = 500
_BATCH_BYTES = 1024 * 1024
_STALLED_S = 60  # a client that does not take its rows loses the query
_READING = {"SELECT", "WITH", "VALUES", "TABLE", "("}
_WRITING = frozenset(
    (  # noqa: SIM905 - a list of words reads best as words
        "INSERT UPDATE DELETE MERGE TRUNCATE COPY CREATE ALTER DROP GRANT REVOKE SET RESET CALL DO"
        " LOCK VACUUM REFRESH REINDEX COMMENT BEGIN COMMIT ROLLBACK"
    ).split()
)
# Types that Python has no exact value for: shown as PostgreSQL writes them.
_AS_TEXT = (  # noqa: SIM905
    "inet cidr timetz int4range int8range numrange daterange tsrange tstzrange int4multirange"
    " int8multirange nummultirange datemultirange tsmultirange tstzmultirange"
).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumn:
    """A column of the result."""

    name: str
    type: str  # PostgreSQL's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some rows: the JSON text of each value. The columns are in the first batch only."""

    columns: Sequence[QueryColumn]
    rows: Sequence[Sequence[str]]


class Querying:
    """Runs queries, a few at a time."""

    def __init__(self, url: str, *, at_once: int = 4) -> None:
        self._url = url
        self._slots = asyncio.Semaphore(at_once)

    async def stream(self, statement: str, timeout_s: float) -> AsyncGenerator[Batch, None]:
        """The batches of one statement's result; the first comes even when there is no row.

        ``timeout_s`` bounds all of it. Raises BadArgument (not one SELECT, wrong SQL),
        PermissionDenied (it writes, or reads what the reader may not), DeadlineExceeded, or
        StatementError when it fails while it runs.
        """
        _check(statement)
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            async with self._slots, self._reading(timeout_s) as connection:
                cursor = connection.cursor("apiary_query")
                async with _until(deadline):
                    await cursor.execute(statement.encode())
                    columns = await _columns(connection, cursor.description or ())
                while True:
                    async with _until(deadline):
                        rows = await cursor.fetchmany(_BATCH_ROWS)
                    for batch in _batches(rows):
                        yield Batch(columns=columns, rows=batch)
                        columns = []
                    if len(rows) < _BATCH_ROWS:
                        break
                if columns:
                    yield Batch(columns=columns, rows=[])
        except TimeoutError:
            raise DeadlineExceeded(f"the query took longer than {timeout_s:g} s") from None
        except psycopg.Error as error:
            raise _refusal(error) from error

    @asynccontextmanager
    async def _reading(self, timeout_s: float) -> AsyncIterator[AsyncConnection[tuple[Any, ...]]]:
        """A connection inside the reader's transaction; nothing of it is left behind."""
        connection = await AsyncConnection.connect(
            self._url,
            autocommit=True,
            application_name="apiary query",
            options=f"-c idle_in_transaction_session_timeout={_STALLED_S}s -c timezone=UTC",
        )
        try:
            for name in _AS_TEXT:
                if connection.adapters.types.get(name) is not None:
                    connection.adapters.register_loader(name, _TextLoader)
            for name, loader in _LOADERS.items():
                connection.adapters.register_loader(name, loader)
            await connection.execute("BEGIN READ ONLY")
            await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(READER)))
            await connection.execute(
                sql.SQL("SET LOCAL statement_timeout = {}").format(
                    sql.Literal(max(1, round(timeout_s * 1000)))
                )
            )
            yield connection
            # Behind a pooler the session goes on to others: without locks or settings of ours.
            await connection.execute("ROLLBACK")
            await connection.execute("DISCARD ALL")
        finally:
            await connection.close()


@asynccontextmanager
async def _until(deadline: float) -> AsyncIterator[None]:
    """A timeout that does not span a yield of the generator around it."""
    async with asyncio.timeout_at(deadline):
        yield


def _check(statement: str) -> None:
    """Refuse what is not one reading statement, before a connection is made."""
    if "\0" in statement:
        raise BadArgument("the SQL holds U+0000", path="sql")
    try:
        tokens = sqlglot.tokenize(statement, dialect="postgres")
    except SqlglotError as error:
        raise BadArgument(f"the SQL cannot be read: {error}", path="sql") from None
    parts: list[list[Any]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            parts.append([])
        else:
            parts[-1].append(token)
    statements = [part for part in parts if part]
    if len(statements) != 1:
        raise BadArgument(
            f"{len(statements)} statements; expected one" if statements else "there is no SQL",
            hint="send each SELECT as a query of its own",
            path="sql",
        )
    first = statements[0][0].text.upper()
    if first in _WRITING:
        raise PermissionDenied(
            f"a query only reads; {first} is refused",
            hint="change data through functions, so that it is recorded",
            path="sql",
        )
    if first not in _READING:
        raise BadArgument(
            f"a query is one SELECT, WITH, VALUES or TABLE; this starts with {first}", path="sql"
        )


def _refusal(error: psycopg.Error) -> ApiaryError:
    """The user's SQL was wrong or not permitted, unlike a statement of the platform's own."""
    state = error.sqlstate or ""
    message = error.diag.message_primary or str(error)
    if state in ("25006", "42501"):
        return PermissionDenied(
            f"the query was refused: {message}",
            hint="queries only read the log and the applications' tables",
            path="sql",
            sqlstate=state,
        )
    if state == "25P03":
        return UnavailableError(f"the rows were not taken for {_STALLED_S} s; the query was ended")
    if state.startswith(("42", "0A", "3F")):
        return BadArgument(
            message,
            hint=error.diag.message_hint,
            path="sql",
            sqlstate=state,
            position=error.diag.statement_position,
        )
    return translate(error)


async def _columns(
    connection: AsyncConnection[tuple[Any, ...]], description: Sequence[psycopg.Column]
) -> list[QueryColumn]:
    cursor = await connection.execute(
        "SELECT oid::bigint, format_type(oid, NULL) FROM unnest(%s::oid[]) AS oid",
        [[column.type_code for column in description]],
    )
    names: dict[int, str] = dict(await cursor.fetchall())
    return [QueryColumn(name=column.name, type=names[column.type_code]) for column in description]


def _batches(rows: Sequence[tuple[Any, ...]]) -> list[list[list[str]]]:
    """The rows as JSON texts, in parts that each fit into one message."""
    batches: list[list[list[str]]] = []
    size = _BATCH_BYTES
    for row in rows:
        texts = [_json(value) for value in row]
        width = sum(map(len, texts))
        if size + width > _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(texts)
        size += width
    return batches


def _json(value: Any) -> str:
    try:
        return dumps(ANY.encode(value, "value"))
    except ValueProblem:
        return dumps(str(value))  # a type of an extension


class _TextLoader(Loader):
    """The value as PostgreSQL writes it."""

    def load(self, data: Any) -> str:
        return bytes(data).decode()


class _OrTextLoader(Loader):
    """Values, and as text those that Python cannot say: infinity, before year 1, after 9999."""

    exact: ClassVar[type[Loader]]

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._exact = self.exact(oid, context)

    def load(self, data: Any) -> Any:
        try:
            return self._exact.load(data)
        except psycopg.DataError:
            return bytes(data).decode()


class _DateLoader(_OrTextLoader):
    exact = loaders.DateLoader


class _TimestampLoader(_OrTextLoader):
    exact = loaders.TimestampLoader


class _TimestamptzLoader(_OrTextLoader):
    exact = loaders.TimestamptzLoader


class _IntervalLoader(loaders.IntervalLoader):
    """Intervals, and as text those whose length depends on the calendar."""

    def load(self, data: Any) -> Any:
        text = bytes(data)
        if b"mon" in text or b"year" in text:
            return text.decode()
        return super().load(data)


_LOADERS: dict[str, type[Loader]] = {
    "date": _DateLoader,
    "timestamp": _TimestampLoader,
    "timestamptz": _TimestamptzLoader,
    "interval": _IntervalLoader,
}
