"""The application that the workflow tests run: one of each shape."""

from __future__ import annotations

from pathlib import Path

from apiary.authoring.application import Application
from apiary.authoring.bundle import Bundle, build_bundle

TABLES = """
CREATE TABLE kv.kv (k int PRIMARY KEY, v int NOT NULL);
CREATE TABLE kv.effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL);
INSERT INTO kv.kv SELECT -g, 0 FROM generate_series(1, 10) g;
"""

FUNCTIONS = '''
import time

from apiary import ApplicationError, Database, function


class SoldOut(ApplicationError):
    code = "SOLD_OUT"

    def __init__(self, k: int, *, left: int = 0) -> None:
        super().__init__(f"nothing left of {k}")
        self.k = k
        self.left = left


@function
def incr(db: Database, k: int, by: int = 1) -> int:
    return db.value(
        "INSERT INTO kv.kv VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = kv.kv.v + $2"
        " RETURNING v", k, by)


@function
def get(db: Database, k: int) -> int | None:
    return db.value("SELECT max(v) FROM kv.kv WHERE k = $1", k)


@function
def effect(db: Database, name: str) -> str:
    db.execute("INSERT INTO kv.effect (name) VALUES ($1)", name)
    return name


@function
def who(db: Database) -> list[str]:
    users = db.one("SELECT current_user::text, session_user::text, clock_timestamp()::text")
    return list(users.values())[:2]


@function
def fail(db: Database, k: int) -> int:
    db.execute("INSERT INTO kv.effect (name) VALUES ('never')")
    raise SoldOut(k, left=k + 1)


@function(timeout_s=0.4)
def slow_sql(db: Database, k: int) -> int:
    db.execute("INSERT INTO kv.effect (name) VALUES ('slow')")
    db.query("SELECT pg_sleep(30)")
    return k


@function
def sleeping(db: Database, name: str, seconds: float) -> str:
    db.execute("INSERT INTO kv.effect (name) VALUES ($1)", name)
    db.query("SELECT pg_sleep($1)", seconds)
    return name


@function(isolation="read committed")
def committed(db: Database, k: int) -> int:
    return db.value(
        "INSERT INTO kv.kv VALUES ($1, 1) ON CONFLICT (k) DO UPDATE SET v = kv.kv.v + 1"
        " RETURNING v", k)


@function
def transfer(db: Database, a: int, b: int) -> int:
    """Read and write the same row slowly: conflicts with its like."""
    left = db.value("SELECT v FROM kv.kv WHERE k = $1", a)
    db.query("SELECT pg_sleep(0.05)")
    db.execute("UPDATE kv.kv SET v = $2 WHERE k = $1", a, left + 1)
    return left + 1
'''

WORKFLOWS = '''
import asyncio
import os
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import apiary
from apiary import (
    ApiaryError, WaitTimedOut, gather, get_event, now, progress, random, recv, run_id, send,
    set_event, sleep, sleep_until, step, uuid4, workflow, write_stream,
)
from functions import kv

SWITCH: dict[str, Any] = {}


def note(path: str, text: str) -> int:
    """Append a line to a file; how many it has then."""
    with open(path, "a") as file:
        file.write(text + "\\n")
    return len(Path(path).read_text().splitlines())


# Steps.

@step
def double(n: int) -> int:
    return 2 * n


@step
async def adouble(n: int) -> int:
    await asyncio.sleep(0.02 if n % 2 else 0)
    return 2 * n


@step(process=True)
def pdouble(n: int) -> int:
    return 2 * n


@step(retries=3, backoff_s=0.01)
def flaky(path: str, good: int) -> int:
    count = note(path, "try")
    write_stream("tries", count)
    if count < good:
        raise ValueError("not yet")
    return count


@step(retries=3, backoff_s=0.01, retry_if=lambda error: isinstance(error, OSError))
def picky(path: str) -> int:
    note(path, "try")
    raise ValueError("no use")


@step
def unstorable(path: str) -> Any:
    note(path, "try")
    return lambda: None


@step(retries=5)
def huge(path: str) -> str:
    note(path, "try")
    return "x" * (5 * 1024 * 1024)


@step
def hold(path: str) -> str:
    """Until the file is there."""
    note(path + ".begun", "begun")
    while not Path(path).exists():
        time.sleep(0.01)
    return "held"


@step(process=True)
def phold(path: str) -> str:
    note(path + ".begun", str(os.getpid()))
    while not Path(path).exists():
        time.sleep(0.01)
    return "held"


@step(process=True, timeout_s=0.5)
def plate(path: str) -> None:
    note(path, str(os.getpid()))
    while True:
        pass


@step(timeout_s=0.3)
def late() -> None:
    while True:
        time.sleep(0.01)


@step(process=True, retries=1, backoff_s=0.01)
def crash(path: str) -> int:
    count = note(path, "try")
    if count == 1:
        os._exit(3)
    return count


# Workflows: shapes.

@workflow
def writes(n: int, k: int = 1) -> int:
    last = 0
    for _ in range(n):
        last = kv.incr(k)
    return last


@workflow
def reads(k: int) -> list[int | None]:
    return [kv.get(k), kv.get(k)]


@workflow
def mixed(k: int) -> list[int | None]:
    return [kv.get(k), kv.incr(k), kv.get(k), kv.incr(k), kv.get(k)]


@workflow
def catches(k: int) -> dict[str, Any]:
    try:
        kv.fail(k)
    except kv.SoldOut as error:
        return {"class": type(error).__name__, "left": error.left, "then": kv.incr(k)}
    return {}


@workflow
def fails(k: int) -> int:
    kv.incr(k)
    return kv.fail(k)


@workflow
def times_out(k: int) -> list[Any]:
    try:
        kv.slow_sql(k)
    except ApiaryError as error:
        return [type(error).__name__, kv.incr(k)]
    return []


@workflow
def branches(n: int) -> str:
    return "many" if (kv.incr(7, n) or 0) > 3 else "few"


@workflow
def values(k: int) -> list[str]:
    first = [str(random()), str(uuid4()), run_id()]
    kv.effect(first[1])
    return first


@workflow
def timed(k: int) -> bool:
    begun = now()
    kv.incr(k)
    return now() >= begun


@workflow
def levels(k: int) -> list[int]:
    return [kv.incr(k), kv.committed(k), kv.incr(k)]


@workflow
def bad_argument(k: int) -> str:
    try:
        kv.incr("one")
    except ApiaryError as error:
        return type(error).__name__
    return "none"


@workflow
def raises(k: int) -> int:
    kv.incr(k)
    raise KeyError(k)


@workflow
def bad_result(k: int) -> Any:
    kv.incr(k)
    return lambda: k


@workflow
def nothing() -> None:
    return None


@workflow
def conflicting(times: int) -> int:
    last = 0
    for _ in range(times):
        last = kv.transfer(-1, -1)
    return last


# In the database and out of it.

class _Tools:
    pass


tools = _Tools()
tools.double = double


def _hidden(n: int) -> int:
    return getattr(tools, "dou" + "ble")(n)


@workflow
def hidden_step(n: int) -> list[int]:
    first = kv.incr(n)
    return [first, _hidden(first), kv.incr(n)]


@workflow
def swallows_leaving(n: int) -> list[int]:
    first = kv.incr(n)
    try:
        second = _hidden(first)
    except BaseException:
        second = -1
    return [first, second, kv.incr(n)]


@workflow
def asks_who(k: int) -> list[list[str]]:
    users = [kv.who()]
    try:
        kv.fail(k)
    except kv.SoldOut:
        users.append(kv.who())
    return users


@workflow
def insists(n: int) -> list[int]:
    first = kv.incr(n)
    while True:
        try:
            return [first, _hidden(first)]
        except BaseException:
            swallowed = True


@workflow
def loops(k: int) -> int:
    kv.effect("loops")
    while True:
        k += 1


@workflow
def naps(seconds: float) -> str:
    kv.effect("before")
    return kv.sleeping("naps", seconds)


# Steps in workflows.

@workflow
def one_step(n: int) -> int:
    return double(n)


@workflow
def read_then_step(k: int) -> list[Any]:
    return [kv.get(k), double(1), kv.get(k)]


@workflow
def read_then_two(k: int) -> list[Any]:
    seen = kv.get(k)
    first, second = kv.sleeping.start("a", 0.2), kv.sleeping.start("b", 0.2)
    return [seen, first.result(), second.result()]


@workflow
def tries(path: str, good: int) -> int:
    return flaky(path, good)


@workflow
def choosy(path: str) -> int:
    return picky(path)


@workflow
def unstored(path: str) -> Any:
    return unstorable(path)


@workflow
def oversized(path: str) -> str:
    return huge(path)


@workflow
def holds(path: str) -> str:
    kv.effect("holds")
    return hold(path)


@workflow
def pholds(path: str) -> str:
    return phold(path)


@workflow
def plates(path: str) -> str:
    try:
        plate(path)
    except ApiaryError as error:
        return type(error).__name__
    return ""


@workflow
def lates() -> str:
    try:
        late()
    except ApiaryError as error:
        return type(error).__name__
    return ""


@workflow
def crashes(path: str) -> int:
    return crash(path)


@workflow
def long_function(seconds: float) -> list[str]:
    return [kv.sleeping("long", seconds), double(1) and "done"]


@workflow
def many(n: int) -> int:
    total = 0
    for i in range(n):
        total += double(i)
    return total


@workflow
async def pipelines(n: int) -> list[int]:
    async def line(i: int) -> int:
        return await adouble(await adouble(i))
    return list(await asyncio.gather(*(line(i) for i in range(n))))


# Code that changes between replays, by a switch that the test sets.

@workflow
def switching(path: str) -> list[Any]:
    done: list[Any] = []
    for name in Path(path).read_text().split():
        kind, _, argument = name.partition(":")
        if kind == "incr":
            done.append(kv.incr(int(argument)))
        elif kind == "effect":
            done.append(kv.effect(argument))
        elif kind == "wait":
            done.append(recv(argument))
        elif kind == "swallow":
            try:
                kv.incr(int(argument))
            except Exception:
                done.append("swallowed")
        elif kind == "insist":
            while True:
                try:
                    done.append(kv.incr(int(argument)))
                    break
                except Exception:
                    time_passes = sum(range(1000))
    return done


# Children.

@workflow
def child(n: int) -> int:
    return kv.incr(1000 + n)


@workflow
def failing_child(n: int) -> int:
    if n < 0:
        raise ValueError(f"child {n}")
    return n


@workflow
def parent(n: int) -> int:
    return sum(gather(*(child.start(i) for i in range(n))))


@workflow
def sequential_parent(n: int) -> int:
    note(SWITCH_FILE, "replay") if SWITCH_FILE else None
    return sum(future.result() for future in [child.start(i) for i in range(n)])


SWITCH_FILE = ""


@workflow
def any_of(numbers: list[int], need: int, path: str) -> list[int]:
    note(path, "replay")
    futures = [failing_child.start(n) for n in numbers]
    return sorted(index for index, _ in gather(*futures, need=need))


@workflow
def fan(n: int, need: int, path: str) -> int:
    note(path, "replay")
    futures = [failing_child.start(i) for i in range(n)]
    return len(gather(*futures, need=need) if need else gather(*futures))


@workflow
def catching_parent(numbers: list[int]) -> list[Any]:
    done: list[Any] = []
    for n in numbers:
        try:
            done.append(failing_child(n))
        except Exception as error:
            done.append(type(error).__name__)
    return done


@workflow
def waiting_child(topic: str) -> Any:
    return recv(topic)


@workflow
def waiting_parent(topic: str) -> Any:
    try:
        return waiting_child(topic)
    except ApiaryError as error:
        return type(error).__name__


@workflow
def nested(depth: int) -> int:
    return 1 + nested(depth - 1) if depth else 0


# Waiting.

@workflow
def sleeper(seconds: float) -> bool:
    begun = now()
    sleep(seconds)
    return (now() - begun).total_seconds() >= seconds


@workflow
def until() -> bool:
    when = now() + __import__("datetime").timedelta(seconds=0.2)
    sleep_until(when)
    return now() >= when


@workflow
def receiver(topic: str) -> Any:
    return recv(topic)


@workflow
def receives(n: int, timeout_s: float) -> list[Any]:
    got: list[Any] = []
    for i in range(n):
        try:
            got.append(recv(f"t{i}", timeout_s=timeout_s))
        except WaitTimedOut:
            got.append("timed out")
    return got


@workflow
def sends(to: str, message: Any, topic: str = "") -> str:
    try:
        send(to, message, topic)
    except ApiaryError as error:
        return type(error).__name__
    return "sent"


@workflow
def sets(key: str, value: Any) -> None:
    set_event(key, value)
    recv("end")


@workflow
def gets(other: str, key: str, timeout_s: float | None = None) -> Any:
    try:
        return get_event(other, key, timeout_s=timeout_s)
    except WaitTimedOut:
        return "timed out"


@workflow
def streams(n: int) -> None:
    for i in range(n):
        write_stream("s", i)
        if i == n // 2:
            sleep(0.05)


@workflow
def tidy() -> str:
    try:
        return recv("go")
    finally:
        kv.effect("tidied")


@workflow
def greedy() -> Any:
    try:
        return recv("go")
    except BaseException:
        return "swallowed"


@workflow
def greedy_loop() -> Any:
    while True:
        try:
            return recv("go")
        except BaseException:
            time_passes = sum(range(1000))


@workflow
def greediest(path: str, stop: str) -> Any:
    told = 0
    while not Path(stop).exists():
        try:
            while not Path(stop).exists():
                try:
                    return recv("go")
                except BaseException as error:
                    told += 1
                    if told == 500:
                        note(path, str(len(traceback.extract_tb(error.__traceback__))))
        except BaseException:
            time_passes = sum(range(1000))


@workflow
def spins(path: str) -> None:
    note(path, "begun")
    while True:
        pass


@workflow(timeout_s=0.5)
def hurried() -> Any:
    return recv("never")


@workflow(timeout_s=1.0)
def hurried_parent() -> Any:
    return waiting_child("never")


@workflow(max_adoptions=2)
def doomed(path: str) -> str:
    return hold(path)


@workflow
def reports() -> None:
    progress(1, 2, "half")
    progress(2, 2, "done")
    kv.incr(1)
'''


def write_application(folder: Path, **replaced: str) -> Path:
    """The application's files; ``replaced`` gives other texts for {functions, workflows}."""
    for part in ("functions/kv/sql", "workflows/w"):
        (folder / part).mkdir(parents=True)
    (folder / "apiary.toml").write_text('name = "kvapp"\n')
    (folder / "functions/kv/sql/001_tables.sql").write_text(TABLES)
    (folder / "functions/kv/__init__.py").write_text(replaced.get("functions", FUNCTIONS))
    (folder / "workflows/w/__init__.py").write_text(replaced.get("workflows", WORKFLOWS))
    return folder


def bundle(folder: Path, **replaced: str) -> Bundle:
    """The application, built."""
    return build_bundle(Application.read(write_application(folder, **replaced)))
