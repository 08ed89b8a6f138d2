"""What every codec is: two directions between a Python value and a JSON document.

A codec is built once for an annotation (`apiary.authoring.values.codec_for`) and then used on every
call, so the hot path does no formatting: a problem is raised where it is found with an empty path,
and each container on the way out puts its own segment before it (`ValueProblem.within`).

Building is in two phases, so that recursive types need no indirection: an instance is made and
remembered, then `Codec.prepare` asks the builder for the codecs of its parts.

Standard library only, Python 3.9 or later: this code also runs inside the database process.
"""

from __future__ import annotations

import difflib
import typing
from typing import Any, ClassVar

from apiary import errors

# Containers inside containers. A level costs up to four interpreter frames in either direction, so
# the limit keeps well under the default recursion limit of 1,000 whatever the caller's own depth,
# and a value that one process stores can be read by every other.
MAX_DEPTH = 100

_SHOWN_CHARACTERS = 60
_MAX_PATH_CHARACTERS = 200
_PLAIN = (bool, int, float, str, bytes, type(None))

# The JSON shapes that a document can have; unions tell their members apart by them.
SHAPE_OF_TYPE = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "list",
    dict: "object",
}


class ValueProblem(Exception):
    """A value or document does not fit its codec. ``path`` says where: ``args.items[3].price``.

    Internal: callers turn it into `errors.BadArgument` or `errors.BadResult`.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"

    def within(self, segment: str) -> None:
        """See the problem from one container further out."""
        path = segment + self.path
        if len(path) > _MAX_PATH_CHARACTERS:
            keep = _MAX_PATH_CHARACTERS // 2
            path = f"{path[:keep]}...{path[-keep:]}"
        self.path = path


class Builder(typing.Protocol):
    """Gives the codec of a part while a codec is being prepared."""

    def codec(self, annotation: Any, path: str) -> Codec:
        """The codec of ``annotation``; raises `errors.UnsupportedType` naming ``path``."""
        ...


class Codec:
    """Base of all codecs: `encode` and `decode` for callers, `write` and `read` for codecs.

    ``shapes`` are the JSON shapes of the natural form, ``lenient_shapes`` what is also read,
    ``tags`` the self-describing keys that it may write or read, ``tag`` the one that can be put
    around its natural form, and ``python_types`` the exact run-time types that it is meant for.
    A ``plain`` codec owns its shape in a union; ``is_leaf`` means that reading cannot recurse;
    ``keeps_text`` that text without anything special is its own document.
    """

    __slots__ = ("annotation", "text")

    shapes: frozenset[str] = frozenset()
    lenient_shapes: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    tag: ClassVar[str | None] = None
    python_types: tuple[type, ...] = ()
    plain: ClassVar[bool] = False
    is_leaf: ClassVar[bool] = True
    keeps_text: ClassVar[bool] = False

    def __init__(self, annotation: Any, text: str) -> None:
        self.annotation = annotation
        self.text = text

    def prepare(self, builder: Builder, path: str) -> None:
        """Ask the builder for the codecs of the parts."""

    def write(self, value: Any, depth: int) -> Any:
        """The JSON document of ``value``, ``depth`` containers down."""
        raise NotImplementedError

    def read(self, document: Any, depth: int) -> Any:
        """The value of ``document``, ``depth`` containers down."""
        raise NotImplementedError

    def plausible(self, document: Any) -> bool:
        """Whether ``document`` could be this codec's, judged without looking inside."""
        return True

    def encode(self, value: Any, path: str = "value") -> Any:
        """The JSON document of ``value``; raises `ValueProblem` with a path under ``path``."""
        try:
            return self.write(value, 0)
        except ValueProblem as problem:
            problem.within(path)
            raise
        except RecursionError:
            raise ValueProblem(path, "is nested too deeply for the stack that is left") from None

    def decode(self, document: Any, path: str = "value") -> Any:
        """The value of a JSON document; raises `ValueProblem` with a path under ``path``."""
        try:
            return self.read(document, 0)
        except ValueProblem as problem:
            problem.within(path)
            raise
        except RecursionError:
            raise ValueProblem(path, "is nested too deeply for the stack that is left") from None

    def mismatch(self, found: Any) -> ValueProblem:
        """The problem of a value or document that is not of this codec's type at all."""
        return ValueProblem("", f"expected {self.text}, got {show(found)}")


def too_deep() -> ValueProblem:
    """The problem of a value with more than `MAX_DEPTH` containers inside one another."""
    return ValueProblem("", f"is nested more than {MAX_DEPTH} levels deep (or contains itself)")


def unsupported(annotation: Any, path: str, why: str, hint: str | None = None) -> Exception:
    """The error of an annotation that no value can travel as."""
    shown = type_text(annotation)
    return errors.UnsupportedType(
        f"{path}: {shown} {why}",
        hint=hint
        or "Use a type that can be stored: numbers, str, bytes, dates, UUID, Enum, list, dict, "
        "dataclass, NamedTuple, TypedDict or a pydantic model.",
        path=path,
        annotation=shown,
    )


def show(value: Any) -> str:
    """A short text for messages; never runs code of the value's class."""
    kind = type(value)
    if value is None:
        return "None"
    if kind is int and value.bit_length() > 256:
        return f"int of {value.bit_length()} bits"
    if kind in _PLAIN:
        # Slicing first keeps the repr of a huge text from being built.
        text = repr(value[:_SHOWN_CHARACTERS] if kind in (str, bytes) else value)
        return f"{kind.__name__} {printable(text[:_SHOWN_CHARACTERS])}"
    return kind.__name__


def printable(text: str) -> str:
    """``text`` with U+0000 and lone surrogates spelled out, so that it can be stored."""
    visible = text.replace("\0", "\\x00")
    return visible.encode("utf-8", "backslashreplace").decode("utf-8")


def key_segment(key: Any) -> str:
    """The path segment of a mapping's key: ``['k']``."""
    if type(key) in _PLAIN:
        return f"[{show(key).split(' ', 1)[-1]}]"
    return f"[{type(key).__name__}]"


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the nearest known name, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def type_text(annotation: Any) -> str:  # noqa: PLR0911 - one case each
    """An annotation as a reader would write it: ``list[int]``, ``Order | None``."""
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is Any:
        return "Any"
    origin = typing.get_origin(annotation)
    if origin is None:
        if isinstance(annotation, type):
            return annotation.__name__
        name = getattr(annotation, "__name__", None)
        return name if isinstance(name, str) else str(annotation).replace("typing.", "")
    args = typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_text(args[0])
    if origin is typing.Literal:
        return f"Literal[{', '.join(_literal_text(arg) for arg in args)}]"
    if is_union(annotation):
        return " | ".join(type_text(arg) for arg in args)
    name = getattr(origin, "__name__", None) or getattr(origin, "_name", None) or str(origin)
    inner = ", ".join("..." if arg is Ellipsis else type_text(arg) for arg in args)
    return f"{name}[{inner or '()'}]"


def _literal_text(value: Any) -> str:
    enum_name = getattr(value, "_name_", None)
    return f"{type(value).__name__}.{enum_name}" if enum_name else repr(value)


def is_union(annotation: Any) -> bool:
    """Whether the annotation is ``Union[...]``, ``Optional[...]`` or ``A | B``."""
    origin = typing.get_origin(annotation)
    # `A | B` has its own origin from Python 3.10 to 3.13.
    return origin is typing.Union or getattr(origin, "__name__", "") == "UnionType"
