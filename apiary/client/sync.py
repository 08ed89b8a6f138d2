"""The client for ordinary code."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import grpc

from ..authoring.bundle import Bundle
from ..authoring.decorators import Function
from ..telemetry import Telemetry, from_environment
from . import requests
from .connecting import OPTIONS, RETRY_BUDGET_S, Connection, Metadata, methods
from .failures import Attempts, failure_of
from .records import Column, Deployed, FunctionInfo, InvocationResult, Run, TrimmedLog
from .requests import Request
from .workflow_requests import Feed
from .workflows import WorkflowCalls

__all__ = ["Client", "QueryResult"]

T = TypeVar("T")
R = TypeVar("R")


class Client(WorkflowCalls):
    """A connection to a server; use it from any number of threads, close it when done.

        with Client() as client:
            client.call(hotel.reserve, hotel_id=3, customer_id=7)
            client.call("hotel.reserve", hotel_id=3, customer_id=7)

    ``address`` defaults to APIARY_ADDRESS, then 127.0.0.1:7432; ``token`` to APIARY_TOKEN.
    A call whose answer was lost is repeated with the same run id for ``retry_budget_s``, so that
    it takes effect once. Errors are those of `apiary.errors`.
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
            grpc.insecure_channel(to.address, OPTIONS)
            if to.credentials is None
            else grpc.secure_channel(to.address, to.credentials, OPTIONS)
        )
        self._methods = methods(self._channel)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @overload
    def call(
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
    def call(
        self,
        target: str,
        /,
        *args: Any,
        run_id: str | None = ...,
        timeout_s: float | None = ...,
        application: str | None = ...,
        **kwargs: Any,
    ) -> Any: ...
    def call(
        self,
        target: str | Function[..., Any],
        /,
        *args: Any,
        run_id: str | None = None,
        timeout_s: float | None = None,
        application: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a function in the database and return its result, or raise its error.

        The same ``run_id`` again returns the recorded result without running it.
        """
        return self.invoke(
            target, *args, run_id=run_id, timeout_s=timeout_s, application=application, **kwargs
        ).output

    def invoke(
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
        return self._send(
            requests.invoke(
                target,
                args,
                kwargs,
                run_id=run_id,
                timeout_s=timeout_s,
                application=application,
            )
        )

    def invoke_document(
        self,
        function: str,
        document: Mapping[str, Any],
        *,
        run_id: str | None = None,
        timeout_s: float | None = None,
        application: str | None = None,
    ) -> InvocationResult:
        """As `invoke`, with a JSON document of the arguments; the output is one as well."""
        return self._send(
            requests.invoke_document(
                function, document, run_id=run_id, timeout_s=timeout_s, application=application
            )
        )

    def deploy(self, bundle: Bundle, *, check_only: bool = False) -> Deployed:
        """Store a bundle and let it serve new calls; with ``check_only`` undo it at the end."""
        return self._send(requests.deploy(bundle, check_only=check_only))

    def rollback(self, application: str) -> Deployed:
        """Let the deployment before the current one serve again."""
        return self._send(requests.rollback(application))

    def functions(self, application: str | None = None) -> list[FunctionInfo]:
        """The functions that serve now, of one application or of all."""
        return self._send(requests.functions(application))

    def describe_function(self, name: str, application: str | None = None) -> FunctionInfo:
        """One function as it serves now."""
        return self._send(requests.describe_function(name, application))

    def get_run(self, run_id: str) -> Run:
        """One run with its operations and attempts."""
        return self._send(requests.get_run(run_id))

    def list_runs(
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
    ) -> Iterator[Run]:
        """Runs, newest first; further pages are fetched as they are needed."""
        page_token = ""
        while True:
            runs, page_token = self._send(
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
            yield from runs
            if not page_token:
                return

    def query(self, sql: str, timeout_s: float | None = None) -> QueryResult:
        """Run one read-only statement; its rows come as they are iterated over."""
        request = requests.query(sql, timeout_s)
        attempts = Attempts(request, self._retry_budget_s)
        while True:
            stream = self._methods[request.method](
                request.message, timeout=attempts.remaining_s(), metadata=self._metadata
            )
            try:
                first = next(stream)
            except grpc.RpcError as error:
                time.sleep(attempts.pause_s(failure_of(error, self.address, request)))
            else:
                return QueryResult(first, stream, self.address, request)

    def trim_log(
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
        with closing(self._follow(feed)) as sums:
            for so_far in sums:
                if progress is not None:
                    progress(so_far)
        return so_far

    def _follow(self, feed: Feed[T]) -> Generator[T, None, None]:
        request = feed.request
        attempts = Attempts(request, self._retry_budget_s)
        while True:
            stream = self._methods[request.method](
                request.message, timeout=attempts.remaining_s(), metadata=self._metadata
            )
            try:
                for answer in stream:
                    attempts.answered()
                    if (taken := feed.take(answer)) is not None:
                        yield taken
                return
            except grpc.RpcError as error:
                time.sleep(attempts.pause_s(failure_of(error, self.address, request)))
            finally:
                stream.cancel()

    def _send(self, request: Request[T]) -> T:
        if self._telemetry is None:
            return self._attempt(request, self._metadata)
        with self._telemetry.calling(request.method, request.subject) as trace:
            return self._attempt(request, self._metadata + trace)

    def _attempt(self, request: Request[T], metadata: Metadata) -> T:
        attempts = Attempts(request, self._retry_budget_s)
        method = self._methods[request.method]
        while True:
            try:
                answer = method(request.message, timeout=attempts.remaining_s(), metadata=metadata)
            except grpc.RpcError as error:
                time.sleep(attempts.pause_s(failure_of(error, self.address, request)))
            else:
                return request.decode(answer)


class QueryResult:
    """The rows of a query, to be iterated over once; `close` ends it before its end."""

    def __init__(self, first: Any, stream: Any, address: str, request: Request[Any]) -> None:
        self.columns: tuple[Column, ...] = requests.columns_of(first)
        self._first = first
        self._stream = stream
        self._address = address
        self._request = request
        self._rows = self._read()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def close(self) -> None:
        """End the query."""
        self._stream.cancel()

    def _read(self) -> Iterator[tuple[Any, ...]]:
        yield from requests.rows_of(self._first)
        try:
            for answer in self._stream:
                yield from requests.rows_of(answer)
        except grpc.RpcError as error:
            raise failure_of(error, self._address, self._request) from None
