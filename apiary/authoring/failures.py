"""How an exception of user code is recorded, and made again for the one who waits for it.

The record is plain JSON, so it can be read with SQL and by a process that does not have the class.
Recording never fails: what cannot be stored is dropped, and ``notes`` says so.

Standard library only, Python 3.9 or later: this code also runs inside the database process.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from apiary import errors
from apiary.authoring.codec import printable
from apiary.authoring.values import ValueProblem, codec_for

MAX_STACK_BYTES = 8 * 1024
MAX_MESSAGE_CHARACTERS = 16 * 1024

_CUT = "... "
_ANY = codec_for(Any)


def encode_exception(exc: BaseException) -> dict[str, Any]:
    """The record of an exception: a JSON object with

    ``type`` and ``module`` of its class, ``message``, ``code`` (its attribute, if a text),
    ``details`` (its attributes, self-described), ``args`` (its constructor arguments; null if they
    cannot be stored), ``declared`` (an `errors.ApplicationError`), ``stack`` (at most 8 KiB, its
    end), and ``notes`` (what had to be left out). An error of the platform itself has its
    ``metadata`` as details, and ``platform``: all of it, as `errors.ApiaryError.to_json` gives it.
    """
    notes: list[str] = []
    kind = type(exc)
    if isinstance(exc, errors.ApiaryError):
        return {**_platform_error(exc, notes), "stack": _stack(exc, notes), "notes": notes}
    return {
        "type": printable(kind.__name__),
        "module": printable(str(kind.__module__)),
        "message": _message(exc, notes),
        "code": _code(exc, notes),
        "details": _details(exc, notes),
        "args": _arguments(exc, notes),
        "declared": isinstance(exc, errors.ApplicationError),
        "stack": _stack(exc, notes),
        "notes": notes,
    }


def _platform_error(exc: errors.ApiaryError, notes: list[str]) -> dict[str, Any]:
    metadata = {}
    for name, value in exc.metadata.items():
        try:
            metadata[name] = _ANY.encode(value, f"details.{name}")
        except ValueProblem as problem:
            notes.append(printable(f"dropped {problem}"))
    message = printable(exc.message)
    platform: dict[str, Any] = {"error": type(exc).__name__, "message": message}
    if exc.hint:
        platform["hint"] = printable(exc.hint)
    return {
        "type": type(exc).__name__,
        "module": type(exc).__module__,
        "message": message,
        "code": exc.reason,
        "details": metadata,
        "declared": False,
        "platform": {**platform, "metadata": metadata},
    }


def _message(exc: BaseException, notes: list[str]) -> str:
    try:
        message = str.__str__(str(exc))
    # User code: whatever it raises, the original error must be recorded.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        notes.append(f"message is missing: __str__ raised {type(error).__name__}")
        return ""
    if len(message) > MAX_MESSAGE_CHARACTERS:
        notes.append(f"message is cut: it had {len(message)} characters")
        message = message[:MAX_MESSAGE_CHARACTERS] + _CUT.rstrip()
    return printable(message)


def _code(exc: BaseException, notes: list[str]) -> str | None:
    try:
        code = getattr(exc, "code", None)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a property of user code
        notes.append(f"code is missing: reading it raised {type(error).__name__}")
        return None
    return printable(str.__str__(code)) if isinstance(code, str) else None


def _details(exc: BaseException, notes: list[str]) -> dict[str, Any]:
    try:
        attributes = list(vars(exc).items())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - __dict__ may be a property
        notes.append(f"details are missing: reading them raised {type(error).__name__}")
        return {}
    details: dict[str, Any] = {}
    for name, value in attributes:
        if type(name) is not str or name[:1] == "$" or printable(name) != name:
            notes.append("details: an attribute whose name cannot be stored was dropped")
            continue
        try:
            details[name] = _ANY.encode(value, f"details.{name}")
        except ValueProblem as problem:
            notes.append(printable(f"dropped {problem}"))
    return details


def _arguments(exc: BaseException, notes: list[str]) -> list[Any] | None:
    try:
        arguments: list[Any] = _ANY.encode(_constructor_arguments(exc), "args")
    except ValueProblem as problem:
        notes.append(printable(f"dropped {problem}"))
        return None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - args may be a property
        notes.append(f"args are missing: reading them raised {type(error).__name__}")
        return None
    return arguments


def _constructor_arguments(exc: BaseException) -> list[Any]:
    if isinstance(exc, OSError) and exc.filename is not None:
        # OSError moves the file's name from its args to an attribute outside __dict__.
        return [exc.errno, exc.strerror, exc.filename]
    return list(exc.args)


def _stack(exc: BaseException, notes: list[str]) -> str:
    try:
        lines = traceback.format_exception(type(exc), exc, exc.__traceback__)
        text = printable("".join(lines))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - formatting runs user code
        notes.append(f"stack is missing: formatting it raised {type(error).__name__}")
        return ""
    stored = text.encode("utf-8")
    if len(stored) <= MAX_STACK_BYTES:
        return text
    tail = stored[-(MAX_STACK_BYTES - len(_CUT)) :]
    return _CUT + tail.decode("utf-8", "ignore")


def rebuild_exception(
    document: dict[str, Any], find_class: Callable[[str, str], type | None]
) -> BaseException:
    """The exception of a record.

    An error of the platform is that error again. Else ``find_class(module, type)`` gives its class,
    or None where that is not to be had. An Exception subclass is instantiated without its
    constructor, with ``args`` and attributes restored; for anything else the result is an
    `errors.FunctionError` with type, code, details and declared.
    """
    if "platform" in document:
        return errors.ApiaryError.from_json(document["platform"])
    kind = find_class(document["module"], document["type"])
    if isinstance(kind, type) and issubclass(kind, Exception):
        rebuilt = _instantiate(kind, document)
        if rebuilt is not None:
            return rebuilt
    return errors.FunctionError(
        document["message"],
        type=document["type"],
        code=document["code"],
        details=document["details"],
        declared=document["declared"],
    )


def _instantiate(kind: type[Exception], document: dict[str, Any]) -> Exception | None:
    """An instance of the class, or None if it cannot be made or refuses its attributes."""
    recorded = document.get("args")
    try:
        arguments = (document["message"],) if recorded is None else _ANY.decode(recorded)
        details = {name: _ANY.decode(item) for name, item in document["details"].items()}
    except ValueProblem:
        return None
    built_in: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    try:
        instance: Exception = built_in.__new__(kind, *arguments)
        # OSError and a few others keep their arguments in slots that only __init__ fills.
        built_in.__init__(instance, *arguments)
    except (TypeError, ValueError):
        try:
            instance = built_in.__new__(kind)
        except TypeError:  # an ExceptionGroup without its exceptions
            return None
        BaseException.__setattr__(instance, "args", tuple(arguments))
    vars(instance).update(details)
    return instance
