"""A client as a process: starts the runs that standard input names, one after the other.

`python -m tests.chaos.client_main URL`; a line is JSON: {run_id, workflow, input, queue}. Each run
is asked for until it has ended, and its outcome is written as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from apiary.engine.postgres import PostgresEngine, PostgresSettings
from tests.chaos.driving import Driver, Job


async def main(url: str) -> None:
    """Read jobs, write outcomes."""
    jobs = [Job(**json.loads(line)) for line in sys.stdin]
    settings = PostgresSettings(pool_size=2, acquire_timeout_s=5.0)
    async with PostgresEngine(url, settings) as engine:
        driver = Driver(engine)
        for job in jobs:
            outcome = await driver.finish(job, within_s=120.0)
            line = {"run_id": job.run_id, "status": outcome.status, "output": outcome.output}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
