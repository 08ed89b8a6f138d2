"""What an invocation in the database costs, and what it saves.

    python -m tests.benchmarks.invocation [--rounds N]

The same work (hotel.reserve: one SELECT, one UPDATE, one INSERT) by: the engine with provenance
full and off; a bare PL/Python function with cached plans; an interactive transaction over the same
kind of connection that also inserts the same record; and over gRPC. With synchronous_commit off,
where the work itself shows, and on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import psycopg

from apiary.authoring.application import Application
from apiary.authoring.bundle import build_bundle
from apiary.engine import migrating, storage
from apiary.engine.base import Invocation
from apiary.engine.deploying import deploy
from apiary.engine.postgres import PostgresEngine
from apiary.execution.ids import new_run_id
from apiary.execution.invoking import Invoker
from apiary.local import PrivateCluster

from .measuring import Variant, interleave, report

HOTELS = 2_000

_BARE = """
CREATE OR REPLACE FUNCTION public.bare_reserve(hotel_id int, customer_id int) RETURNS int
LANGUAGE plpython3u AS $body$
if "select" not in SD:
    SD["select"] = plpy.prepare(
        "SELECT available_rooms FROM hotel.hotel WHERE hotel_id = $1", ["int"])
    SD["update"] = plpy.prepare(
        "UPDATE hotel.hotel SET available_rooms = available_rooms - 1 WHERE hotel_id = $1", ["int"])
    SD["insert"] = plpy.prepare(
        "INSERT INTO hotel.reservation (hotel_id, customer_id) VALUES ($1, $2)", ["int", "int"])
rooms = plpy.execute(SD["select"], [hotel_id])
if not rooms or not rooms[0]["available_rooms"]:
    return 1
plpy.execute(SD["update"], [hotel_id])
plpy.execute(SD["insert"], [hotel_id, customer_id])
return 0
$body$;
CREATE TABLE IF NOT EXISTS public.record (LIKE apiary.operation INCLUDING ALL);
"""
_RECORD = (
    "INSERT INTO public.record (run_id, seq, kind, name, application, deployment, principal,"
    " status, input, input_digest, output, started_at, finished_at, isolation)"
    " VALUES (%s, 0, 'function', 'hotel.reserve', 'apiary', 'd', 'bench', 'SUCCEEDED', %s, 'x',"
    " '0', now(), now(), 'serializable')"
)


def prepare(cluster: PrivateCluster, provenance: str) -> str:
    """A database with the built-in application at a provenance level; its URL."""
    name = f"bench_{provenance}"
    cluster.create_database(name)
    url = cluster.url(name)
    application = replace(Application.read(storage.application_root()), provenance=provenance)
    with psycopg.connect(url, autocommit=True) as connection:
        migrating.apply(connection)
        deploy(connection, build_bundle(application), principal="bench")
        connection.execute(
            "INSERT INTO hotel.hotel SELECT i, 'Hotel ' || i, 1000000"
            " FROM generate_series(1, %s) i",
            [HOTELS],
        )
        connection.execute("ANALYZE hotel.hotel")
        if provenance == "off":
            connection.execute(_BARE.encode())
    return url


def through_engine(engine: PostgresEngine) -> Variant:
    """hotel.reserve as the server runs it, without gRPC."""
    invoker = Invoker(engine)

    async def call(number: int) -> object:
        document = {"hotel_id": number % HOTELS + 1, "customer_id": 7}
        invocation = Invocation(
            run_id=new_run_id(),
            application="apiary",
            function="hotel.reserve",
            input=json.dumps(document),
            principal="bench",
        )
        return await invoker.invoke(invocation, fresh=True)

    return call


def bare(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> Variant:
    """The stored procedure and nothing else."""

    async def call(number: int) -> object:
        statement = "SELECT public.bare_reserve(%s, 7)"
        return await (await connection.execute(statement, [number % HOTELS + 1])).fetchone()

    return call


def interactive(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> Variant:
    """The same logic from outside, with the same record."""

    async def call(number: int) -> object:
        hotel = number % HOTELS + 1
        async with connection.transaction():
            rooms = await (
                await connection.execute(
                    "SELECT available_rooms FROM hotel.hotel WHERE hotel_id = %s", [hotel]
                )
            ).fetchone()
            if rooms is None or not rooms[0]:
                return 1
            await connection.execute(
                "UPDATE hotel.hotel SET available_rooms = available_rooms - 1 WHERE hotel_id = %s",
                [hotel],
            )
            await connection.execute(
                "INSERT INTO hotel.reservation (hotel_id, customer_id) VALUES (%s, 7)", [hotel]
            )
            document = json.dumps({"hotel_id": hotel, "customer_id": 7})
            await connection.execute(_RECORD, [new_run_id(), document])
        return 0

    return call


async def measure(full_url: str, off_url: str, rounds: int, synchronous_commit: str) -> str:
    """One table."""
    options = (
        f"-c default_transaction_isolation=serializable -c synchronous_commit={synchronous_commit}"
    )
    async with AsyncExitStack() as stack:
        urls = [
            psycopg.conninfo.make_conninfo(
                url, options=f"-c synchronous_commit={synchronous_commit}"
            )
            for url in (full_url, off_url)
        ]
        full = await stack.enter_async_context(PostgresEngine(urls[0]))
        off = await stack.enter_async_context(PostgresEngine(urls[1]))
        plain = [
            await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(off_url, autocommit=True, options=options)
            )
            for _ in range(2)
        ]
        seconds = await interleave(
            {
                "bare": bare(plain[0]),
                "engine, provenance off": through_engine(off),
                "engine, provenance full": through_engine(full),
                "interactive with record": interactive(plain[1]),
            },
            rounds=rounds,
            warm_up=50,
        )
    return report(f"hotel.reserve, synchronous_commit={synchronous_commit}", seconds, "bare")


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2_000)
    rounds: int = parser.parse_args().rounds
    with (
        tempfile.TemporaryDirectory() as folder,
        PrivateCluster(Path(folder) / "postgres") as cluster,
    ):
        full_url, off_url = prepare(cluster, "full"), prepare(cluster, "off")
        began = time.monotonic()
        for setting in ("off", "on"):
            print(asyncio.run(measure(full_url, off_url, rounds, setting)), end="\n\n")
        print(f"{time.monotonic() - began:.0f} s in all")
        cluster.destroy()


if __name__ == "__main__":
    main()
