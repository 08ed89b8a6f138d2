"""Invoking a function inside the backend.

The way of a call: `Runtime.invoke` (as the platform's owner) enters the application's role by its
entry function, where `Call.run` finds the function, decodes its input, runs the body and encodes
its result; back as the owner it inserts the one row that is record and log entry. Entering is an
SPI call, hence a subtransaction: when the body raises, its effects are rolled back, and the error
is recorded as the outcome. What must not be recorded (a serialization failure, a cancelled
statement) leaves as the statement's own error, and nothing is stored.
"""

from __future__ import annotations

import json
import time
from typing import Any, NoReturn

import plpy  # type: ignore[import-not-found]
from apiary_runtime import environment
from apiary_runtime.calls import Call
from apiary_runtime.checking import check, import_function
from apiary_runtime.database import TransactionLost
from apiary_runtime.deployments import Application, Backend, CatalogueFunction, LoadedDeployment
from apiary_runtime.interrupts import (
    Interrupted,
    has_transaction_id,
    interrupt_pending,
    transaction_id,
)
from apiary_runtime.payload import TextInput, read_input
from apiary_runtime.records import (
    INSERT_DEFERRED,
    INSERT_DEFERRED_TYPES,
    Outcome,
    deferred_text,
)

from apiary.authoring.values import canonical, digest
from apiary.errors import ApiaryError, BadArgument, DeployError, IdempotencyMismatch, LeaseLost

# The SQL states of this runtime; the engine knows them.
SQLSTATE_ERROR = "AP001"  # an ApiaryError, as JSON in the message's detail
SQLSTATE_DUPLICATE = "AP002"  # the operation was recorded by another transaction meanwhile
SQLSTATE_SESSION = "AP003"  # the function wants another session, described in the detail


class Runtime:
    """The runtime of one backend."""

    def __init__(self) -> None:
        self.backend = Backend()
        self._pending: Any = None

    def run_pending(self, served: str) -> None:
        """Called by an application's entry function, with the application's role.

        ``served`` is what the application serves now: deployment and level of provenance.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            plpy.error("this function is entered by apiary.invoke only", sqlstate="42501")
        pending(served)

    def enter(self, application: Application, work: Any) -> None:
        """Run ``work(served)`` with the application's role, in a subtransaction."""
        self._pending = work
        if environment.is_wanted():
            plpy.execute(application.enter)
            return
        with environment.wanted():
            plpy.execute(application.enter)

    def invoke(
        self,
        run_id: str,
        seq: int,
        application: str,
        deployment: str | None,
        name: str,
        input_text: str,
        principal: str,
        trace: str | None,
        attempt: int,
        keep: bool,
        lease_until: str | None,
        deferred: str | None,
    ) -> str:
        """Run a function and record it, as `execute` does; return the outcome as JSON text."""
        try:
            owner = self.backend.application(application)
            call = Call(owner, deployment, name, TextInput(input_text))
            if lease_until is not None:
                self._require_lease(run_id, lease_until)
            return self.execute(
                call, run_id, seq, principal, trace, attempt, deferred, keep=keep
            ).text()
        except ApiaryError as error:
            return _leave(error)

    def execute(
        self,
        call: Call,
        run_id: str,
        seq: int,
        principal: str,
        trace: str | None,
        attempt: int,
        deferred: str | None,
        *,
        keep: bool = False,
    ) -> Outcome:
        """Run a function and record it, as the platform's owner; an ApiaryError when it cannot run.

        ``deferred`` are earlier read-only calls of the run, not recorded yet: a record of this one
        makes them durable. A read-only call of a run is itself not recorded but handed back.
        """
        started = time.time()
        loaded = self._run(call)
        # The analysis sees no trigger and no volatile function: what has written counts.
        read_only = call.function.read_only and not has_transaction_id()
        reads = loaded.db.reads()
        # A direct invocation that failed, or whose reads are to be kept, has no later record.
        if read_only and not keep and (seq > 0 or (reads is None and call.error_text is None)):
            columns = {
                "seq": seq,
                "name": call.name,
                "input_digest": call.input_digest,
                "attempt": attempt,
                "started_at": started,
                "finished_at": time.time(),
                "isolation": call.function.isolation,
                "read_only": True,
                "log": call.log,
            }
            documents = {
                "input": call.input,
                "output": call.output,
                "error": call.error_text,
                "reads": reads,
                "calls": call.calls,
            }
            unrecorded = deferred_text(columns, documents)
            return Outcome(call.output, call.error_text, loaded.id, None, unrecorded=unrecorded)
        if deferred is not None:
            plan = self.backend.plan(INSERT_DEFERRED, INSERT_DEFERRED_TYPES)
            values = [run_id, loaded.application.name, loaded.id, principal, trace, deferred]
            plpy.execute(plan, values)
        status = "SUCCEEDED" if call.error_text is None else "FAILED"
        _insert(
            call.function.insert_plan,
            [run_id, seq, principal, trace, status, call.input, call.input_digest, call.output,
             call.error_text, attempt, read_only, reads, call.calls, call.log],
        )  # fmt: skip
        return Outcome(call.output, call.error_text, loaded.id, transaction_id())

    def recorded(
        self, run_id: str, seq: int, application: str, name: str, input_text: str
    ) -> str | None:
        """The recorded outcome of an operation, or None; refuses another function or input."""
        rows = list(
            plpy.execute(
                self.backend.plan(
                    "SELECT kind, name, application, deployment, input_digest, output::text,"
                    " error::text, xid::text FROM apiary.operation WHERE run_id = $1 AND seq = $2",
                    ["text", "int4"],
                ),
                [run_id, seq],
            )
        )
        if not rows:
            return None
        row = rows[0]
        try:
            now = f"{application}/{name}"
            recorded = f"{row['application']}/{row['name']}"
            digest_now = None
            if recorded == now and row["kind"] == "function":
                digest_now = self._digest(application, row["deployment"], name, input_text)
            if digest_now is None or digest_now != row["input_digest"]:
                other = f"{row['kind']} {recorded}, not {now}"
                if recorded == now:
                    other = f"{recorded} with another input"
                raise IdempotencyMismatch(
                    f"run {run_id!r} is taken: it recorded {other}",
                    hint="use a new run id, or repeat the recorded call to get its result",
                    run_id=run_id,
                    recorded=recorded,
                    recorded_digest=row["input_digest"],
                    requested=now,
                    requested_digest=digest_now or digest(canonical(read_input(input_text))),
                )
        except ApiaryError as error:
            return _leave(error)
        return Outcome(
            row["output"], row["error"], row["deployment"], row["xid"], replayed=True
        ).text()

    def run_in_database(self, request_text: str) -> str:
        """Run a workflow in this backend; see `workflows`."""
        from apiary_runtime.workflows import run_in_database  # noqa: PLC0415  (rarely needed)

        return run_in_database(self, request_text)

    def _digest(self, application: str, deployment: str, name: str, input_text: str) -> str | None:
        """The digest of an input as the recorded deployment reads it; None if it cannot."""
        loaded = self.backend.application(application).deployment(deployment)
        function = loaded.function(name)
        if not function.is_loaded:
            self._load(loaded, function)
        try:
            return TextInput(input_text).read(function.function.signature)[2]
        except BadArgument:
            return None  # no input that was ever recorded

    def _load(self, loaded: LoadedDeployment, function: CatalogueFunction) -> None:
        """Import a function's module, with the application's role: it is the application's code."""
        problem: list[BaseException] = []

        def load(_served: str) -> None:
            try:
                import_function(function)
            except DeployError as error:
                problem.append(error)

        self.enter(loaded.application, load)
        if problem:
            raise problem[0]

    def check_deployment(self, application: str, deployment: str) -> None:
        """Import every function and prepare every statement, as the application's role."""
        owner = self.backend.application(application)
        served = owner.loaded(deployment)  # this backend may have run it before
        loaded = served or LoadedDeployment(owner, deployment)
        problem: list[DeployError] = []

        def work(_served: str) -> None:
            try:
                check(loaded)
            except DeployError as error:
                problem.append(error)

        try:
            self.enter(owner, work)
        finally:
            if served is None:
                loaded.source.unload()
        if problem:
            _leave(problem[0])

    def _run(self, call: Call) -> LoadedDeployment:
        """Run the call to its outcome, a result or an error of its own; return its deployment."""
        while True:
            failed = self._enter_call(call)
            if call.loaded is not None:
                break
            serving = call.application.serve(call.served)
            call.application.deployment(call.deployment or serving)
        loaded = call.loaded
        if loaded.db.lost is not None:
            raise loaded.db.lost  # whatever the body made of it
        if isinstance(call.error, (Interrupted, TransactionLost)) or interrupt_pending():
            plpy.execute("SELECT 1")  # PostgreSQL processes the interrupt, and raises
            raise failed or RuntimeError("the interrupt was withdrawn")
        if failed is not None:
            if call.error_text is None or _sqlstate_class(failed) in ("40", "57"):
                raise failed  # not an outcome of the body
        elif call.refused is not None:
            raise call.refused
        elif call.unsuitable is not None:
            _refuse_session(call.unsuitable)
        return loaded

    def _enter_call(self, call: Call) -> Any:
        """Enter the application's role for a call; return the error with which that failed."""
        try:
            self.enter(call.application, call.run)
        except plpy.SPIError as error:
            if call.loaded is None:
                raise  # the platform's own statement failed, not the body
            return error
        return None

    def _require_lease(self, run_id: str, lease_until: str) -> None:
        """Begin only while the lease lasts; from then on nobody else takes the run until the end.

        A function that outlasts the lease is no danger: claiming leaves its run alone.
        """
        plan = self.backend.plan("SELECT apiary.enter_run($1, $2) AS held", ["text", "timestamptz"])
        if not plpy.execute(plan, [run_id, lease_until])[0]["held"]:
            _leave(
                LeaseLost(
                    f"the lease on run {run_id!r} ended at {lease_until}; the function was not run",
                    run_id=run_id,
                )
            )


def _insert(plan: Any, values: list[Any]) -> None:
    try:
        plpy.execute(plan, values)
    except plpy.SPIError as error:
        if error.sqlstate == "23505":
            plpy.error(
                f"operation {values[0]}/{values[1]} is recorded already",
                sqlstate=SQLSTATE_DUPLICATE,
            )
        raise


def _refuse_session(function: CatalogueFunction) -> NoReturn:
    wanted = {
        "isolation": function.isolation,
        "timeout_ms": function.timeout_ms,
        "deployment": function.code.id,
    }
    plpy.error(
        f"{function.name} runs at {function.isolation}"
        + (f" with statement_timeout {function.timeout_ms}" if function.timeout_ms else ""),
        detail=json.dumps(wanted),
        hint="set default_transaction_isolation and statement_timeout before calling it",
        sqlstate=SQLSTATE_SESSION,
    )
    raise AssertionError("plpy.error returned")


def _sqlstate_class(error: Any) -> str:
    return str(error.sqlstate or "")[:2]


def _leave(error: ApiaryError) -> NoReturn:
    """End the statement with a typed error; the transaction rolls back."""
    plpy.error(
        error.message, detail=json.dumps(error.to_json(), default=str), sqlstate=SQLSTATE_ERROR
    )
    raise AssertionError("plpy.error returned")
