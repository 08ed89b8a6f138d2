"""What a user's function takes and gives, read from its signature and annotations.

`Signature.of` looks only at the parameters' kinds, so a decorator can use it before the module is
complete. Annotations are resolved in the function's module on first use, or by `resolve`, which
deployment calls to have every unsupported type refused before anything is stored.
"""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any

from apiary import errors
from apiary.authoring.codec import Codec, is_union, nearest, printable, show, type_text, unsupported
from apiary.authoring.values import (
    ValueProblem,
    codec_for,
    refuse_argument,
    refuse_result,
    unwrap,
)

_SQL_TYPES: dict[Any, str] = {
    int: "bigint",
    float: "double precision",
    bool: "boolean",
    str: "text",
    bytes: "bytea",
    decimal.Decimal: "numeric",
    dt.date: "date",
    dt.datetime: "timestamptz",
    dt.timedelta: "interval",
    uuid.UUID: "uuid",
}
_REFUSED_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but arguments travel by name",
    inspect.Parameter.VAR_POSITIONAL: "collects positional arguments, but arguments travel by name",
    inspect.Parameter.VAR_KEYWORD: "collects any keyword, so a misspelt argument would pass",
}


class Parameter:
    """One parameter: its codec, and the document of its default if it has one."""

    __slots__ = ("annotation", "codec", "default_document", "name", "required")

    def __init__(
        self, name: str, annotation: Any, codec: Codec, *, required: bool, default_document: Any
    ) -> None:
        self.name = name
        self.annotation = annotation
        self.codec = codec
        self.required = required
        self.default_document = default_document


class Signature:
    """Encodes and decodes the arguments and the result of one function."""

    __slots__ = (
        "_by_name",
        "_function",
        "_parameters",
        "_positional",
        "_raw",
        "_raw_returns",
        "_result",
        "_returns",
        "name",
    )

    def __init__(
        self, function: Callable[..., Any], raw: list[inspect.Parameter], raw_returns: Any
    ) -> None:
        self._function = function
        self._raw = raw
        self._positional = [p.name for p in raw if p.kind is not p.KEYWORD_ONLY]
        self._raw_returns = raw_returns
        self._parameters: list[Parameter] | None = None
        self.name: str = getattr(function, "__name__", type(function).__name__)

    @classmethod
    def of(cls, fn: Callable[..., Any], *, skip_first: bool) -> Signature:
        """The signature of ``fn``; with ``skip_first`` without its first parameter.

        Raises `errors.DeployError` naming a parameter that cannot be passed by name.
        """
        signature = inspect.signature(fn)
        raw = list(signature.parameters.values())
        name = getattr(fn, "__name__", type(fn).__name__)
        if skip_first:
            if not raw or raw[0].kind in (
                inspect.Parameter.VAR_KEYWORD,
                inspect.Parameter.KEYWORD_ONLY,
            ):
                raise errors.DeployError(
                    f"{name}: the first parameter is given by the platform, and there is none",
                    hint=f"Write it as the first parameter: def {name}(db, ...).",
                    function=name,
                )
            if raw[0].kind is not inspect.Parameter.VAR_POSITIONAL:
                raw = raw[1:]
        for parameter in raw:
            why = _REFUSED_KINDS.get(parameter.kind)
            if why:
                raise errors.DeployError(
                    f"{name}: parameter {str(parameter).split(':', 1)[0]!r} {why}",
                    hint="Give each argument a parameter of its own with a name and a type.",
                    function=name,
                    path=f"args.{parameter.name}",
                )
        return cls(fn, raw, signature.return_annotation)

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters in their order, resolved."""
        if self._parameters is None:
            self.resolve()
        return typing.cast("list[Parameter]", self._parameters)

    def resolve(self) -> None:
        """Resolve the annotations and build all codecs.

        Raises `errors.UnsupportedType` (with ``path``) for a type that cannot travel, and
        `errors.DeployError` for a default that cannot be stored as its own type.
        """
        parameters = [self._parameter(raw) for raw in self._raw]
        self._returns = self._resolved(self._raw_returns, "result")
        if self._returns in (typing.NoReturn, getattr(typing, "Never", typing.NoReturn)):
            self._returns = None
        self._result = codec_for(self._returns, "result")
        self._by_name = {parameter.name: parameter for parameter in parameters}
        self._parameters = parameters

    def _resolved(self, annotation: Any, path: str) -> Any:
        """The type of one annotation.

        Each is resolved alone: that of the first parameter, which the platform gives, may name
        what is imported for type checkers only.
        """
        if annotation is inspect.Parameter.empty:
            return Any
        target: Any = inspect.unwrap(self._function)
        if not inspect.isroutine(target):
            target = type(target).__call__  # an instance that can be called
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        names = getattr(target, "__globals__", {})
        try:
            return typing.get_type_hints(holder, names, include_extras=True)["it"]
        except (NameError, TypeError, AttributeError, SyntaxError) as error:
            raise errors.UnsupportedType(
                f"{self.name}: {path}: the annotation {annotation!r} cannot be resolved: {error}",
                hint="Define or import the types at the top level of the function's module.",
                function=self.name,
                path=path,
                annotation=str(annotation),
            ) from error

    def _parameter(self, raw: inspect.Parameter) -> Parameter:
        path = f"args.{raw.name}"
        annotation = self._resolved(raw.annotation, path)
        codec = codec_for(annotation, path)
        required = raw.default is inspect.Parameter.empty
        document = None
        if not required:
            try:
                document = codec.encode(raw.default, path)
            except ValueProblem as problem:
                raise errors.DeployError(
                    f"{self.name}: the default of {raw.name!r} cannot be stored: {problem}",
                    hint=f"Annotate it as {codec.text} | None, if None is meant."
                    if raw.default is None
                    else "Give a default of the annotated type.",
                    function=self.name,
                    path=problem.path,
                ) from None
        return Parameter(raw.name, annotation, codec, required=required, default_document=document)

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The document by parameter name of a call, with defaults filled in.

        Two calls that mean the same have the same canonical text. Raises `errors.BadArgument`.
        """
        parameters = self.parameters
        given = self._bind(args, kwargs) if args else kwargs
        document: dict[str, Any] = {}
        used = 0
        for parameter in parameters:
            name = parameter.name
            if name in given:
                used += 1
                try:
                    document[name] = parameter.codec.write(given[name], 0)
                except (ValueProblem, RecursionError):
                    raise self._argument_error(parameter.codec.encode, given[name], name) from None
            elif parameter.required:
                raise self._missing(parameter)
            else:
                document[name] = parameter.default_document
        if used != len(given):
            raise self._unknown(given)
        return document

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        positional = self._positional
        if len(args) > len(positional):
            raise errors.BadArgument(
                f"{self.name}: takes {len(positional)} positional arguments, got {len(args)}",
                hint=self._hint(),
                path="args",
                function=self.name,
            )
        given = dict(zip(positional, args))  # noqa: B905 - strict= needs Python 3.10
        for name in kwargs:
            if name in given:
                raise errors.BadArgument(
                    f"{self.name}: args.{name} is given twice, by position and by name",
                    path=f"args.{name}",
                    function=self.name,
                )
        given.update(kwargs)
        return given

    def decode_arguments(self, document: Any) -> dict[str, Any]:
        """The keyword arguments of a document; defaults are filled in, fresh for each call.

        Raises `errors.BadArgument` with ``path`` for what is missing, unknown or of a wrong type.
        """
        if type(document) is not dict:
            raise errors.BadArgument(
                f"{self.name}: arguments are an object by name, got {show(document)}",
                hint=self._hint(),
                path="args",
                function=self.name,
            )
        kwargs: dict[str, Any] = {}
        used = 0
        for parameter in self.parameters:
            name = parameter.name
            if name in document:
                used += 1
                content = document[name]
            elif parameter.required:
                raise self._missing(parameter)
            else:
                content = parameter.default_document
            try:
                kwargs[name] = parameter.codec.read(content, 0)
            except (ValueProblem, RecursionError):
                raise self._argument_error(parameter.codec.decode, content, name) from None
        if used != len(document):
            raise self._unknown(document)
        return kwargs

    def normalise(self, document: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The keyword arguments of a document, and the document as this signature writes it."""
        kwargs = self.decode_arguments(document)
        return kwargs, self.encode_arguments((), kwargs)

    def encode_result(self, value: Any) -> Any:
        """The document of a result; raises `errors.BadResult` with a path under ``result``."""
        self.parameters  # noqa: B018 - resolves on first use
        try:
            return self._result.encode(value, "result")
        except ValueProblem as problem:
            raise refuse_result(problem, self.name) from None

    def decode_result(self, document: Any) -> Any:
        """The result of a document; raises `errors.BadResult` with a path under ``result``."""
        self.parameters  # noqa: B018 - resolves on first use
        try:
            return self._result.decode(document, "result")
        except ValueProblem as problem:
            raise refuse_result(problem, self.name) from None

    def describe(self) -> dict[str, Any]:
        """A JSON description: parameters (default null where required), and the result's type."""
        return {
            "parameters": [
                {
                    "name": parameter.name,
                    "type": type_text(parameter.annotation),
                    "required": parameter.required,
                    "default": parameter.default_document,
                }
                for parameter in self.parameters
            ],
            "returns": type_text(self._returns),
        }

    def sql_types(self) -> list[tuple[str, str]]:
        """The PostgreSQL type of each parameter; what has no type of its own is ``jsonb``."""
        return [(parameter.name, sql_type(parameter.annotation)) for parameter in self.parameters]

    def _argument_error(
        self, convert: Callable[[Any, str], Any], found: Any, name: str
    ) -> Exception:
        """The error of an argument, found again with its path: the hot path builds none."""
        try:
            convert(found, f"args.{name}")
        except ValueProblem as problem:
            return refuse_argument(problem, self.name)
        return refuse_argument(ValueProblem(f"args.{name}", "is nested too deeply"), self.name)

    def _missing(self, parameter: Parameter) -> errors.BadArgument:
        return errors.BadArgument(
            f"{self.name}: args.{parameter.name} is missing; expected {parameter.codec.text}",
            hint=self._hint(),
            path=f"args.{parameter.name}",
            function=self.name,
        )

    def _unknown(self, given: dict[str, Any]) -> errors.BadArgument:
        name = next(str(key) for key in given if key not in self._by_name)
        path = f"args.{printable(name[:60])}"
        return errors.BadArgument(
            f"{self.name}: {path} is no parameter{nearest(name, self._by_name)}",
            hint=self._hint(),
            path=path,
            function=self.name,
        )

    def _hint(self) -> str:
        shown = ", ".join(
            f"{p.name}: {p.codec.text}{'' if p.required else ' = ...'}" for p in self.parameters
        )
        return f"The signature is {self.name}({shown})."


def sql_type(annotation: Any) -> str:
    """The PostgreSQL type in which an annotation's values can be compared and shown."""
    annotation = unwrap(annotation)
    if is_union(annotation):
        members = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        return sql_type(members[0]) if len(members) == 1 else "jsonb"
    try:
        return _SQL_TYPES.get(annotation, "jsonb")
    except TypeError as error:
        raise unsupported(annotation, "args", f"is no type: {error}") from None
