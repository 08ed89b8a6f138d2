"""A random campaign: many runs, dying executors, a server that goes away, replies that get lost.

`python -m tests.chaos.campaign --runs 2000 --seed 1` drives that many runs while faults are
injected at random times, then checks the invariants and prints a report as JSON. The seed decides
the runs and the faults and their order; what they hit is up to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from apiary.engine.postgres import PostgresEngine, PostgresSettings
from apiary.engine.runs import RunOutcome
from apiary.errors import ApiaryError
from apiary.execution.verifying import verify
from apiary.local import PrivateCluster
from tests.chaos.clocks import set_clock
from tests.chaos.driving import Driver, Job
from tests.chaos.invariants import check_invariants
from tests.chaos.processes import LEASE_S, SETTINGS, ClientProcess, ExecutorProcess, install
from tests.chaos.proxy import LossyProxy, lossy_proxy

RUN_WITHIN_S = 240.0  # under a fault every second or so
STRANDED_AFTER = timedelta(seconds=LEASE_S + 30)
MARKS = [b"effects.note", b"effects.bump", b'"kind": "step"', b"flows.leaf", b'"kind": "time"',
         b'"kind": "recv"', b"claim_runs", b"finish_run", b"SUCCEEDED"]  # fmt: skip
_RANDOM_BACKEND = """
    SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend'
       AND pid <> pg_backend_pid()"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a campaign does."""

    runs: int
    seed: int
    executors: int = 3
    clients: int = 12  # runs that are driven at once
    pause_s: float = 1.0  # between faults, on average


@dataclass(slots=True, kw_only=True)
class Result:
    """What a campaign did."""

    seed: int
    runs: dict[str, int] = field(default_factory=dict)  # by workflow
    faults: dict[str, int] = field(default_factory=dict)  # by kind
    replies_lost: int = 0
    client_retries: int = 0
    attempts_retried: int = 0  # of functions: conflicts and lost connections
    adoptions: int = 0
    most_adoptions_of_a_run: int = 0
    effects: int = 0
    operations: int = 0
    verified_meanwhile: int = 0
    slowest_run_s: float = 0.0
    duration_s: float = 0.0


class Campaign:
    """One campaign on one database."""

    def __init__(self, plan: Plan, cluster: PrivateCluster, url: str, directory: Path) -> None:
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._cluster = cluster
        self._url = url
        self._side = directory / "side"
        self._log = directory / "executors.log"
        self._executors: list[ExecutorProcess] = []
        self._others: list[asyncio.Task[None]] = []  # that put right what a fault did
        self._busy: set[int] = set()  # executors to which something is being done already
        self._faults: Counter[str] = Counter()
        self._result = Result(seed=plan.seed)

    async def run(self, proxy: LossyProxy) -> Result:
        """All of it; raises AssertionError when anything is not as it must be."""
        self._proxy = proxy
        began = time.monotonic()
        self._names = [f"executor {max(1, n)}" for n in range(self._plan.executors)]  # twins
        self._executors = [self._executor(n) for n in range(self._plan.executors)]
        await asyncio.gather(
            *(asyncio.to_thread(executor.wait_until_ready) for executor in self._executors)
        )
        jobs = [self._job(number) for number in range(self._plan.runs)]
        self._result.runs = dict(Counter(job.workflow for job in jobs))
        settings = PostgresSettings(pool_size=self._plan.clients, acquire_timeout_s=5.0)
        async with PostgresEngine(self._url, settings) as engine:
            driver = Driver(engine)
            faults = asyncio.create_task(self._inject(jobs))
            checks = asyncio.create_task(self._keep_verifying(engine))
            try:
                answers = await self._drive(driver, jobs, (faults, checks))
            finally:
                faults.cancel()
                checks.cancel()
                await asyncio.gather(faults, checks, return_exceptions=True)
                await asyncio.gather(*self._others)
            for job in self._random.sample(jobs, min(100, len(jobs))):
                again = await driver.finish(job, RUN_WITHIN_S)
                if again != answers[job.run_id]:
                    raise AssertionError(f"{job.run_id}: {answers[job.run_id]}, then {again}")
            self._result.client_retries = driver.retries
        await asyncio.to_thread(self._stop_executors)
        await asyncio.to_thread(check_invariants, self._url, self._side)
        self._result.duration_s = round(time.monotonic() - began, 1)
        self._count()
        return self._result

    async def _drive(
        self, driver: Driver, jobs: list[Job], watched: tuple[asyncio.Task[None], ...]
    ) -> dict[str, RunOutcome]:
        places = asyncio.Semaphore(self._plan.clients)
        answers: dict[str, RunOutcome] = {}

        async def one(job: Job) -> None:
            async with places:
                began = time.monotonic()
                answers[job.run_id] = await driver.finish(job, RUN_WITHIN_S)
                took = round(time.monotonic() - began, 1)
                self._result.slowest_run_s = max(self._result.slowest_run_s, took)

        driving = asyncio.gather(*(one(job) for job in jobs))
        # A fault that cannot be injected, or a finding, ends the campaign at once.
        tasks: list[asyncio.Future[Any]] = [driving, *watched]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in watched:
            if task.done():
                driving.cancel()
                await task
        await driving
        return answers

    def _job(self, number: int) -> Job:
        me = f"run-{number}"
        kind = self._random.choices(
            ["five", "five outside", "mixed", "limited", "napping", "crossing"],
            [40, 10, 20, 12, 8, 10],
        )[0]
        if kind.startswith("five"):
            return Job(run_id=me, workflow="flows.five", input={"me": me, "number": number},
                       executor_only=kind == "five outside")  # fmt: skip
        if kind == "crossing":
            ways = [("hot", "cold"), ("cold", "hot")]
            first, second = self._random.choice(ways)
            return Job(run_id=me, workflow="flows.crossing",
                       input={"me": me, "first": first, "second": second})  # fmt: skip
        if kind == "napping":
            seconds = self._random.uniform(0.05, 2)
            return Job(run_id=me, workflow="flows.napping", input={"seconds": seconds})
        queue = "narrow" if kind == "limited" else None
        return Job(run_id=me, workflow=f"flows.{kind}", input={"number": number}, queue=queue)

    # Executors.

    def _executor(self, number: int) -> ExecutorProcess:
        """The last one reaches the database through the proxy that loses replies."""
        lossy = number == self._plan.executors - 1
        url = self._proxy.url() if lossy else self._url
        return ExecutorProcess(url, self._names[number], self._side, self._log)

    async def _replace(self, number: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._executors[number] = self._executor(number)
        await asyncio.to_thread(self._executors[number].wait_until_ready)
        self._busy.discard(number)

    def _stop_executors(self) -> None:
        for executor in self._executors:
            executor.signal(signal.SIGTERM)
        for executor in self._executors:
            status = executor.wait()
            if status != 0:
                raise AssertionError(f"{executor.name} did not drain: {status}")

    def kill_executors(self) -> None:
        """Whatever is left of them."""
        for executor in self._executors:
            if executor.alive:
                executor.kill()

    # Faults.

    async def _inject(self, jobs: list[Job]) -> None:
        faults: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "executor killed": (8, self._kill_executor),
            "executor paused": (3, self._pause_executor),
            "executor drained": (3, self._drain_executor),
            "session terminated": (8, self._terminate_session),
            "backend killed": (2, self._kill_backend),
            "server restarted": (2, self._restart_server),
            "reply lost": (8, self._lose_reply),
            "client killed": (3, lambda: self._kill_client(jobs)),
            "clock jumped": (1, self._jump),
        }
        names = list(faults)
        weights = [weight for weight, _ in faults.values()]
        while True:
            await asyncio.sleep(self._random.uniform(0.3, 1.7) * self._plan.pause_s)
            name = self._random.choices(names, weights)[0]
            with suppress(psycopg.OperationalError):  # the server is just coming back
                await faults[name][1]()
                self._faults[name] += 1

    def _living(self) -> int | None:
        """An executor to do something to, which then counts as busy."""
        numbers = [n for n in range(len(self._executors)) if n not in self._busy]
        if not numbers:
            return None
        number = self._random.choice(numbers)
        self._busy.add(number)
        return number

    async def _kill_executor(self) -> None:
        number = self._living()
        if number is not None:
            self._executors[number].kill()
            after_s = self._random.uniform(0.0, 2.0)
            self._others.append(asyncio.create_task(self._replace(number, after_s)))

    async def _drain_executor(self) -> None:
        number = self._living()
        if number is not None:
            executor = self._executors[number]

            async def drain() -> None:
                executor.signal(signal.SIGTERM)
                await asyncio.to_thread(executor.wait)
                await self._replace(number, 0.0)

            self._others.append(asyncio.create_task(drain()))

    async def _pause_executor(self) -> None:
        number = self._living()
        if number is not None:
            executor = self._executors[number]
            pause_s = LEASE_S * self._random.uniform(0.5, 2.0)

            async def pause() -> None:
                executor.signal(signal.SIGSTOP)
                await asyncio.sleep(pause_s)
                executor.signal(signal.SIGCONT)
                self._busy.discard(number)

            self._others.append(asyncio.create_task(pause()))

    async def _terminate_session(self) -> None:
        await asyncio.to_thread(self._with_backend, "SELECT pg_terminate_backend(%s)")

    async def _kill_backend(self) -> None:
        await asyncio.to_thread(self._with_backend, None)

    def _with_backend(self, statement: str | None) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            pids = [row[0] for row in connection.execute(_RANDOM_BACKEND.encode()).fetchall()]
            if pids and statement is not None:
                connection.execute(statement.encode(), [self._random.choice(pids)])
            elif pids:
                with suppress(ProcessLookupError):
                    os.kill(self._random.choice(pids), signal.SIGKILL)

    async def _restart_server(self) -> None:
        await asyncio.to_thread(self._cluster.restart, "immediate")

    async def _lose_reply(self) -> None:
        self._proxy.lose(self._random.choice(MARKS))

    async def _kill_client(self, jobs: list[Job]) -> None:
        """A client that asks for what others ask for as well, and dies."""
        client = ClientProcess(self._url, self._random.sample(jobs, min(20, len(jobs))))
        delay_s = self._random.uniform(1.0, 3.0)

        async def kill() -> None:
            await asyncio.sleep(delay_s)
            await asyncio.to_thread(client.kill)

        self._others.append(asyncio.create_task(kill()))

    async def _jump(self) -> None:
        offset = f"{self._random.choice([-2, 2, 5])} seconds"
        await asyncio.to_thread(set_clock, self._url, offset)

        async def back() -> None:
            await asyncio.sleep(3.0)
            for _ in range(100):
                try:
                    return await asyncio.to_thread(set_clock, self._url, "0")
                except psycopg.OperationalError:
                    await asyncio.sleep(0.1)
            raise AssertionError("the server does not come back")

        self._others.append(asyncio.create_task(back()))

    # Checks.

    async def _keep_verifying(self, engine: PostgresEngine) -> None:
        """In the middle of it all: nothing is stranded, and nothing else is wrong."""
        while True:
            try:
                report = await verify(engine, patience=STRANDED_AFTER)
            except ApiaryError:
                await asyncio.sleep(0.2)  # the server is away
                continue
            if not report.sound:
                raise AssertionError(json.dumps(report.to_json(), indent=2))
            self._result.verified_meanwhile += 1
            await asyncio.sleep(5.0)

    def _count(self) -> None:
        self._result.faults = dict(sorted(self._faults.items()))
        self._result.replies_lost = self._proxy.lost
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(
                "SELECT (SELECT count(*) FROM apiary.attempt WHERE status = 'RETRIED'),"
                " (SELECT sum(adoptions) FROM apiary.run),"
                " (SELECT max(adoptions) FROM apiary.run),"
                " (SELECT count(*) FROM effects.effect),"
                " (SELECT count(*) FROM apiary.operation)"
            ).fetchone()
        assert row is not None
        result = self._result
        result.attempts_retried, result.adoptions, result.most_adoptions_of_a_run = row[:3]
        result.effects, result.operations = row[3:]


def run_campaign(plan: Plan, cluster: PrivateCluster, url: str, directory: Path) -> Result:
    """A campaign on a database with the chaos application."""
    campaign = Campaign(plan, cluster, url, directory)
    try:
        with lossy_proxy(url) as proxy:
            return asyncio.run(campaign.run(proxy))
    finally:
        campaign.kill_executors()


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--executors", type=int, default=3)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--pause", type=float, default=1.0, help="s between faults, on average")
    chosen = parser.parse_args(arguments)
    plan = Plan(
        runs=chosen.runs, seed=chosen.seed, executors=chosen.executors,
        clients=chosen.clients, pause_s=chosen.pause,
    )  # fmt: skip
    memory = Path("/dev/shm")
    directory = Path(
        tempfile.mkdtemp(prefix="apiary-campaign-", dir=memory if memory.is_dir() else None)
    )
    directory.chmod(0o755)  # the server may run as another account
    cluster = PrivateCluster(directory / "postgres", settings=SETTINGS)
    try:
        cluster.start()
        url = install(cluster, "campaign")
        result = run_campaign(plan, cluster, url, directory)
    except BaseException:
        log = directory / "executors.log"
        print(log.read_text()[-20_000:] if log.exists() else "", file=sys.stderr)
        raise
    finally:
        cluster.destroy()
        shutil.rmtree(directory, ignore_errors=True)
    report: dict[str, Any] = asdict(result)
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
