"""The control state of training jobs: what must survive the processes that train.

`step` is the heart: one transaction per iteration stores its popularity and what it did, decides
the next placement, stores that too, and returns it. A job that dies anywhere goes on from
`committed`. Any training job can use it; `workflows.symi.training` is one.
"""

from __future__ import annotations

from typing import Any

from apiary import Database, function
from workflows.symi import arguments
from workflows.symi.capacity import drops, whole_slot_capacity
from workflows.symi.control import Committed, IterationRecord, Placements
from workflows.symi.costs import shard_length
from workflows.symi.policies import Policy, PolicyState, advance, initial_state, parse_policy

from .errors import Conflict, InvariantViolated, UnknownRun, declared, refused
from .records import Observed, TrainingShape, TrainReport
from .studies import open_study, store_plans, study_row
from .traces import open_trace, run_row

__all__ = [
    "close_training",
    "committed",
    "iterations",
    "note_rank",
    "open_training",
    "step",
    "training_report",
]

FIRST_ITERATION = 1
_LAST_ITERATIONS = 10


@function
def open_training(
    db: Database,
    run: str,
    shape: TrainingShape,
    policy: str,
    configuration: dict[str, Any],
    run_id: str,
) -> Committed:
    """Begin a training run, or go on with one; where to go on.

    ``configuration`` is whatever else must be the same when the run goes on. Conflict: it, the
    shape or the policy is another one. InvalidArgument: a policy that needs to know the future.
    """
    with declared():
        chosen = parse_policy(policy)
        first = initial_state(chosen, experts=shape.experts, slots=shape.cluster.slots)
        arguments.positive_int("expert_parameters", shape.expert_parameters)
        # The oracle has no future to look at, which only shows when it is asked.
        advance(chosen, first, completed=1, popularity=[1] * shape.experts)
    origin = {
        "policy": str(chosen),
        "expert_parameters": shape.expert_parameters,
        "configuration": configuration,
    }
    open_trace(run, "training", shape.layers, shape.experts, FIRST_ITERATION, origin, run_id)
    open_study(run, run, "training", shape.cluster, "measured", run_id)
    states = [(FIRST_ITERATION, layer, first) for layer in range(shape.layers)]
    store_plans(db, run, str(chosen), states, run_id)
    _cut_shards(db, run, shape, run_id)
    db.execute("UPDATE symi.run SET state = 'OPEN' WHERE run = $1 AND state = 'FAILED'", run)
    return committed(run)


@function
def committed(db: Database, run: str) -> Committed:
    """The last committed iteration of a training run and the placements of the next one."""
    done = run_row(db, run).iterations
    policy = _policy(db, run)
    return Committed(iteration=done, placements=_placements(db, run, policy, done + 1))


@function
def step(
    db: Database,
    run: str,
    iteration: int,
    popularity: list[list[int]],
    observed: Observed | None = None,
    run_id: str | None = None,
) -> Placements:
    """Commit an iteration: ``popularity[layer][expert]``; the placements of the next iteration.

    The same popularity again returns the stored placements and changes nothing.

    Conflict: the iteration is committed with other popularity. InvalidArgument: it is neither
    committed nor the next one, or popularity of another shape. InvariantViolated: the job dropped
    other tokens than those over capacity.
    """
    stored = run_row(db, run)
    policy = _policy(db, run)
    _require_shape(stored, popularity)
    if 1 <= iteration <= stored.iterations:
        _require_same(db, run, iteration, popularity)
        return _placements(db, run, policy, iteration + 1)
    if iteration != stored.iterations + 1:
        raise refused(
            "iteration", iteration, f"at most {stored.iterations + 1}", "commit them in order"
        )
    writer = run_id or stored.run_id
    states = _states(db, run, policy, iteration)
    _store_iteration(db, run, policy, iteration, popularity, states, observed, writer)
    with declared():
        after = [
            advance(policy, state, completed=iteration, popularity=tokens)
            for state, tokens in zip(states, popularity, strict=True)
        ]
    plans = [(iteration + 1, layer, state) for layer, state in enumerate(after)]
    store_plans(db, run, str(policy), plans, writer)
    db.execute("UPDATE symi.run SET iterations = $2 WHERE run = $1", run, iteration)
    return _placements(db, run, policy, iteration + 1)


@function
def note_rank(db: Database, run: str, rank: int, pid: int, state: str, run_id: str) -> None:
    """Note that a rank's process is RUNNING, SUCCEEDED or FAILED."""
    db.execute(
        "INSERT INTO symi.train_rank (run, rank, pid, state, run_id) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (run, rank) DO UPDATE"
        " SET pid = excluded.pid, state = excluded.state, run_id = excluded.run_id",
        run,
        rank,
        pid,
        state,
        run_id,
    )


@function
def close_training(db: Database, run: str, state: str) -> None:
    """The run is COMPLETE, or has FAILED and may be gone on with."""
    run_row(db, run)
    db.execute("UPDATE symi.run SET state = $2 WHERE run = $1", run, state)


@function
def iterations(db: Database, run: str, first: int, count: int) -> list[IterationRecord]:
    """Committed iterations that were observed, at most ``count`` from ``first`` on."""
    rows = db.query(
        "SELECT i.iter, i.loss, i.cross_entropy, i.bytes_g, i.bytes_w, i.latency_ms,"
        "       (SELECT array_agg(p.tokens ORDER BY p.layer, p.expert) FROM symi.popularity p"
        "         WHERE p.run = i.study AND p.iter = i.iter) AS tokens,"
        "       (SELECT array_agg(lost ORDER BY layer) FROM"
        "         (SELECT l.layer, coalesce(sum(d.tokens), 0)::bigint AS lost"
        "            FROM generate_series(0, r.layers - 1) AS l (layer)"
        "            LEFT JOIN symi.dropped d ON d.study = i.study AND d.policy = i.policy"
        "             AND d.iter = i.iter AND d.layer = l.layer"
        "           GROUP BY l.layer) per_layer) AS dropped, r.experts"
        "  FROM symi.iter i JOIN symi.run r ON r.run = i.study"
        " WHERE i.study = $1 AND i.loss IS NOT NULL AND i.iter >= $2::int"
        "   AND i.iter < $2::int + $3::int"
        " ORDER BY i.iter",
        run,
        first,
        count,
    )
    return [
        IterationRecord(
            iteration=row.iter,
            popularity=[
                row.tokens[start : start + row.experts]
                for start in range(0, len(row.tokens), row.experts)
            ],
            loss=row.loss,
            cross_entropy=row.cross_entropy,
            dropped=row.dropped,
            gradient_bytes=row.bytes_g,
            weight_bytes=row.bytes_w,
            latency_s=row.latency_ms / 1000,
        )
        for row in rows
    ]


@function
def training_report(db: Database, run: str) -> TrainReport:
    """What a training run came to. InvalidArgument when no iteration of it was observed."""
    study, policy = study_row(db, run), _policy(db, run)
    totals = db.one(
        "SELECT count(*) AS iterations, coalesce(sum(bytes_g), 0)::bigint AS bytes_g,"
        "       coalesce(sum(bytes_w), 0)::bigint AS bytes_w,"
        "       array_agg(cross_entropy ORDER BY iter) AS losses,"
        "       (SELECT coalesce(sum(tokens), 0)::bigint FROM symi.popularity WHERE run = $1)"
        "       AS routed,"
        "       (SELECT coalesce(sum(tokens), 0)::bigint FROM symi.dropped WHERE study = $1)"
        "       AS dropped"
        "  FROM symi.iter WHERE study = $1 AND loss IS NOT NULL",
        run,
    )
    if not totals.iterations:
        raise refused("run", run, "a run with observed iterations", "train it first")
    last = totals.losses[-_LAST_ITERATIONS:]
    return TrainReport(
        run=run,
        policy=str(policy),
        ranks=study.ranks,
        iterations=totals.iterations,
        first_cross_entropy=totals.losses[0],
        last_cross_entropy=sum(last) / len(last),
        routed=totals.routed,
        dropped=totals.dropped,
        gradient_bytes=totals.bytes_g,
        weight_bytes=totals.bytes_w,
    )


def _policy(db: Database, run: str) -> Policy:
    study_row(db, run)
    name = db.value(
        "SELECT origin ->> 'policy' FROM symi.run WHERE run = $1 AND kind = 'training'", run
    )
    if name is None:
        raise UnknownRun(f"run {run!r} is no training run: open it with open_training", run=run)
    return parse_policy(name)


def _require_shape(stored: Any, popularity: list[list[int]]) -> None:
    if len(popularity) != stored.layers:
        raise refused(
            "popularity",
            f"{len(popularity)} layers",
            f"{stored.layers} layers",
            "give one list of counts per layer",
        )
    with declared():
        for tokens in popularity:
            arguments.popularity(tokens, stored.experts)


def _require_same(db: Database, run: str, iteration: int, popularity: list[list[int]]) -> None:
    stored = db.values(
        "SELECT array_agg(tokens ORDER BY expert) FROM symi.popularity"
        " WHERE run = $1 AND iter = $2 GROUP BY layer ORDER BY layer",
        run,
        iteration,
    )
    if stored != popularity:
        raise Conflict(
            f"iteration {iteration} of run {run!r} is committed with other popularity: it was "
            "computed from other data or another state; start another run, or resume from its "
            "checkpoint",
            run=run,
            iteration=iteration,
            stored=stored,
            given=popularity,
        )


def _states(db: Database, run: str, policy: Policy, iteration: int) -> list[PolicyState]:
    rows = db.query(
        "SELECT counts, smoothed FROM symi.plan WHERE study = $1 AND policy = $2 AND iter = $3"
        " ORDER BY layer",
        run,
        str(policy),
        iteration,
    )
    return [PolicyState(counts=row.counts, smoothed=row.smoothed) for row in rows]


def _placements(db: Database, run: str, policy: Policy, iteration: int) -> Placements:
    return db.values(
        "SELECT placement FROM symi.plan WHERE study = $1 AND policy = $2 AND iter = $3"
        " ORDER BY layer",
        run,
        str(policy),
        iteration,
    )


def _store_iteration(
    db: Database,
    run: str,
    policy: Policy,
    iteration: int,
    popularity: list[list[int]],
    states: list[PolicyState],
    observed: Observed | None,
    run_id: str,
) -> None:
    lost = _dropped(db, run, iteration, popularity, states, observed)
    routed = sum(map(sum, popularity))
    db.execute_many(
        "INSERT INTO symi.popularity (run, iter, layer, expert, tokens)"
        " VALUES ($1, $2, $3, $4, $5)",
        [
            (run, iteration, layer, expert, count)
            for layer, tokens in enumerate(popularity)
            for expert, count in enumerate(tokens)
        ],
    )
    db.execute(
        "INSERT INTO symi.iter (study, policy, iter, loss, cross_entropy, latency_ms, bytes_g,"
        " bytes_w, survival, run_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        run,
        str(policy),
        iteration,
        observed and observed.loss,
        observed and observed.cross_entropy,
        observed and 1000 * observed.latency_s,
        observed and observed.gradient_bytes,
        observed and observed.weight_bytes,
        1.0 - sum(map(sum, lost)) / max(routed, 1),
        run_id,
    )
    db.execute_many(
        "INSERT INTO symi.dropped (study, policy, iter, layer, expert, tokens)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        [
            (run, str(policy), iteration, layer, expert, count)
            for layer, counts in enumerate(lost)
            for expert, count in enumerate(counts)
            if count
        ],
    )


def _dropped(
    db: Database,
    run: str,
    iteration: int,
    popularity: list[list[int]],
    states: list[PolicyState],
    observed: Observed | None,
) -> list[list[float]]:
    """Tokens over capacity per layer and expert, which must be what the job saw."""
    study = study_row(db, run)
    slots = study.ranks * study.slots_per_rank
    lost: list[list[float]] = []
    for tokens, state in zip(popularity, states, strict=True):
        if not any(tokens):
            lost.append([0.0] * len(tokens))
            continue
        with declared():
            capacity = whole_slot_capacity(sum(tokens), slots, study.capacity_factor)
            lost.append(drops(tokens, state.counts, capacity))
    if observed is not None and [sum(counts) for counts in lost] != observed.dropped:
        raise InvariantViolated(
            f"iteration {iteration} of run {run!r} dropped {observed.dropped} tokens per layer, "
            f"{[sum(counts) for counts in lost]} are over capacity: the job ran on another "
            "placement or capacity",
            run=run,
            iteration=iteration,
        )
    return lost


def _cut_shards(db: Database, run: str, shape: TrainingShape, run_id: str) -> None:
    """Every rank owns an equal part of every expert's parameters; the last may be short."""
    length = shard_length(shape.expert_parameters, shape.cluster.ranks)
    db.execute(
        "INSERT INTO symi.shard_range (run, layer, expert, rank, lo, hi, run_id)"
        " SELECT $1, layer, expert, rank, least($2::int, rank * $3::int),"
        "        least($2::int, (rank + 1) * $3::int), $4"
        "   FROM generate_series(0, $5::int - 1) layer,"
        "        generate_series(0, $6::int - 1) expert,"
        "        generate_series(0, $7::int - 1) rank"
        " ON CONFLICT (run, layer, expert, rank) DO NOTHING",
        run,
        shape.expert_parameters,
        length,
        run_id,
        shape.layers,
        shape.experts,
        shape.cluster.ranks,
    )
