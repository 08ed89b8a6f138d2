"""Building requests and reading answers: what the sync and the async client have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from uuid6 import uuid7

from ..authoring.bundle import Bundle
from ..authoring.codec import ValueProblem
from ..authoring.decorators import Function, Registered
from ..authoring.dynamic import ANY
from ..authoring.values import dumps, loads, refuse_argument, refuse_result
from ..errors import BadArgument
from ..proto.apiary.v1 import apiary_pb2 as pb
from .records import (
    Column,
    Deployed,
    FunctionInfo,
    InvocationResult,
    Operation,
    Progress,
    ReplayProblem,
    ReplayReport,
    Run,
    TrimmedLog,
)

__all__ = [
    "QUERY",
    "Request",
    "columns_of",
    "deploy",
    "describe_function",
    "functions",
    "get_run",
    "invoke",
    "invoke_document",
    "list_runs",
    "query",
    "rollback",
    "rows_of",
    "trim_log",
]

T = TypeVar("T")
QUERY = "Query"
_MAX_DURATION_S = 315_576_000_000  # of google.protobuf.Duration


@dataclass(slots=True)
class Request(Generic[T]):
    """One call to be made: the method, its message, and what becomes of the answer."""

    method: str
    message: Any
    decode: Callable[[Any], T]
    timeout_s: float | None = None
    repeatable: bool = True  # repeating it changes nothing
    cut_in_time: bool = False  # the server does not watch the deadline itself
    run_id: str | None = None
    subject: str | None = None  # the function that is called

    def sent(self) -> None:
        """It has been sent once: a run id is no longer fresh."""
        if isinstance(self.message, pb.InvokeRequest):
            self.message.fresh = False


# Invoking


def invoke(
    target: str | Function[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    run_id: str | None,
    timeout_s: float | None,
    application: str | None,
) -> Request[InvocationResult]:
    """Invoke a function, with arguments and result as Python values.

    A `Function` encodes them by its signature; a name encodes them by what they are.
    """
    name, document, decode = encoded(target, args, kwargs)
    return invoke_document(
        name, document, decode, run_id=run_id, timeout_s=timeout_s, application=application
    )


def encoded(
    target: str | Registered, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[str, Any, Callable[[Any], Any]]:
    """The name of what is called, its arguments as a document, and how to decode its result.

    What is registered encodes by its signature; a name encodes values by what they are.
    """
    if isinstance(target, Registered):
        document = target.signature.encode_arguments(args, dict(kwargs))
        return target.name, document, target.signature.decode_result
    if args:
        raise BadArgument(
            f"{target}: arguments of what is called by name are given by name",
            hint=f"as in call({target!r}, hotel_id=1), or pass the function itself",
            path="args",
            function=target,
        )
    try:
        document = {name: ANY.encode(value, f"args.{name}") for name, value in kwargs.items()}
    except ValueProblem as problem:
        raise refuse_argument(problem, target) from None
    return target, document, lambda output: _any_result(output, target)


def invoke_document(
    function: str,
    document: Mapping[str, Any],
    decode_output: Callable[[Any], Any] = lambda output: output,
    *,
    run_id: str | None,
    timeout_s: float | None,
    application: str | None,
) -> Request[InvocationResult]:
    """Invoke a function with a JSON document as its arguments; its result is one as well."""
    chosen = run_id if run_id is not None else str(uuid7())
    if not chosen:
        raise BadArgument("a run id has 1 to 255 characters, this one has 0", path="run_id")
    message = pb.InvokeRequest(
        application=application or "",
        function=function,
        input=dumps(document),
        run_id=chosen,
        fresh=run_id is None,
        timeout=duration_of(timeout_s),
    )

    def decode(answer: pb.InvokeResponse) -> InvocationResult:
        return InvocationResult(
            run_id=answer.run_id,
            output=decode_output(loads(answer.output)),
            replayed=answer.replayed,
            deployment=answer.deployment,
            xid=answer.xid or None,
        )

    return Request("Invoke", message, decode, timeout_s=timeout_s, run_id=chosen, subject=function)


def _any_result(output: Any, function: str) -> Any:
    try:
        return ANY.decode(output, "result")
    except ValueProblem as problem:
        raise refuse_result(problem, function) from None


# Deploying


def deploy(bundle: Bundle, *, check_only: bool) -> Request[Deployed]:
    """Store a bundle and let it serve; the same content again changes nothing."""
    message = pb.DeployRequest(bundle=bundle.to_json(), check_only=check_only)
    return Request("Deploy", message, _deployed)


def rollback(application: str) -> Request[Deployed]:
    """Let the version before serve again. Repeating it would go back further."""
    message = pb.RollbackRequest(application=application)
    return Request("Rollback", message, _deployed, repeatable=False)


def _deployed(answer: pb.DeployResponse) -> Deployed:
    return Deployed(
        application=answer.application,
        deployment=answer.deployment,
        previous=answer.previous or None,
        changed=answer.changed,
        functions=tuple(answer.functions),
        workflows=tuple(answer.workflows),
        scripts=tuple(answer.scripts),
        replay=_replay(answer.replay) if answer.HasField("replay") else None,
    )


def _replay(report: pb.ReplayReport) -> ReplayReport:
    return ReplayReport(
        live_runs=report.live_runs,
        checked=report.checked,
        problems=tuple(
            ReplayProblem(
                run_id=each.run_id,
                workflow=each.workflow,
                reason=each.reason,
                recorded=each.recorded or None,
                now=each.now or None,
            )
            for each in report.problems
        ),
    )


# Functions


def functions(application: str | None) -> Request[list[FunctionInfo]]:
    """The functions that serve now."""
    message = pb.ListFunctionsRequest(application=application or "")
    return Request(
        "ListFunctions", message, lambda answer: [_function(item) for item in answer.functions]
    )


def describe_function(name: str, application: str | None) -> Request[FunctionInfo]:
    """One function."""
    message = pb.DescribeFunctionRequest(name=name, application=application or "")
    return Request("DescribeFunction", message, _function)


def _function(item: pb.FunctionDescription) -> FunctionInfo:
    timeout_s = item.timeout.seconds + item.timeout.nanos / 1e9
    return FunctionInfo(
        application=item.application,
        name=item.name,
        deployment=item.deployment,
        doc=item.doc,
        signature=json.loads(item.signature),
        isolation=item.isolation,
        timeout_s=timeout_s if item.HasField("timeout") else None,
        read_only=item.read_only,
        dynamic=item.dynamic,
        reads=tuple(item.reads),
        writes=tuple(item.writes),
        file=item.file,
        line=item.line,
    )


# Runs


def get_run(run_id: str) -> Request[Run]:
    """One run with its operations."""
    return Request("GetRun", pb.GetRunRequest(run_id=run_id), run_of)


def list_runs(
    page_token: str,
    *,
    application: str | None,
    kind: str | None,
    name: str | None,
    statuses: Sequence[str],
    since: datetime | None,
    until: datetime | None,
    run_id_prefix: str | None,
    page_size: int,
) -> Request[tuple[list[Run], str]]:
    """A page of runs, and the token of the next one (empty after the last)."""
    message = pb.ListRunsRequest(
        application=application or "",
        kind=kind or "",
        name=name or "",
        statuses=statuses,
        since=timestamp_of(since, "since"),
        until=timestamp_of(until, "until"),
        run_id_prefix=run_id_prefix or "",
        page_size=page_size,
        page_token=page_token,
    )
    return Request(
        "ListRuns",
        message,
        lambda answer: ([run_of(item) for item in answer.runs], answer.next_page_token),
    )


def run_of(item: pb.Run) -> Run:
    """A run."""
    return Run(
        run_id=item.run_id,
        kind=item.kind,
        name=item.name,
        application=item.application,
        deployment=item.deployment,
        principal=item.principal,
        status=item.status,
        input=document_of(item.input),
        output=document_of(item.output),
        error=document_of(item.error),
        created_at=moment_of(item.created_at),
        started_at=moment_of(item.started_at) if item.HasField("started_at") else None,
        finished_at=moment_of(item.finished_at) if item.HasField("finished_at") else None,
        trace=item.trace or None,
        queue=item.queue or None,
        executor=item.executor or None,
        parent_run_id=item.parent_run_id or None,
        forked_from=item.forked_from or None,
        deadline=moment_of(item.deadline) if item.HasField("deadline") else None,
        progress=progress_of(item.progress) if item.HasField("progress") else None,
        operations=tuple(operation_of(operation) for operation in item.operations),
    )


def progress_of(item: pb.Progress) -> Progress:
    """How far a run is."""
    total = item.total if item.HasField("total") else None
    return Progress(done=item.done, total=total, message=item.message)


def operation_of(item: pb.Operation) -> Operation:
    """One recorded call of a run, or one attempt."""
    return Operation(
        seq=item.seq,
        kind=item.kind,
        name=item.name,
        status=item.status,
        attempt=item.attempt,
        output=document_of(item.output),
        error=document_of(item.error),
        started_at=moment_of(item.started_at),
        finished_at=moment_of(item.finished_at) if item.HasField("finished_at") else None,
        xid=item.xid or None,
        log=item.log,
    )


# Queries


def query(sql: str, timeout_s: float | None) -> Request[pb.QueryResponse]:
    """One read-only statement; its answers are a stream."""
    message = pb.QueryRequest(sql=sql, timeout=duration_of(timeout_s))
    return Request(QUERY, message, lambda answer: answer, timeout_s=timeout_s)


def columns_of(answer: pb.QueryResponse) -> tuple[Column, ...]:
    """The columns, which are in the first answer."""
    return tuple(Column(name=column.name, type=column.type) for column in answer.columns)


def rows_of(answer: pb.QueryResponse) -> list[tuple[Any, ...]]:
    """The rows of an answer as Python values."""
    return [tuple(ANY.decode(loads(text)) for text in row.values) for row in answer.rows]


# The log


@dataclass(slots=True)
class TrimFeed:
    """What has gone of the log so far, over all the streams that it took."""

    request: Request[Any]
    _before_cut: tuple[int, ...] = (0, 0, 0)
    _so_far: tuple[int, ...] = (0, 0, 0)

    def take(self, answer: pb.TrimLogResponse) -> TrimmedLog:
        """The sums after a batch."""
        counted = (answer.invocations, answer.attempts, answer.row_changes)
        message = self.request.message
        if not any(counted) and not message.dry_run:  # maybe the first after a cut
            self._before_cut = self._so_far
        # After a cut it goes on with the same time, and not with one that has moved meanwhile.
        message.ClearField("older_than")
        message.before.CopyFrom(answer.before)
        self._so_far = tuple(map(sum, zip(self._before_cut, counted, strict=True)))
        invocations, attempts, row_changes = self._so_far
        return TrimmedLog(
            before=moment_of(answer.before),
            invocations=invocations,
            attempts=attempts,
            row_changes=row_changes,
        )


def trim_log(
    before: datetime | None, older_than_s: float | None, timeout_s: float | None, *, dry_run: bool
) -> TrimFeed:
    """Delete the old part of the log, or count it."""
    message = pb.TrimLogRequest(
        before=timestamp_of(before, "before"),
        older_than=duration_of(older_than_s, "older_than_s"),
        dry_run=dry_run,
        timeout=duration_of(timeout_s),
    )
    return TrimFeed(Request("TrimLog", message, lambda answer: answer, timeout_s=timeout_s))


# Values of messages


def document_of(text: str) -> Any:
    """A JSON document, or None for no text."""
    return json.loads(text) if text else None


def duration_of(value_s: float | None, path: str = "timeout_s") -> Duration | None:
    """A positive number of seconds; BadArgument for another."""
    if value_s is None:
        return None
    if not 0 < value_s <= _MAX_DURATION_S:
        raise BadArgument(
            f"{path} is {value_s!r}; expected more than 0, and at most 10,000 years", path=path
        )
    return Duration(seconds=int(value_s), nanos=int(value_s % 1 * 1_000_000_000))


def timestamp_of(moment: datetime | None, path: str) -> Timestamp | None:
    """An aware moment; BadArgument for a naive one."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise BadArgument(
            f"{path} is {moment.isoformat()}, without a time zone",
            hint="pass an aware datetime, as in datetime.now(timezone.utc)",
            path=path,
        )
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp


def moment_of(timestamp: Timestamp) -> datetime:
    """A moment in UTC."""
    return timestamp.ToDatetime(tzinfo=UTC)
