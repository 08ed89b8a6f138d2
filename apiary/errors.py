"""Every error that Apiary raises, in one tree.

    ApiaryError
    ├── UsageError            the caller's mistake; nothing was stored
    │   ├── BadArgument           an argument is missing, unknown, or of the wrong type (`path`)
    │   ├── PayloadTooLarge       an encoded value is over the limit
    │   ├── NotFound              no such function, run, deployment, queue
    │   ├── PermissionDenied      the caller may not do this
    │   └── Unauthenticated       no token, or a wrong one
    ├── ConflictError         it clashes with what is already stored
    │   ├── IdempotencyMismatch   same id, other function or input
    │   └── WrongState            the run is in a state in which this cannot be done
    ├── DeployError           an application cannot be deployed (`file`, `line`)
    │   └── UnsupportedType       a signature names a type that no value can travel as
    ├── ExecutionError        something ran and did not succeed
    │   ├── FunctionError         user code raised (`type`, `code`, `details`)
    │   ├── BadResult             user code returned what cannot be stored
    │   ├── StatementError        a statement failed (`sqlstate`, `constraint`)
    │   │   └── IntegrityError        it broke a constraint
    │   │       └── UniqueViolation       a key exists already
    │   ├── TransactionConflict   serialization failures until the budget was spent
    │   ├── LeaseLost             the executor no longer owns the run
    │   ├── NonDeterminismError   a replay took another path than the record
    │   ├── Cancelled             the run was cancelled
    │   ├── WaitTimedOut          a message or event did not come in time
    │   └── DeadlineExceeded      a timeout or deadline passed
    ├── UnavailableError      try again later with the same id
    │   └── Draining              this server is about to stop
    └── ConfigurationError    this installation or its settings are wrong

An error carries data, not only text: ``reason`` is stable and documented, ``hint`` says what to do
next, ``metadata`` names the objects. ``grpc_code`` and ``exit_code`` are how the same error leaves
through gRPC and the command line. Every error survives JSON (`to_json`, `from_json`) and pickle.

This module imports only the standard library: it also runs inside the database process.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ApiaryError",
    "ApplicationError",
    "BadArgument",
    "BadResult",
    "Cancelled",
    "ConfigurationError",
    "ConflictError",
    "DeadlineExceeded",
    "DeployError",
    "Draining",
    "ExecutionError",
    "FunctionError",
    "IdempotencyMismatch",
    "IntegrityError",
    "LeaseLost",
    "NonDeterminismError",
    "NotFound",
    "PayloadTooLarge",
    "PermissionDenied",
    "StatementError",
    "TransactionConflict",
    "Unauthenticated",
    "UnavailableError",
    "UniqueViolation",
    "UnsupportedType",
    "UsageError",
    "WaitTimedOut",
    "WrongState",
]


class ApplicationError(Exception):
    """Base for the errors that an application declares: an expected outcome, not a bug.

    Raise a subclass in a function or step. It rolls the function's effects back, is recorded as
    the outcome, and reaches callers as FAILED_PRECONDITION with its type, message, ``code`` and
    details (the instance's attributes; keyword arguments become such). Errors of any other class
    are reported as UNKNOWN.
    """

    code: str | None = None

    def __init__(self, *args: Any, **details: Any) -> None:
        super().__init__(*args)
        vars(self).update(details)


class ApiaryError(Exception):
    """Base of all errors raised by the platform itself."""

    reason: ClassVar[str] = "INTERNAL"
    grpc_code: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, **metadata: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.metadata = {key: value for key, value in metadata.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    def __getattr__(self, name: str) -> Any:
        # Metadata reads as attributes (`error.path`); dunder look-ups by pickle and copy must not
        # recurse into a half-built instance.
        if not name.startswith("__") and name in self.__dict__.get("metadata", {}):
            return self.metadata[name]
        raise AttributeError(f"{type(self).__name__!r} error has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (ApiaryError.from_json, (self.to_json(),))

    def to_json(self) -> dict[str, Any]:
        """The error as a JSON object: ``error``, ``message``, and what else is set."""
        document: dict[str, Any] = {"error": type(self).__name__, "message": self.message}
        if self.hint:
            document["hint"] = self.hint
        if self.metadata:
            document["metadata"] = self.metadata
        return document

    @staticmethod
    def from_json(document: dict[str, Any]) -> ApiaryError:
        """Rebuild an error from `to_json`; an unknown class becomes a plain ApiaryError."""
        error_class = _error_classes().get(document["error"], ApiaryError)
        return error_class(
            document["message"], hint=document.get("hint"), **document.get("metadata", {})
        )


def _error_classes() -> dict[str, type[ApiaryError]]:
    found: dict[str, type[ApiaryError]] = {}
    pending = [ApiaryError]
    while pending:
        error_class = pending.pop()
        found[error_class.__name__] = error_class
        pending.extend(error_class.__subclasses__())
    return found


class UsageError(ApiaryError):
    """The request itself is wrong; nothing was stored, and trying again cannot help."""

    reason = "BAD_ARGUMENT"
    grpc_code = "INVALID_ARGUMENT"
    exit_code = 2


class BadArgument(UsageError):
    """An argument is missing, unknown, of the wrong type, or cannot be stored; see ``path``."""


class PayloadTooLarge(UsageError):
    """An encoded value is larger than the limit; see ``path``, ``size_bytes``, ``limit_bytes``."""

    reason = "PAYLOAD_TOO_LARGE"
    grpc_code = "RESOURCE_EXHAUSTED"


class NotFound(UsageError):
    """No object of that name; see ``kind`` and ``name``."""

    reason = "NOT_FOUND"
    grpc_code = "NOT_FOUND"
    exit_code = 3


class PermissionDenied(UsageError):
    """The caller is known, and may not do this."""

    reason = "PERMISSION_DENIED"
    grpc_code = "PERMISSION_DENIED"
    exit_code = 5


class Unauthenticated(UsageError):
    """No credentials, or wrong ones."""

    reason = "UNAUTHENTICATED"
    grpc_code = "UNAUTHENTICATED"
    exit_code = 5


class ConflictError(ApiaryError):
    """The request clashes with what is already stored."""

    reason = "ALREADY_EXISTS"
    grpc_code = "ALREADY_EXISTS"
    exit_code = 4


class IdempotencyMismatch(ConflictError):
    """The run id is taken by another function or input; see both digests."""

    reason = "IDEMPOTENCY_MISMATCH"


class WrongState(ConflictError):
    """The run is in a state in which this cannot be done; see ``run_id``."""

    reason = "WRONG_STATE"
    grpc_code = "FAILED_PRECONDITION"


class DeployError(ApiaryError):
    """An application cannot be deployed; the old version still serves. See ``file``, ``line``."""

    reason = "DEPLOY_REFUSED"
    grpc_code = "FAILED_PRECONDITION"
    exit_code = 2


class UnsupportedType(DeployError):
    """A signature names a type that no value can travel as; see ``path``."""

    reason = "UNSUPPORTED_TYPE"


class ExecutionError(ApiaryError):
    """Something ran and did not succeed."""

    reason = "EXECUTION_FAILED"
    grpc_code = "UNKNOWN"


class FunctionError(ExecutionError):
    """User code raised: ``type``, ``code`` and ``details`` of its exception.

    ``declared`` is true for a subclass of ApplicationError (reported as FAILED_PRECONDITION).
    """

    reason = "USER_ERROR"

    @property
    def type(self) -> str:
        """The name of the exception's class."""
        return str(self.metadata.get("type", ""))

    @property
    def code(self) -> str | None:
        """The exception's own ``code``, if it has one."""
        return self.metadata.get("code")

    @property
    def details(self) -> dict[str, Any]:
        """The exception's attributes, as documents."""
        return dict(self.metadata.get("details", {}))

    @property
    def declared(self) -> bool:
        """Whether the application declares this error (a subclass of ApplicationError)."""
        return bool(self.metadata.get("declared", False))


class BadResult(ExecutionError):
    """User code returned a value that cannot be stored; see ``path``."""

    reason = "BAD_RESULT"
    grpc_code = "FAILED_PRECONDITION"


class StatementError(ExecutionError):
    """The database refused a statement: ``sqlstate``, and ``constraint``, ``detail`` if given.

    A function may catch it: the failed statement has no effects, and the transaction goes on.
    """

    reason = "STATEMENT_FAILED"

    @staticmethod
    def of(message: str, *, sqlstate: str, **metadata: Any) -> StatementError:
        """The error of the class that ``sqlstate`` calls for."""
        error_class: type[StatementError] = StatementError
        if sqlstate == "23505":
            error_class = UniqueViolation
        elif sqlstate.startswith("23"):
            error_class = IntegrityError
        return error_class(message, sqlstate=sqlstate, **metadata)


class IntegrityError(StatementError):
    """A statement broke a constraint: NOT NULL, foreign key, CHECK, exclusion."""

    reason = "CONSTRAINT_VIOLATED"


class UniqueViolation(IntegrityError):
    """A statement inserted a key that exists already."""

    reason = "UNIQUE_VIOLATED"


class TransactionConflict(ExecutionError):
    """Serialization failures or deadlocks until the retry budget was spent; see ``attempts``."""

    reason = "TXN_CONFLICT"
    grpc_code = "ABORTED"
    exit_code = 75


class LeaseLost(ExecutionError):
    """The executor's lease on the run has expired: what it did was refused and rolled back."""

    reason = "LEASE_LOST"
    grpc_code = "ABORTED"
    exit_code = 75


class NonDeterminismError(ExecutionError):
    """A replayed workflow took another path than its record; see ``recorded`` and ``now``."""

    reason = "NONDETERMINISM"
    grpc_code = "FAILED_PRECONDITION"


class Cancelled(ExecutionError):
    """The run was cancelled."""

    reason = "CANCELLED"
    grpc_code = "CANCELLED"


class WaitTimedOut(ExecutionError):
    """What a workflow waited for did not come within its timeout; recorded as such."""

    reason = "WAIT_TIMED_OUT"
    grpc_code = "DEADLINE_EXCEEDED"


class DeadlineExceeded(ExecutionError):
    """A timeout or a deadline passed; the transaction was rolled back."""

    reason = "DEADLINE_EXCEEDED"
    grpc_code = "DEADLINE_EXCEEDED"
    exit_code = 124


class UnavailableError(ApiaryError):
    """The database or the server cannot be reached now; repeat with the same id."""

    reason = "DB_UNAVAILABLE"
    grpc_code = "UNAVAILABLE"
    exit_code = 69


class Draining(UnavailableError):
    """This server finishes what runs and takes nothing new; repeat with the same id."""

    reason = "DRAINING"


class ConfigurationError(ApiaryError):
    """This installation or its settings are wrong."""

    reason = "CONFIGURATION"
    grpc_code = "FAILED_PRECONDITION"
    exit_code = 78
