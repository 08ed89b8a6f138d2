"""Why a run does not move: one sentence, from what the database knows.

The facts are read in one statement, so that they fit each other; what to say of them is decided
here, one function per state of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import dict_row

from ..engine.postgres import PostgresEngine
from ..engine.queues import QueueRow
from ..errors import NotFound

__all__ = ["Explainer"]

ALIVE_S = 30  # an executor gives a sign of life every 10 s
_SHOWN = 3  # of a list of runs

_FACTS = """
SELECT r.*, apiary.clock() AS now,
       to_json(q) AS queue_row, extract(epoch FROM q.rate_period)::float8 AS rate_period_s,
       (SELECT count(*) FROM apiary.run o WHERE r.queue IS NOT NULL AND o.queue = r.queue
           AND o.started_at IS NOT NULL AND o.finished_at IS NULL) AS queue_active,
       ARRAY(SELECT o.run_id FROM apiary.run o WHERE r.queue IS NOT NULL AND o.queue = r.queue
           AND o.started_at IS NOT NULL AND o.finished_at IS NULL
           ORDER BY o.started_at LIMIT %(shown)s) AS queue_holders,
       ARRAY(SELECT o.run_id FROM apiary.run o WHERE r.queue IS NOT NULL AND o.queue = r.queue
           AND o.queue_key = r.queue_key AND o.started_at IS NOT NULL AND o.finished_at IS NULL
           ORDER BY o.started_at LIMIT 100) AS key_holders,
       (SELECT count(*) FROM apiary.run o WHERE q.rate_limit IS NOT NULL AND o.queue = r.queue
           AND o.started_at > apiary.clock() - q.rate_period) AS starts_in_period,
       (SELECT count(*) FROM apiary.run o WHERE r.started_at IS NULL
           AND o.queue IS NOT DISTINCT FROM r.queue AND o.started_at IS NULL
           AND o.ready_at <= apiary.clock()
           AND (o.priority, o.ready_at) < (r.priority, r.ready_at)) AS ahead,
       ARRAY(SELECT o.run_id || ' (' || o.status || ')' FROM apiary.run o
           WHERE o.run_id = ANY (ARRAY(SELECT json_array_elements_text(r.waiting_for -> 'runs')))
             AND o.finished_at IS NULL ORDER BY o.created_at, o.run_id LIMIT %(shown)s)
           AS unfinished_children,
       (SELECT json_agg(json_build_object('name', e.name, 'applications', e.applications,
                                          'queues', e.queues, 'alive',
                                          e.seen_at > apiary.clock() - %(alive)s::interval))
          FROM apiary.executor e) AS executors,
       (SELECT json_build_object('seq', o.seq, 'kind', o.kind, 'name', o.name,
                                 'finished_at', o.finished_at)
          FROM apiary.operation o WHERE o.run_id = r.run_id AND o.seq > 0
         ORDER BY o.seq DESC LIMIT 1) AS last_operation,
       r.in_database AND EXISTS (SELECT FROM pg_locks l
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
           AND (l.classid::bigint << 32 | l.objid::bigint) = apiary.in_database_lock(r.run_id))
           AS in_backend,
       EXISTS (SELECT FROM apiary.deployment d WHERE d.id = r.deployment) AS has_code,
       (SELECT a.current = r.deployment FROM apiary.application a
         WHERE a.name = r.application) AS is_current
  FROM apiary.run r LEFT JOIN apiary.queue q ON q.name = r.queue
 WHERE r.run_id = %(run_id)s"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Executor:
    name: str
    alive: bool
    applications: Sequence[str] | None
    queues: Sequence[str] | None

    @property
    def shown(self) -> str:
        return self.name.partition("#")[0]

    def takes(self, application: str) -> bool:
        return self.applications is None or application in self.applications

    def starts_from(self, queue: str | None) -> bool:
        return self.queues is None or queue in self.queues


class Explainer:
    """Says where a run stands."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    async def why(self, run_id: str) -> str:
        """One sentence on why the run does not move (or that it does); NotFound for no run."""
        values = {
            "run_id": run_id,
            "shown": _SHOWN,
            "alive": timedelta(seconds=ALIVE_S),
        }
        found = await self._engine.rows(_FACTS, values, dict_row)
        if not found:
            raise NotFound(f"no run {run_id!r}", kind="run", name=run_id)
        return explain(found[0])


def explain(facts: dict[str, Any]) -> str:  # noqa: PLR0911 - one case each
    """The sentence for a row of facts."""
    status = facts["status"]
    if facts["finished_at"] is not None:
        return _ended(facts)
    if status == "STUCK":
        return _stuck(facts)
    if not facts["has_code"]:
        return (
            f"its deployment {facts['deployment']} is not in the database any more: no executor can"
            " load its code; fork it to another deployment, or deploy that content again"
        )
    if status == "RUNNING":
        return _running(facts)
    if status == "WAITING" and not _is_due(facts):
        return _waiting(facts)
    if status == "SCHEDULED" and not _is_due(facts):
        return f"it waits for its start at {_time(facts['ready_at'])}"
    return _queued(facts)


def _ended(facts: dict[str, Any]) -> str:
    text = f"it has ended: {facts['status']} at {_time(facts['finished_at'])}"
    error = facts["error"]
    return text if error is None else f"{text}, {error.get('type')}: {error.get('message')}"


def _stuck(facts: dict[str, Any]) -> str:
    text = (
        f"it is stuck after {facts['adoptions']} adoptions: each of its executors died or lost its"
        f" lease; look at what it does there, then `apiary workflow resume {facts['run_id']}`"
    )
    if not facts["has_code"]:
        return f"{text}; its deployment {facts['deployment']} has been removed: fork it instead"
    if not facts["is_current"]:
        return f"{text}; its deployment {facts['deployment']} is not the current one"
    return text


def _running(facts: dict[str, Any]) -> str:
    if facts["in_backend"]:
        return f"it runs in the database since {_time(facts['started_at'])}"
    if facts["ready_at"] <= facts["now"]:
        follows = _nobody(facts) or "another executor is about to take it over"
        return (
            f"the lease of executor {_shown(facts['executor'])} ended at"
            f" {_time(facts['ready_at'])}, and {follows}"
        )
    if facts["executor"] == "database":
        return (
            "the backend in which it ran has died; its lease ends at"
            f" {_time(facts['ready_at'])}, then {_nobody(facts) or 'an executor takes it over'}"
        )
    holder = {each.name: each for each in _executors(facts)}.get(facts["executor"])
    if holder is None or not holder.alive:
        takeover = _nobody(facts)
        then = f"then {takeover}" if takeover else "then another executor takes it over"
        return (
            f"executor {_shown(facts['executor'])}, which holds it, gives no sign of life; its"
            f" lease ends at {_time(facts['ready_at'])}, {then}"
        )
    text = f"it runs in executor {holder.shown} since {_time(facts['started_at'])}"
    last = facts["last_operation"]
    if last is None:
        return text
    return (
        f"{text}; the last recorded operation is {last['seq']}, {last['kind']} {last['name']}, at"
        f" {_time(datetime.fromisoformat(last['finished_at']))}"
    )


def _waiting(facts: dict[str, Any]) -> str:
    waiting = facts["waiting_for"]
    until = f" until {_time(facts['ready_at'])}" if facts["ready_at"] is not None else ""
    kind = waiting["kind"]
    if kind == "time":
        return f"it sleeps{until}"
    if kind == "message":
        return f"it waits for a message on topic {waiting['topic']!r}{until}"
    if kind == "event":
        return f"it waits for event {waiting['key']!r} of run {waiting['run_id']}{until}"
    return f"it waits for {facts['waiting_left']} of its child runs: {_some(facts)}{until}"


def _some(facts: dict[str, Any]) -> str:
    children = facts["unfinished_children"]
    others = facts["waiting_left"] - len(children)
    return ", ".join(children) + (f" and {others} more" if others > 0 else "")


def _queued(facts: dict[str, Any]) -> str:
    nobody = _nobody(facts)
    if facts["started_at"] is None and facts["queue"] is not None:
        queue = _queue(facts)
        if queue is None:
            return f"its queue {facts['queue']} does not exist any more"
        held_up = _held_up(facts, queue)
        if held_up is not None:
            return held_up
    if nobody is not None:
        return f"it could run now, but {nobody}"
    ahead = facts["ahead"]
    if ahead:
        return f"it is the next but {ahead} to be taken by an executor"
    return "it is about to be taken by an executor"


def _held_up(facts: dict[str, Any], queue: QueueRow) -> str | None:
    """What its queue's limits have against starting it now."""
    name, active = queue.name, facts["queue_active"]
    if queue.paused:
        return f"queue {name} is paused: `apiary queue resume {name}` lets it go on"
    if queue.concurrency is not None and active >= queue.concurrency:
        return (
            f"queue {name} is full: {active} of {queue.concurrency} places are taken, by"
            f" {_listed(facts['queue_holders'], active)}"
        )
    holders = facts["key_holders"]
    if queue.key_concurrency is not None and len(holders) >= queue.key_concurrency:
        return (
            f"queue {name} runs at most {queue.key_concurrency} at once of key"
            f" {facts['queue_key']!r}, and these are {_listed(holders[:_SHOWN], len(holders))}"
        )
    if queue.rate_limit is not None and facts["starts_in_period"] >= queue.rate_limit:
        return (
            f"queue {name} starts at most {queue.rate_limit} runs in {facts['rate_period_s']:g} s,"
            f" and {facts['starts_in_period']} have started within that time"
        )
    return None


def _nobody(facts: dict[str, Any]) -> str | None:
    """Why no executor will take it; None when one may."""
    alive = [each for each in _executors(facts) if each.alive]
    if not alive:
        return "no executor is alive: start one with `apiary executor`"
    able = [each for each in alive if each.takes(facts["application"])]
    if not able:
        return (
            f"none of the live executors ({_names(alive)}) takes runs of application"
            f" {facts['application']}"
        )
    # Only starting is bound to queues; what has started goes on anywhere.
    if facts["started_at"] is None and not any(e.starts_from(facts["queue"]) for e in able):
        queue = facts["queue"]
        what = f"from queue {queue}" if queue else "that are in no queue"
        return f"none of the live executors ({_names(able)}) starts runs {what}"
    return None


def _executors(facts: dict[str, Any]) -> list[_Executor]:
    return [_Executor(**each) for each in facts["executors"] or ()]


def _queue(facts: dict[str, Any]) -> QueueRow | None:
    row = facts["queue_row"]
    if row is None:
        return None
    fields = {name: row.get(name) for name in QueueRow.__dataclass_fields__}
    return QueueRow(**{**fields, "waiting": 0, "active": facts["queue_active"]})


def _is_due(facts: dict[str, Any]) -> bool:
    return facts["ready_at"] is not None and bool(facts["ready_at"] <= facts["now"])


def _names(executors: Sequence[_Executor]) -> str:
    return ", ".join(each.shown for each in executors)


def _listed(runs: Sequence[str], count: int) -> str:
    others = count - len(runs)
    return ", ".join(runs) + (f" and {others} more" if others > 0 else "")


def _shown(identity: str | None) -> str:
    return (identity or "?").partition("#")[0]


def _time(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")
