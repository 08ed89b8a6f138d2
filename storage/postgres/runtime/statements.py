"""The statements of an in-database run: SQL and the types of its parameters."""

from __future__ import annotations

START_NAMES = [
    "run_id",
    "application",
    "deployment",
    "workflow",
    "in_database",
    "input",
    "input_digest",
    "principal",
    "trace",
    "queue",
    "priority",
    "queue_key",
    "deduplication",
    "start_at",
    "deadline",
    "max_adoptions",
    "parent_run_id",
    "parent_seq",
    "parent_epoch",
    "executor",
    "lease",
]
START = (
    "SELECT run_id, created, status, output::text, error::text, epoch FROM apiary.start_run("
    + ", ".join(f"${number + 1}" for number in range(len(START_NAMES)))
    + ")",
    "text text text text bool json text text text text int4 text text timestamptz timestamptz int4 "
    "text int4 int4 text interval",
)
INVOKE = "SELECT apiary.invoke($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) AS outcome"
INVOKE_TYPES = [
    "text",
    "int4",
    "text",
    "text",
    "text",
    "json",
    "text",
    "text",
    "int4",
    "bool",
    "timestamptz",
    "json",
]
RECORD = ("SELECT apiary.record_operations($1, $2, $3, $4)", "text int4 json json")
FINISH = (
    "SELECT apiary.finish_run($1, $2, $3, $4, $5, $6, $7)",
    "text int4 text json json int4 json",
)
RELEASE = ("SELECT apiary.release_run($1, $2, $3, $4)", "text int4 bool json")
LOAD_RUN = (
    "SELECT application, deployment, workflow, input::text, principal, trace, seed"
    " FROM apiary.run WHERE run_id = $1 AND epoch = $2 AND status = 'RUNNING'",
    "text int4",
)
WORKFLOW = (
    "SELECT module, qualname FROM apiary.workflow"
    " WHERE deployment = $1 AND name = $2 AND kind = 'workflow'",
    "text text",
)
RECORDS = (
    "SELECT seq, kind, name, input_digest, output::text, error::text"
    " FROM apiary.operation WHERE run_id = $1 ORDER BY seq",
    "text",
)
LOG_ATTEMPT = (
    "SELECT apiary.log_attempt($1, $2, $3, 'function', $4, $5, $6, $7, 'RETRIED', $8,"
    " pg_catalog.to_timestamp($9), $10)",
    "text int4 int4 text text text text json float8 text",
)
LOCK = (
    "SELECT pg_catalog.pg_try_advisory_lock(apiary.in_database_lock($1)) AS locked",
    "text",
)
UNLOCK = ("SELECT pg_catalog.pg_advisory_unlock(apiary.in_database_lock($1))", "text")
