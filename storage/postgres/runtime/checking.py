"""Checking a deployment inside the backend: its imports, its signatures, its statements."""

from __future__ import annotations

from apiary_runtime.database import PlpyDatabase
from apiary_runtime.deployments import CatalogueFunction, LoadedDeployment
from apiary_runtime.interrupts import interruptible
from apiary_runtime.output import kept_output

from apiary.errors import DeployError, StatementError


def check(loaded: LoadedDeployment) -> None:
    """Import every function and prepare every statement; runs with the application's role."""
    for function in loaded.functions.values():
        import_function(function)
    db = PlpyDatabase({})  # which has prepared nothing yet
    for statement in loaded.statements:
        try:
            db.prepare(statement["sql"])
        except StatementError as error:
            raise DeployError(
                f"{statement['file']}:{statement['line']}: {error.message}",
                hint="the statement was prepared against the tables as this deployment leaves them",
                file=statement["file"],
                line=statement["line"],
                sqlstate=error.metadata.get("sqlstate"),
            ) from None


def import_function(function: CatalogueFunction) -> None:
    """Import a function's module and resolve its signature; DeployError says what fails."""
    try:
        with kept_output(), interruptible(lambda: None):
            function.function.signature.resolve()
    except ImportError as error:
        raise DeployError(
            f"{function.file}: {function.module} cannot be imported inside the database: {error}",
            hint=f"the database's Python has no module {error.name!r}: install it for that "
            "interpreter, or import it only where a step uses it",
            file=function.file,
            module=error.name,
        ) from None
    except DeployError:
        raise
    except Exception as error:
        raise DeployError(
            f"{function.file}: {function.module} cannot be loaded inside the database: "
            f"{type(error).__name__}: {error}",
            file=function.file,
        ) from error
