"""Codecs of records: dataclasses, NamedTuple, TypedDict and pydantic models, as objects by field.

The class is rebuilt from the annotation, never from anything in the document. An instance of a
subclass is refused where the base is annotated, since its own fields would be lost.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable
from typing import Any

from apiary.authoring.choices import LiteralCodec
from apiary.authoring.codec import (
    MAX_DEPTH,
    Builder,
    Codec,
    ValueProblem,
    nearest,
    show,
    too_deep,
    unsupported,
)
from apiary.authoring.dynamic import ANY


class _Field:
    """One field of a record: its key in the document, its codec, and whether it may be missing."""

    __slots__ = ("codec", "is_init", "key", "name", "required")

    def __init__(
        self,
        name: str,
        codec: Codec,
        *,
        required: bool,
        key: str | None = None,
        is_init: bool = True,
    ) -> None:
        self.name = name
        self.codec = codec
        self.required = required
        self.key = key or name
        self.is_init = is_init


class RecordCodec(Codec):
    """Base of all records: documents are checked for missing and unknown fields."""

    __slots__ = ("by_key", "fields")
    shapes = frozenset({"object"})
    is_leaf = False

    def __init__(self, annotation: Any, text: str) -> None:
        super().__init__(annotation, text)
        self.fields: list[_Field]
        self.by_key: dict[str, _Field]

    def prepare(self, builder: Builder, path: str) -> None:
        self.fields = self.find_fields(builder, path)
        for field in self.fields:
            if field.key[:1] == "$" or "\0" in field.key:
                raise unsupported(self.annotation, path, f"has a field named {field.key!r}")
        self.by_key = {field.name: field for field in self.fields}
        self.by_key.update((field.key, field) for field in self.fields)

    def find_fields(self, builder: Builder, path: str) -> list[_Field]:
        """The fields of the class, in their order."""
        raise NotImplementedError

    def make(self, values: dict[str, Any]) -> Any:
        """The instance of checked field values by name; may raise what the class raises."""
        raise NotImplementedError

    @property
    def python_types(self) -> tuple[type, ...]:  # type: ignore[override]
        return (self.annotation,)

    def plausible(self, document: Any) -> bool:
        if type(document) is not dict:
            return False
        found = {self.by_key[key].name: key for key in document if key in self.by_key}
        if len(found) != len(document):
            return False
        for field in self.fields:
            if field.name not in found:
                if field.required:
                    return False
            elif isinstance(field.codec, LiteralCodec) and not field.codec.plausible(
                document[found[field.name]]
            ):
                return False  # the field that discriminates says another class
        return True

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not self.annotation:
            raise self.wrong_class(value)
        if depth >= MAX_DEPTH:
            raise too_deep()
        document: dict[str, Any] = {}
        field: _Field | None = None
        try:
            for field in self.fields:
                document[field.key] = field.codec.write(getattr(value, field.name), depth + 1)
        except ValueProblem as problem:
            problem.within(f".{field.name}" if field else "")
            raise
        except AttributeError:
            raise ValueProblem("", f"{self.text} has no value for {show_field(field)}") from None
        return document

    def wrong_class(self, value: Any) -> ValueProblem:
        """The problem of an instance of another class."""
        if isinstance(value, self.annotation):
            return ValueProblem(
                "",
                f"expected {self.text}, got its subclass {type(value).__name__}, whose own fields "
                f"would be lost; annotate with {type(value).__name__} or a Union",
            )
        return self.mismatch(value)

    def read(self, document: Any, depth: int) -> Any:
        return self.construct(self.read_fields(document, depth))

    def read_fields(self, document: Any, depth: int) -> dict[str, Any]:
        """The values by field name of an object; defaults are left to the class."""
        if type(document) is not dict:
            raise self.mismatch(document)
        if depth >= MAX_DEPTH:
            raise too_deep()
        values: dict[str, Any] = {}
        for key, content in document.items():
            field = self.by_key.get(key)
            if field is None:
                values.update(self.unknown_field(key, content, depth))
                continue
            if field.name in values:
                raise ValueProblem(f".{field.name}", "is given twice, by name and by alias")
            try:
                values[field.name] = field.codec.read(content, depth + 1)
            except ValueProblem as problem:
                problem.within(f".{field.name}")
                raise
        for field in self.fields:
            if field.required and field.name not in values:
                raise ValueProblem(f".{field.name}", f"is missing, and {self.text} needs it")
        return values

    def unknown_field(self, key: str, document: Any, depth: int) -> dict[str, Any]:
        """What to do with a key that is no field: refuse it."""
        raise ValueProblem(
            "", f"{self.text} has no field {show(key)[4:]}{nearest(key, self.by_key)}"
        )

    def construct(self, values: dict[str, Any]) -> Any:
        """`make`, with whatever the class raises as a `ValueProblem`."""
        try:
            return self.make(values)
        except ValueProblem:
            raise
        except Exception as error:
            raise ValueProblem("", f"{self.text} refused its fields: {error}") from error


def show_field(field: _Field | None) -> str:
    """The field's name for a message."""
    return f"its field {field.name!r}" if field else "a field"


def _hints(annotation: Any, path: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(annotation, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise unsupported(
            annotation,
            path,
            f"has annotations that cannot be resolved: {error}",
            "Define or import the types at the top level of the module that defines the class.",
        ) from error


class DataclassCodec(RecordCodec):
    """A dataclass. Its constructor runs on reading, so its checks apply to what comes from outside.

    Fields with ``init=False`` travel too, and are set after construction if the document has them.
    """

    __slots__ = ("_late",)

    def find_fields(self, builder: Builder, path: str) -> list[_Field]:
        hints = _hints(self.annotation, path)
        fields = []
        self._check_init_vars(path)
        for field in dataclasses.fields(self.annotation):
            has_default = (
                field.default is not dataclasses.MISSING
                or field.default_factory is not dataclasses.MISSING
            )
            codec = builder.codec(hints.get(field.name, Any), f"{path}.{field.name}")
            fields.append(
                _Field(
                    field.name,
                    codec,
                    required=field.init and not has_default,
                    is_init=field.init,
                )
            )
        self._late = [field.name for field in fields if not field.is_init]
        return fields

    def _check_init_vars(self, path: str) -> None:
        for name, field in self.annotation.__dataclass_fields__.items():
            if getattr(field._field_type, "name", "") == "_FIELD_INITVAR" and (
                field.default is dataclasses.MISSING
            ):
                raise unsupported(
                    self.annotation,
                    f"{path}.{name}",
                    "has an InitVar without default, which an instance does not keep",
                    "Make it a field, or give it a default.",
                )

    def make(self, values: dict[str, Any]) -> Any:
        late = [(name, values.pop(name)) for name in self._late if name in values]
        instance = self.annotation(**values)
        for name, value in late:
            object.__setattr__(instance, name, value)
        return instance


class NamedTupleCodec(RecordCodec):
    """A NamedTuple as an object by field; an array of all its fields is read as well."""

    __slots__ = ()
    lenient_shapes = frozenset({"list"})

    def find_fields(self, builder: Builder, path: str) -> list[_Field]:
        hints = _hints(self.annotation, path)
        defaults = self.annotation._field_defaults
        return [
            _Field(
                name,
                builder.codec(hints.get(name, Any), f"{path}.{name}"),
                required=name not in defaults,
            )
            for name in self.annotation._fields
        ]

    def make(self, values: dict[str, Any]) -> Any:
        return self.annotation(**values)

    def read(self, document: Any, depth: int) -> Any:
        if type(document) is list:
            if len(document) != len(self.fields):
                raise ValueProblem(
                    "", f"expected {len(self.fields)} items for {self.text}, got {len(document)}"
                )
            document = {
                field.key: item
                for field, item in zip(self.fields, document)  # noqa: B905 - Python 3.9
            }
        return RecordCodec.read(self, document, depth)


class TypedDictCodec(RecordCodec):
    """A TypedDict as an object; what is not required may be absent, and stays absent."""

    __slots__ = ()

    @property
    def python_types(self) -> tuple[type, ...]:  # type: ignore[override]
        return (dict,)

    def find_fields(self, builder: Builder, path: str) -> list[_Field]:
        required_keys = self.annotation.__required_keys__
        fields = []
        for name, hint in _hints(self.annotation, path).items():
            required, inner = _requirement(hint, name in required_keys)
            fields.append(
                _Field(name, builder.codec(inner, f"{path}[{name!r}]"), required=required)
            )
        return fields

    def write(self, value: Any, depth: int) -> Any:
        if type(value) is not dict:
            raise self.mismatch(value)
        if depth >= MAX_DEPTH:
            raise too_deep()
        document: dict[str, Any] = {}
        for key, content in value.items():
            field = self.by_key.get(key) if type(key) is str else None
            if field is None:
                raise ValueProblem("", f"{self.text} has no key {show(key)}")
            try:
                document[key] = field.codec.write(content, depth + 1)
            except ValueProblem as problem:
                problem.within(f"[{key!r}]")
                raise
        for field in self.fields:
            if field.required and field.name not in document:
                raise ValueProblem(f"[{field.name!r}]", f"is missing, and {self.text} needs it")
        return document

    def make(self, values: dict[str, Any]) -> Any:
        return values


def _requirement(hint: Any, default: bool) -> tuple[bool, Any]:
    """Strip Required, NotRequired and ReadOnly, by name: typing_extensions has its own."""
    required = default
    while True:
        name = getattr(typing.get_origin(hint), "_name", None)
        if name not in ("Required", "NotRequired", "ReadOnly"):
            return required, hint
        if name != "ReadOnly":
            required = name == "Required"
        hint = typing.get_args(hint)[0]


class PydanticCodec(RecordCodec):
    """A pydantic v2 model: fields by their own annotations, validated by the model on reading.

    Documents use the validation alias of a field; the field's name is read as well. Extra fields of
    a model that allows them travel self-described. Private attributes do not travel.
    """

    __slots__ = ("_allows_extra", "_is_root")

    def __init__(self, annotation: Any, text: str) -> None:
        super().__init__(annotation, text)
        self._allows_extra = annotation.model_config.get("extra") == "allow"
        self._is_root = bool(getattr(annotation, "__pydantic_root_model__", False))

    @property
    def shapes(self) -> frozenset[str]:  # type: ignore[override]
        return ANY.shapes if self._is_root else RecordCodec.shapes

    def plausible(self, document: Any) -> bool:
        return self._is_root or RecordCodec.plausible(self, document)

    def find_fields(self, builder: Builder, path: str) -> list[_Field]:
        return [
            _Field(
                name,
                builder.codec(info.annotation, f"{path}.{name}"),
                required=info.is_required(),
                key=self._key(name, info, path),
            )
            for name, info in self.annotation.model_fields.items()
        ]

    def _key(self, name: str, info: Any, path: str) -> str:
        alias = info.validation_alias
        choices = getattr(alias, "choices", None) or [alias]
        texts = [choice for choice in choices if isinstance(choice, str)]
        if alias is not None and not texts:
            raise unsupported(
                self.annotation,
                f"{path}.{name}",
                "has an AliasPath, which cannot be written back",
                "Give the field a validation alias that is a text.",
            )
        return texts[0] if texts else name

    def write(self, value: Any, depth: int) -> Any:
        document = RecordCodec.write(self, value, depth)
        if self._is_root:
            return document["root"]
        extra = value.__pydantic_extra__
        if extra:
            for name, content in extra.items():
                if name in self.by_key or name[:1] == "$":
                    raise ValueProblem(f".{name}", "is an extra field with a reserved name")
                try:
                    document[name] = ANY.write(content, depth + 1)
                except ValueProblem as problem:
                    problem.within(f".{name}")
                    raise
        return document

    def read(self, document: Any, depth: int) -> Any:
        if self._is_root:
            document = {"root": document}
        return RecordCodec.read(self, document, depth)

    def unknown_field(self, key: str, document: Any, depth: int) -> dict[str, Any]:
        if not self._allows_extra:
            return RecordCodec.unknown_field(self, key, document, depth)
        try:
            return {key: ANY.read(document, depth + 1)}
        except ValueProblem as problem:
            problem.within(f".{key}")
            raise

    def make(self, values: dict[str, Any]) -> Any:
        if self._is_root:
            content = values["root"]
        else:
            keys = {field.name: field.key for field in self.fields}
            content = {keys.get(name, name): value for name, value in values.items()}
        validation_error: type[Exception] = sys.modules["pydantic"].ValidationError
        try:
            return self.annotation.model_validate(content)
        except validation_error as error:
            raise _validation_problem(error) from error


def _validation_problem(error: Any) -> ValueProblem:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = "".join(f".{s}" if isinstance(s, str) else f"[{s}]" for s in first["loc"])
    return ValueProblem(path, first["msg"])


def record_codec_class(annotation: type) -> Callable[[Any, str], RecordCodec] | None:
    """The codec class for a class that is a record, or None."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(annotation, pydantic.BaseModel):
        return PydanticCodec
    if dataclasses.is_dataclass(annotation):
        return DataclassCodec
    if issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        return NamedTupleCodec
    if issubclass(annotation, dict) and hasattr(annotation, "__required_keys__"):
        return TypedDictCodec
    return None
