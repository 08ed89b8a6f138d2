"""Where a call made by user code goes.

Calling a `@function`, a `@step` or a `@workflow` means something else inside a function (same
transaction), inside a workflow (a recorded operation), and outside of both (an error that says how
to call it). Whoever runs user code puts the `Context` that answers such calls here first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decorators import Registered

__all__ = ["Context", "current_context", "running_in"]


class Context(ABC):
    """Answers the calls that user code makes while it runs."""

    @abstractmethod
    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``target`` and return its result, or raise its error."""

    @abstractmethod
    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Begin ``target`` and return a future of its result."""

    @abstractmethod
    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        """Perform a platform operation (``sleep``, ``recv``, ``now``, ...)."""


_current: ContextVar[Context | None] = ContextVar("apiary_context", default=None)


def current_context() -> Context | None:
    """The context of the code that is running now, or None outside the platform."""
    return _current.get()


class running_in:  # noqa: N801  (used like a function; a class costs a third of a generator)
    """Make ``context`` answer the calls of the code in this block."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = _current.set(self._context)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
