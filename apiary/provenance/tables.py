"""SQLAlchemy tables of the log and of the catalogue, for queries from Python.

    from sqlalchemy import select
    from apiary.provenance import data_event, invocation

    select(invocation.c.function, data_event.c.before, data_event.c.after)
        .join(data_event, data_event.c.xid == invocation.c.xid)

They describe; they create nothing. What holds them against the real catalogue is a test.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Integer,
    Interval,
    MetaData,
    Numeric,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB
from sqlalchemy.types import UserDefinedType

__all__ = [
    "XID8",
    "application",
    "attempt",
    "data_event",
    "deployment",
    "domain",
    "event",
    "executor",
    "fire",
    "function",
    "invocation",
    "mailbox",
    "metadata",
    "operation",
    "queue",
    "run",
    "schedule",
    "stream",
    "workflow",
    "write_event",
]

metadata = MetaData()


class XID8(UserDefinedType[str]):
    """A transaction id that never wraps around; as text in Python."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """PostgreSQL's name of the type."""
        return "xid8"


class Char(UserDefinedType[str]):
    """PostgreSQL's one-byte ``"char"``."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """PostgreSQL's name of the type."""
        return '"char"'


class Name(UserDefinedType[str]):
    """PostgreSQL's identifier type."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """PostgreSQL's name of the type."""
        return "name"


_TIME = DateTime(timezone=True)


def _required(name: str, type_: Any, **options: Any) -> Column[Any]:
    return Column(name, type_, nullable=False, **options)


# One row per attempt of a function; joins `data_event` on xid.
invocation = Table(
    "invocation",
    metadata,
    Column("run_id", Text),
    Column("seq", Integer),
    Column("attempt", Integer),
    Column("function", Text),
    Column("application", Text),
    Column("deployment", Text),
    Column("principal", Text),
    Column("status", Text),  # SUCCEEDED, FAILED, RETRIED, TIMED_OUT, CANCELLED
    Column("error_type", Text),
    Column("started_at", _TIME),
    Column("finished_at", _TIME),
    Column("duration_ms", Numeric),
    Column("xid", XID8),
    Column("isolation", Text),
    Column("read_only", Boolean),
    Column("input", JSONB),
    Column("output", JSONB),
    Column("error", JSONB),
    Column("calls", JSONB),  # functions called inside, in the same transaction
    Column("log", Text),
    Column("trace", Text),
    Column("trace_id", Text),
    schema="provenance",
)

# One row per row written (I, U, D, T) or read (R).
data_event = Table(
    "data_event",
    metadata,
    Column("event_id", BigInteger),
    Column("xid", XID8),
    Column("run_id", Text),
    Column("seq", Integer),
    Column("at", _TIME),
    Column("relation", Text),  # schema.table
    Column("operation", Text),
    Column("key", JSONB),
    Column("before", JSONB),
    Column("after", JSONB),
    Column("statement", Text),
    Column("parameters", JSONB),
    Column("truncated", Boolean),
    Column("db_user", Text),
    schema="provenance",
)

# The rows written, as they are stored.
write_event = Table(
    "write_event",
    metadata,
    _required("event_id", BigInteger, primary_key=True),
    _required("xid", XID8),
    _required("at", _TIME),
    _required("relation", Text),
    _required("operation", Char),
    Column("key", JSONB),
    Column("new_key", JSONB),
    Column("before", JSONB),
    Column("after", JSONB),
    Column("statement", Text),
    _required("db_user", Text),
    schema="provenance",
)

application = Table(
    "application",
    metadata,
    _required("name", Text, primary_key=True),
    _required("role", Name),
    Column("current", Text),  # the deployment that serves new calls
    _required("provenance", Text),
    _required("created_at", _TIME),
    schema="apiary",
)

deployment = Table(
    "deployment",
    metadata,
    _required("id", Text, primary_key=True),
    _required("application", Text),
    _required("created_at", _TIME),
    _required("created_by", Text),
    schema="apiary",
)

domain = Table(
    "domain",
    metadata,
    _required("name", Text, primary_key=True),
    _required("application", Text),
    schema="apiary",
)

function = Table(
    "function",
    metadata,
    _required("deployment", Text, primary_key=True),
    _required("name", Text, primary_key=True),
    _required("module", Text),
    _required("qualname", Text),
    _required("file", Text),
    _required("line", Integer),
    _required("signature", JSON),
    _required("doc", Text),
    _required("isolation", Text),
    Column("timeout_ms", Integer),
    Column("partition", Text),
    _required("read_only", Boolean),
    _required("dynamic", Boolean),
    _required("reads", ARRAY(Text)),
    _required("writes", ARRAY(Text)),
    _required("statements", JSON),
    schema="apiary",
)

# One recorded call: the guard of "exactly once" and the log entry at once.
operation = Table(
    "operation",
    metadata,
    _required("run_id", Text, primary_key=True),
    _required("seq", Integer, primary_key=True),
    _required("kind", Text),
    _required("name", Text),
    _required("application", Text),
    _required("deployment", Text),
    _required("principal", Text),
    _required("status", Text),
    Column("input", JSON),
    Column("input_digest", Text),
    Column("output", JSON),
    Column("error", JSON),
    _required("attempt", Integer),
    _required("started_at", _TIME),
    _required("finished_at", _TIME),
    _required("xid", XID8),
    Column("isolation", Text),
    _required("read_only", Boolean),
    Column("reads", JSON),
    Column("calls", JSON),
    Column("log", Text),
    Column("trace", Text),
    schema="apiary",
)

# One execution of a workflow.
run = Table(
    "run",
    metadata,
    _required("run_id", Text, primary_key=True),
    _required("application", Text),
    _required("workflow", Text),
    _required("deployment", Text),
    _required("principal", Text),
    _required("status", Text),
    _required("in_database", Boolean),
    _required("input", JSON),
    _required("input_digest", Text),
    Column("output", JSON),
    Column("error", JSON),
    Column("queue", Text),
    _required("priority", Integer),
    Column("queue_key", Text),
    Column("deduplication", Text),
    Column("ready_at", _TIME),
    Column("waiting_for", JSON),
    Column("waiting_left", Integer),
    Column("waiting_failures", Integer),
    Column("executor", Text),
    _required("epoch", Integer),
    _required("adoptions", Integer),
    _required("max_adoptions", Integer),
    Column("deadline", _TIME),
    Column("parent_run_id", Text),
    Column("parent_seq", Integer),
    Column("forked_from", Text),
    Column("seed", Text),  # of its random numbers; NULL: its id
    Column("progress", JSON),
    Column("calls", Integer),
    Column("unrecorded", JSON),  # read-only calls at the end, which nothing depended on
    Column("trace", Text),
    _required("created_at", _TIME),
    Column("started_at", _TIME),
    Column("finished_at", _TIME),
    _required("deleting", Boolean),  # part of it is gone
    schema="apiary",
)

# A try that left no record: a conflict that was retried, a timeout, a cancellation.
attempt = Table(
    "attempt",
    metadata,
    _required("id", BigInteger, primary_key=True),
    _required("run_id", Text),
    _required("seq", Integer),
    _required("attempt", Integer),
    _required("kind", Text),
    _required("name", Text),
    _required("application", Text),
    Column("deployment", Text),
    _required("principal", Text),
    _required("status", Text),
    _required("error", JSON),
    _required("started_at", _TIME),
    _required("finished_at", _TIME),
    Column("log", Text),
    Column("trace", Text),
    schema="apiary",
)

workflow = Table(
    "workflow",
    metadata,
    _required("deployment", Text, primary_key=True),
    _required("name", Text, primary_key=True),
    _required("kind", Text),  # workflow, step
    _required("module", Text),
    _required("qualname", Text),
    _required("file", Text),
    _required("line", Integer),
    _required("signature", JSON),
    _required("doc", Text),
    _required("in_database", Boolean),
    _required("reasons", JSON),  # why not: [{file, line, reason}]
    _required("options", JSON),
    schema="apiary",
)

queue = Table(
    "queue",
    metadata,
    _required("name", Text, primary_key=True),
    Column("concurrency", Integer),
    Column("executor_concurrency", Integer),
    Column("key_concurrency", Integer),
    Column("rate_limit", Integer),
    Column("rate_period", Interval),
    _required("paused", Boolean),
    _required("created_at", _TIME),
    schema="apiary",
)

schedule = Table(
    "schedule",
    metadata,
    _required("name", Text, primary_key=True),
    _required("application", Text),
    _required("workflow", Text),
    _required("input", JSON),
    _required("principal", Text),
    Column("cron", Text),
    _required("zone", Text),
    _required("dst_policy", Text),
    Column("every", Interval),
    _required("anchor", _TIME),
    _required("missed", Text),
    Column("queue", Text),
    _required("paused", Boolean),
    _required("next_at", _TIME),
    _required("tzdata", Text),
    _required("created_at", _TIME),
    schema="apiary",
)

# Which slots of which schedule fired, as which run.
fire = Table(
    "fire",
    metadata,
    _required("schedule", Text, primary_key=True),
    _required("slot", _TIME, primary_key=True),
    _required("run_id", Text),
    _required("fired_at", _TIME),
    _required("tzdata", Text),
    schema="apiary",
)

executor = Table(
    "executor",
    metadata,
    _required("name", Text, primary_key=True),
    _required("host", Text),
    _required("pid", Integer),
    _required("version", Text),
    Column("applications", ARRAY(Text)),  # NULL: of all
    Column("queues", ARRAY(Text)),  # NULL: from all, and from none
    _required("started_at", _TIME),
    _required("seen_at", _TIME),
    schema="apiary",
)

mailbox = Table(
    "mailbox",
    metadata,
    _required("id", BigInteger, primary_key=True),
    _required("run_id", Text),
    _required("topic", Text),
    _required("message", JSON),
    Column("idempotency_key", Text),
    _required("sent_at", _TIME),
    Column("taken_by_seq", Integer),
    schema="apiary",
)

event = Table(
    "event",
    metadata,
    _required("run_id", Text, primary_key=True),
    _required("key", Text, primary_key=True),
    _required("value", JSON),
    _required("set_at", _TIME),
    schema="apiary",
)

stream = Table(
    "stream",
    metadata,
    _required("run_id", Text, primary_key=True),
    _required("key", Text, primary_key=True),
    _required("offset", BigInteger, primary_key=True),
    _required("value", JSON),
    _required("seq", Integer),
    _required("written_at", _TIME),
    schema="apiary",
)
