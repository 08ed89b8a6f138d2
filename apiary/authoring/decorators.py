"""`@function`, `@step`, `@workflow`: the three kinds of code, and how they are called.

A decorated object keeps the signature of what it wraps (without ``db``), so that calls are checked
by a type checker. Calling it asks the current `Context` what that means; with an explicit ``db`` a
function simply runs, which is what unit tests do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast, overload

from ..errors import BadArgument, DeployError, UsageError
from .context import current_context
from .database import Database
from .signature import Signature

__all__ = [
    "Function",
    "Isolation",
    "Registered",
    "Step",
    "Workflow",
    "function",
    "step",
    "workflow",
]

P = ParamSpec("P")
R = TypeVar("R")
Isolation = Literal["serializable", "repeatable read", "read committed"]
_ISOLATIONS = ("serializable", "repeatable read", "read committed")
_ROOTS = ("functions", "workflows")


class Registered:
    """What `@function`, `@step` and `@workflow` have in common: a body with a public name."""

    kind: str

    def __init__(self, body: Callable[..., Any], *, skip_first: bool) -> None:
        self.body = body
        self.module: str = body.__module__
        self.qualname: str = body.__qualname__
        self.name = public_name(self.module, body.__name__)
        self.is_async = inspect.iscoroutinefunction(body)
        self._skip_first = skip_first
        update_wrapper(cast(Callable[..., Any], self), body)

    @cached_property
    def signature(self) -> Signature:
        """Parameters and result with their codecs (UnsupportedType when one has none)."""
        return Signature.of(self.body, skip_first=self._skip_first)

    @property
    def doc(self) -> str:
        """The first paragraph of the docstring."""
        return inspect.cleandoc(self.body.__doc__ or "").split("\n\n")[0]

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = current_context()
        if context is None:
            raise UsageError(
                f"{self.kind} {self.name} was called outside the platform",
                hint=self._outside_hint(),
            )
        return context.call(self, args, kwargs)

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = current_context()
        if context is None:
            raise UsageError(
                f"{self.kind} {self.name} was started outside a workflow",
                hint="futures belong to a workflow; from a client use client.start()",
            )
        return context.start(self, args, kwargs)

    def _outside_hint(self) -> str:
        return (
            f"from a client: client.call({self.name!r}, ...); in a test without a platform: "
            f"{self.qualname}.body(...)"
        )


def public_name(module: str, name: str) -> str:
    """``functions.hotel.search``, ``find`` -> ``hotel.find``: the domain and the name."""
    parts = module.split(".")
    for root in _ROOTS:
        if root in parts and len(parts) > parts.index(root) + 1:
            return f"{parts[parts.index(root) + 1]}.{name}"
    return f"{parts[-1]}.{name}"


class Function(Registered, Generic[P, R]):
    """A transactional function: runs inside the database, exactly once, as one transaction."""

    kind = "function"

    def __init__(
        self,
        body: Callable[Concatenate[Database, P], R],
        *,
        isolation: Isolation = "serializable",
        timeout_s: float | None = None,
        partition: str | None = None,
    ) -> None:
        super().__init__(body, skip_first=True)
        self.isolation = isolation
        self.timeout_s = timeout_s
        self.partition = partition

    @overload
    def __call__(self, db: Database, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    # mypy does not see that *args takes the first overload's P.args after its db.
    def __call__(self, *args: Any, **kwargs: Any) -> R:  # type: ignore[misc]
        if args and isinstance(args[0], Database):
            return cast(R, self.body(*args, **kwargs))
        return cast(R, self._call(args, kwargs))

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Begin this function in a workflow; its effects and result follow with the future."""
        return cast("Future[R]", self._start(args, kwargs))

    def _outside_hint(self) -> str:
        return (
            f"from a client: client.call({self.name!r}, ...); in a test: pass a Database first, "
            f"as in {self.qualname}(db, ...)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is tried: all times in seconds."""

    retries: int = 0  # further attempts after the first
    backoff_s: float = 1.0  # before the first retry, doubled for each further one
    max_backoff_s: float = 60.0
    jitter: float = 0.1  # share of the delay that is random
    retry_if: Callable[[BaseException], bool] | None = None
    timeout_s: float | None = None  # of one attempt
    process: bool = False  # run in a process pool: CPU-bound Python


class Step(Registered, Generic[P, R]):
    """Code that runs outside the database, at least once; its recorded result is used once."""

    kind = "step"

    def __init__(self, body: Callable[P, R], options: StepOptions) -> None:
        super().__init__(body, skip_first=False)
        self.options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self._call(args, kwargs))

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Begin this step in a workflow, side by side with what follows."""
        return cast("Future[R]", self._start(args, kwargs))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowOptions:
    """Defaults of a workflow's runs."""

    timeout_s: float | None = None  # of a whole run
    queue: str | None = None
    max_adoptions: int = 50  # then the run is STUCK


class Workflow(Registered, Generic[P, R]):
    """Deterministic Python that calls functions, steps and other workflows, to completion."""

    kind = "workflow"

    def __init__(self, body: Callable[P, R], options: WorkflowOptions) -> None:
        super().__init__(body, skip_first=False)
        self.options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self._call(args, kwargs))

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Begin this workflow as a child run; its id is derived from the parent's."""
        return cast("Future[R]", self._start(args, kwargs))


class Future(Generic[R]):
    """The outcome of an operation that was started, to be asked for later in the workflow."""

    def __init__(self, resolve: Callable[[], R], seq: int) -> None:
        self._resolve = resolve
        self.seq = seq  # the operation's number in its run

    def result(self) -> R:
        """The result; raises the operation's error. Waits for it when it is not there yet."""
        return self._resolve()


@overload
def function(body: Callable[Concatenate[Database, P], R], /) -> Function[P, R]: ...
@overload
def function(
    *,
    isolation: Isolation = ...,
    timeout_s: float | None = ...,
    partition: str | None = ...,
) -> Callable[[Callable[Concatenate[Database, P], R]], Function[P, R]]: ...
def function(
    body: Callable[..., Any] | None = None,
    /,
    *,
    isolation: Isolation = "serializable",
    timeout_s: float | None = None,
    partition: str | None = None,
) -> Any:
    """Mark a transactional function; its first parameter is the `Database`.

    ``isolation`` is serializable unless said otherwise; ``timeout_s`` bounds one execution, also
    of a body that loops in pure Python; ``partition`` names the parameter by which a distributed
    engine may place the call.
    """
    if isolation not in _ISOLATIONS:
        raise BadArgument(f"isolation is one of {', '.join(_ISOLATIONS)}; got {isolation!r}")
    if timeout_s is not None and timeout_s <= 0:
        raise BadArgument(f"timeout_s is positive; got {timeout_s!r}")

    def decorate(fn: Callable[..., Any]) -> Any:
        parameters = list(inspect.signature(fn).parameters)
        if not parameters:
            raise DeployError(
                f"function {fn.__qualname__} has no parameter for the database",
                hint=f"write: def {fn.__name__}(db: Database, ...)",
            )
        if inspect.iscoroutinefunction(fn):
            raise DeployError(
                f"function {fn.__qualname__} is async",
                hint="a function is one transaction and has nothing to wait for: use a plain def",
            )
        if partition is not None and partition not in parameters[1:]:
            raise DeployError(f"{fn.__qualname__} has no parameter {partition!r} to partition by")
        return Function(fn, isolation=isolation, timeout_s=timeout_s, partition=partition)

    return decorate if body is None else decorate(body)


@overload
def step(body: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    retries: int = ...,
    backoff_s: float = ...,
    max_backoff_s: float = ...,
    jitter: float = ...,
    retry_if: Callable[[BaseException], bool] | None = ...,
    timeout_s: float | None = ...,
    process: bool = ...,
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(body: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a step: code with effects outside the database. See `StepOptions` for its options."""
    chosen = StepOptions(**options)

    def decorate(fn: Callable[..., Any]) -> Any:
        return Step(fn, chosen)

    return decorate if body is None else decorate(body)


@overload
def workflow(body: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    timeout_s: float | None = ...,
    queue: str | None = ...,
    max_adoptions: int = ...,
) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
def workflow(body: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a workflow: deterministic Python. See `WorkflowOptions` for its options."""
    chosen = WorkflowOptions(**options)

    def decorate(fn: Callable[..., Any]) -> Any:
        return Workflow(fn, chosen)

    return decorate if body is None else decorate(body)
