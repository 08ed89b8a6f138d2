"""Running a workflow inside the backend: each function its own transaction, in one CALL.

The run's row is committed before anything runs. Each function then runs and is recorded in a
transaction of its own; conflicts are tried again in place. The end of the run is the only commit
that waits for the disk, and makes everything before it durable. A call that cannot be made here (a
step, a wait, a child) hands the run to an executor, which replays what is recorded and goes on.
"""

from __future__ import annotations

import json
import random
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import plpy  # type: ignore[import-not-found]
from apiary_runtime.calls import Call
from apiary_runtime.interrupts import (
    Interrupted,
    end_backend,
    interruptible,
    transaction_isolation,
)
from apiary_runtime.payload import DocumentInput, encode_output
from apiary_runtime.records import Outcome, deferred_text
from apiary_runtime.sessions import Session
from apiary_runtime.statements import (
    FINISH,
    FINISH_USUAL,
    IS_CURRENT,
    LOAD_RUN,
    LOCK,
    LOG_ATTEMPT,
    RECORD,
    RECORDS,
    RELEASE,
    START,
    START_USUAL,
    UNLOCK,
    UNUSUAL_NAMES,
    WORKFLOW,
    Statement,
)
from apiary_runtime.users import as_user

from apiary.authoring.context import Context, running_in
from apiary.authoring.decorators import Function, Registered
from apiary.authoring.failures import encode_exception, rebuild_exception
from apiary.authoring.values import codec_for, dumps
from apiary.errors import (
    ApiaryError,
    DeadlineExceeded,
    LeaseLost,
    NotFound,
    TransactionConflict,
)
from apiary.execution.replay import OperationRecord, Replay

if TYPE_CHECKING:
    from apiary_runtime.deployments import CatalogueFunction, LoadedDeployment
    from apiary_runtime.runtime import Runtime

_CONFLICT_BUDGET_S = 10.0
_DEFAULT_TIMEOUT_MS = 60_000
_PATIENCE_CALLS = 1000  # of code that has caught what was to end it
_PLATFORM = "read committed"  # the level of the platform's own transactions
_any = codec_for(Any)


class LeaveDatabase(BaseException):
    """The workflow made a call that an executor has to make; not an Exception, see Interrupted."""


class Superseded(Exception):
    """The deployment that a start took for the current one is not that: nothing was started."""


class Unwound(BaseException):
    """A statement failed for a reason that is no outcome of the workflow's call."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error


class InDatabaseRun(Context):
    """One run of a workflow in this backend."""

    def __init__(self, runtime: Runtime, request: dict[str, Any], session: Session) -> None:
        self._runtime = runtime
        self._backend = runtime.backend
        self._request = request
        self._run_id: str = request["run_id"]
        self._seed = self._run_id
        # Started by this call, and there is nothing else that its start or its end has to do.
        self._is_usual = "epoch" not in request and not any(map(request.get, UNUSUAL_NAMES))
        self._deferred: list[str] = []  # read-only operations that nothing depends on yet
        self._attempts: list[tuple[Any, ...]] = []  # of tries that conflicted, to be logged
        self._session = session
        self._unwinding: BaseException | None = None  # what user code must not swallow
        self._swallowed = 0  # how often it has

    def run(self) -> dict[str, Any]:
        """Run to the end, or until the database has to be left; return the outcome."""
        if not self._lock():
            return self._join()
        try:
            return self._run_locked()
        except Unwound as unwound:
            raise unwound.error from None
        finally:
            self._unlock()

    def _join(self) -> dict[str, Any]:
        """Another backend is at this run: where it stands."""
        settled = None if "epoch" in self._request else self._begin()
        if settled is None:  # or was, and has given it up since
            raise LeaseLost(
                f"run {self._run_id} is running in another backend", run_id=self._run_id
            )
        self._session.commit_durably()
        return settled

    def _run_locked(self) -> dict[str, Any]:
        settled = self._begin()
        if settled is not None:
            self._session.commit_durably()
            return settled
        loaded = self._load()
        workflow = self._find_workflow(loaded)
        records = self._records() if "epoch" in self._request else []
        self._replay = Replay(
            self._seed, self._run_id, loaded.id, records, loaded.source.find_class
        )
        self._loaded = loaded
        self._session.commit("serializable")
        try:
            outcome = self._execute(workflow)
        except LeaveDatabase:
            return self._leave()
        return self._finish(outcome)

    def _execute(self, workflow: Registered) -> tuple[str, str | None, str | None]:
        """The workflow's end: (status, output, error)."""
        output, error = None, None
        try:
            kwargs = workflow.signature.decode_arguments(self._input)
            with interruptible(lambda: None), running_in(self):
                result = workflow.body(**kwargs)
            self._replay.check_complete()
            output = encode_output(workflow.signature, result)
        except Interrupted:
            plpy.execute("SELECT 1")  # PostgreSQL processes the interrupt, and raises
            raise
        except BaseException as raised:  # noqa: BLE001  (whatever user code raises is the outcome)
            error = raised
        if self._unwinding is not None:
            raise self._unwinding  # whatever the code made of it
        if error is None:
            return "SUCCEEDED", output, None
        return "FAILED", None, dumps(encode_exception(self._replay.broken or error))

    def _unwind(self, reason: BaseException) -> BaseException:
        """What to raise so that the code ends, whatever it catches."""
        self._unwinding = reason
        return reason

    def _check(self) -> None:
        """Nothing more is done once the code is to end; code that goes on ends with its backend."""
        if self._unwinding is None:
            return
        self._swallowed += 1
        if self._swallowed > _PATIENCE_CALLS:
            if isinstance(self._unwinding, LeaveDatabase):
                self._leave()  # it goes on in an executor, which does not have to wait for its code
            end_backend(
                "57P01",
                f"the code of run {self._run_id} does not end: {self._unwinding}",
                "The workflow caught what was to end it, and went on.",
            )
        raise self._unwinding.with_traceback(None)  # each time would add to it

    # Context: the calls of the workflow's code.

    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._check()
        if not isinstance(target, Function):
            raise self._unwind(LeaveDatabase(f"it calls the {target.kind} {target.name}"))
        seq = self._replay.next_seq()
        given = DocumentInput(target.signature.encode_arguments(args, kwargs))
        record = self._replay.match(seq, "function", target.name, given.digest)
        decode = target.signature.decode_result
        if record is not None:
            return self._replay.value(record, decode)
        outcome = self._invoke(seq, target, given)
        if outcome.error is not None:
            raise rebuild_exception(json.loads(outcome.error), self._loaded.source.find_class)
        return decode(json.loads(outcome.output or "null"))

    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._check()
        raise self._unwind(LeaveDatabase(f"it starts {target.name} side by side"))

    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        self._check()
        if name == "random":
            return self._replay.random()
        if name == "uuid4":
            return self._replay.uuid4()
        if name == "run_id":
            return self._run_id
        if name == "now":
            return self._now()
        raise self._unwind(LeaveDatabase(f"it uses {name}()"))

    def _now(self) -> datetime:
        seq = self._replay.next_seq()
        record = self._replay.match(seq, "now", "now", None)
        if record is not None:
            return self._replay.value(record, _any.decode)
        now = datetime.now(timezone.utc)  # noqa: UP017  (datetime.UTC is newer than the backend)
        stamp = now.timestamp()
        self._deferred.append(
            dumps({
                "seq": seq, "kind": "now", "name": "now", "output": _any.encode(now, "now"),
                "read_only": True, "started_at": stamp, "finished_at": stamp,
            })
        )  # fmt: skip
        return now

    # One function: its transaction, and the tries that conflicted.

    def _invoke(self, seq: int, target: Function[..., Any], given: DocumentInput) -> Outcome:
        function = self._loaded.function(target.name)
        budget_ends = time.monotonic() + _CONFLICT_BUDGET_S
        attempt = 1
        self._session.use(function.isolation)
        while True:
            started_at = time.time()
            try:
                outcome = self._invoke_once(seq, attempt, function, given)
            except Exception as error:  # noqa: BLE001  (the body's own errors are outcomes)
                self._session.rollback(_PLATFORM)
                refusal = self._refusal(error, function.name)
                if refusal is not None:
                    return self._record_refusal(
                        seq, function.name, given, attempt, started_at, refusal
                    )
                if _sqlstate(error) not in ("40001", "40P01"):
                    raise self._unwind(Unwound(error)) from None
                self._note_conflict(seq, attempt, function.name, error, started_at)
                if time.monotonic() > budget_ends:
                    raise self._unwind(
                        LeaveDatabase("a function conflicted until its budget was spent")
                    ) from None
                time.sleep(min(0.1, 0.001 * 1.5**attempt) * (0.5 + random.random() / 2))
                attempt += 1
                self._session.use(function.isolation)
                continue
            if outcome.unrecorded is not None:
                self._deferred.append(outcome.unrecorded)
            else:
                self._deferred.clear()
            return outcome

    def _invoke_once(
        self, seq: int, attempt: int, function: CatalogueFunction, given: DocumentInput
    ) -> Outcome:
        loaded = self._loaded
        call = Call(loaded.application, loaded.id, function.name, given, has_own_timeout=True)
        deferred = f"[{','.join(self._deferred)}]" if self._deferred else None
        principal, trace = self._request["principal"], self._request["trace"]
        self._session.start_statement_timeout(function.timeout_ms or _DEFAULT_TIMEOUT_MS)
        try:
            outcome = as_user(
                self._backend.owner, self._runtime.execute,
                call, self._run_id, seq, principal, trace, attempt, deferred,
            )  # fmt: skip
            self._session.commit("serializable")
        finally:
            self._session.stop_statement_timeout()
        return outcome

    def _refusal(self, error: Exception, name: str) -> ApiaryError | None:
        """The error by which a function has failed for good: a timeout, code that does not load."""
        if _sqlstate(error) == "57014" and "statement timeout" in str(error):
            return DeadlineExceeded(
                f"{name} ran into its timeout and was rolled back", run_id=self._run_id
            )
        return error if isinstance(error, ApiaryError) else None

    def _record_refusal(
        self,
        seq: int,
        name: str,
        given: DocumentInput,
        attempt: int,
        started_at: float,
        refusal: ApiaryError,
    ) -> Outcome:
        """Record the failure of a function whose own transaction is gone."""
        error = dumps(encode_exception(refusal))
        columns = {
            "seq": seq,
            "name": name,
            "input_digest": given.digest,
            "attempt": attempt,
            "started_at": started_at,
            "finished_at": time.time(),
        }
        documents: dict[str, str | None] = {"input": dumps(given.document), "error": error}
        self._deferred.append(deferred_text(columns, documents))
        self._statement(RECORD, [self._run_id, self._epoch, self._take_deferred(), None])
        self._session.commit("serializable")
        return Outcome(None, error, self._loaded.id, None)

    def _note_conflict(
        self, seq: int, attempt: int, name: str, error: Any, started_at: float
    ) -> None:
        conflict = TransactionConflict(str(error), sqlstate=error.sqlstate)
        self._attempts.append((seq, attempt, name, dumps(encode_exception(conflict)), started_at))

    # The beginning and the end of the run.

    def _begin(self) -> dict[str, Any] | None:
        """Write the run's row, or take over a claimed one; the outcome if it has ended already."""
        if transaction_isolation() != _PLATFORM:  # that of who called, not of the platform's pools
            self._session.commit(_PLATFORM)
        request = self._request
        if "epoch" in request:
            # With the run's lock held and its epoch unchanged, nobody else can take it over.
            rows = self._statement(LOAD_RUN, [self._run_id, request["epoch"]])
            if not rows:
                raise LeaseLost(f"run {self._run_id} was taken over", run_id=self._run_id)
            row = rows[0]
            self._epoch = request["epoch"]
            self._application = row["application"]
            self._deployment, self._workflow = row["deployment"], row["workflow"]
            self._input = json.loads(row["input"])
            request["principal"], request["trace"] = row["principal"], row["trace"]
            self._seed = row["seed"] or self._run_id
            return None
        self._application, self._workflow = request["application"], request["workflow"]
        self._deployment, self._input = request["deployment"], request["input"]
        current = [self._application, self._deployment]
        if request["if_current"] and not self._statement(IS_CURRENT, current):
            raise Superseded
        given = {**request, "input": dumps(self._input)}
        if self._is_usual and self._start_usual(given):
            return None
        row = self._statement(START, given)[0]
        self._epoch = row["epoch"]
        if row["created"]:
            return None
        return {
            "run_id": row["run_id"],
            "created": False,
            "status": row["status"],
            "output": None if row["output"] is None else json.loads(row["output"]),
            "error": None if row["error"] is None else json.loads(row["error"]),
        }

    def _start_usual(self, given: dict[str, Any]) -> bool:
        """Write the run's row, if nothing has its id."""
        try:
            self._statement(START_USUAL, given)
        except plpy.SPIError as error:
            if error.sqlstate != "23505":
                raise
            return False
        self._epoch = 1
        return True

    def _load(self) -> LoadedDeployment:
        return self._backend.application(self._application).deployment(self._deployment)

    def _find_workflow(self, loaded: LoadedDeployment) -> Registered:
        found = loaded.workflows.get(self._workflow)
        if found is None:
            rows = self._statement(WORKFLOW, [loaded.id, self._workflow])
            if not rows:
                raise NotFound(
                    f"no workflow {self._workflow!r}", kind="workflow", name=self._workflow
                )
            found = loaded.source.find(rows[0]["module"], rows[0]["qualname"])
            loaded.workflows[self._workflow] = found
        return found

    def _records(self) -> list[OperationRecord]:
        return [
            OperationRecord(
                seq=row["seq"],
                kind=row["kind"],
                name=row["name"],
                input_digest=row["input_digest"],
                output=None if row["output"] is None else json.loads(row["output"]),
                error=None if row["error"] is None else json.loads(row["error"]),
            )
            for row in self._statement(RECORDS, [self._run_id])
        ]

    def _finish(self, outcome: tuple[str, str | None, str | None]) -> dict[str, Any]:
        status, output, error = outcome
        self._session.use(_PLATFORM)
        self._log_attempts()
        values = [self._run_id, self._epoch, status, output, error, self._replay.last_seq,
                  self._take_deferred()]  # fmt: skip
        self._statement(FINISH_USUAL if self._is_usual else FINISH, values)
        self._session.commit_durably()
        return self._outcome(status, output, error)

    def _leave(self) -> dict[str, Any]:
        self._session.use(_PLATFORM)
        self._log_attempts()
        self._statement(RELEASE, [self._run_id, self._epoch, True, self._take_deferred()])
        self._session.commit_durably()
        return self._outcome("QUEUED", None, None)

    def _outcome(self, status: str, output: str | None, error: str | None) -> dict[str, Any]:
        return {
            "run_id": self._run_id,
            "created": "epoch" not in self._request,
            "status": status,
            "output": None if output is None else json.loads(output),
            "error": None if error is None else json.loads(error),
        }

    def _log_attempts(self) -> None:
        for seq, attempt, name, error, started_at in self._attempts:
            values = [self._run_id, seq, attempt, name, self._application, self._loaded.id,
                      self._request["principal"], error, started_at,
                      self._request["trace"]]  # fmt: skip
            self._statement(LOG_ATTEMPT, values)

    def _take_deferred(self) -> str | None:
        if not self._deferred:
            return None
        taken = f"[{','.join(self._deferred)}]"
        self._deferred.clear()
        return taken

    def _lock(self) -> bool:
        return bool(self._statement(LOCK, [self._run_id])[0]["locked"])

    def _unlock(self) -> None:
        self._statement(UNLOCK, [self._run_id])

    def _statement(self, statement: Statement, values: list[Any] | dict[str, Any]) -> Any:
        if isinstance(values, dict):
            values = [values[name] for name in statement.names]
        return plpy.execute(self._backend.plan(statement.sql, statement.types), values)


def _sqlstate(error: Exception) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def run_in_database(runtime: Runtime, request_text: str) -> str:
    """Run what a request says; return the outcome, or the error that refused it, as JSON text."""
    session = Session()
    request = json.loads(request_text)
    try:
        return json.dumps(InDatabaseRun(runtime, request, session).run())
    except ApiaryError as error:
        plpy.rollback()
        return json.dumps({"refused": error.to_json()}, default=str)
    except Superseded:
        plpy.rollback()
        return json.dumps({"superseded": request["deployment"]})
    except BaseException:
        plpy.rollback()
        raise
    finally:
        session.restore()
