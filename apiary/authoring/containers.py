"""Codecs of annotated containers: lists, tuples, sets, mappings.

Natural forms: an array for lists, tuples and sets, an object for mappings whose keys are written as
texts. The self-describing forms of `apiary.authoring.dynamic` are read as well.
"""

from __future__ import annotations

import collections.abc
from typing import Any

from apiary.authoring.codec import (
    MAX_DEPTH,
    Builder,
    Codec,
    ValueProblem,
    too_deep,
)
from apiary.authoring.dynamic import (
    read_items,
    read_mapping,
    read_set,
    write_items,
    write_mapping,
    write_set,
)
from apiary.authoring.scalars import IntCodec, untag


class _ItemsCodec(Codec):
    """Base of the containers with one type of item."""

    __slots__ = ("item", "item_annotation")
    shapes = frozenset({"list"})
    is_leaf = False

    def __init__(self, annotation: Any, text: str, item_annotation: Any) -> None:
        super().__init__(annotation, text)
        self.item_annotation = item_annotation
        self.item: Codec

    def prepare(self, builder: Builder, path: str) -> None:
        self.item = builder.codec(self.item_annotation, f"{path}[]")


class ListCodec(_ItemsCodec):
    """``list[T]`` as an array."""

    __slots__ = ()
    python_types = (list,)
    plain = True

    def write(self, value: Any, depth: int) -> Any:
        if not isinstance(value, list):
            raise self.mismatch(value)
        return write_items(value, self.item, depth)

    def read(self, document: Any, depth: int) -> Any:
        if type(document) is not list:
            raise self.mismatch(document)
        return read_items(document, self.item, depth)


class SequenceCodec(_ItemsCodec):
    """``Sequence[T]``: a list as an array, a tuple under ``$tuple``; each stays what it is."""

    __slots__ = ()
    tags = frozenset({"$tuple"})
    python_types = (list, tuple)
    plain = True

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is tuple:
            return {"$tuple": write_items(value, self.item, depth)}
        if type(value) is not list:
            raise self.mismatch(value)
        return write_items(value, self.item, depth)

    def read(self, document: Any, depth: int) -> Any:
        items = untag(document, "$tuple")
        if type(items) is not list:
            raise self.mismatch(document)
        values = read_items(items, self.item, depth)
        return values if items is document else tuple(values)


class SetCodec(_ItemsCodec):
    """``set[T]`` or ``frozenset[T]`` as an array in a fixed order."""

    __slots__ = ("kind", "own_tag")

    def __init__(self, annotation: Any, text: str, item_annotation: Any, kind: Any) -> None:
        super().__init__(annotation, text, item_annotation)
        self.kind = kind
        self.own_tag = f"${kind.__name__}"

    @property
    def tag(self) -> str:  # type: ignore[override]
        return self.own_tag

    @property
    def tags(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.own_tag})

    @property
    def python_types(self) -> tuple[type, ...]:  # type: ignore[override]
        return (self.kind,)

    def write(self, value: Any, depth: int) -> Any:
        if not isinstance(value, self.kind):
            raise self.mismatch(value)
        return write_set(value, self.item, depth)

    def read(self, document: Any, depth: int) -> Any:
        items = untag(document, self.own_tag)
        if type(items) is not list:
            raise self.mismatch(document)
        return read_set(items, self.item, depth, self.kind)


class AbstractSetCodec(_ItemsCodec):
    """``collections.abc.Set[T]``: a set as an array, a frozenset under ``$frozenset``."""

    __slots__ = ()
    tags = frozenset({"$frozenset"})
    python_types = (set, frozenset)
    plain = True

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is frozenset:
            return {"$frozenset": write_set(value, self.item, depth)}
        if type(value) is not set:
            raise self.mismatch(value)
        return write_set(value, self.item, depth)

    def read(self, document: Any, depth: int) -> Any:
        items = untag(document, "$frozenset")
        if type(items) is not list:
            raise self.mismatch(document)
        return read_set(items, self.item, depth, set if items is document else frozenset)


class _TupleCodec(Codec):
    """Base of both kinds of tuple."""

    __slots__ = ()
    shapes = frozenset({"list"})
    tag = "$tuple"
    tags = frozenset({tag})
    python_types = (tuple,)
    is_leaf = False

    def items(self, document: Any) -> list[Any]:
        """The array of the natural or tagged form."""
        items = untag(document, "$tuple")
        if type(items) is not list:
            raise self.mismatch(document)
        return items


class VariadicTupleCodec(_TupleCodec, _ItemsCodec):
    """``tuple[T, ...]`` as an array."""

    __slots__ = ()

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not tuple:
            raise self.mismatch(value)
        return write_items(value, self.item, depth)

    def read(self, document: Any, depth: int) -> Any:
        return tuple(read_items(self.items(document), self.item, depth))


class FixedTupleCodec(_TupleCodec):
    """``tuple[A, B]`` as an array of exactly that many documents."""

    __slots__ = ("member_annotations", "members")

    def __init__(self, annotation: Any, text: str, member_annotations: tuple[Any, ...]) -> None:
        super().__init__(annotation, text)
        self.member_annotations = member_annotations
        self.members: list[Codec]

    def prepare(self, builder: Builder, path: str) -> None:
        self.members = [
            builder.codec(member, f"{path}[{index}]")
            for index, member in enumerate(self.member_annotations)
        ]

    def _check_length(self, items: Any) -> None:
        if len(items) != len(self.members):
            raise ValueProblem(
                "", f"expected {len(self.members)} items for {self.text}, got {len(items)}"
            )

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not tuple:
            raise self.mismatch(value)
        return self._each(value, depth, "write")

    def read(self, document: Any, depth: int) -> Any:
        return tuple(self._each(self.items(document), depth, "read"))

    def _each(self, items: Any, depth: int, direction: str) -> list[Any]:
        self._check_length(items)
        if depth >= MAX_DEPTH:
            raise too_deep()
        results: list[Any] = []
        try:
            for member, item in zip(self.members, items):  # noqa: B905 - strict= needs Python 3.10
                results.append(getattr(member, direction)(item, depth + 1))
        except ValueProblem as problem:
            problem.within(f"[{len(results)}]")
            raise
        return results


class DictCodec(Codec):
    """``dict[K, V]`` as an object, or under ``$dict`` when its keys are not written as texts."""

    __slots__ = ("key", "key_annotation", "value", "value_annotation")
    shapes = frozenset({"object"})
    tags = frozenset({"$dict"})
    python_types = (dict,)
    plain = True
    is_leaf = False

    def __init__(
        self, annotation: Any, text: str, key_annotation: Any, value_annotation: Any
    ) -> None:
        super().__init__(annotation, text)
        self.key_annotation = key_annotation
        self.value_annotation = value_annotation
        self.key: Codec
        self.value: Codec

    def prepare(self, builder: Builder, path: str) -> None:
        key = builder.codec(self.key_annotation, f"{path}.keys()")
        self.key = _IntKeyCodec(int, "int") if type(key) is IntCodec else key
        self.value = builder.codec(self.value_annotation, f"{path}[]")

    def write(self, value: Any, depth: int) -> Any:
        if not isinstance(value, collections.abc.Mapping):
            raise self.mismatch(value)
        return write_mapping(value, self.key, self.value, depth)

    def read(self, document: Any, depth: int) -> Any:
        if type(document) is not dict:
            raise self.mismatch(document)
        return read_mapping(document, self.key, self.value, depth)


class _IntKeyCodec(IntCodec):
    """Reads the key of a hand-written object, ``{"3": ...}``, where the annotation says int."""

    __slots__ = ()

    def read(self, document: Any, depth: int) -> Any:
        if type(document) is str and document.lstrip("-").isdecimal() and document.isascii():
            try:
                return int(document)
            except ValueError:
                raise self.mismatch(document) from None
        return IntCodec.read(self, document, depth)
