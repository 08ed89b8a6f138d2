"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import grpc

from ..authoring.bundle import Bundle
from ..authoring.decorators import Function
from ..telemetry import Telemetry, from_environment
from . import requests
from .aio_workflows import AsyncWorkflowCalls
from .connecting import OPTIONS, RETRY_BUDGET_S, Connection, Metadata, methods
from .failures import Attempts, failure_of
from .records import Column, Deployed, FunctionInfo, InvocationResult, Run, TrimmedLog
from .requests import Request
from .workflow_requests import Feed

__all__ = ["AsyncClient", "AsyncQueryResult"]

T = TypeVar("T")
R = TypeVar("R")


class AsyncClient(AsyncWorkflowCalls):
    """`Client`, for asyncio: the same methods, to be awaited.

        async with AsyncClient() as client:
            await client.call(hotel.reserve, hotel_id=3, customer_id=7)

    Made and used in one event loop.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        tls: bool = False,
        tls_ca: Path | str | None = None,
        tls_certificate: Path | str | None = None,
        tls_key: Path | str | None = None,
        retry_budget_s: float = RETRY_BUDGET_S,
        telemetry: Telemetry | None = None,
    ) -> None:
        to = Connection.of(
            address,
            token,
            tls=tls,
            tls_ca=tls_ca,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
        )
        self.address = to.address
        self._retry_budget_s = retry_budget_s
        self._telemetry = telemetry or from_environment()
        self._metadata = to.metadata
        self._channel = (
            grpc.aio.insecure_channel(to.address, OPTIONS)
            if to.credentials is None
            else grpc.aio.secure_channel(to.address, to.credentials, OPTIONS)
        )
        self._methods = methods(self._channel)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @overload
    async def call(
        self,
        target: Function[..., R],
        /,
        *args: Any,
        run_id: str | None = ...,
        timeout_s: float | None = ...,
        application: str | None = ...,
        **kwargs: Any,
    ) -> R: ...
    @overload
    async def call(
        self,
        target: str,
        /,
        *args: Any,
        run_id: str | None = ...,
        timeout_s: float | None = ...,
        application: str | None = ...,
        **kwargs: Any,
    ) -> Any: ...
    async def call(
        self,
        target: str | Function[..., Any],
        /,
        *args: Any,
        run_id: str | None = None,
        timeout_s: float | None = None,
        application: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a function in the database and return its result, or raise its error."""
        result = await self.invoke(
            target, *args, run_id=run_id, timeout_s=timeout_s, application=application, **kwargs
        )
        return result.output

    async def invoke(
        self,
        target: str | Function[..., Any],
        /,
        *args: Any,
        run_id: str | None = None,
        timeout_s: float | None = None,
        application: str | None = None,
        **kwargs: Any,
    ) -> InvocationResult:
        """As `call`, and tell the run's id, deployment, transaction, and whether it ran now."""
        return await self._send(
            requests.invoke(
                target,
                args,
                kwargs,
                run_id=run_id,
                timeout_s=timeout_s,
                application=application,
            )
        )

    async def invoke_document(
        self,
        function: str,
        document: Mapping[str, Any],
        *,
        run_id: str | None = None,
        timeout_s: float | None = None,
        application: str | None = None,
    ) -> InvocationResult:
        """As `invoke`, with a JSON document of the arguments; the output is one as well."""
        return await self._send(
            requests.invoke_document(
                function, document, run_id=run_id, timeout_s=timeout_s, application=application
            )
        )

    async def deploy(self, bundle: Bundle, *, check_only: bool = False) -> Deployed:
        """Store a bundle and let it serve new calls; with ``check_only`` undo it at the end."""
        return await self._send(requests.deploy(bundle, check_only=check_only))

    async def rollback(self, application: str) -> Deployed:
        """Let the deployment before the current one serve again."""
        return await self._send(requests.rollback(application))

    async def functions(self, application: str | None = None) -> list[FunctionInfo]:
        """The functions that serve now, of one application or of all."""
        return await self._send(requests.functions(application))

    async def describe_function(self, name: str, application: str | None = None) -> FunctionInfo:
        """One function as it serves now."""
        return await self._send(requests.describe_function(name, application))

    async def get_run(self, run_id: str) -> Run:
        """One run with its operations and attempts."""
        return await self._send(requests.get_run(run_id))

    async def list_runs(
        self,
        *,
        application: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        statuses: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        run_id_prefix: str | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[Run]:
        """Runs, newest first; further pages are fetched as they are needed."""
        page_token = ""
        while True:
            runs, page_token = await self._send(
                requests.list_runs(
                    page_token,
                    application=application,
                    kind=kind,
                    name=name,
                    statuses=statuses,
                    since=since,
                    until=until,
                    run_id_prefix=run_id_prefix,
                    page_size=page_size,
                )
            )
            for run in runs:
                yield run
            if not page_token:
                return

    async def query(self, sql: str, timeout_s: float | None = None) -> AsyncQueryResult:
        """Run one read-only statement; its rows come as they are iterated over."""
        request = requests.query(sql, timeout_s)
        attempts = Attempts(request, self._retry_budget_s)
        while True:
            stream = self._methods[request.method](
                request.message, timeout=attempts.remaining_s(), metadata=self._metadata
            )
            answers = stream.__aiter__()
            try:
                first = await anext(answers)
            except grpc.RpcError as error:
                await asyncio.sleep(attempts.pause_s(failure_of(error, self.address, request)))
            else:
                return AsyncQueryResult(first, stream, answers, self.address, request)

    async def trim_log(
        self,
        *,
        before: datetime | None = None,
        older_than_s: float | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
        progress: Callable[[TrimmedLog], object] | None = None,
    ) -> TrimmedLog:
        """Delete direct invocations, attempts and row changes from before a time, in batches.

        The run ids are free again: the same call would run once more. With ``dry_run`` only
        counts. ``progress`` gets the sums after each batch. DeadlineExceeded after ``timeout_s``;
        what has gone by then stays gone, and the next call goes on.
        """
        feed = requests.trim_log(before, older_than_s, timeout_s, dry_run=dry_run)
        async with aclosing(self._follow(feed)) as sums:
            async for so_far in sums:
                if progress is not None:
                    progress(so_far)
        return so_far

    async def _follow(self, feed: Feed[T]) -> AsyncGenerator[T, None]:
        request = feed.request
        attempts = Attempts(request, self._retry_budget_s)
        while True:
            stream = self._methods[request.method](
                request.message, timeout=attempts.remaining_s(), metadata=self._metadata
            )
            try:
                async for answer in stream:
                    attempts.answered()
                    if (taken := feed.take(answer)) is not None:
                        yield taken
                return
            except grpc.RpcError as error:
                await asyncio.sleep(attempts.pause_s(failure_of(error, self.address, request)))
            finally:
                stream.cancel()

    async def _send(self, request: Request[T]) -> T:
        if self._telemetry is None:
            return await self._attempt(request, self._metadata)
        with self._telemetry.calling(request.method, request.subject) as trace:
            return await self._attempt(request, self._metadata + trace)

    async def _attempt(self, request: Request[T], metadata: Metadata) -> T:
        attempts = Attempts(request, self._retry_budget_s)
        method = self._methods[request.method]
        while True:
            try:
                answer = await method(
                    request.message, timeout=attempts.remaining_s(), metadata=metadata
                )
            except grpc.RpcError as error:
                await asyncio.sleep(attempts.pause_s(failure_of(error, self.address, request)))
            else:
                return request.decode(answer)


class AsyncQueryResult:
    """The rows of a query, to be iterated over once; `close` ends it before its end."""

    def __init__(
        self, first: Any, stream: Any, answers: Any, address: str, request: Request[Any]
    ) -> None:
        self.columns: tuple[Column, ...] = requests.columns_of(first)
        self._first = first
        self._stream = stream
        self._answers = answers
        self._address = address
        self._request = request
        self._rows = self._read()

    def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        return self._rows

    def close(self) -> None:
        """End the query."""
        self._stream.cancel()

    async def _read(self) -> AsyncIterator[tuple[Any, ...]]:
        for row in requests.rows_of(self._first):
            yield row
        try:
            async for answer in self._answers:
                for row in requests.rows_of(answer):
                    yield row
        except grpc.RpcError as error:
            raise failure_of(error, self._address, self._request) from None
