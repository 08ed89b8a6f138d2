"""Threads that are used again: for whom, and when not."""

from __future__ import annotations

import threading
from contextvars import ContextVar

from apiary.execution.workers import Workers

_PATIENCE_S = 30.0
_variable: ContextVar[str] = ContextVar("_variable", default="unset")


class _Interrupted(BaseException):
    pass


def _ran(workers: Workers, name: str = "job") -> tuple[int, str, str]:
    """In which thread a job ran, under which name, and what it found in a context variable."""
    found: list[tuple[int, str, str]] = []
    ended = threading.Event()

    def work() -> None:
        thread = threading.current_thread()
        found.append((threading.get_ident(), thread.name, _variable.get()))
        _variable.set(name)
        ended.set()

    workers.run(name, work)
    assert ended.wait(_PATIENCE_S)
    _until_idle(workers)
    return found[0]


def _until_idle(workers: Workers) -> None:
    ends = threading.Event()
    for _ in range(3000):
        with workers._lock:
            if workers._idle:
                return
        ends.wait(0.01)
    raise AssertionError("no thread has become idle")


def test_a_thread_is_used_again_under_another_name_and_without_its_variables() -> None:
    workers = Workers()
    first, second = _ran(workers, "one"), _ran(workers, "two")
    assert first[0] == second[0]
    assert (first[1:], second[1:]) == (("one", "unset"), ("two", "unset"))


def test_an_interrupted_thread_is_not_used_again() -> None:
    workers = Workers()
    begun, seen = threading.Event(), threading.Event()
    idents: list[int] = []

    def work() -> None:
        idents.append(threading.get_ident())
        begun.set()
        try:
            while True:
                threading.Event().wait(0.01)
        except _Interrupted:
            seen.set()

    job = workers.run("loops", work)
    assert begun.wait(_PATIENCE_S)
    thread = next(each for each in threading.enumerate() if each.ident == idents[0])
    job.interrupt(_Interrupted)
    assert seen.wait(_PATIENCE_S)
    thread.join(_PATIENCE_S)
    assert not thread.is_alive()
    assert workers._idle == []


def test_an_interruption_that_comes_late_reaches_nobody_else() -> None:
    workers = Workers()
    ended = threading.Event()
    job = workers.run("short", ended.set)
    assert ended.wait(_PATIENCE_S)
    _until_idle(workers)
    go, finished = threading.Event(), threading.Event()

    def work() -> None:
        if go.wait(_PATIENCE_S):
            finished.set()

    workers.run("next", work)
    job.interrupt(_Interrupted)
    go.set()
    assert finished.wait(_PATIENCE_S)


def test_a_job_that_was_interrupted_before_it_began_does_not_run() -> None:
    workers = Workers()
    _ran(workers)
    (worker,) = workers._idle
    ran = threading.Event()
    with worker._lock:  # the thread cannot begin it yet
        job = workers.run("never", ran.set)
        job.cancelled = True
    _until_idle(workers)
    assert not ran.is_set()
