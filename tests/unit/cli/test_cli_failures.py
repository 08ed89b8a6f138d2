"""Exit codes, and what is written about errors."""

from __future__ import annotations

import pytest

from apiary import errors
from apiary.cli.failures import guarded

# The table of the documentation.
CODES = {
    errors.UsageError: 2,
    errors.BadArgument: 2,
    errors.PayloadTooLarge: 2,
    errors.DeployError: 2,
    errors.UnsupportedType: 2,
    errors.NotFound: 3,
    errors.ConflictError: 4,
    errors.IdempotencyMismatch: 4,
    errors.PermissionDenied: 5,
    errors.Unauthenticated: 5,
    errors.ExecutionError: 1,
    errors.FunctionError: 1,
    errors.BadResult: 1,
    errors.StatementError: 1,
    errors.NonDeterminismError: 1,
    errors.Cancelled: 1,
    errors.UnavailableError: 69,
    errors.TransactionConflict: 75,
    errors.LeaseLost: 75,
    errors.ConfigurationError: 78,
    errors.DeadlineExceeded: 124,
}


@pytest.mark.parametrize(("error_class", "code"), CODES.items(), ids=str)
def test_each_error_has_its_exit_code(
    error_class: type[errors.ApiaryError], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error_class("it is [so]", hint="do that")

    assert guarded(fail) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: it is [so]\nhint:  do that\n"


def test_an_error_of_user_code_is_shown_with_its_type_and_stack(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise errors.FunctionError("no rooms", type="SoldOut", stack="functions/hotel:3\n  boom\n")

    assert guarded(fail) == 1
    assert capsys.readouterr().err == "error: SoldOut: no rooms\nfunctions/hotel:3\n  boom\n"


def test_success_and_interruption() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert guarded(lambda: None) == 0
    assert guarded(interrupt) == 130


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (0, 0), (2, 2), ("text", 1)])
def test_an_exit_keeps_its_code(code: object, expected: int) -> None:
    def leave() -> None:
        raise SystemExit(code)

    assert guarded(leave) == expected
