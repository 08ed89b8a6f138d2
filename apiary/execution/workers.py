"""Threads that run one piece of user code after another: starting one costs more than many runs do.

A thread that had to be interrupted is not used again, because the exception may reach it at any
later time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextvars import Context
from queue import Empty, SimpleQueue

__all__ = ["Job", "Workers"]

_IDLE_S = 30.0  # then a thread that has nothing to do ends


class Job:
    """One piece of work in a thread."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.work = work
        self.cancelled = False  # before it began, or too late
        self._worker: _Worker | None = None

    def assign(self, worker: _Worker) -> None:
        """That thread runs it."""
        self._worker = worker

    def interrupt(self, exception: type[BaseException]) -> None:
        """Raise ``exception`` in its thread at the next bytecode; keep it from beginning."""
        if self._worker is not None:
            self._worker.interrupt(self, exception)


class _Worker:
    """A thread, and what it does now."""

    def __init__(self, pool: Workers, first: Job) -> None:
        self._pool = pool
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()  # between the end of a job and its interruption
        self._current: Job | None = None
        self._interrupted = False
        self.take(first)
        self._thread = threading.Thread(target=self._run, name=first.name, daemon=True)
        self._thread.start()

    def take(self, job: Job) -> None:
        """Run this next."""
        job.assign(self)
        self._jobs.put(job)

    def interrupt(self, job: Job, exception: type[BaseException]) -> None:
        """See `Job.interrupt`."""
        with self._lock:
            ident = self._thread.ident
            if self._current is job and ident is not None and self._thread.is_alive():
                self._interrupted = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(ident), ctypes.py_object(exception)
                )
            else:
                job.cancelled = True

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None and self._did(job):
                del job  # what it holds is not kept while the thread is idle
                self._pool.put_back(self)
        except BaseException:
            if not self._interrupted:  # else that came when the job had ended
                raise
        finally:
            with self._lock:
                self._current = None

    def _did(self, job: Job) -> bool:
        """Run a job; whether the thread can be used again."""
        with self._lock:
            if job.cancelled:
                return True
            self._current = job
        threading.current_thread().name = job.name
        Context().run(job.work)  # as in a thread of its own: no variables of the job before
        with self._lock:
            self._current = None
            return not self._interrupted

    def _next(self) -> Job | None:
        try:
            return self._jobs.get(timeout=_IDLE_S)
        except Empty:
            # Whoever took it out of the pool meanwhile has a job for it.
            return None if self._pool.remove(self) else self._jobs.get()


class Workers:
    """Threads that are there to be used again; as many as have been needed at once."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def run(self, name: str, work: Callable[[], None]) -> Job:
        """Run ``work``, which raises nothing, in a thread of that name."""
        job = Job(name, work)
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            _Worker(self, job)
        else:
            worker.take(job)
        return job

    def put_back(self, worker: _Worker) -> None:
        """A thread has nothing to do."""
        with self._lock:
            self._idle.append(worker)

    def remove(self, worker: _Worker) -> bool:
        """Take a thread out for good; false when somebody has taken it to use it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True
