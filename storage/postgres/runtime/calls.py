"""One execution of a function's body, and the functions that it calls in the same transaction."""

from __future__ import annotations

import time
from typing import Any

import plpy  # type: ignore[import-not-found]
from apiary_runtime.database import PlpyDatabase, TransactionLost
from apiary_runtime.deployments import LoadedDeployment
from apiary_runtime.interrupts import Interrupted, interruptible
from apiary_runtime.output import kept_output
from apiary_runtime.payload import encode_output

from apiary.authoring.context import Context, running_in
from apiary.authoring.decorators import Function, Registered
from apiary.authoring.failures import encode_exception
from apiary.authoring.values import dumps
from apiary.errors import UsageError


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
        self.error_text: str | None = None  # its record
        self.log: str | None = None

    def run(self) -> None:
        """Run the body with the application's role. Raises whatever the body raises."""
        with kept_output() as stream:
            try:
                with interruptible(lambda: self.db.lost):
                    self._run()
            except BaseException as error:
                self.error = error
                raise
            finally:
                self.log = stream.text()

    def _run(self) -> None:
        # Encoding the result or the error runs user code, too: properties, __str__.
        try:
            with running_in(self.context):
                result = self.function.body(self.db, **self.kwargs)
            self.output = encode_output(self.function.signature, result)
            if self.deferrable:
                self._check_deferred_constraints()
        except (Interrupted, TransactionLost):
            raise
        except BaseException as error:
            self.error_text = dumps(encode_exception(error))
            raise

    def _check_deferred_constraints(self) -> None:
        try:
            plpy.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except plpy.SPIError as error:
            raise self.db.translate(error, "SET CONSTRAINTS ALL IMMEDIATE") from None
