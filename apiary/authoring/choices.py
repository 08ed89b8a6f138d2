"""Codecs of choices: Union and Optional, Literal, Enum.

A union writes a member naturally where the shape of the document alone tells it on reading
(``int | str``, ``Order | None``). Where two members share a shape, one plain JSON type among them
keeps the natural form (``str`` in ``str | UUID``), and the others are marked: by their own tag,
``{"$uuid": ...}``, or as ``{"$type": "Cat", "value": ...}`` with the type's name as it is written
in the annotation. An unmarked document that fits exactly one member is read as that one.
"""

from __future__ import annotations

import enum
from typing import Any

from apiary.authoring.codec import (
    SHAPE_OF_TYPE,
    Builder,
    Codec,
    ValueProblem,
    show,
    unsupported,
)
from apiary.authoring.dynamic import ANY, AnyCodec, sorted_text


class OptionalCodec(Codec):
    """``T | None`` where T is never written as null."""

    __slots__ = ("inner", "inner_annotation")
    is_leaf = False

    def __init__(self, annotation: Any, text: str, inner_annotation: Any) -> None:
        super().__init__(annotation, text)
        self.inner_annotation = inner_annotation
        self.inner: Codec

    def prepare(self, builder: Builder, path: str) -> None:
        self.inner = builder.codec(self.inner_annotation, path)

    def write(self, value: Any, depth: int) -> Any:
        if value is None:
            return None
        return self.inner.write(value, depth)

    def read(self, document: Any, depth: int) -> Any:
        if document is None:
            return None
        return self.inner.read(document, depth)


class UnionCodec(Codec):
    """``A | B | ...``; see the module for how members are told apart."""

    __slots__ = ("_by_name", "_by_python_type", "_by_shape", "_by_tag", "_marks", "members")
    is_leaf = False

    def __init__(self, annotation: Any, text: str, member_annotations: tuple[Any, ...]) -> None:
        super().__init__(annotation, text)
        self._marks: dict[int, str] | None = None
        self.members: list[Any] = list(member_annotations)

    def prepare(self, builder: Builder, path: str) -> None:
        self.members = [builder.codec(member, path) for member in self.members]

    def _arrange(self) -> dict[int, str]:
        """Decide how each member is written. Done at first use: a member may be recursive."""
        members: list[Codec] = self.members
        names = _distinct_names(members)
        self._by_name = dict(zip(names, members))  # noqa: B905 - Python 3.9
        by_python_type: dict[type, list[int]] = {}
        by_tag: dict[str, list[Codec]] = {}
        self._by_shape = {
            shape: _owners(shape, members) for shape in frozenset(SHAPE_OF_TYPE.values())
        }
        for index, member in enumerate(members):
            for python_type in member.python_types:
                by_python_type.setdefault(python_type, []).append(index)
            for tag in member.tags:
                by_tag.setdefault(tag, []).append(member)
        self._by_python_type = by_python_type
        self._by_tag = {tag: _only_any(owners) or owners for tag, owners in by_tag.items()}
        marks: dict[int, str] = {}
        for index, member in enumerate(members):
            if self._is_told_by_shape(member):
                continue
            own_tag = member.tag
            if own_tag is None or self._by_tag[own_tag] != [member]:
                own_tag = names[index]
            marks[index] = own_tag
        # Assigned last: its presence tells other threads that all is arranged.
        self._marks = marks
        return marks

    def _is_told_by_shape(self, member: Codec) -> bool:
        # Its own tags must be nobody else's as well: a Sequence may write a "$tuple".
        shapes_told = all(self._by_shape[shape] == [member] for shape in member.shapes)
        return shapes_told and all(self._by_tag[tag] == [member] for tag in member.tags)

    def write(self, value: Any, depth: int) -> Any:
        marks = self._arrange() if self._marks is None else self._marks
        exact = self._by_python_type.get(type(value))
        candidates = exact or range(len(self.members))
        last: ValueProblem | None = None
        for index in candidates:
            member = self.members[index]
            try:
                document = member.write(value, depth)
            except ValueProblem as problem:
                last = problem
                continue
            mark = marks.get(index)
            if mark is None:
                return document
            if mark[0] != "$":
                return {"$type": mark, "value": document}
            return {mark: document}
        if exact and len(exact) == 1 and last is not None:
            raise last
        raise self.mismatch(value)

    def read(self, document: Any, depth: int) -> Any:
        if self._marks is None:
            self._arrange()
        candidates = None
        if type(document) is dict:
            if "$type" in document:
                return self._read_marked(document, depth)
            if len(document) == 1:
                candidates = self._by_tag.get(next(iter(document)))
        if candidates is None:
            candidates = self._by_shape.get(SHAPE_OF_TYPE.get(type(document), ""), [])
        if len(candidates) == 1:
            return candidates[0].read(document, depth)
        return self._read_unmarked(document, candidates, depth)

    def _read_marked(self, document: dict[str, Any], depth: int) -> Any:
        name = document["$type"]
        member = self._by_name.get(name) if type(name) is str else None
        if member is None or len(document) != 2 or "value" not in document:
            known = ", ".join(self._by_name)
            raise ValueProblem(
                "", f'expected {{"$type": one of {known}, "value": ...}}, got {show(name)}'
            )
        return member.read(document["value"], depth)

    def _read_unmarked(self, document: Any, candidates: list[Codec], depth: int) -> Any:
        """Read what several members could have written, if it fits exactly one of them.

        Containers are judged from outside only: trying each member at each level would take time
        exponential in the depth of a hostile document.
        """
        fitting = [member for member in candidates if member.plausible(document)]
        if len(fitting) == 1:
            return fitting[0].read(document, depth)
        values = []
        if fitting and all(member.is_leaf for member in fitting):
            for member in fitting:
                try:
                    values.append(member.read(document, depth))
                except ValueProblem:
                    continue
            if len(values) == 1:
                return values[0]
        if not values and (not fitting or fitting[0].is_leaf):
            raise self.mismatch(document)
        raise ValueProblem(
            "",
            f"fits several types of {self.text}; say which: "
            f'{{"$type": "{next(iter(self._by_name))}", "value": ...}}',
        )


def _only_any(members: list[Codec]) -> list[Codec]:
    return [member for member in members if isinstance(member, AnyCodec)]


def _owners(shape: str, members: list[Codec]) -> list[Codec]:
    """The members that a document of this shape may belong to; one if it is told by its shape."""
    claiming = [member for member in members if shape in member.shapes]
    plain = _only_any(claiming) or [member for member in claiming if member.plain]
    if len(plain) == 1:
        return plain
    return claiming or [member for member in members if shape in member.lenient_shapes]


def _distinct_names(members: list[Codec]) -> list[str]:
    names = [member.text for member in members]
    if len(set(names)) == len(names):
        return names
    full = [
        f"{getattr(m.annotation, '__module__', '')}.{getattr(m.annotation, '__qualname__', m.text)}"
        for m in members
    ]
    if len(set(full)) == len(full):
        return full
    return [f"{name}#{index}" for index, name in enumerate(names)]


class _FixedCodec(Codec):
    """Base of the types with a fixed list of values, told by the documents of these."""

    __slots__ = ("_by_text", "_documents", "_shapes", "_tags")
    is_leaf = True

    def fill(self, pairs: list[tuple[Any, Any]]) -> None:
        """Remember the (value, document) pairs."""
        self._by_text = {sorted_text(document): value for value, document in pairs}
        tags = [(_tag_of(document), document) for _, document in pairs]
        self._tags = frozenset(tag for tag, _ in tags if tag)
        self._shapes = frozenset(SHAPE_OF_TYPE[type(d)] for tag, d in tags if not tag)

    @property
    def shapes(self) -> frozenset[str]:  # type: ignore[override]
        return self._shapes

    @property
    def tags(self) -> frozenset[str]:  # type: ignore[override]
        return self._tags

    def read(self, document: Any, depth: int) -> Any:
        try:
            return self._by_text[sorted_text(document)]
        except (KeyError, ValueError, TypeError, RecursionError):
            raise ValueProblem(
                "", f"expected {self.text} ({self._known()}), got {show(document)}"
            ) from None

    def _known(self) -> str:
        return "one of " + ", ".join(list(self._by_text)[:12])


def _tag_of(document: Any) -> str | None:
    # Under Any an object with a "$" key is a tag, and has no other key.
    key = next(iter(document), "") if type(document) is dict else ""
    return key if key[:1] == "$" else None


class EnumCodec(_FixedCodec):
    """An Enum as its member's value, written as under Any; rebuilt by value."""

    __slots__ = ("_by_name",)

    def __init__(self, annotation: Any, text: str) -> None:
        super().__init__(annotation, text)
        self._by_name: dict[str, Any] = {}

    def prepare(self, builder: Builder, path: str) -> None:
        pairs = []
        for member in self.annotation:
            try:
                pairs.append((member, ANY.write(_plain_value(member), 0)))
            except ValueProblem as problem:
                raise unsupported(
                    self.annotation, path, f"has a member whose value cannot be stored: {problem}"
                ) from None
        self._by_name = {member.name: document for member, document in pairs}
        self.fill(pairs)

    @property
    def python_types(self) -> tuple[type, ...]:  # type: ignore[override]
        return (self.annotation,)

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not self.annotation:
            raise self.mismatch(value)
        if value.name in self._by_name:
            return self._by_name[value.name]
        return int(value.value)  # a combination of flags

    def read(self, document: Any, depth: int) -> Any:
        if issubclass(self.annotation, enum.Flag) and type(document) is int:
            try:
                return self.annotation(document)
            except ValueError as error:
                raise ValueProblem("", str(error)) from None
        return _FixedCodec.read(self, document, depth)


def _plain_value(member: enum.Enum) -> Any:
    value = member.value
    for plain in (int, str):  # what an IntEnum or StrEnum keeps as its value may be a subclass
        if isinstance(value, plain) and not isinstance(value, bool):
            return plain(value)
    return value


class LiteralCodec(_FixedCodec):
    """``Literal[...]``: exactly these values, of exactly these types."""

    __slots__ = ("_values",)

    def __init__(self, annotation: Any, text: str, values: tuple[Any, ...]) -> None:
        super().__init__(annotation, text)
        self._values = values
        self._documents: dict[tuple[type, Any], Any] = {}

    def prepare(self, builder: Builder, path: str) -> None:
        pairs = []
        for value in self._values:
            codec = builder.codec(type(value), path)
            pairs.append((value, codec.write(value, 0)))
        self._documents = {(type(value), value): document for value, document in pairs}
        self.fill(pairs)

    def plausible(self, document: Any) -> bool:
        return SHAPE_OF_TYPE.get(type(document)) in self.shapes and (
            sorted_text(document) in self._by_text
        )

    def write(self, value: Any, depth: int) -> Any:
        try:
            return self._documents[type(value), value]
        except (KeyError, TypeError):
            raise ValueProblem("", f"expected {self.text}, got {show(value)}") from None
