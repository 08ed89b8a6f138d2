"""One execution of a function's body, and the functions that it calls in the same transaction."""

from __future__ import annotations

import time
from typing import Any

import plpy  # type: ignore[import-not-found]
from apiary_runtime.checking import import_function
from apiary_runtime.database import PlpyDatabase, TransactionLost
from apiary_runtime.deployments import Application, CatalogueFunction, LoadedDeployment
from apiary_runtime.interrupts import (
    Interrupted,
    interruptible,
    statement_timeout_ms,
    transaction_isolation,
)
from apiary_runtime.output import kept_output
from apiary_runtime.payload import DocumentInput, TextInput, encode_input, encode_output

from apiary.authoring.context import Context, running_in
from apiary.authoring.decorators import Function, Registered
from apiary.authoring.failures import encode_exception
from apiary.authoring.values import dumps
from apiary.errors import ApiaryError, UsageError


class _NestedCall:
    """A function that was called by another; as text, what its caller's record says of it."""

    __slots__ = ("_function", "_started_ns", "ended_ns")

    def __init__(self, function: str) -> None:
        self._function = function
        self._started_ns = self.ended_ns = time.time_ns()

    def __str__(self) -> str:
        # By integers: to find the shortest text of a float can take longer than the call itself.
        started_s, started_us = divmod(self._started_ns // 1000, 1_000_000)
        took_ms, took_us = divmod((self.ended_ns - self._started_ns) // 1000, 1000)
        return (
            f'{{"function":"{self._function}","started_at":{started_s}.{started_us:06},'
            f'"duration_ms":{took_ms}.{took_us:03}}}'
        )


class InFunction(Context):
    """Answers the calls of a function's body: other functions, in the same transaction."""

    def __init__(self, db: PlpyDatabase) -> None:
        self.db = db
        self._calls: list[_NestedCall] = []

    def call(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(target, Function):
            raise UsageError(
                f"a function cannot call the {target.kind} {target.name}",
                hint="functions call functions; steps and workflows are called by a workflow",
            )
        noted = _NestedCall(target.name)
        self._calls.append(noted)
        try:
            return target.body(self.db, *args, **kwargs)
        finally:
            noted.ended_ns = time.time_ns()

    def calls(self) -> str | None:
        """The functions that were called, as a JSON array, or None."""
        return f"[{','.join(map(str, self._calls))}]" if self._calls else None

    def start(self, target: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise UsageError(
            f"{target.name} cannot be started inside a function",
            hint="a function is one transaction: call it instead",
        )

    def primitive(self, name: str, *args: Any, **options: Any) -> Any:
        raise UsageError(f"{name}() is for workflows, not for a function's body")


class Call:
    """One execution of a function's body: what is asked for, and what came of it.

    `run` is entered with the application's role, since decoding and encoding run its code, too. It
    raises what the body raises, which rolls the body's effects back. What kept the body from
    running is left in ``refused`` or ``unsuitable``; a deployment that this backend has still to
    load, in ``loaded`` (None): then nothing has happened, and the call can be entered again.
    """

    def __init__(
        self,
        application: Application,
        deployment: str | None,
        name: str,
        given: TextInput | DocumentInput,
        *,
        has_own_timeout: bool = False,
    ) -> None:
        self.application = application
        self.deployment = deployment  # None: the one that serves new calls
        self.name = name
        self.given = given
        self.has_own_timeout = has_own_timeout  # set for it, and not by the session
        self.served = ""  # what served when it was entered, see `Application.serve`
        self.loaded: LoadedDeployment | None = None
        self.refused: ApiaryError | None = None
        self.unsuitable: CatalogueFunction | None = None  # the function wants another session
        self.calls: str | None = None  # the functions that it called
        self.output: str | None = None
        self.error: BaseException | None = None
        self.error_text: str | None = None  # its record
        self.log: str | None = None

    def run(self, served: str) -> None:
        """Run the body. Raises whatever the body raises."""
        self.served = served
        loaded = self.loaded = self.application.find(self.deployment, served)
        if loaded is None:
            return
        loaded.db.begin(self.application.captures_reads)
        with kept_output() as stream:
            try:
                with interruptible(loaded.db.lost_error):
                    self._run(loaded)
            except BaseException as error:
                self.error = error
                raise
            finally:
                self.log = stream.text()

    def _run(self, loaded: LoadedDeployment) -> None:
        try:
            function = self.function = loaded.function(self.name)
            if not self._suits(function):
                self.unsuitable = function
                return
            if not function.is_loaded:
                import_function(function)
            signature = function.function.signature
            kwargs, document, self.input_digest = self.given.read(signature)
            self.input = encode_input(document)
        except ApiaryError as error:
            self.refused = error
            return
        context = InFunction(loaded.db)
        # Encoding the result or the error runs user code, too: properties, __str__.
        try:
            with running_in(context):
                result = function.function.body(loaded.db, **kwargs)
            self.output = encode_output(signature, result)
            if loaded.has_deferred_triggers():
                self._check_deferred_constraints(loaded.db)
        except (Interrupted, TransactionLost):
            raise
        except BaseException as error:
            self.error_text = dumps(encode_exception(error))
            raise
        finally:
            self.calls = context.calls()

    def _suits(self, function: CatalogueFunction) -> bool:
        """Whether this session has the isolation level and the timeout that a function wants."""
        return transaction_isolation() == function.isolation and (
            function.timeout_ms is None
            or self.has_own_timeout
            or function.timeout_ms == statement_timeout_ms()
        )

    @staticmethod
    def _check_deferred_constraints(db: PlpyDatabase) -> None:
        try:
            plpy.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except plpy.SPIError as error:
            raise db.translate(error, "SET CONSTRAINTS ALL IMMEDIATE") from None
