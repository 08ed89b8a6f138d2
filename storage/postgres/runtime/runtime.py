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
from apiary_runtime.database import PlpyDatabase, TransactionLost
from apiary_runtime.deployments import Backend, CatalogueFunction, LoadedDeployment
from apiary_runtime.interrupts import (
    Interrupted,
    interrupt_pending,
    interruptible,
    statement_timeout_ms,
    transaction_isolation,
)
from apiary_runtime.output import kept_output

from apiary.authoring.context import Context, running_in
from apiary.authoring.decorators import Function, Registered
from apiary.authoring.failures import encode_exception
from apiary.authoring.signature import Signature
from apiary.authoring.values import canonical, digest, dumps
from apiary.errors import (
    ApiaryError,
    DeployError,
    IdempotencyMismatch,
    LeaseLost,
    PayloadTooLarge,
    StatementError,
    UsageError,
)

DEFAULT_MAX_PAYLOAD_BYTES = 4 * 1024 * 1024

# The SQL states of this runtime; the engine knows them.
SQLSTATE_ERROR = "AP001"  # an ApiaryError, as JSON in the message's detail
SQLSTATE_DUPLICATE = "AP002"  # the operation was recorded by another transaction meanwhile
SQLSTATE_SESSION = "AP003"  # the function wants another session, described in the detail

_INSERT_OPERATION = """
INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal, status,
    input, input_digest, output, error, attempt, started_at, finished_at, isolation, read_only,
    reads, calls, log, trace)
VALUES ($1, $2, 'function', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
    pg_catalog.to_timestamp($13), pg_catalog.to_timestamp($14), $15, $16, $17, $18, $19, $20)
RETURNING xid"""
_OPERATION_TYPES = [
    "text", "int4", "text", "text", "text", "text", "text", "json", "text", "json", "json", "int4",
    "float8", "float8", "text", "bool", "json", "json", "text", "text",
]  # fmt: skip


class InFunction(Context):
    """Answers the calls of a function's body: other functions, in the same transaction."""

    def __init__(self, db: PlpyDatabase) -> None:
        self.db = db
        self.calls: list[dict[str, Any]] = []

    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(target, Function):
            raise UsageError(
                f"a function cannot call the {target.kind} {target.name}",
                hint="functions call functions; steps and workflows are called by a workflow",
            )
        noted: dict[str, Any] = {"function": target.name, "started_at": time.time()}
        self.calls.append(noted)
        try:
            return target.body(self.db, *args, **kwargs)
        finally:
            noted["duration_ms"] = (time.time() - noted["started_at"]) * 1000

    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise UsageError(
            f"{target.name} cannot be started inside a function",
            hint="a function is one transaction: call it instead",
        )

    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        raise UsageError(f"{name}() is for workflows, not for a function's body")


class Call:
    """One execution of a function's body: what it got, and what came of it."""

    def __init__(
        self, function: Function[..., Any], loaded: LoadedDeployment, kwargs: dict[str, Any]
    ) -> None:
        self.function = function
        self.db = loaded.db
        self.kwargs = kwargs
        self.deferrable = loaded.deferrable
        self.context = InFunction(loaded.db)
        self.output: str | None = None
        self.error: BaseException | None = None
        self.log: str | None = None

    def run(self) -> None:
        """Run the body with the application's role. Raises whatever the body raises."""
        with kept_output() as stream:
            try:
                with interruptible(), running_in(self.context):
                    result = self.function.body(self.db, **self.kwargs)
                self.output = encode_output(self.function.signature, result)
                if self.deferrable:
                    plpy.execute("SET CONSTRAINTS ALL IMMEDIATE")
            except plpy.SPIError as error:  # a deferred constraint
                self.error = StatementError.of(str(error), sqlstate=error.sqlstate)
                raise
            except BaseException as error:
                self.error = error
                raise
            finally:
                self.log = stream.text()


def _max_payload_bytes() -> int:
    rows = plpy.execute("SELECT pg_catalog.current_setting('apiary.max_payload_bytes', true) AS v")
    return int(rows[0]["v"] or DEFAULT_MAX_PAYLOAD_BYTES)


MAX_PAYLOAD_BYTES = _max_payload_bytes()  # of this session


def encode_output(signature: Signature, result: Any) -> str:
    """A body's result as JSON text, within the size limit."""
    output = dumps(signature.encode_result(result))
    if len(output) > MAX_PAYLOAD_BYTES:
        size_bytes = len(output.encode())
        raise PayloadTooLarge(
            f"the result takes {size_bytes} bytes, the limit is {MAX_PAYLOAD_BYTES}",
            hint="store large data in a table and return its key",
            path="result",
            size_bytes=size_bytes,
            limit_bytes=MAX_PAYLOAD_BYTES,
        )
    return output


class Runtime:
    """The runtime of one backend."""

    def __init__(self) -> None:
        self.backend = Backend()
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
        plpy.execute(deployment.application.enter)

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
    ) -> str:
        """Run a function and record it; return the outcome as JSON text."""
        started = time.time()
        try:
            owner, current = self.backend.application(application)
            loaded = owner.deployment(deployment or current)
            function = loaded.function(name)
            self._require_session(function)
            signature = function.function.signature
            kwargs, document = signature.normalise(json.loads(input_text))
        except ApiaryError as error:
            return _leave(error)
        call = Call(function.function, loaded, kwargs)
        self._run(loaded, call)
        if lease_until is not None:
            self._require_lease(run_id, lease_until)
        error_text = None if call.error is None else dumps(encode_exception(call.error))
        if keep or not function.read_only or call.error is not None or loaded.db.reads():
            xid = self._record(
                run_id, seq, name, application, loaded.id, principal,
                "SUCCEEDED" if error_text is None else "FAILED",
                dumps(document), digest(canonical(document)), call.output, error_text, attempt,
                started, time.time(), transaction_isolation(), function.read_only,
                loaded.db.reads(), json.dumps(call.context.calls) if call.context.calls else None,
                call.log, trace,
            )  # fmt: skip
        else:
            xid = None
        return outcome(call.output, error_text, loaded.id, xid, replayed=False)

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
                owner, _ = self.backend.application(application)
                signature = owner.deployment(row["deployment"]).function(name).function.signature
                digest_now = digest(canonical(signature.normalise(json.loads(input_text))[1]))
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
                    requested_digest=digest_now or digest(canonical(json.loads(input_text))),
                )
        except ApiaryError as error:
            return _leave(error)
        return outcome(row["output"], row["error"], row["deployment"], row["xid"], replayed=True)

    def check_deployment(self, application: str, deployment: str) -> None:
        """Import every function and prepare every statement, as the application's role."""
        owner, _ = self.backend.application(application)
        loaded = LoadedDeployment(owner, deployment)
        problem: list[DeployError] = []

        def check() -> None:
            try:
                _check(loaded)
            except DeployError as error:
                problem.append(error)

        try:
            self.enter(loaded, check)
        finally:
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
            raise loaded.db.lost
        if isinstance(call.error, (Interrupted, TransactionLost)) or interrupt_pending():
            plpy.execute("SELECT 1")  # PostgreSQL processes the interrupt, and raises
            raise entering_failed or RuntimeError("the interrupt was withdrawn")
        if entering_failed is not None and _sqlstate_class(entering_failed) in ("40", "57"):
            raise entering_failed

    def _require_session(self, function: CatalogueFunction) -> None:
        suits = transaction_isolation() == function.isolation and function.timeout_ms in (
            None,
            statement_timeout_ms(),
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
        plan = self.backend.plan(
            "SELECT pg_catalog.clock_timestamp() < $1 AS held", ["timestamptz"]
        )
        if not plpy.execute(plan, [lease_until])[0]["held"]:
            _leave(
                LeaseLost(
                    f"the lease on run {run_id!r} ended at {lease_until}; "
                    "the function was rolled back",
                    run_id=run_id,
                )
            )

    def _record(self, *values: Any) -> str:
        try:
            plan = self.backend.plan(_INSERT_OPERATION, list(_OPERATION_TYPES))
            return str(plpy.execute(plan, list(values))[0]["xid"])
        except plpy.SPIError as error:
            if error.sqlstate == "23505":
                plpy.error(
                    f"operation {values[0]}/{values[1]} is recorded already",
                    sqlstate=SQLSTATE_DUPLICATE,
                )
            raise


def _sqlstate_class(error: Any) -> str:
    return str(error.sqlstate or "")[:2]


def _check(loaded: LoadedDeployment) -> None:
    for function in loaded.functions.values():
        try:
            _ = function.function.signature
        except ImportError as error:
            raise DeployError(
                f"{function.module} cannot be imported inside the database: {error}",
                hint=f"the database's Python has no module {error.name!r}: install it for that "
                "interpreter, or import it only where a step uses it",
                module=error.name,
            ) from None
        except DeployError:
            raise
        except Exception as error:
            raise DeployError(
                f"{function.module} cannot be loaded inside the database: "
                f"{type(error).__name__}: {error}"
            ) from error
    for statement in loaded.statements:
        try:
            loaded.db.prepare(statement["sql"])
        except StatementError as error:
            raise DeployError(
                f"{statement['file']}:{statement['line']}: {error.message}",
                hint="the statement was prepared against the tables as this deployment leaves them",
                file=statement["file"],
                line=statement["line"],
                sqlstate=error.metadata.get("sqlstate"),
            ) from None


def outcome(
    output: str | None, error: str | None, deployment: str, xid: str | None, *, replayed: bool
) -> str:
    """The outcome of an operation as JSON text; output and error are JSON text already."""
    return (
        f'{{"output":{output or "null"},"error":{error or "null"},"deployment":"{deployment}",'
        f'"xid":{json.dumps(xid)},"replayed":{"true" if replayed else "false"}}}'
    )


def _leave(error: ApiaryError) -> NoReturn:
    """End the statement with a typed error; the transaction rolls back."""
    plpy.error(
        error.message, detail=json.dumps(error.to_json(), default=str), sqlstate=SQLSTATE_ERROR
    )
    raise AssertionError("plpy.error returned")
