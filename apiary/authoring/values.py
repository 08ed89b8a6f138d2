"""How values travel: annotations decide the JSON form of arguments, results and records.

    codec = codec_for(Order)
    document = codec.encode(order, "args.order")    # what json.dumps takes
    order = codec.decode(document, "args.order")    # equal, and of the same types

The natural, readable form is used where the annotation tells the type, and self-describing tags
where it does not. Documents hold neither U+0000 nor lone surrogates nor NaN, so their text can be
kept as PostgreSQL ``json`` and cast to ``jsonb``. Codecs are built once for an annotation.

The parts: `codec` (the base), `scalars`, `dynamic` (no annotation), `containers`, `records`,
`choices`. Standard library only, Python 3.9 or later: this also runs inside the database process.
"""

from __future__ import annotations

import collections.abc
import enum
import hashlib
import json
import typing
from typing import Any

from apiary import errors
from apiary.authoring.choices import EnumCodec, LiteralCodec, OptionalCodec, UnionCodec
from apiary.authoring.codec import MAX_DEPTH, Codec, ValueProblem, is_union, type_text, unsupported
from apiary.authoring.containers import (
    AbstractSetCodec,
    DictCodec,
    FixedTupleCodec,
    ListCodec,
    SequenceCodec,
    SetCodec,
    VariadicTupleCodec,
)
from apiary.authoring.dynamic import ANY, compact_encoder, sorted_text
from apiary.authoring.records import record_codec_class
from apiary.authoring.scalars import SCALAR_CODECS

__all__ = [
    "MAX_DEPTH",
    "Codec",
    "ValueProblem",
    "canonical",
    "codec_for",
    "digest",
    "dumps",
    "loads",
    "type_text",
]

DIGEST_CHARACTERS = 32
_CACHE_LIMIT = 4096

# Made once: json.dumps and json.loads make a coder for each call that has options.
_encode_json = compact_encoder(sort_keys=False)
_cache: dict[Any, Codec] = {}


def codec_for(annotation: Any, path: str = "value") -> Codec:
    """The codec of an annotation, built once.

    Raises `errors.UnsupportedType` with ``path`` (which part, under ``path``) and ``annotation``
    for a type that no value can travel as: a callable, a lock, a class that is no record.
    """
    try:
        found = _cache.get(annotation)
    except TypeError:  # Annotated with unhashable metadata
        return _Build().codec(annotation, path)
    if found is None:
        build = _Build()
        found = build.codec(annotation, path)
        # Only now are all of them ready for other threads. Old deployments' classes must not
        # stay for ever, so a full cache starts again.
        if len(_cache) > _CACHE_LIMIT:
            _cache.clear()
        _cache.update(build.codecs)
        _cache[annotation] = found
    return found


class _Build:
    """One run of building: remembers codecs that are still being prepared, for recursive types."""

    def __init__(self) -> None:
        self.codecs: dict[Any, Codec] = {}

    def codec(self, annotation: Any, path: str) -> Codec:
        annotation = unwrap(annotation)
        try:
            found = self.codecs.get(annotation) or _cache.get(annotation)
        except TypeError as error:
            raise unsupported(annotation, path, f"is no type: {error}") from None
        if found is None:
            found = _select(annotation, path)
            self.codecs[annotation] = found
            found.prepare(self, path)
        return found


def unwrap(annotation: Any) -> Any:
    """The type below Annotated, Final, NewType, ``type`` aliases and type variables."""
    while True:
        origin = typing.get_origin(annotation)
        if hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif origin is typing.Annotated:
            annotation = annotation.__origin__
        elif origin in (typing.Final, typing.ClassVar):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.TypeVar):
            annotation = annotation.__bound__ or Any
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def _select(annotation: Any, path: str) -> Codec:  # noqa: PLR0911 - one case each
    """The unprepared codec of an unwrapped annotation."""
    if annotation is None:
        return SCALAR_CODECS[type(None)]
    if annotation is Any or annotation is object:
        return ANY
    scalar = SCALAR_CODECS.get(annotation)
    if scalar is not None:
        return scalar
    text = type_text(annotation)
    origin = typing.get_origin(annotation)
    args = typing.get_args(annotation)
    if is_union(annotation):
        return _select_union(annotation, text, args)
    if origin is typing.Literal:
        return LiteralCodec(annotation, text, args)
    container = _select_container(annotation, text, origin or annotation, args)
    if container is not None:
        return container
    if isinstance(annotation, type) and origin is None:
        if issubclass(annotation, enum.Enum):
            return EnumCodec(annotation, text)
        record = record_codec_class(annotation)
        if record is not None:
            return record(annotation, text)
    if isinstance(annotation, (str, typing.ForwardRef)):
        raise unsupported(
            annotation, path, "is a name that cannot be resolved", "Use the type itself here."
        )
    raise unsupported(annotation, path, "cannot be stored, so no value can travel as it")


def _select_union(annotation: Any, text: str, args: tuple[Any, ...]) -> Codec:
    members = _union_members(args)
    concrete = [member for member in members if member is not None and member is not type(None)]
    if len(concrete) == 1 and len(members) == 2 and not _may_be_null(concrete[0]):
        return OptionalCodec(annotation, text, concrete[0])
    return UnionCodec(annotation, text, tuple(members))


def _union_members(args: tuple[Any, ...]) -> list[Any]:
    """The members in their order, with those of aliases of unions, each once."""
    members: list[Any] = []
    for arg in args:
        inner = unwrap(arg)
        found = _union_members(typing.get_args(inner)) if is_union(inner) else [inner]
        members.extend(member for member in found if member not in members)
    return members


def _may_be_null(annotation: Any) -> bool:
    """Whether null could be a document of the type, so that None must be told from it."""
    if annotation is Any or annotation is object:
        return False  # its null is None as well
    if typing.get_origin(annotation) is typing.Literal:
        return None in typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return any(member.value is None for member in annotation)
    return bool(getattr(annotation, "__pydantic_root_model__", False))


def _select_container(  # noqa: PLR0911 - one case each
    annotation: Any, text: str, origin: Any, args: tuple[Any, ...]
) -> Codec | None:
    item = args[0] if args else Any
    if origin in (list, collections.abc.MutableSequence):
        return ListCodec(annotation, text, item)
    if origin in _SEQUENCES:
        return SequenceCodec(annotation, text, item)
    if origin in (set, collections.abc.MutableSet):
        return SetCodec(annotation, text, item, set)
    if origin is frozenset:
        return SetCodec(annotation, text, item, frozenset)
    if origin is collections.abc.Set:
        return AbstractSetCodec(annotation, text, item)
    if origin in (dict, collections.abc.Mapping, collections.abc.MutableMapping):
        key, value = args or (Any, Any)
        return DictCodec(annotation, text, key, value)
    if origin is tuple:
        if not args and annotation in (tuple, typing.Tuple):  # noqa: UP006 - the bare alias
            return VariadicTupleCodec(annotation, text, Any)
        if len(args) == 2 and args[1] is Ellipsis:
            return VariadicTupleCodec(annotation, text, item)
        return FixedTupleCodec(annotation, text, tuple(arg for arg in args if arg != ()))
    return None


_SEQUENCES = (
    collections.abc.Sequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)


def dumps(document: Any) -> str:
    """The compact JSON text of a document."""
    try:
        return _encode_json(document)
    except RecursionError:
        raise ValueProblem("value", "document is nested too deeply") from None


def loads(text: str) -> Any:
    """The document of a JSON text; raises `ValueProblem` for what is no JSON or nested too deeply.

    NaN and Infinity, which Python's parser takes, are no JSON.
    """
    try:
        return _decode_json(text)
    except RecursionError:
        raise ValueProblem("value", "JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueProblem("value", f"is not JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f'{name} is no JSON number; write {{"$float": "nan"}}, "inf" or "-inf"')


_decode_json = json.JSONDecoder(parse_constant=_refuse_constant).decode


def canonical(document: Any) -> str:
    """The text by which documents are compared: sorted keys, and sorted pairs under ``$dict``.

    Equal for dicts that differ in the order of keys only; different for 1 and 1.0.
    """
    try:
        text = sorted_text(document)
        return sorted_text(_sort_pairs(document)) if '"$dict"' in text else text
    except RecursionError:
        raise ValueProblem("value", "document is nested too deeply") from None


def _sort_pairs(document: Any) -> Any:
    if type(document) is list:
        return [_sort_pairs(item) for item in document]
    if type(document) is dict:
        sorted_document = {key: _sort_pairs(item) for key, item in document.items()}
        if len(document) == 1 and type(sorted_document.get("$dict")) is list:
            sorted_document["$dict"].sort(key=sorted_text)
        return sorted_document
    return document


def digest(text: str) -> str:
    """The first 32 hexadecimal characters (128 bits) of the SHA-256 of the text in UTF-8."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:DIGEST_CHARACTERS]


def refuse_argument(problem: ValueProblem, function: str) -> errors.BadArgument:
    """A problem of an argument as the error that callers see."""
    return errors.BadArgument(
        f"{function}: {problem}", path=problem.path, function=function, problem=problem.message
    )


def refuse_result(problem: ValueProblem, function: str) -> errors.BadResult:
    """A problem of a result as the error that is recorded."""
    return errors.BadResult(
        f"{function}: {problem}", path=problem.path, function=function, problem=problem.message
    )
