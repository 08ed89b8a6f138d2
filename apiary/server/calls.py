"""What every call goes through: authentication, draining, errors into statuses.

A method of the service is written as if none of this existed: it takes a request and a `Call`,
and raises the platform's errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, TypeVar

import grpc

from ..errors import ApiaryError, Draining, UnavailableError
from ..telemetry import Telemetry
from .authentication import LOCAL, Principal, Role, Tokens
from .status import DETAILS_KEY, code_of, status_of

__all__ = ["RUN_ID_KEY", "Call", "Gate", "stream", "unary"]

RUN_ID_KEY = "apiary-run-id"
# Below a client's own deadline, so that the answer (and the log entry) is ours and not a cut line.
_DEADLINE_MARGIN_S = 0.05
_CANCEL_WITHIN_S = 5.0
_TRACE_KEYS = ("traceparent", "tracestate")

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
Metadata = Iterable[tuple[str, str | bytes]]
S = TypeVar("S", bound="Gated")


class Call:
    """One call being served."""

    __slots__ = ("_sent", "context", "principal")

    def __init__(self, context: Context, principal: Principal, sent: Metadata) -> None:
        self.context = context
        self.principal = principal
        self._sent = sent

    def metadata(self, name: str) -> str | None:
        """A text that the client sent as metadata."""
        return _text(self._sent, name)

    def name_run(self, run_id: str) -> None:
        """Tell the client the run's id, whatever comes of it."""
        value: str | bytes = run_id
        key = RUN_ID_KEY
        if not run_id.isascii():  # text metadata is ASCII
            key, value = f"{RUN_ID_KEY}-bin", run_id.encode()
        self.context.set_trailing_metadata(((key, value),))

    def deadline_s(self) -> float | None:
        """Seconds from now that the client will wait, less what the answer takes."""
        remaining_s = self.context.time_remaining()
        if remaining_s is None:
            return None
        return max(0.0, remaining_s - min(_DEADLINE_MARGIN_S, remaining_s / 4))


class Gate:
    """Lets calls in, counts them, and closes for draining."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._inside: set[asyncio.Task[Any] | None] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.draining = False
        self.cut = False  # the calls that are still inside are being cancelled

    def enter(self, context: Context, role: Role | None) -> Call:
        """Let a call in; `leave` has to follow. Raises what refuses it."""
        if self.draining:
            raise Draining(
                "this server is stopping and takes no new calls",
                hint="repeat the call with the same run id, here later or at another server",
            )
        sent = context.invocation_metadata() or ()  # gRPC makes it anew each time
        principal = LOCAL
        if self._tokens is not None:
            principal = self._tokens.authenticate(_text(sent, "authorization"))
        principal.require(role)
        self._inside.add(asyncio.current_task())
        self._empty.clear()
        return Call(context, principal, sent)

    def leave(self) -> None:
        """A call has ended."""
        self._inside.discard(asyncio.current_task())
        if not self._inside:
            self._empty.set()

    def close(self) -> None:
        """Take no new calls."""
        self.draining = True

    async def drain(self, grace_s: float) -> None:
        """Take no new calls, wait for those inside, and cancel those that the grace is over for."""
        self.close()
        if await self._emptied(grace_s):
            return
        log.warning("drain_incomplete calls=%d grace_s=%g", len(self._inside), grace_s)
        self.cut = True
        for task in self._inside:
            if task is not None:
                task.cancel()
        if not await self._emptied(_CANCEL_WITHIN_S):
            log.error("calls_left calls=%d", len(self._inside))

    async def _emptied(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


class Gated:
    """What has a gate before its methods, and may be observed."""

    gate: Gate
    telemetry: Telemetry | None


def unary(
    role: Role | None,
) -> Callable[
    [Callable[[S, Any, Call], Awaitable[Any]]], Callable[[S, Any, Context], Awaitable[Any]]
]:
    """A method that answers once; its caller needs ``role``."""

    def decorate(
        method: Callable[[S, Any, Call], Awaitable[Any]],
    ) -> Callable[[S, Any, Context], Awaitable[Any]]:
        async def handler(self: S, request: Any, context: Context) -> Any:
            try:
                call = self.gate.enter(context, role)
                try:
                    if self.telemetry is None:
                        return await method(self, request, call)
                    return await _observed(self.telemetry, method, self, request, call)
                finally:
                    self.gate.leave()
            except ApiaryError as error:
                await _abort(context, error)
            except asyncio.CancelledError:
                if not self.gate.cut:
                    raise  # the client has gone
                await _abort(context, _cut_short())
            except Exception as error:  # noqa: BLE001 - the last line: logged, and told apart
                await _abort(context, _unexpected(error, method.__name__))

        handler.__name__ = method.__name__
        handler.__doc__ = method.__doc__
        return handler

    return decorate


def stream(
    role: Role | None,
) -> Callable[
    [Callable[[S, Any, Call], AsyncGenerator[Any, None]]],
    Callable[[S, Any, Context], Awaitable[None]],
]:
    """A method that answers with a stream; its caller needs ``role``."""

    def decorate(
        method: Callable[[S, Any, Call], AsyncGenerator[Any, None]],
    ) -> Callable[[S, Any, Context], Awaitable[None]]:
        async def answer(self: S, request: Any, call: Call) -> None:
            # Closed here and now also when the client has gone, not by the garbage collector.
            async with aclosing(method(self, request, call)) as messages:
                async for message in messages:
                    await call.context.write(message)

        answer.__name__ = method.__name__
        return unary(role)(answer)

    return decorate


async def _observed(
    telemetry: Telemetry,
    method: Callable[[S, Any, Call], Awaitable[Any]],
    service: S,
    request: Any,
    call: Call,
) -> Any:
    sent = {name: value for name in _TRACE_KEYS if (value := call.metadata(name)) is not None}
    with telemetry.serving(method.__name__, sent) as span:
        try:
            return await method(service, request, call)
        except ApiaryError as error:
            telemetry.refused(span, code_of(error).value[0], error)
            raise


def _cut_short() -> Draining:
    return Draining(
        "this server stopped before the call was done; it was cancelled",
        hint="repeat the call with the same run id, here later or at another server",
    )


def _unexpected(error: Exception, method: str) -> ApiaryError:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    log.exception("call_failed method=%s", method, exc_info=error)
    return ApiaryError(
        f"{method} failed inside the server: {type(error).__name__}",
        hint="the server's log has the details",
    )


async def _abort(context: Context, error: ApiaryError) -> None:
    if isinstance(error, UnavailableError) and not isinstance(error, Draining):
        log.warning("call_unavailable: %s", error.message)
    status = status_of(error)
    trailing = (*(context.trailing_metadata() or ()), (DETAILS_KEY, status.SerializeToString()))
    await context.abort(code_of(error), status.message, trailing)


def _text(sent: Metadata, name: str) -> str | None:
    for key, value in sent:
        if key == name:
            return value if isinstance(value, str) else value.decode()
    return None
