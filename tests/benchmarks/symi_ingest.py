"""How long 100,000 rows of popularity take from a CSV file to the database, end to end.

    python -m tests.benchmarks.symi_ingest [--rounds N]

The whole workflow is timed, from the request to its recorded end: reading and checking the file in
a worker process, one transaction that stores all rows and logs each of them (provenance full), and
the statistics of all layers. The first round also starts the worker process and loads numpy there.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psycopg

from apiary.authoring.application import Application
from apiary.authoring.bundle import build_bundle
from apiary.engine import migrating, storage
from apiary.engine.deploying import deploy
from apiary.local import PrivateCluster
from tests.integration.services.running import Service
from workflows.symi.synthetic import synthesize

ITERATIONS, LAYERS, EXPERTS = 625, 10, 16
BOUND_S = 5.0


def write_csv(path: Path, run: str) -> int:
    """A trace of a large job as CSV; returns its rows."""
    trace = synthesize(
        experts=EXPERTS, tokens=32768, iterations=ITERATIONS, seed=0, layers=LAYERS, run=run
    )
    rows = [",".join(map(str, row)) for row in trace.rows()]
    path.write_text("\n".join(["run,iter,layer,expert,tokens", *rows]), encoding="utf-8")
    return len(rows)


def measure(service: Service, folder: Path, rounds: int) -> None:
    """Ingest a new trace in each round, and print where the time went."""
    for number in range(rounds):
        path = folder / f"round-{number}.csv"
        rows = write_csv(path, f"round-{number}")
        begun = time.perf_counter()
        run_id = service.start("symi.profile", path=str(path), pictures=False)
        row = service.wait(run_id)
        took_s = time.perf_counter() - begun
        if row["status"] != "SUCCEEDED":
            raise RuntimeError(f"the run ended as {row['status']}: {row['error']}")
        parts = service.query(
            "SELECT name, extract(epoch FROM finished_at - started_at)::float8 AS s"
            " FROM apiary.operation WHERE (run_id = %s AND seq > 0)"
            "    OR name = 'symi.store_popularity' AND started_at >= %s ORDER BY started_at",
            run_id,
            row["started_at"],
        )
        split = ", ".join(f"{part['name']} {part['s']:.2f}" for part in parts)
        print(f"round {number}: {rows} rows in {took_s:.2f} s (bound {BOUND_S:g} s): {split}")


def main() -> None:
    """Measure on a private server."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    application = Application.read(storage.application_root())
    with tempfile.TemporaryDirectory(prefix="apiary-bench-") as folder:
        Path(folder).chmod(0o755)
        cluster = PrivateCluster(Path(folder) / "postgres")
        try:
            cluster.start()
            cluster.create_database("bench")
            url = cluster.url("bench")
            with psycopg.connect(url, autocommit=True) as connection:
                migrating.apply(connection)
                deploy(connection, build_bundle(application), principal="bench")
            service = Service(url, application.name)
            service.execute_runs()
            try:
                measure(service, Path(folder), rounds)
            finally:
                service.close()
        finally:
            cluster.destroy()


if __name__ == "__main__":
    main()
