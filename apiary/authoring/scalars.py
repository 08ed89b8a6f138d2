"""Codecs of single values: numbers, text, bytes, dates and times, UUID.

Natural forms are what a reader expects in the table. What JSON or PostgreSQL cannot say has a
self-describing form, an object with one key that starts with "$":

    {"$int": "-0x1f"}        integers too long for the interpreter's decimal conversion
    {"$float": "nan"}        nan, inf, -inf
    {"$str": "a\\\\0b"}        text with U+0000: a backslash is doubled, U+0000 is backslash zero
    {"$timedelta": 1500000}  microseconds, exact
    {"$decimal": "1.10"}, {"$bytes": base64}, {"$date"}, {"$time"}, {"$datetime"}, {"$uuid"}

Lone surrogates are refused: neither UTF-8 nor PostgreSQL can hold them.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import math
import re
import uuid
from typing import Any, ClassVar

from apiary.authoring.codec import Codec, ValueProblem

# Python refuses to convert more than 4,300 decimal digits by default, and an installation may set
# the limit as low as 640 digits (2,126 bits); hexadecimal has no limit.
_MAX_DECIMAL_BITS = 2_000
_FOLD = "[fold=1]"
_MICROSECOND = dt.timedelta(microseconds=1)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_UNESCAPE = {"\\": "\\", "0": "\0"}
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def check_text(text: str) -> None:
    """Refuse lone surrogates."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueProblem(
                "",
                f"text has a lone surrogate U+{ord(text[error.start]):04X} at {error.start}, "
                "which cannot be stored; pass bytes, or decode the text properly",
            ) from None


def write_text(text: str) -> Any:
    """The document of a text: itself, or its escaped form when it holds U+0000."""
    check_text(text)
    if "\0" in text:
        return {"$str": text.replace("\\", "\\\\").replace("\0", "\\0")}
    return text


def read_escaped(escaped: Any) -> str:
    """The text of the escaped form."""
    if type(escaped) is not str:
        raise ValueProblem("", "expected text under '$str'")
    check_text(escaped)
    try:
        return _ESCAPED.sub(lambda match: _UNESCAPE[match.group(1)], escaped)
    except KeyError as error:
        raise ValueProblem("", f"unknown escape \\{error.args[0]} under '$str'") from None


def untag(document: Any, tag: str) -> Any:
    """What is under the tag, or the document itself if it has not exactly that tag."""
    if type(document) is dict and len(document) == 1 and tag in document:
        return document[tag]
    return document


class NoneCodec(Codec):
    """``None`` as null."""

    __slots__ = ()
    shapes = frozenset({"null"})
    python_types = (type(None),)
    plain = True

    def write(self, value: Any, depth: int) -> Any:
        if value is not None:
            raise self.mismatch(value)

    def read(self, document: Any, depth: int) -> Any:
        if document is not None:
            raise self.mismatch(document)


class BoolCodec(Codec):
    """``bool`` as true or false; nothing else is taken for one."""

    __slots__ = ()
    shapes = frozenset({"bool"})
    python_types = (bool,)
    plain = True

    def write(self, value: Any, depth: int) -> Any:
        if value is True or value is False:
            return value
        raise self.mismatch(value)

    def read(self, document: Any, depth: int) -> Any:
        if document is True or document is False:
            return document
        raise self.mismatch(document)


class IntCodec(Codec):
    """``int`` as a number, exact at any size; neither a bool nor 1.0 is taken for one."""

    __slots__ = ()
    shapes = frozenset({"int"})
    tags = frozenset({"$int"})
    python_types = (int,)
    plain = True

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not int:
            if not isinstance(value, int) or isinstance(value, bool):
                raise self.mismatch(value)
            value = int.__index__(value)
        if -(1 << 63) <= value < (1 << 63) or value.bit_length() <= _MAX_DECIMAL_BITS:
            return value
        return {"$int": hex(value)}

    def read(self, document: Any, depth: int) -> Any:
        if type(document) is int:
            return document
        digits = untag(document, "$int")
        if digits is not document and type(digits) is str:
            try:
                return int(digits, 16)
            except ValueError:
                raise ValueProblem(
                    "", "expected a hexadecimal integer like '-0x1f' under '$int'"
                ) from None
        raise self.mismatch(document)


class FloatCodec(Codec):
    """``float`` as a number; an integer is taken too, and becomes a float."""

    __slots__ = ()
    shapes = frozenset({"float"})
    lenient_shapes = frozenset({"int"})
    tags = frozenset({"$float"})
    python_types = (float,)
    plain = True

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not float:
            value = self._from_number(value)
        if value - value == 0.0:
            return value
        return {"$float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}

    def _from_number(self, number: Any) -> float:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise self.mismatch(number)
        try:
            return float(number)
        except OverflowError:
            raise ValueProblem("", "integer is too large for a float") from None

    def read(self, document: Any, depth: int) -> Any:
        if type(document) is float:
            if document - document == 0.0:
                return document
            raise ValueProblem("", 'number out of range; write {"$float": "inf"} or "nan"')
        name = untag(document, "$float")
        if name is not document:
            if type(name) is str and name in _NON_FINITE:
                return _NON_FINITE[name]
            raise ValueProblem("", "expected 'nan', 'inf' or '-inf' under '$float'")
        return self._from_number(document)


class StrCodec(Codec):
    """``str`` as text; U+0000 is escaped, a lone surrogate refused."""

    __slots__ = ()
    shapes = frozenset({"str"})
    tags = frozenset({"$str"})
    python_types = (str,)
    plain = True
    keeps_text = True

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not str:
            if not isinstance(value, str):
                raise self.mismatch(value)
            value = str.__str__(value)
        return write_text(value)

    def read(self, document: Any, depth: int) -> Any:
        if type(document) is str:
            check_text(document)
            return document
        escaped = untag(document, "$str")
        if escaped is document:
            raise self.mismatch(document)
        return read_escaped(escaped)


class TextualCodec(Codec):
    """Base of the types whose natural form is a text that the annotation gives its meaning."""

    __slots__ = ()
    shapes = frozenset({"str"})
    tag: ClassVar[str]

    def to_text(self, value: Any) -> str:
        """The text of a value of the exact type, or a `ValueProblem`."""
        raise NotImplementedError

    def from_text(self, text: str) -> Any:
        """The value of a text; raises ValueError or ArithmeticError if it is none."""
        raise NotImplementedError

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not self.python_types[0]:
            value = self.from_subclass(value)
        return self.to_text(value)

    def from_subclass(self, value: Any) -> Any:
        """The plain value that an instance of a subclass stands for, or a mismatch."""
        raise self.mismatch(value)

    def read(self, document: Any, depth: int) -> Any:
        text = untag(document, self.tag)
        if type(text) is not str:
            raise self.mismatch(document)
        try:
            return self.from_text(text)
        except (ValueError, ArithmeticError):
            raise self.mismatch(text) from None


class BytesCodec(TextualCodec):
    """``bytes`` as base64 text."""

    __slots__ = ()
    tag = "$bytes"
    tags = frozenset({tag})
    python_types = (bytes,)

    def to_text(self, value: Any) -> str:
        return base64.b64encode(value).decode("ascii")

    def from_text(self, text: str) -> Any:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ValueProblem("", "expected base64 text for bytes") from None


class DecimalCodec(TextualCodec):
    """``Decimal`` as text with all its digits; a JSON integer is taken too.

    A JSON fraction is refused: it has gone through binary floating point on the way.
    """

    __slots__ = ()
    lenient_shapes = frozenset({"int"})
    tag = "$decimal"
    tags = frozenset({tag})
    python_types = (decimal.Decimal,)

    def to_text(self, value: Any) -> str:
        return str(value)

    def from_text(self, text: str) -> Any:
        return decimal.Decimal(text)

    def read(self, document: Any, depth: int) -> Any:
        if type(document) is int:
            return decimal.Decimal(document)
        if type(document) is float:
            raise ValueProblem("", f'write the Decimal as text, "{document}", to keep its digits')
        return TextualCodec.read(self, document, depth)


class UuidCodec(TextualCodec):
    """``UUID`` as its hyphenated text."""

    __slots__ = ()
    tag = "$uuid"
    tags = frozenset({tag})
    python_types = (uuid.UUID,)

    def to_text(self, value: Any) -> str:
        return str(value)

    def from_subclass(self, value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            return uuid.UUID(int=value.int)
        raise self.mismatch(value)

    def from_text(self, text: str) -> Any:
        return uuid.UUID(text)


class DateCodec(TextualCodec):
    """``date`` as ISO 8601; a datetime is not taken for one."""

    __slots__ = ()
    tag = "$date"
    tags = frozenset({tag})
    python_types = (dt.date,)

    def to_text(self, value: Any) -> str:
        return str(value.isoformat())

    def from_text(self, text: str) -> Any:
        return dt.date.fromisoformat(text)


class TimeCodec(TextualCodec):
    """``time`` as ISO 8601, with its offset if it has one; ``fold=1`` as for a datetime."""

    __slots__ = ()
    tag = "$time"
    tags = frozenset({tag})
    python_types = (dt.time,)

    def to_text(self, value: Any) -> str:
        return _moment_text(value)

    def from_text(self, text: str) -> Any:
        return _read_moment(dt.time, text)


class DatetimeCodec(TextualCodec):
    """``datetime`` as ISO 8601 with microseconds and offset; a naive one is given no zone.

    The offset travels, not the name of the zone: the value read back has a fixed offset. A naive
    one with ``fold=1`` ends in ``[fold=1]``.
    """

    __slots__ = ()
    tag = "$datetime"
    tags = frozenset({tag})
    python_types = (dt.datetime,)

    def to_text(self, value: Any) -> str:
        return _moment_text(value)

    def from_subclass(self, value: Any) -> Any:
        if not isinstance(value, dt.datetime):
            raise self.mismatch(value)
        plain = dt.datetime.combine(value.date(), value.timetz())
        # A subclass may count more than microseconds; those would be lost.
        if plain != value:
            raise ValueProblem("", f"{type(value).__name__} holds more than a datetime can")
        return plain

    def from_text(self, text: str) -> Any:
        if len(text) <= 10:
            raise ValueProblem("", f"expected a datetime with its time of day, got {text!r}")
        return _read_moment(dt.datetime, text)


def _moment_text(value: Any) -> str:
    text = str(value.isoformat())
    if value.tzinfo is None:
        # ISO 8601 cannot say that a naive time is the second of two equal ones.
        return text + _FOLD if value.fold else text
    if value.utcoffset() is None:
        raise ValueProblem(
            "", "has a zone without a fixed offset, which would be lost; use a fixed offset"
        )
    return text


def _read_moment(kind: Any, text: str) -> Any:
    if text.endswith(("Z", "z")):  # fromisoformat knows it only since Python 3.11
        text = f"{text[:-1]}+00:00"
    if text.endswith(_FOLD):
        return kind.fromisoformat(text[: -len(_FOLD)]).replace(fold=1)
    return kind.fromisoformat(text)


class TimedeltaCodec(Codec):
    """``timedelta`` as whole microseconds under ``$timedelta``: a bare number has no unit."""

    __slots__ = ()
    tag = "$timedelta"
    tags = frozenset({tag})
    python_types = (dt.timedelta,)

    def write(self, value: Any, depth: int) -> Any:
        if not isinstance(value, dt.timedelta):
            raise self.mismatch(value)
        return {"$timedelta": value // _MICROSECOND}

    def read(self, document: Any, depth: int) -> Any:
        microseconds = untag(document, "$timedelta")
        if microseconds is document or type(microseconds) is not int:
            raise ValueProblem("", 'expected {"$timedelta": microseconds} for a timedelta')
        try:
            return dt.timedelta(microseconds=microseconds)
        except OverflowError:
            raise ValueProblem("", "microseconds out of range for a timedelta") from None


SCALAR_CODECS: dict[Any, Codec] = {
    annotation: codec_class(annotation, text)
    for annotation, text, codec_class in (
        (type(None), "None", NoneCodec),
        (bool, "bool", BoolCodec),
        (int, "int", IntCodec),
        (float, "float", FloatCodec),
        (str, "str", StrCodec),
        (bytes, "bytes", BytesCodec),
        (decimal.Decimal, "Decimal", DecimalCodec),
        (uuid.UUID, "UUID", UuidCodec),
        (dt.date, "date", DateCodec),
        (dt.time, "time", TimeCodec),
        (dt.datetime, "datetime", DatetimeCodec),
        (dt.timedelta, "timedelta", TimedeltaCodec),
    )
}
