"""What a workflow may ask of the platform: time, waiting, messages, events, parallel work.

Each call is an operation of the run: recorded, and given back from the record in a replay. Called
outside a workflow they raise UsageError; `progress`, `write_stream`, `run_id` and `step_key` may
also be called by a step; `write_sources` is for steps only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast, overload
from uuid import UUID

from ..errors import UsageError
from .context import current_context
from .decorators import Future

__all__ = [
    "gather",
    "get_event",
    "now",
    "progress",
    "random",
    "recv",
    "run_id",
    "send",
    "set_event",
    "sleep",
    "sleep_until",
    "step_key",
    "uuid4",
    "write_sources",
    "write_stream",
]

T = TypeVar("T")


def _ask(name: str, *args: Any, **options: Any) -> Any:
    context = current_context()
    if context is None:
        raise UsageError(
            f"apiary.{name}() was called outside the platform", hint="call it in a workflow"
        )
    return context.primitive(name, *args, **options)


def now() -> datetime:
    """The time (UTC), the same in every replay."""
    return cast(datetime, _ask("now"))


def random() -> float:
    """A random number in [0, 1), the same in every replay."""
    return cast(float, _ask("random"))


def uuid4() -> UUID:
    """A random UUID, the same in every replay."""
    return cast(UUID, _ask("uuid4"))


def run_id() -> str:
    """The id of the run."""
    return cast(str, _ask("run_id"))


def step_key() -> str:
    """In a step: ``<run_id>/<seq>``, the same in every attempt: an idempotency key for others."""
    return cast(str, _ask("step_key"))


def sleep(seconds: float) -> None:
    """Wait that long, from the first time this is reached; the run leaves memory meanwhile."""
    _ask("sleep", seconds)


def sleep_until(when: datetime) -> None:
    """Wait until a time (aware); the run leaves memory meanwhile."""
    _ask("sleep_until", when)


def send(run_id: str, message: Any, topic: str = "") -> None:
    """Send a message to another run, once."""
    _ask("send", run_id, message, topic)


def recv(topic: str = "", timeout_s: float | None = None) -> Any:
    """The oldest message sent to this run under ``topic``; waits for it.

    WaitTimedOut (recorded as such, and not a null message) when none came within ``timeout_s``.
    """
    return _ask("recv", topic, timeout_s)


def set_event(key: str, value: Any) -> None:
    """Publish a value of this run under a key, for other runs and clients."""
    _ask("set_event", key, value)


def get_event(run_id: str, key: str, timeout_s: float | None = None) -> Any:
    """The value that another run published under a key; waits for it, as `recv` does."""
    return _ask("get_event", run_id, key, timeout_s)


def write_stream(key: str, value: Any) -> None:
    """Append a value to a stream of this run. A step's values appear when its attempt succeeds."""
    _ask("write_stream", key, value)


def write_sources(directory: Path | str) -> None:
    """In a step: write the application's modules below ``directory``, as they were deployed.

    For a step that starts Python programs: code of a deployment comes from the database, and this
    gives it a place that a child's PYTHONPATH can name.
    """
    _ask("write_sources", Path(directory))


def progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Show how far the run is; clients see it as a bar."""
    _ask("progress", done, total, message)


@overload
def gather(*futures: Future[T]) -> list[T]: ...
@overload
def gather(*futures: Future[T], need: int) -> list[tuple[int, T]]: ...
def gather(*futures: Future[Any], need: int | None = None) -> Sequence[Any]:
    """The results of futures, in their order; waits for all, and raises the first one's error.

    With ``need`` it returns when so many have succeeded, as (index, result) in the order in which
    they ended; which those were is recorded. It raises the last error when too many have failed.
    """
    return cast(Sequence[Any], _ask("gather", futures, need))
