"""Absurd: tasks of checkpointed steps; each step is a transaction of the application.

Spawned and worked by one thread, which leaves its worker's polling (0.25 s by default) out of the
latency. A step's effects and its checkpoint are two transactions: after a crash between them the
step runs again, which is Absurd's guarantee, and less than once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

import psycopg

from ..plain import Application, serializable_pool
from ..workloads import CHAINS, Request
from .base import Adapter, Threads, missing_peer

try:
    from absurd_sdk import Absurd, TaskContext
    from absurdctl import BUNDLED_SCHEMA_SQL
except ImportError as error:
    raise missing_peer(error) from error

__all__ = ["AbsurdTasks"]

_QUEUE = "bench"
_PATIENCE_S, _POLL_S = 60.0, 0.01


class _Worker(threading.local):
    """A thread's own connection, and the task that it ran last."""

    app: Absurd | None = None
    task_id: str | None = None
    result: Any = None


class AbsurdTasks(Adapter):
    """One queue."""

    async def open(self, url: str) -> None:
        self._url = url
        self._application = Application()
        self._pool = serializable_pool(url)
        self._threads = Threads()
        self._worker = _Worker()
        self._lock = threading.Lock()
        self._done: dict[str, Future[Any]] = {}
        self._apps: list[Absurd] = []
        await self._threads.run(self._install)

    def _install(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            found = connection.execute("SELECT to_regnamespace('absurd')").fetchone()
            if found is None or found[0] is None:
                connection.execute(BUNDLED_SCHEMA_SQL.encode())
        self._app().create_queue(_QUEUE)

    async def close(self) -> None:
        self._threads.close()
        for app in self._apps:
            app.close()
        self._pool.close()

    async def call(self, request: Request) -> Any:
        return await self._threads.run(self._perform, request)

    def _perform(self, request: Request) -> Any:
        app = self._app()
        name = "function"
        if request.is_workflow:
            name = "mixed" if request.target == "bench.mixed" else "chain"
        params = {"target": request.target, "arguments": request.arguments}
        task_id = app.spawn(name, params)["task_id"]
        mine = self._future(task_id)
        result = self._work_until(mine, app)
        with self._lock:
            del self._done[task_id]
        return result

    def _work_until(self, mine: Future[Any], app: Absurd) -> Any:
        """Work until one's own task is done; another thread may have claimed it."""
        ends = time.monotonic() + _PATIENCE_S
        while True:
            app.work_batch(f"bench-{threading.get_ident()}", 120, 1)
            if self._worker.task_id is not None:
                self._future(self._worker.task_id).set_result(self._worker.result)
                self._worker.task_id = None
                if mine.done():
                    return mine.result()
            else:
                with suppress(FutureTimeout):
                    return mine.result(timeout=_POLL_S)
            if time.monotonic() > ends:
                raise FutureTimeout(f"no result within {_PATIENCE_S:g} s")

    def _future(self, task_id: str) -> Future[Any]:
        with self._lock:
            return self._done.setdefault(task_id, Future())

    def _app(self) -> Absurd:
        if self._worker.app is None:
            app = self._worker.app = Absurd(self._url, queue_name=_QUEUE)
            self._apps.append(app)
            self._register(app)
        return self._worker.app

    def _register(self, app: Absurd) -> None:
        def finishing(body: Callable[[Any, TaskContext], Any]) -> Callable[..., Any]:
            def run(params: Any, context: TaskContext) -> Any:
                result = body(params, context)
                self._worker.task_id, self._worker.result = context.task_id, result
                return result

            return run

        for name, body in (
            ("function", self._function),
            ("chain", self._chain),
            ("mixed", self._mixed),
        ):
            app.register_task(name)(finishing(body))

    def _function(self, params: Any, context: TaskContext) -> Any:
        return context.step(
            "function",
            lambda: self._application.transact(self._pool, params["target"], params["arguments"]),
        )

    def _transfer(self, context: TaskContext, params: Any, number: int, amount: int = 1) -> int:
        arguments = self._application.transfer(**params["arguments"], number=number, amount=amount)
        result: int = context.step(
            "transfer",
            lambda: self._application.transact(self._pool, "bench.transfer", arguments),
        )
        return result

    def _chain(self, params: Any, context: TaskContext) -> int:
        count = CHAINS[params["target"]]
        return sum(self._transfer(context, params, number) for number in range(count))

    def _mixed(self, params: Any, context: TaskContext) -> int:
        total = self._transfer(context, params, 0)
        start = params["arguments"]["start"]
        amount = context.step("quote", lambda: self._application.quote(start))
        return total + self._transfer(context, params, 0, amount)
