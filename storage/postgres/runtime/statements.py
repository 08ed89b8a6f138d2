"""The statements of an in-database run."""

from __future__ import annotations

from typing import NamedTuple


class Statement(NamedTuple):
    """SQL with parameters $1, $2, ..., and their types; with names where they are given by name."""

    sql: str
    types: list[str]
    names: list[str]


def _statement(sql: str, types: str) -> Statement:
    return Statement(sql, types.split(), [])


def _call(function: str, result: str, parameters: str) -> Statement:
    """A call of a function whose parameters are given by name, as in "run_id text, epoch int4"."""
    names, types = zip(*(parameter.split() for parameter in parameters.split(",")))  # noqa: B905
    placeholders = ", ".join(f"${number + 1}" for number in range(len(names)))
    return Statement(f"SELECT {result} FROM {function}({placeholders})", list(types), list(names))


START = _call(
    "apiary.start_run",
    "run_id, created, status, output::text, error::text, epoch",
    "run_id text, application text, deployment text, workflow text, in_database bool, input json,"
    " input_digest text, principal text, trace text, queue text, priority int4, queue_key text,"
    " deduplication text, start_at timestamptz, deadline timestamptz, max_adoptions int4,"
    " parent_run_id text, parent_seq int4, parent_epoch int4, executor text, lease interval",
)
# For a request in which none of these is given.
UNUSUAL_NAMES = ["queue", "priority", "queue_key", "deduplication", "start_at", "parent_run_id"]
START_USUAL = _call(
    "apiary.start_in_database",
    "1",
    "run_id text, application text, deployment text, workflow text, input json, input_digest text,"
    " principal text, trace text, deadline timestamptz, max_adoptions int4, executor text,"
    " lease interval",
)
IS_CURRENT = _statement(
    "SELECT 1 FROM apiary.application WHERE name = $1 AND current = $2", "text text"
)
RECORD = _statement("SELECT apiary.record_operations($1, $2, $3, $4)", "text int4 json json")
FINISH = _statement(
    "SELECT apiary.finish_run($1, $2, $3, $4, $5, $6, $7)",
    "text int4 text json json int4 json",
)
FINISH_USUAL = _statement(
    "SELECT apiary.finish_in_database($1, $2, $3, $4, $5, $6, $7)",
    "text int4 text json json int4 json",
)
RELEASE = _statement("SELECT apiary.release_run($1, $2, $3, $4)", "text int4 bool json")
LOAD_RUN = _statement(
    "SELECT application, deployment, workflow, input::text, principal, trace, seed"
    " FROM apiary.run WHERE run_id = $1 AND epoch = $2 AND status = 'RUNNING'",
    "text int4",
)
WORKFLOW = _statement(
    "SELECT module, qualname FROM apiary.workflow"
    " WHERE deployment = $1 AND name = $2 AND kind = 'workflow'",
    "text text",
)
RECORDS = _statement(
    "SELECT seq, kind, name, input_digest, output::text, error::text"
    " FROM apiary.operation WHERE run_id = $1 ORDER BY seq",
    "text",
)
LOG_ATTEMPT = _statement(
    "SELECT apiary.log_attempt($1, $2, $3, 'function', $4, $5, $6, $7, 'RETRIED', $8,"
    " pg_catalog.to_timestamp($9), $10)",
    "text int4 int4 text text text text json float8 text",
)
LOCK = _statement(
    "SELECT pg_catalog.pg_try_advisory_lock(apiary.in_database_lock($1)) AS locked", "text"
)
UNLOCK = _statement("SELECT pg_catalog.pg_advisory_unlock(apiary.in_database_lock($1))", "text")
