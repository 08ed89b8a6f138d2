"""Invoking a function inside the backend.

The way of a call: `Runtime.invoke` (as the platform's owner) finds the function and decodes its
input; enters the application's role through its entry function, where `Call.run` runs the body and
encodes its result; back as the owner it inserts the one row that is record and log entry. Entering
is an SPI call, hence a subtransaction: when the body raises, its effects are rolled back, and the
error is recorded as the outcome. What must not be recorded (a serialization failure, a cancelled
statement) leaves as the statement's own error, and nothing is stored.
"""

from __future__ import annotations

import json
import time
from typing import Any, NoReturn

import plpy  # type: ignore[import-not-found]
from apiary_runtime.calls import Call
from apiary_runtime.checking import check, import_function
from apiary_runtime.database import TransactionLost
from apiary_runtime.deployments import Backend, CatalogueFunction, LoadedDeployment
from apiary_runtime.formats import in_formats
from apiary_runtime.interrupts import (
    Interrupted,
    has_transaction_id,
    interrupt_pending,
    interruptible,
    statement_timeout_ms,
    transaction_id,
    transaction_isolation,
)
from apiary_runtime.output import kept_output
from apiary_runtime.payload import encode_input, read_input
from apiary_runtime.records import (
    INSERT_DEFERRED,
    INSERT_OPERATION,
    OPERATION_TYPES,
    Operation,
    outcome,
    outcome_text,
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
        self.has_own_timeouts = False  # an in-database run sets each function's timeout itself
        self._pending: Any = None

    def run_pending(self) -> None:
        """Called by an application's entry function, with the application's role."""
        pending, self._pending = self._pending, None
        if pending is None:
            plpy.error("this function is entered by apiary.invoke only", sqlstate="42501")
        pending()

    def enter(self, deployment: LoadedDeployment, work: Any) -> None:
        """Run ``work`` with the application's role, in a subtransaction."""
        self._pending = work
        in_formats(lambda: plpy.execute(deployment.application.enter))

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
        """Run a function and record it; return the outcome as JSON text.

        ``deferred`` are earlier read-only calls of the run, not recorded yet: a record of this one
        makes them durable. A read-only call of a run is itself not recorded but handed back.
        """
        started = time.time()
        try:
            owner, current = self.backend.application(application)
            loaded = owner.deployment(deployment or current)
            function = loaded.function(name)
            self._require_session(function)
            if not function.is_loaded:
                self._load(loaded, function)
            kwargs, document = function.function.signature.normalise(read_input(input_text))
            stored_input = encode_input(document)
        except ApiaryError as error:
            return _leave(error)
        if lease_until is not None:
            self._require_lease(run_id, lease_until)
        call = Call(function.function, loaded, kwargs)
        self._run(loaded, call)
        operation = Operation(
            seq=seq,
            name=name,
            input=stored_input,
            input_digest=digest(canonical(document)),
            output=call.output,
            error=call.error_text,
            attempt=attempt,
            started_at=started,
            finished_at=time.time(),
            isolation=function.isolation,
            # The analysis sees no trigger and no volatile function: what has written counts.
            read_only=function.read_only and not has_transaction_id(),
            reads=loaded.db.reads(),
            calls=json.dumps(call.context.calls) if call.context.calls else None,
            log=call.log,
        )
        if self._may_defer(operation, keep):
            return outcome(operation, loaded.id, xid=None)
        if deferred is not None:
            plan = self.backend.plan(INSERT_DEFERRED, ["text"] * 5 + ["json"])
            plpy.execute(plan, [run_id, application, loaded.id, principal, trace, deferred])
        xid = self._record(run_id, application, loaded.id, principal, trace, operation)
        return outcome(operation, loaded.id, xid)

    @staticmethod
    def _may_defer(operation: Operation, keep: bool) -> bool:
        """Whether a call need not be recorded (yet): it only read.

        A direct invocation that failed, or whose reads are to be kept, has no later record.
        """
        if keep or not operation.read_only:
            return False
        return operation.seq > 0 or (operation.reads is None and operation.error is None)

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
        return outcome_text(
            row["output"],
            row["error"],
            row["deployment"],
            row["xid"],
            replayed=True,
            unrecorded=None,
        )

    def run_in_database(self, request_text: str) -> str:
        """Run a workflow in this backend; see `workflows`."""
        from apiary_runtime.workflows import run_in_database  # noqa: PLC0415  (rarely needed)

        return run_in_database(self, request_text)

    def _digest(self, application: str, deployment: str, name: str, input_text: str) -> str | None:
        """The digest of an input as the recorded deployment reads it; None if it cannot."""
        owner, _ = self.backend.application(application)
        loaded = owner.deployment(deployment)
        function = loaded.function(name)
        if not function.is_loaded:
            self._load(loaded, function)
        try:
            document = function.function.signature.normalise(read_input(input_text))[1]
        except BadArgument:
            return None  # no input that was ever recorded
        return digest(canonical(document))

    def _load(self, loaded: LoadedDeployment, function: CatalogueFunction) -> None:
        """Import a function's module, with the application's role: it is the application's code."""
        problem: list[BaseException] = []

        def load() -> None:
            try:
                with kept_output(), interruptible(lambda: None):
                    import_function(function)
            except DeployError as error:
                problem.append(error)

        self.enter(loaded, load)
        if problem:
            raise problem[0]

    def check_deployment(self, application: str, deployment: str) -> None:
        """Import every function and prepare every statement, as the application's role."""
        owner, _ = self.backend.application(application)
        served = owner.loaded(deployment)  # this backend may have run it before
        loaded = served or LoadedDeployment(owner, deployment)
        problem: list[DeployError] = []

        def work() -> None:
            try:
                check(loaded)
            except DeployError as error:
                problem.append(error)

        try:
            self.enter(loaded, work)
        finally:
            if served is None:
                loaded.source.unload()
        if problem:
            _leave(problem[0])

    def _run(self, loaded: LoadedDeployment, call: Call) -> None:
        loaded.db.begin()
        try:
            self.enter(loaded, call.run)
        except plpy.SPIError as error:
            if call.error is None and loaded.db.lost is None:
                raise  # the platform's own statement failed, not the body
            entering_failed = error
        else:
            entering_failed = None
        if loaded.db.lost is not None:
            raise loaded.db.lost  # whatever the body made of it
        if isinstance(call.error, (Interrupted, TransactionLost)) or interrupt_pending():
            plpy.execute("SELECT 1")  # PostgreSQL processes the interrupt, and raises
            raise entering_failed or RuntimeError("the interrupt was withdrawn")
        if entering_failed is not None and _sqlstate_class(entering_failed) in ("40", "57"):
            raise entering_failed

    def _require_session(self, function: CatalogueFunction) -> None:
        suits = transaction_isolation() == function.isolation and (
            self.has_own_timeouts or function.timeout_ms in (None, statement_timeout_ms())
        )
        if not suits:
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

    def _record(
        self,
        run_id: str,
        application: str,
        deployment: str,
        principal: str,
        trace: str | None,
        operation: Operation,
    ) -> str:
        try:
            plan = self.backend.plan(INSERT_OPERATION, OPERATION_TYPES)
            values = [run_id, application, deployment, principal, trace, *operation.values()]
            plpy.execute(plan, values)
            return transaction_id()
        except plpy.SPIError as error:
            if error.sqlstate == "23505":
                plpy.error(
                    f"operation {run_id}/{operation.seq} is recorded already",
                    sqlstate=SQLSTATE_DUPLICATE,
                )
            raise


def _sqlstate_class(error: Any) -> str:
    return str(error.sqlstate or "")[:2]


def _leave(error: ApiaryError) -> NoReturn:
    """End the statement with a typed error; the transaction rolls back."""
    plpy.error(
        error.message, detail=json.dumps(error.to_json(), default=str), sqlstate=SQLSTATE_ERROR
    )
    raise AssertionError("plpy.error returned")
