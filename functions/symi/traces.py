"""Popularity traces: stored once, read in portions."""

from __future__ import annotations

from typing import Any

from apiary import Database, function
from workflows.symi import arguments

from .errors import Conflict, UnknownRun, declared, refused
from .records import LayerProfile, RunSummary

__all__ = [
    "describe_run",
    "finish_trace",
    "open_trace",
    "popularity",
    "run_row",
    "store_layer_profiles",
    "store_popularity",
]


@function
def open_trace(
    db: Database,
    run: str,
    kind: str,
    layers: int,
    experts: int,
    first_iteration: int,
    origin: dict[str, Any],
    run_id: str,
) -> RunSummary:
    """Begin a trace of this shape; one that was begun with the same origin is gone on with.

    Conflict: the name is taken by another one.
    """
    with declared():
        arguments.positive_int("layers", layers)
        arguments.positive_int("experts", experts)
    if not run:
        raise refused("run", run, "a name", "name the trace")
    if first_iteration < 0:
        raise refused("first_iteration", first_iteration, "at least 0", "number iterations from 0")
    db.execute(
        "INSERT INTO symi.run (run, kind, layers, experts, first_iteration, iterations, state,"
        " origin, run_id) VALUES ($1, $2, $3, $4, $5, 0, 'OPEN', $6, $7)"
        " ON CONFLICT (run) DO NOTHING",
        run,
        kind,
        layers,
        experts,
        first_iteration,
        origin,
        run_id,
    )
    stored = run_row(db, run)
    given = (kind, layers, experts, first_iteration, origin)
    found = (
        stored.kind,
        stored.layers,
        stored.experts,
        stored.first_iteration,
        stored.origin,
    )
    if given != found:
        raise Conflict(
            f"run {run!r} exists and is another one (kind, layers, experts, first iteration, "
            f"origin): {found!r}, given {given!r}; choose another name",
            run=run,
            stored=list(found),
            given=list(given),
        )
    return _summary(stored)


@function
def store_popularity(
    db: Database, run: str, first_iteration: int, experts: int, layers: int, tokens: list[int]
) -> int:
    """Store whole iterations, ``tokens`` flat in order of iteration, layer, expert.

    They follow what is stored, or repeat it. Returns how many iterations the run has then.

    Conflict: an iteration is stored with other tokens. InvalidArgument: a gap, or another shape.
    """
    stored = run_row(db, run)
    width = layers * experts
    if (layers, experts) != (stored.layers, stored.experts) or not tokens or len(tokens) % width:
        raise refused(
            "tokens",
            f"{len(tokens)} counts of {layers} layers and {experts} experts",
            f"whole iterations of {stored.layers} layers and {stored.experts} experts",
            "give every layer and expert of every iteration",
        )
    if min(tokens) < 0:
        raise refused("tokens", min(tokens), "counts of at least 0", "count tokens")
    offset: int = first_iteration - stored.first_iteration
    if not 0 <= offset <= stored.iterations:
        raise refused(
            "first_iteration",
            first_iteration,
            f"{stored.first_iteration}..{stored.first_iteration + stored.iterations}",
            "store iterations in order, without a gap",
        )
    _require_equal(db, run, first_iteration, stored, tokens)
    if offset + len(tokens) // width > stored.iterations:
        _append(db, run, first_iteration, stored, tokens)
    return max(int(stored.iterations), offset + len(tokens) // width)


@function
def finish_trace(db: Database, run: str) -> RunSummary:
    """The trace is whole. InvalidArgument when nothing is stored."""
    stored = run_row(db, run)
    if not stored.iterations:
        raise refused("run", run, "a run with iterations", "store popularity first")
    db.execute("UPDATE symi.run SET state = 'COMPLETE' WHERE run = $1 AND state = 'OPEN'", run)
    return _summary(run_row(db, run))


@function
def describe_run(db: Database, run: str) -> RunSummary:
    """Shape and state of a run. UnknownRun when there is none of this name."""
    return _summary(run_row(db, run))


@function
def popularity(
    db: Database, run: str, layer: int, first_iteration: int, iterations: int
) -> list[list[int]]:
    """Tokens ``[T][E]`` of one layer, at most ``iterations`` from ``first_iteration`` on."""
    run_row(db, run)
    return db.values(
        "SELECT array_agg(tokens ORDER BY expert) FROM symi.popularity"
        " WHERE run = $1 AND layer = $2 AND iter >= $3::int AND iter < $3::int + $4::int"
        " GROUP BY iter ORDER BY iter",
        run,
        layer,
        first_iteration,
        iterations,
    )


@function
def store_layer_profiles(db: Database, run: str, profiles: list[LayerProfile], run_id: str) -> int:
    """Store the statistics of a run's layers, in place of what was there of a shorter trace."""
    run_row(db, run)
    for profile in profiles:
        db.execute(
            "INSERT INTO symi.layer_statistics (run, layer, iterations, mean_tokens,"
            " max_over_mean, largest_max_over_mean, gini, entropy_bits, swing, autocorrelation,"
            " run_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
            " ON CONFLICT (run, layer) DO UPDATE SET iterations = excluded.iterations,"
            " mean_tokens = excluded.mean_tokens, max_over_mean = excluded.max_over_mean,"
            " largest_max_over_mean = excluded.largest_max_over_mean, gini = excluded.gini,"
            " entropy_bits = excluded.entropy_bits, swing = excluded.swing,"
            " autocorrelation = excluded.autocorrelation, run_id = excluded.run_id",
            run,
            profile.layer,
            profile.iterations,
            profile.mean_tokens,
            profile.max_over_mean,
            profile.largest_max_over_mean,
            profile.gini,
            profile.entropy_bits,
            profile.swing,
            profile.autocorrelation,
            run_id,
        )
    return len(profiles)


def run_row(db: Database, run: str) -> Any:
    """The row of a run; UnknownRun when there is none."""
    found = db.first(
        "SELECT run, kind, layers, experts, first_iteration, iterations, state, origin,"
        " run_id FROM symi.run WHERE run = $1",
        run,
    )
    if found is None:
        raise UnknownRun(
            f"no run {run!r}: ingest one with symi.profile, make one with symi.synth, or train",
            run=run,
        )
    return found


def _summary(row: Any) -> RunSummary:
    return RunSummary(
        run=row.run,
        kind=row.kind,
        layers=row.layers,
        experts=row.experts,
        first_iteration=row.first_iteration,
        iterations=row.iterations,
        state=row.state,
    )


def _require_equal(
    db: Database, run: str, first_iteration: int, stored: Any, tokens: list[int]
) -> None:
    """What is stored already of these iterations must be the same."""
    if first_iteration == stored.first_iteration + stored.iterations:
        return
    other = db.first(
        "SELECT p.iter, p.layer, p.expert, p.tokens AS stored, t.tokens AS given"
        "  FROM unnest($5::bigint[]) WITH ORDINALITY AS t (tokens, n)"
        "  JOIN symi.popularity p ON p.run = $1"
        "   AND p.iter = $2::int + (t.n - 1) / ($3::int * $4::int)"
        "   AND p.layer = (t.n - 1) / $4::int % $3::int AND p.expert = (t.n - 1) % $4::int"
        " WHERE p.tokens <> t.tokens ORDER BY p.iter, p.layer, p.expert LIMIT 1",
        run,
        first_iteration,
        stored.layers,
        stored.experts,
        tokens,
    )
    if other is not None:
        raise Conflict(
            f"run {run!r}, iteration {other.iter}, layer {other.layer}, expert {other.expert} is "
            f"stored with {other.stored} tokens, given {other.given}: store it as another run",
            run=run,
            **other,
        )


def _append(db: Database, run: str, first_iteration: int, stored: Any, tokens: list[int]) -> None:
    width = stored.layers * stored.experts
    known = stored.first_iteration + stored.iterations - first_iteration
    new = tokens[known * width :]
    db.execute(
        "INSERT INTO symi.popularity (run, iter, layer, expert, tokens)"
        " SELECT $1, $2::int + (n - 1) / ($3::int * $4::int),"
        "        (n - 1) / $4::int % $3::int, (n - 1) % $4::int, tokens"
        "   FROM unnest($5::bigint[]) WITH ORDINALITY AS t (tokens, n)",
        run,
        first_iteration + known,
        stored.layers,
        stored.experts,
        new,
    )
    db.execute(
        "UPDATE symi.run SET iterations = iterations + $2 WHERE run = $1", run, len(new) // width
    )
