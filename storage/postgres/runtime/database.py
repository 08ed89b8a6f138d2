"""`Database` on PL/Python: the handle that a body gets inside the backend.

Parameter types are inferred by the server itself: the first time that a backend sees a statement,
it is PREPAREd without types, the inferred ones are read back, and a plan is kept for them. So
``$1`` means the same here as over any other connection.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import plpy  # type: ignore[import-not-found]

from apiary.authoring.codec import printable
from apiary.authoring.columns import TEMPORAL_PARAMETERS, readable, temporal_reader
from apiary.authoring.database import Database, Row, insert_over_arrays
from apiary.authoring.dynamic import compact_encoder
from apiary.authoring.values import ValueProblem, codec_for
from apiary.errors import BadArgument, BadResult, StatementError

Convert = Callable[[Any], Any]

_any = codec_for(Any)
_ROWS_PER_READ = 100
_READS = 1000
_READS_BYTES = 64 * 1024
_PARAMETER = re.compile(r"\$\d")
_FIRST_USER_OID = 16384
_STATUS_SELECT = 5  # SPI_OK_SELECT; what a writing statement returns is in the log of writes
_DETAIL, _CONSTRAINT = 1, 9  # where SPIError.spidata has them

# Where SQL state classes mean that the transaction must not commit, whatever the body does:
# serialization failures and deadlocks, operator intervention, resources, system errors.
_FATAL_CLASSES = ("40", "53", "57", "58", "XX")


def _field(error: Any, position: int) -> str | None:
    data = getattr(error, "spidata", None)
    return None if data is None else data[position]


class TransactionLost(BaseException):
    """A statement failed in a way that no body may recover from.

    Not an Exception, so that ``except Exception`` does not swallow it; one that is swallowed all
    the same is remembered in `PlpyDatabase.lost`.
    """


def is_fatal(sqlstate: str | None) -> bool:
    """Whether a statement's failure forbids the transaction to commit."""
    return sqlstate is not None and sqlstate[:2] in _FATAL_CLASSES


def _json_parameter(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return json.dumps(_any.encode(value, "parameter"), allow_nan=False)
    except ValueProblem as problem:
        raise BadArgument(str(problem), path=problem.path) from None


def _plain_parameter(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int:
        return value if kind is int else _text_parameter(value)
    if isinstance(value, Enum):
        return _plain_parameter(value.value)
    if isinstance(value, timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    if isinstance(value, str):
        return _text_parameter(value)
    return value


def _text_parameter(value: str) -> str:
    if "\0" in value:
        raise BadArgument(
            f"a text column cannot hold U+0000, which is at {value.index(chr(0))}",
            hint="store bytes in a bytea column, or the text in a jsonb column",
        )
    if not value.isascii() and printable(value) != value:
        raise BadArgument("the text has a lone surrogate, which cannot be stored")
    return value


def _temporal_parameter(check: Convert) -> Convert:
    return lambda value: _plain_parameter(check(value))


def _array_parameter(element: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [convert(item) for item in value]
        return element(value)

    return convert


def _parameter_converter(type_name: str) -> Convert:
    if type_name.endswith("[]"):
        return _array_parameter(_parameter_converter(type_name[:-2]))
    if type_name in ("json", "jsonb"):
        return _json_parameter
    check = TEMPORAL_PARAMETERS.get(type_name)
    return _plain_parameter if check is None else _temporal_parameter(check)


def _json_column(value: str) -> Any:
    try:
        return _any.decode(json.loads(value), "column")
    except ValueProblem as problem:
        raise BadResult(
            f"a json value cannot be read: {problem}",
            hint="select it as text (column::text) and use json.loads",
            path=problem.path,
        ) from None


# PL/Python itself converts numbers, booleans, text, bytea and arrays; the rest arrives as text.
_COLUMN_CONVERTERS: dict[int, Convert] = {
    114: _json_column,  # json
    3802: _json_column,  # jsonb
    1082: temporal_reader("date"),
    1083: temporal_reader("time"),
    1266: temporal_reader("timetz"),
    1114: temporal_reader("timestamp"),
    1184: temporal_reader("timestamptz"),
    1186: temporal_reader("interval"),
    2950: UUID,
}
_ELEMENT_OF_ARRAY = {
    199: 114,
    3807: 3802,
    1182: 1082,
    1183: 1083,
    1270: 1266,
    1115: 1114,
    1185: 1184,
    1187: 1186,
    2951: 2950,
}


def _array_column(element: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(item) for item in value]
        return None if value is None else element(value)

    return convert


def _column_converter(type_oid: int) -> Convert | None:
    if type_oid >= _FIRST_USER_OID:
        type_oid = _base_type(type_oid)
    if type_oid in _ELEMENT_OF_ARRAY:
        return _array_column(_COLUMN_CONVERTERS[_ELEMENT_OF_ARRAY[type_oid]])
    return _COLUMN_CONVERTERS.get(type_oid)


_base_types: dict[int, int] = {}


def _base_type(type_oid: int) -> int:
    """What a domain is made of; any other type itself."""
    if type_oid not in _base_types:
        rows = plpy.execute(
            "WITH RECURSIVE t (oid, base) AS ("
            f" SELECT oid, typbasetype FROM pg_catalog.pg_type WHERE oid = {int(type_oid)}"
            " UNION ALL SELECT p.oid, p.typbasetype FROM t JOIN pg_catalog.pg_type p"
            "  ON p.oid = t.base)"
            " SELECT oid::pg_catalog.int8 AS oid FROM t WHERE base = 0"
        )
        _base_types[type_oid] = int(rows[0]["oid"]) if len(rows) else type_oid
    return _base_types[type_oid]


class _Statement:
    """A prepared statement with the conversions of its parameters and columns."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.types = _infer_parameter_types(sql)
        self.plan = plpy.prepare(sql, self.types)
        self._parameters = [_parameter_converter(type_name) for type_name in self.types]
        self._shape: Any = None  # names and types of the columns that the conversions are for
        self._columns: list[tuple[str, Convert]] = []
        self.source: str | None = None  # what the log of reads says of each of its executions

    def arguments(self, parameters: Sequence[Any]) -> list[Any]:
        if len(parameters) != len(self._parameters):
            raise BadArgument(
                f"the statement has {len(self._parameters)} parameters, "
                f"{len(parameters)} were given",
                statement=self.sql,
            )
        return [convert(value) for convert, value in zip(self._parameters, parameters, strict=True)]

    def rows(self, result: Any) -> list[Row]:
        if not len(result):
            return []  # also of a statement that returns no rows at all
        shape = (result.colnames(), result.coltypes())
        if shape != self._shape:  # its first rows, or a table has changed
            self._columns = [
                (name, convert)
                for name, oid in zip(*shape, strict=True)
                if (convert := _column_converter(oid)) is not None
            ]
            self._shape = shape
        rows = [Row(row) for row in result]
        for name, convert in self._columns:
            for row in rows:
                if row[name] is not None:
                    row[name] = convert(row[name])
        return rows


def _infer_parameter_types(sql: str) -> list[str]:
    if _PARAMETER.search(sql) is None:
        return []
    plpy.execute("PREPARE apiary_infer AS " + sql)
    try:
        rows = plpy.execute(
            "SELECT parameter_types::pg_catalog.text[] AS types"
            " FROM pg_catalog.pg_prepared_statements WHERE name = 'apiary_infer'"
        )
        return list(rows[0]["types"])
    finally:
        plpy.execute("DEALLOCATE apiary_infer")


class PlpyDatabase(Database):
    """The database as one application's functions see it, in this backend."""

    def __init__(self, relations: Mapping[str, Sequence[str]]) -> None:
        self._relations = relations  # statement -> the tables that it reads, as deploy found them
        self._statements: dict[str, _Statement] = {}
        self._captures_reads = False
        self.lost: Any = None  # the error that forbids the running transaction to commit
        self._reads: list[str] = []
        self._reads_bytes = 0
        self._reads_dropped = 0

    def begin(self, captures_reads: bool) -> None:
        """Forget what the previous invocation left."""
        self.lost = None
        self._captures_reads = captures_reads
        self._reads.clear()
        self._reads_bytes = 0
        self._reads_dropped = 0

    def lost_error(self) -> Any:
        """The error that forbids the running transaction to commit, or None."""
        return self.lost

    def reads(self) -> str | None:
        """What the invocation has read, as a JSON array, or None.

        Bounded in rows per read, reads, and bytes; ``row_count`` tells what was cut from a read,
        and a last entry how many reads were dropped.
        """
        if self._reads_dropped:
            self._reads.append(
                _readable_json(
                    {"relations": [], "rows": [], "row_count": 0, "dropped": self._reads_dropped}
                )
            )
            self._reads_dropped = 0
        return f"[{','.join(self._reads)}]" if self._reads else None

    def prepare(self, sql: str) -> _Statement:
        """The statement's plan, made on first use."""
        statement = self._statements.get(sql)
        if statement is None:
            try:
                statement = self._statements[sql] = _Statement(sql)
            except plpy.SPIError as error:
                raise self.translate(error, sql) from None
        return statement

    def execute(self, sql: str, *parameters: Any) -> int:
        statement, result = self._run(sql, parameters)
        if self._captures_reads and result.status() == _STATUS_SELECT:
            self._note_read(statement, parameters, statement.rows(result))
        return int(result.nrows())

    def query(self, sql: str, *parameters: Any) -> list[Row]:
        statement, result = self._run(sql, parameters)
        rows = statement.rows(result)
        if self._captures_reads and result.status() == _STATUS_SELECT:
            self._note_read(statement, parameters, rows)
        return rows

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        types = self.prepare(sql).types
        columns: list[list[Any]] = [[] for _ in types]
        for row in rows:
            if len(row) != len(types):
                raise BadArgument(
                    f"a row has {len(row)} values, the statement {len(types)} parameters",
                    statement=sql,
                )
            for column, value in zip(columns, row, strict=True):
                column.append(value)
        if not columns or not columns[0]:
            return 0
        return self.execute(insert_over_arrays(sql, types), *columns)

    def _run(self, sql: str, parameters: Sequence[Any]) -> tuple[_Statement, Any]:
        if self.lost is not None:
            raise TransactionLost(str(self.lost))
        statement = self._statements.get(sql) or self.prepare(sql)
        arguments = statement.arguments(parameters)
        try:
            return statement, plpy.execute(statement.plan, arguments)
        except plpy.SPIError as error:
            raise self.translate(error, sql) from None

    def translate(self, error: Any, sql: str) -> BaseException:
        """The error that a body sees for one of the database's; remembers a fatal one."""
        if is_fatal(error.sqlstate):
            self.lost = error
            return TransactionLost(str(error))
        return StatementError.of(
            str(error),
            sqlstate=error.sqlstate,
            statement=sql,
            constraint=_field(error, _CONSTRAINT),
            detail=_field(error, _DETAIL),
        )

    def _note_read(self, statement: _Statement, parameters: Sequence[Any], rows: list[Row]) -> None:
        if len(self._reads) >= _READS or self._reads_bytes >= _READS_BYTES:
            self._reads_dropped += 1
            return
        source = statement.source
        if source is None:
            relations = self._relations.get(statement.sql, ())
            source = _readable_json({"statement": statement.sql, "relations": relations})
            statement.source = source = source[:-1]  # an object that goes on
        count = len(rows)
        kept = rows if count <= _ROWS_PER_READ else rows[:_ROWS_PER_READ]
        found = _readable_json({"parameters": parameters, "rows": kept})
        if len(source) + len(found) > _READS_BYTES:
            found = '{"parameters":[],"rows":[]}'
        noted = f'{source},"row_count":{count},{found[1:]}'
        self._reads_bytes += len(noted)
        self._reads.append(noted)


_encode_readable = compact_encoder(ascii_only=True, default=readable)


def _readable_json(document: Any) -> str:
    """A document of the log of reads: its values as text where JSON has no form for them.

    It must also be readable as jsonb, which holds neither U+0000 nor lone surrogates.
    """
    try:
        text = _encode_readable(document)
    except (TypeError, ValueError):  # a key that is no text; NaN or an infinity
        text = json.dumps(_storable(document))
    if "\\u" in text and ("\\u0000" in text or "\\ud" in text):
        text = json.dumps(_storable(document))
    return text


def _storable(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): _storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(item) for item in value]
    if value is None or isinstance(value, int):
        return value
    return _storable(readable(value))
