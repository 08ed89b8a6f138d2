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
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import plpy  # type: ignore[import-not-found]
from apiary_runtime.database import PlpyDatabase, TransactionLost
from apiary_runtime.deployments import Backend, CatalogueFunction, LoadedDeployment
from apiary_runtime.interrupts import (
    Interrupted,
    has_written,
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



@dataclass(frozen=True)
class Operation:
    """What is recorded of one function call; JSON columns are JSON text already."""

    seq: int
    name: str
    input: str
    input_digest: str
    output: str | None
    error: str | None
    attempt: int
    started_at: float  # Unix time, s
    finished_at: float
    isolation: str
    read_only: bool
    reads: str | None
    calls: str | None
    log: str | None

    def values(self) -> list[Any]:
        """The columns' values, in the order of `_OPERATION_COLUMNS`."""
        status = "SUCCEEDED" if self.error is None else "FAILED"
        return [status, *(getattr(self, name) for name in _OPERATION_COLUMNS)]

    def deferred(self) -> str:
        """The operation as an element of the array that apiary.insert_operations takes."""
        parts = ['"kind":"function"']
        for name in _OPERATION_COLUMNS:
            value = getattr(self, name)
            if value is not None:
                text = value if name in _JSON_COLUMNS else json.dumps(value)
                parts.append(f'"{name}":{text}')
        return f"{{{','.join(parts)}}}"


_OPERATION_COLUMNS = tuple(field.name for field in fields(Operation))
_JSON_COLUMNS = {"input", "output", "error", "reads", "calls"}
_SQL_TYPES = {"int": "int4", "float": "float8", "bool": "bool"}
_OPERATION_TYPES = ["text"] * 6 + [
    "json" if field.name in _JSON_COLUMNS else _SQL_TYPES.get(str(field.type), "text")
    for field in fields(Operation)
]
_PLACEHOLDERS = [
    f"pg_catalog.to_timestamp(${number})" if name.endswith("_at") else f"${number}"
    for number, name in enumerate(_OPERATION_COLUMNS, start=7)
]
_INSERT_OPERATION = (
    "INSERT INTO apiary.operation (kind, run_id, application, deployment, principal, trace, status, "
    f"{', '.join(_OPERATION_COLUMNS)}) VALUES ('function', $1, $2, $3, $4, $5, $6, "
    f"{', '.join(_PLACEHOLDERS)}) RETURNING xid"
)
_INSERT_DEFERRED = "SELECT apiary.insert_operations($1, $2, $3, $4, $5, $6)"


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
            signature = function.function.signature
            kwargs, document = signature.normalise(json.loads(input_text))
        except ApiaryError as error:
            return _leave(error)
        call = Call(function.function, loaded, kwargs)
        self._run(loaded, call)
        if lease_until is not None:
            self._require_lease(run_id, lease_until)
        operation = Operation(
            seq=seq,
            name=name,
            input=dumps(document),
            input_digest=digest(canonical(document)),
            output=call.output,
            error=None if call.error is None else dumps(encode_exception(call.error)),
            attempt=attempt,
            started_at=started,
            finished_at=time.time(),
            isolation=function.isolation,
            read_only=function.read_only and not has_written(),
            reads=loaded.db.reads(),
            calls=json.dumps(call.context.calls) if call.context.calls else None,
            log=call.log,
        )
        if operation.read_only and not keep and (seq > 0 or operation.reads is None):
            return outcome(operation, loaded.id, xid=None)
        if deferred is not None:
            plan = self.backend.plan(_INSERT_DEFERRED, ["text"] * 5 + ["json"])
            plpy.execute(plan, [run_id, application, loaded.id, principal, trace, deferred])
        xid = self._record(run_id, application, loaded.id, principal, trace, operation)
        return outcome(operation, loaded.id, xid)

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
        return _outcome_text(
            row["output"],
            row["error"],
            row["deployment"],
            row["xid"],
            replayed=True,
            unrecorded=None,
        )

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
            plan = self.backend.plan(_INSERT_OPERATION, _OPERATION_TYPES)
            values = [run_id, application, deployment, principal, trace, *operation.values()]
            return str(plpy.execute(plan, values)[0]["xid"])
        except plpy.SPIError as error:
            if error.sqlstate == "23505":
                plpy.error(
                    f"operation {run_id}/{operation.seq} is recorded already",
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


def outcome(operation: Operation, deployment: str, xid: str | None) -> str:
    """The outcome of a call as JSON text; one that was not recorded is in it whole."""
    return _outcome_text(
        operation.output,
        operation.error,
        deployment,
        xid,
        replayed=False,
        unrecorded=operation.deferred() if xid is None else None,
    )


def _outcome_text(
    output: str | None,
    error: str | None,
    deployment: str,
    xid: str | None,
    *,
    replayed: bool,
    unrecorded: str | None,
) -> str:
    return (
        f'{{"output":{output or "null"},"error":{error or "null"},"deployment":"{deployment}",'
        f'"xid":{json.dumps(xid)},"replayed":{"true" if replayed else "false"},'
        f'"unrecorded":{unrecorded or "null"}}}'
    )


def _leave(error: ApiaryError) -> NoReturn:
    """End the statement with a typed error; the transaction rolls back."""
    plpy.error(
        error.message, detail=json.dumps(error.to_json(), default=str), sqlstate=SQLSTATE_ERROR
    )
    raise AssertionError("plpy.error returned")
