"""Whether unfinished runs would replay with other code: what `apiary deploy --check` tells.

Each run's workflow is run with the new code, its calls answered from the record, up to the first
call that has no record. Nothing is executed, nothing is written. Runs keep the deployment that they
began with, so what is found forbids no deploy; it tells which runs could not be moved over by a
fork.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from ..authoring.bundle import Bundle
from ..authoring.context import Context, running_in
from ..authoring.decorators import Future, Registered, Workflow
from ..authoring.loader import DeploymentCode
from ..authoring.values import canonical, codec_for, digest
from ..errors import ApiaryError, NonDeterminismError, UsageError
from .replay import OperationRecord, Replay

__all__ = ["LiveRun", "ReplayProblem", "ReplayReport", "check_replays", "replay_problem"]

BUDGET_S = 20.0
_BATCH = 200
_any = codec_for(Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run that has not ended, with what is recorded of it."""

    run_id: str
    workflow: str
    deployment: str
    seed: str  # of its random numbers
    created_at: datetime
    input: dict[str, Any]  # JSON document
    records: Sequence[OperationRecord] = ()
    children: Sequence[OperationRecord] = ()  # child runs that were started; without outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProblem:
    """A run that would break with the new code."""

    run_id: str
    workflow: str
    reason: str
    recorded: str | None = None  # the operation in the record ...
    now: str | None = None  # ... and what the new code does in its place


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What came of the check."""

    live_runs: int  # of the application, not ended
    checked: int  # fewer when the time for it was over
    problems: tuple[ReplayProblem, ...]


def check_replays(
    connection: psycopg.Connection[Any], bundle: Bundle, *, budget_s: float = BUDGET_S
) -> ReplayReport:
    """Replay the application's unfinished runs with the code of ``bundle``, newest first."""
    places = {
        str(each["name"]): (str(each["module"]), str(each["qualname"]))
        for each in bundle.workflows
        if each["kind"] == "workflow"
    }
    row = connection.execute(
        "SELECT count(*) FROM apiary.run WHERE application = %s AND finished_at IS NULL",
        [bundle.application],
    ).fetchone()
    assert row is not None  # an aggregate has one row
    ends = time.monotonic() + budget_s
    problems = []
    checked = 0
    # Under a name of its own: this content may be loaded here already, and in use.
    code = DeploymentCode(f"{bundle.id}_check", bundle.modules)
    try:
        for run in _live_runs(connection, bundle.application):
            if time.monotonic() > ends:
                break
            checked += 1
            problem = _problem_of(run, code, places)
            if problem is not None:
                problems.append(problem)
    finally:
        code.unload()
    return ReplayReport(live_runs=int(row[0]), checked=checked, problems=tuple(problems))


def _problem_of(
    run: LiveRun, code: DeploymentCode, places: dict[str, tuple[str, str]]
) -> ReplayProblem | None:
    place = places.get(run.workflow)
    if place is None:
        return ReplayProblem(
            run_id=run.run_id, workflow=run.workflow, reason="the new code has no such workflow"
        )
    found = code.find(*place)
    assert isinstance(found, Workflow)  # the bundle says so
    return replay_problem(run, found, code.find_class)


def replay_problem(  # noqa: PLR0911  (one per way to end)
    run: LiveRun, workflow: Workflow[..., Any], find_class: Callable[[str, str], type | None]
) -> ReplayProblem | None:
    """Why a run would break with a workflow's code; None when it would replay."""
    context = _Recorded(run, find_class)
    try:
        kwargs = workflow.signature.decode_arguments(run.input)
    except ApiaryError as error:
        return ReplayProblem(
            run_id=run.run_id,
            workflow=run.workflow,
            reason=f"it does not take the run's input any more: {error.message}",
        )
    try:
        with running_in(context):
            result = workflow.body(**kwargs)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        context.replay.check_complete()
    except _Unrecorded:
        return None
    except NonDeterminismError as error:
        return _mismatch(run, error)
    # The run would end with this error. That is news only when it is not a recorded one.
    except Exception as error:  # noqa: BLE001
        if context.replay.broken is not None:  # the code caught it
            return _mismatch(run, context.replay.broken)
        if any(error is known for known in context.raised):
            return None
        return ReplayProblem(
            run_id=run.run_id,
            workflow=run.workflow,
            reason=f"it raises {type(error).__name__}: {error}",
        )
    return None


def _mismatch(run: LiveRun, error: NonDeterminismError) -> ReplayProblem:
    return ReplayProblem(
        run_id=run.run_id,
        workflow=run.workflow,
        reason="it makes other calls than the record",
        recorded=error.metadata.get("recorded"),
        now=error.metadata.get("now"),
    )


class _Unrecorded(BaseException):
    """The code came to a call that the run has not made yet: so far it replays."""


class _Recorded(Context):
    """Answers from the record, and from nothing else."""

    def __init__(self, run: LiveRun, find_class: Callable[[str, str], type | None]) -> None:
        self._run = run
        self.replay = Replay(run.seed, run.run_id, run.deployment, run.records, find_class)
        self._children = Replay(run.seed, run.run_id, run.deployment, run.children, find_class)
        self.raised: list[BaseException] = []  # recorded errors that the code was given

    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        record = self._match(target, args, kwargs)
        if target.is_async:
            return self._awaitable(record, target)
        return self._value(record, target.signature.decode_result)

    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        record = self._match(target, args, kwargs)
        return _RecordedFuture(
            lambda: self._value(record, target.signature.decode_result), self.replay.last_seq
        )

    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        method: Callable[..., Any] | None = getattr(self, f"_do_{name}", None)
        if method is None:
            raise UsageError(f"{name}() is not for a workflow's body")
        return method(*args, **options)

    def _match(
        self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> OperationRecord | None:
        input_digest = digest(canonical(target.signature.encode_arguments(args, kwargs)))
        seq = self.replay.next_seq()
        record = self.replay.match(seq, target.kind, target.name, input_digest)
        if record is None:
            # A child that was started has a run, before it has an operation.
            self._children.match(seq, target.kind, target.name, input_digest)
        return record

    def _value(self, record: OperationRecord | None, decode: Callable[[Any], Any]) -> Any:
        if record is None:
            raise _Unrecorded
        try:
            return self.replay.value(record, decode)
        except BaseException as error:
            self.raised.append(error)
            raise

    async def _awaitable(self, record: OperationRecord | None, target: Registered) -> Any:
        return self._value(record, target.signature.decode_result)

    # Primitives: their numbers and digests are those of running.RunContext.

    def _record(
        self, kind: str, name: str, document: dict[str, Any] | None = None
    ) -> OperationRecord | None:
        input_digest = None if document is None else digest(canonical(document))
        return self.replay.match(self.replay.next_seq(), kind, name, input_digest)

    def _do_now(self) -> Any:
        return self._value(self._record("now", "now"), _any.decode)

    def _do_random(self) -> float:
        return self.replay.random()

    def _do_uuid4(self) -> Any:
        return self.replay.uuid4()

    def _do_run_id(self) -> str:
        return self._run.run_id

    def _do_sleep(self, seconds: float) -> None:
        self._value(self._record("sleep", "sleep"), _any.decode)

    def _do_sleep_until(self, when: datetime) -> None:
        self._value(self._record("sleep", "sleep_until"), _any.decode)

    def _do_send(self, run_id: str, message: Any, topic: str) -> None:
        document = {"run_id": run_id, "topic": topic, "message": _any.encode(message, "message")}
        self._value(self._record("send", topic, document), lambda _: None)

    def _do_recv(self, topic: str, timeout_s: float | None) -> Any:
        return self._value(
            self._record("recv", topic), lambda output: _any.decode(output["message"])
        )

    def _do_get_event(self, run_id: str, key: str, timeout_s: float | None) -> Any:
        record = self._record("get_event", key, {"run_id": run_id, "key": key})
        return self._value(record, lambda output: _any.decode(output["value"]))

    def _do_set_event(self, key: str, value: Any) -> None:
        document = {"key": key, "value": _any.encode(value, "value")}
        self._value(self._record("set_event", key, document), lambda _: None)

    def _do_write_stream(self, key: str, value: Any) -> None:
        record = self._record("write_stream", key, _any.encode(value, f"stream {key}"))
        self._value(record, lambda _: None)

    def _do_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Shown, not recorded."""

    def _do_gather(self, futures: Sequence[Any], need: int | None) -> Any:
        if need is None:
            return [future.result() for future in futures]
        record = self._record("gather", str(need))
        chosen = self._value(record, lambda output: output)
        if isinstance(chosen, int):  # too many have failed: the error of this one
            futures[chosen].result()
        return [(index, futures[index].result()) for index in chosen]


class _RecordedFuture(Future[Any]):
    """A future whose result is recorded, or the end of the replay."""

    def __await__(self) -> Any:
        async def resolve() -> Any:
            return self.result()

        return resolve().__await__()


def _live_runs(connection: psycopg.Connection[Any], application: str) -> Iterable[LiveRun]:
    """The unfinished runs of an application, newest first, read batch by batch."""
    before: tuple[datetime, str] | None = None
    while True:
        rows = connection.execute(
            "SELECT run_id, workflow, deployment, coalesce(seed, run_id), created_at, input"
            " FROM apiary.run"
            " WHERE application = %s AND finished_at IS NULL"
            " AND (%s::timestamptz IS NULL OR (created_at, run_id) < (%s, %s))"
            " ORDER BY created_at DESC, run_id DESC LIMIT %s",
            [application, *(before[:1] if before else [None]), *(before or (None, None)), _BATCH],
        ).fetchall()
        if not rows:
            return
        records = _operations(connection, [row[0] for row in rows])
        children = _started_children(connection, [row[0] for row in rows])
        for run_id, workflow, deployment, seed, created_at, document in rows:
            yield LiveRun(
                run_id=run_id,
                workflow=workflow,
                deployment=deployment,
                seed=seed,
                created_at=created_at,
                input=document,
                records=records.get(run_id, ()),
                children=children.get(run_id, ()),
            )
        before = (rows[-1][4], rows[-1][0])


def _operations(
    connection: psycopg.Connection[Any], run_ids: list[str]
) -> dict[str, list[OperationRecord]]:
    found: dict[str, list[OperationRecord]] = {}
    for run_id, *values in connection.execute(
        "SELECT run_id, seq, kind, name, input_digest, output, error FROM apiary.operation"
        " WHERE run_id = ANY (%s) AND seq > 0 ORDER BY run_id, seq",
        [run_ids],
    ):
        found.setdefault(run_id, []).append(OperationRecord(*values))
    return found


def _started_children(
    connection: psycopg.Connection[Any], run_ids: list[str]
) -> dict[str, list[OperationRecord]]:
    found: dict[str, list[OperationRecord]] = {}
    for run_id, seq, name, input_digest in connection.execute(
        "SELECT parent_run_id, parent_seq, workflow, input_digest FROM apiary.run"
        " WHERE parent_run_id = ANY (%s)",
        [run_ids],
    ):
        record = OperationRecord(seq, "workflow", name, input_digest, None, None)
        found.setdefault(run_id, []).append(record)
    return found
