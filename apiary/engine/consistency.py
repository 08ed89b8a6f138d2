"""What must hold of stored runs, as statements that find what does not.

Each check is one query over the platform's own tables that returns (run_id, message), nothing when
all is well. `%(patience)s` is how long something that is due may take before it counts as stranded.
Who runs them, and how they are shown, is in execution/verifying.py.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHECKS", "COUNTED", "Check"]

COUNTED = {
    "runs": "SELECT count(*) FROM apiary.run",
    "operations": "SELECT count(*) FROM apiary.operation",
    "messages": "SELECT count(*) FROM apiary.mailbox",
    "stream_values": "SELECT count(*) FROM apiary.stream",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold."""

    name: str
    holds: str  # what is true of a sound database
    query: str  # finds (run_id, message)
    advice: str  # what to do about a finding; {run_id} is filled in


_CORRUPT = (
    "the platform never writes this: restore the row from a backup, and see who else writes to the "
    "schema apiary"
)
_EXECUTORS = (
    "see that executors run and serve it: `apiary executor list`, `apiary workflow why {run_id}`"
)
_RESUME = (
    "`apiary workflow cancel {run_id}` and `apiary workflow resume {run_id}` set it going again"
)
# Of a run that is being deleted, parts are gone.
_KEPT = "NOT EXISTS (SELECT FROM apiary.run d WHERE d.run_id = {0}.run_id AND d.deleting)"

# Rows that other transactions have only just written have xids that may still be in progress for
# this snapshot, and those of a database that was restored elsewhere say nothing: both are left out.
_TRANSACTIONS = (
    Check(
        name="operation-committed",
        holds="the transaction of every operation has committed",
        query="""
            SELECT o.run_id, format('operation %%s: its transaction %%s was %%s',
                                    o.seq, o.xid, s.status)
              FROM apiary.operation o
              CROSS JOIN LATERAL (SELECT CASE
                  WHEN o.xid < pg_snapshot_xmin(pg_current_snapshot())
                  THEN pg_xact_status(o.xid) END
              ) AS s (status)
             WHERE s.status <> 'committed'""",
        advice=_CORRUPT,
    ),
    Check(
        name="operation-transaction",
        holds="no two functions of runs that wrote have the same transaction",
        # Read-only calls are recorded with a later one; a fork takes its operations over at once.
        query="""
            SELECT min(o.run_id), format('transaction %%s has the effects of %%s', o.xid,
                       string_agg(o.run_id || '/' || o.seq, ', ' ORDER BY o.run_id, o.seq))
              FROM apiary.operation o LEFT JOIN apiary.run r ON r.run_id = o.run_id
             WHERE o.kind = 'function' AND o.seq > 0 AND NOT o.read_only AND o.error IS NULL
               AND r.forked_from IS NULL
             GROUP BY o.xid HAVING count(*) > 1""",
        advice=_CORRUPT,
    ),
)

_GUARDS = (
    Check(
        name="run-guard",
        holds="every run has its guard, operation 0, which says the same",
        query="""
            SELECT r.run_id, CASE WHEN o.run_id IS NULL THEN 'it has no operation 0'
                       ELSE format('operation 0 is of %%s/%%s, input %%s; '
                                   'the run is of %%s/%%s, input %%s',
                                   o.application, o.name, o.input_digest, r.application, r.workflow,
                                   r.input_digest) END
              FROM apiary.run r LEFT JOIN apiary.operation o ON o.run_id = r.run_id AND o.seq = 0
             WHERE o.run_id IS NULL OR o.kind <> 'start'
                OR (o.application, o.name, o.input_digest)
                   IS DISTINCT FROM (r.application, r.workflow, r.input_digest)""",
        advice=_CORRUPT,
    ),
    Check(
        name="guard-run",
        holds="every guard and every operation of a run has its run",
        query="""
            SELECT o.run_id, format('operation %%s is there, the run is not', o.seq)
              FROM apiary.operation o
             WHERE (o.seq > 0 OR o.kind = 'start')
               AND NOT EXISTS (SELECT FROM apiary.run r WHERE r.run_id = o.run_id)""",
        advice=_CORRUPT,
    ),
)

_ENDS = (
    Check(
        name="run-outcome",
        holds="a run that succeeded has an output and no error; one that ended otherwise an error",
        query="""
            SELECT r.run_id, format('it is %%s with %%s output and %%s error', r.status,
                       CASE WHEN r.output IS NULL THEN 'no' ELSE 'an' END,
                       CASE WHEN r.error IS NULL THEN 'no' ELSE 'an' END)
              FROM apiary.run r
             WHERE r.finished_at IS NOT NULL
               AND (r.status = 'SUCCEEDED') <> (r.output IS NOT NULL AND r.error IS NULL)
                OR r.status IN ('FAILED', 'CANCELLED', 'TIMED_OUT') AND r.error IS NULL""",
        advice=_CORRUPT,
    ),
    Check(
        name="run-calls",
        holds="a run that ran to its end has no operation after its last call",
        query="""
            SELECT r.run_id, format('it made %%s calls, and operation %%s is recorded',
                                    r.calls, max(o.seq))
              FROM apiary.run r JOIN apiary.operation o ON o.run_id = r.run_id AND o.seq > r.calls
             WHERE r.status IN ('SUCCEEDED', 'FAILED')
             GROUP BY r.run_id, r.calls""",
        advice="the workflow's code is not deterministic; its effects: "
        "`apiary sql \"SELECT * FROM apiary.operation WHERE run_id = '{run_id}'\"`",
    ),
    Check(
        name="run-operations",
        holds="a run that stayed in the database has all its operations, recorded or in its row",
        query="""
            SELECT r.run_id, format('operations %%s of %%s are missing',
                                    string_agg(s.seq::text, ', '), r.calls)
              FROM apiary.run r CROSS JOIN LATERAL generate_series(1, r.calls) AS s (seq)
             WHERE r.status = 'SUCCEEDED' AND r.in_database AND NOT r.deleting
               AND NOT EXISTS (SELECT FROM apiary.operation o
                                WHERE o.run_id = r.run_id AND o.seq = s.seq)
               AND NOT EXISTS (SELECT FROM json_array_elements(r.unrecorded) AS u (call)
                                WHERE (u.call ->> 'seq')::integer = s.seq)
             GROUP BY r.run_id, r.calls""",
        advice=_CORRUPT,
    ),
    Check(
        name="run-waiters",
        holds="no run that has ended waits for something, or is waited for",
        query="""
            SELECT r.run_id, CASE WHEN w.run_id = r.run_id
                       THEN format('it is %%s and waits for %%s', r.status, w.awaited_run_id)
                       ELSE format('it is %%s and run %%s still waits for its end',
                                   r.status, w.run_id) END
              FROM apiary.waiter w JOIN apiary.run r
                ON r.run_id = w.run_id OR r.run_id = w.awaited_run_id AND w.event_key = ''
             WHERE r.finished_at IS NOT NULL""",
        advice="`apiary workflow why {run_id}`; a run that waits in vain: cancel and resume it",
    ),
    Check(
        name="child-outcome",
        holds="the child of an operation that is recorded as succeeded has succeeded",
        # A child that failed may have been resumed since: what its parent recorded stays.
        query="""
            SELECT c.run_id, format('it is %%s; run %%s recorded its success as operation %%s',
                                    c.status, o.run_id, o.seq)
              FROM apiary.operation o
              JOIN apiary.run c ON c.parent_run_id = o.run_id AND c.parent_seq = o.seq
             WHERE o.kind = 'workflow' AND o.status = 'SUCCEEDED' AND c.status <> 'SUCCEEDED'""",
        advice=_CORRUPT,
    ),
)

_STRANDED = (
    Check(
        name="lease-expired",
        holds="a run whose lease has ended is adopted",
        query="""
            SELECT r.run_id, format('its lease (executor %%s) ended at %%s', r.executor, r.ready_at)
              FROM apiary.run r
             WHERE r.status = 'RUNNING' AND r.ready_at < apiary.clock() - %(patience)s::interval""",
        advice=_EXECUTORS,
    ),
    Check(
        name="run-overdue",
        holds="a run that may start is started, where executors are registered",
        query="""
            SELECT r.run_id, format('it is %%s and has been due since %%s', r.status, r.ready_at)
              FROM apiary.run r LEFT JOIN apiary.queue q ON q.name = r.queue
             WHERE r.status IN ('QUEUED', 'SCHEDULED', 'WAITING')
               AND r.ready_at < apiary.clock() - %(patience)s::interval
               AND EXISTS (SELECT FROM apiary.executor)
               -- Runs that were started have their places; new ones wait for their queue's limits.
               AND (r.started_at IS NOT NULL OR q.name IS NULL
                    OR NOT q.paused AND q.rate_limit IS NULL
                       AND NOT EXISTS (SELECT FROM apiary.run a WHERE a.queue = q.name
                                          AND a.started_at IS NOT NULL
                                          AND a.finished_at IS NULL))""",
        advice=_EXECUTORS,
    ),
    Check(
        name="waiting-in-vain",
        holds="what a waiting run waits for can still come, and has not come yet",
        query="""
            SELECT r.run_id, format('it waits for %%s, %%s', r.waiting_for::text, v.problem)
              FROM apiary.run r
              CROSS JOIN LATERAL (SELECT CASE coalesce(r.waiting_for ->> 'kind', '')
                  WHEN 'message' THEN CASE WHEN EXISTS (
                      SELECT FROM apiary.mailbox m
                       WHERE m.run_id = r.run_id AND m.taken_by_seq IS NULL
                         AND m.topic = r.waiting_for ->> 'topic') THEN 'and has the message' END
                  WHEN 'event' THEN CASE
                      WHEN EXISTS (SELECT FROM apiary.event e
                                    WHERE e.run_id = r.waiting_for ->> 'run_id'
                                      AND e.key = r.waiting_for ->> 'key') THEN 'which is there'
                      WHEN NOT EXISTS (SELECT FROM apiary.waiter w WHERE w.run_id = r.run_id
                               AND w.awaited_run_id = r.waiting_for ->> 'run_id'
                               AND w.event_key = 'event ' || (r.waiting_for ->> 'key'))
                      THEN 'and is not listed as waiting for it' END
                  WHEN 'run' THEN CASE WHEN (
                      SELECT count(*)
                        FROM json_array_elements_text(r.waiting_for -> 'runs') AS a (run_id)
                        JOIN apiary.waiter w ON w.run_id = r.run_id AND w.awaited_run_id = a.run_id
                                            AND w.event_key = ''
                        JOIN apiary.run c ON c.run_id = a.run_id AND c.finished_at IS NULL
                      ) < r.waiting_left THEN 'of which too few can still end' END
                  WHEN 'time' THEN CASE WHEN r.ready_at IS NULL THEN 'without a timer' END
                  ELSE 'which is nothing' END
              ) AS v (problem)
             WHERE r.status = 'WAITING' AND v.problem IS NOT NULL""",
        advice=_RESUME,
    ),
    Check(
        name="deadline-missed",
        holds="a run whose deadline has passed is timed out",
        query="""
            SELECT r.run_id, format('it is %%s, its deadline was %%s', r.status, r.deadline)
              FROM apiary.run r
             WHERE r.finished_at IS NULL AND r.status <> 'STUCK'
               AND r.deadline < apiary.clock() - %(patience)s::interval""",
        advice=_EXECUTORS,
    ),
    Check(
        name="deployment-missing",
        holds="every unfinished run has its version of the code",
        query="""
            SELECT r.run_id, format('it is %%s and its deployment %%s is gone',
                                    r.status, r.deployment)
              FROM apiary.run r
             WHERE r.finished_at IS NULL
               AND NOT EXISTS (SELECT FROM apiary.deployment d WHERE d.id = r.deployment)""",
        advice="deploy the same sources again (a deployment's id is the hash of its content)",
    ),
)

_MESSAGES = (
    Check(
        name="message-taken",
        holds="every message that was taken has the one recv that took it",
        query="""
            SELECT m.run_id, format('message %%s was taken by operation %%s, %%s',
                       m.id, m.taken_by_seq,
                       CASE WHEN o.run_id IS NULL THEN 'which is not there'
                            WHEN o.kind <> 'recv' THEN 'which is a ' || o.kind
                            ELSE 'which took another as well' END)
              FROM apiary.mailbox m
              LEFT JOIN apiary.operation o ON o.run_id = m.run_id AND o.seq = m.taken_by_seq
             WHERE m.taken_by_seq IS NOT NULL AND """
        + _KEPT.format("m")
        + """
               AND (o.kind IS DISTINCT FROM 'recv' OR EXISTS (
                    SELECT FROM apiary.mailbox n WHERE n.run_id = m.run_id
                       AND n.taken_by_seq = m.taken_by_seq AND n.id <> m.id))""",
        advice=_CORRUPT,
    ),
    Check(
        name="message-run",
        holds="every message, event and stream has its run",
        query="""
            SELECT x.run_id, x.what || ' is there, the run is not'
              FROM (SELECT run_id, 'message ' || id FROM apiary.mailbox
                    UNION ALL SELECT run_id, 'event ' || key FROM apiary.event
                    UNION ALL SELECT DISTINCT run_id, 'stream ' || key FROM apiary.stream
                   ) AS x (run_id, what)
             WHERE NOT EXISTS (SELECT FROM apiary.run r WHERE r.run_id = x.run_id)""",
        advice=_CORRUPT,
    ),
    Check(
        name="stream-offsets",
        holds="the offsets of a stream have no gap",
        query="""
            SELECT s.run_id, format('stream %%s has %%s values from offset %%s to %%s',
                                    s.key, count(*),
                                    min(s."offset"), max(s."offset"))
              FROM apiary.stream s
             WHERE """
        + _KEPT.format("s")
        + """
             GROUP BY s.run_id, s.key
            HAVING min(s."offset") <> 0 OR max(s."offset") <> count(*) - 1""",
        advice=_CORRUPT,
    ),
    Check(
        name="stream-operation",
        holds="every value of a stream has the operation that wrote it",
        query="""
            SELECT s.run_id, format('stream %%s, offset %%s: operation %%s is not there',
                                    s.key, s."offset", s.seq)
              FROM apiary.stream s
             WHERE NOT EXISTS (SELECT FROM apiary.operation o
                                WHERE o.run_id = s.run_id AND o.seq = s.seq) AND """
        + _KEPT.format("s"),
        advice=_CORRUPT,
    ),
)

CHECKS = (*_TRANSACTIONS, *_GUARDS, *_ENDS, *_STRANDED, *_MESSAGES)
