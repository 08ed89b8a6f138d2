"""Values whose type no annotation tells: every document says itself what it is.

Numbers, text, lists and plain objects are what they look like; everything else is an object with
one key that starts with "$" (see `apiary.authoring.scalars` for the single values):

    {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}  {"$dict": [[key, value], ...]}

A mapping is a plain object only if all its keys are texts, none of them starts with "$" or holds
U+0000; otherwise it is a ``$dict``. So an object with a "$" key is always a tag.

Instances of classes are refused, because nothing here could say which class to rebuild.
"""

from __future__ import annotations

import json
import json.encoder as json_encoder
from collections.abc import Callable, Collection
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from apiary.authoring.codec import (
    MAX_DEPTH,
    Codec,
    ValueProblem,
    key_segment,
    nearest,
    show,
    too_deep,
)
from apiary.authoring.scalars import SCALAR_CODECS, check_text, untag, write_text

CONTAINER_TAGS = frozenset({"$tuple", "$set", "$frozenset", "$dict"})


def compact_encoder(
    *,
    sort_keys: bool = False,
    ascii_only: bool = False,
    default: Callable[[Any], Any] | None = None,
) -> Callable[[Any], str]:
    """A function from documents to compact JSON text, whose encoder is made once.

    ``default`` gives a document for what JSON has no form for, as in `json.dumps`.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=ascii_only,
        allow_nan=False,
        separators=(",", ":"),
        sort_keys=sort_keys,
        check_circular=False,
        default=default,
    )
    write_text = encode_basestring_ascii if ascii_only else encode_basestring
    make: Any = getattr(json_encoder, "c_make_encoder", None)  # the accelerator may be missing
    if make is None:
        return encoder.encode
    iterate = make(None, encoder.default, write_text, None, ":", ",", sort_keys, False, False)

    def encode(document: Any) -> str:
        return "".join(iterate(document, 0))

    return encode


sorted_text = compact_encoder(sort_keys=True)


def _are_plain_texts(values: Collection[Any]) -> bool:
    """Whether there is nothing but texts that need no look at each: a tenth of its price."""
    if set(map(type, values)) != {str}:
        return False
    text = "".join(values)
    return text.isascii() and "\0" not in text


def write_items(items: Collection[Any], item: Codec, depth: int) -> list[Any]:
    """The documents of the items of a sequence."""
    if depth >= MAX_DEPTH:
        raise too_deep()
    if item.keeps_text and _are_plain_texts(items):
        return list(items)
    documents: list[Any] = []
    write = item.write
    try:
        for value in items:
            documents.append(write(value, depth + 1))
    except ValueProblem as problem:
        problem.within(f"[{len(documents)}]")
        raise
    return documents


def read_items(documents: list[Any], item: Codec, depth: int) -> list[Any]:
    """The values of a list of documents."""
    if depth >= MAX_DEPTH:
        raise too_deep()
    if item.keeps_text and _are_plain_texts(documents):
        return list(documents)
    values: list[Any] = []
    read = item.read
    try:
        for document in documents:
            values.append(read(document, depth + 1))
    except ValueProblem as problem:
        problem.within(f"[{len(values)}]")
        raise
    return values


def write_set(items: Collection[Any], item: Codec, depth: int) -> list[Any]:
    """The documents of a set's elements, ordered by their canonical text."""
    return sorted(write_items(items, item, depth), key=sorted_text)


def read_set(
    documents: list[Any], item: Codec, depth: int, kind: Callable[[list[Any]], Any]
) -> Any:
    """The set or frozenset of a list of documents."""
    values = read_items(documents, item, depth)
    try:
        return kind(values)
    except TypeError as error:
        raise ValueProblem("", f"an element cannot be in a set: {error}") from None


def write_mapping(mapping: Any, key_codec: Codec, value_codec: Codec, depth: int) -> Any:
    """A plain object if every key is a plain text, else ``{"$dict": [[key, value], ...]}``."""
    if depth >= MAX_DEPTH:
        raise too_deep()
    pairs: list[list[Any]] = []
    plain = True
    key: Any = None
    try:
        for key, value in mapping.items():
            key_document = key_codec.write(key, depth + 1)
            if plain and (type(key_document) is not str or key_document[:1] == "$"):
                plain = False
            pairs.append([key_document, value_codec.write(value, depth + 1)])
    except ValueProblem as problem:
        problem.within(key_segment(key))
        raise
    if plain:
        # Two keys of one text (a UUID and its text under Any) are told apart only as pairs.
        document = dict(pairs)
        if len(document) == len(pairs):
            return document
    return {"$dict": pairs}


def read_mapping(document: Any, key_codec: Codec, value_codec: Codec, depth: int) -> Any:
    """The dict of a plain object or of the pairs under ``$dict``."""
    if depth >= MAX_DEPTH:
        raise too_deep()
    pairs = untag(document, "$dict")
    if pairs is document:
        pairs = document.items()
    elif type(pairs) is not list or any(type(p) is not list or len(p) != 2 for p in pairs):
        raise ValueProblem("", "expected a list of [key, value] pairs under '$dict'")
    values: dict[Any, Any] = {}
    key_document: Any = None
    try:
        for key_document, value_document in pairs:
            key = key_codec.read(key_document, depth + 1)
            values[key] = value_codec.read(value_document, depth + 1)
    except ValueProblem as problem:
        problem.within(key_segment(key_document))
        raise
    except TypeError as error:
        raise ValueProblem("", f"a value cannot be a key: {error}") from None
    if len(values) != len(pairs):
        raise ValueProblem("", "has the same key twice")
    return values


class AnyCodec(Codec):
    """``Any``, ``object`` and no annotation at all."""

    __slots__ = ()
    shapes = frozenset({"null", "bool", "int", "float", "str", "list", "object"})
    tags = CONTAINER_TAGS | frozenset(tag for codec in SCALAR_CODECS.values() for tag in codec.tags)
    plain = True
    is_leaf = False
    keeps_text = True

    def write(self, value: Any, depth: int) -> Any:
        writer = _WRITERS.get(type(value))
        if writer is None:
            raise ValueProblem("", _no_annotation(value))
        return writer(value, depth)

    def read(self, document: Any, depth: int) -> Any:
        kind = type(document)
        if kind is str:
            check_text(document)
            return document
        if kind is list:
            return read_items(document, self, depth)
        if kind is dict:
            return self._read_object(document, depth)
        if document is None or kind is bool or kind is int:
            return document
        if kind is float:
            return SCALAR_CODECS[float].read(document, depth)
        raise ValueProblem("", f"{kind.__name__} is no JSON")

    def _read_object(self, document: dict[str, Any], depth: int) -> Any:
        for key in document:
            if key[:1] == "$":
                break
        else:
            return read_mapping(document, _TEXT, self, depth)
        if len(document) == 1:
            reader = _READERS.get(key)
            if reader is not None:
                return reader(document, depth)
            if key not in CONTAINER_TAGS:
                raise ValueProblem("", f"unknown tag {key!r}{nearest(key, self.tags)}; {_DOLLAR}")
            content = document[key]
            if key == "$dict":
                return read_mapping(document, self, self, depth)
            if type(content) is not list:
                raise ValueProblem("", f"expected a list under {key!r}, got {show(content)}")
            if key == "$tuple":
                return tuple(read_items(content, self, depth))
            return read_set(content, self, depth, set if key == "$set" else frozenset)
        raise ValueProblem("", f"key {key!r} starts with '$'; {_DOLLAR}")


_DOLLAR = 'an object with a "$" key is written {"$dict": [[key, value], ...]}'
_TEXT = SCALAR_CODECS[str]

ANY = AnyCodec(Any, "Any")


def _no_annotation(value: Any) -> str:
    kind = type(value)
    if any(hasattr(kind, name) for name in ("__dataclass_fields__", "model_fields", "_fields")):
        what = "a record of a class"
    elif hasattr(kind, "__members__"):
        what = "an Enum member"
    else:
        bases = [base.__name__ for base in kind.__mro__[1:] if base in _WRITERS]
        if not bases:
            return f"{kind.__name__} cannot be stored: it is not data"
        what = f"a subclass of {bases[0]}"
    return (
        f"{kind.__name__} is {what}, and no annotation says so; annotate the parameter, field or "
        f"return type with {kind.__name__} to have it rebuilt, or pass plain data"
    )


def _tagged_writer(codec: Codec) -> Callable[[Any, int], Any]:
    tag, write = codec.tag, codec.write
    return lambda value, depth: {tag: write(value, depth)}


def _write_list(value: Any, depth: int) -> Any:
    return write_items(value, ANY, depth)


def _write_tuple(value: Any, depth: int) -> Any:
    return {"$tuple": write_items(value, ANY, depth)}


def _write_set(value: Any, depth: int) -> Any:
    return {"$set": write_set(value, ANY, depth)}


def _write_frozenset(value: Any, depth: int) -> Any:
    return {"$frozenset": write_set(value, ANY, depth)}


def _write_dict(value: Any, depth: int) -> Any:
    return write_mapping(value, ANY, ANY, depth)


def _write_str(value: Any, depth: int) -> Any:  # noqa: ARG001 - one signature for all writers
    return write_text(value)


_WRITERS: dict[type, Callable[[Any, int], Any]] = {
    list: _write_list,
    tuple: _write_tuple,
    set: _write_set,
    frozenset: _write_frozenset,
    dict: _write_dict,
    str: _write_str,
}
_READERS: dict[str, Callable[[Any, int], Any]] = {}

for _codec in SCALAR_CODECS.values():
    for _type in _codec.python_types:
        # What is natural only under an annotation is tagged; a timedelta tags itself.
        _natural = _codec.plain or _codec.tag == "$timedelta"
        _WRITERS.setdefault(_type, _codec.write if _natural else _tagged_writer(_codec))
    for _tag in _codec.tags:
        _READERS[_tag] = _codec.read
