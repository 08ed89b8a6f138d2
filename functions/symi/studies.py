"""Studies, a run on a cluster, and the plans of policies in them."""

from __future__ import annotations

from typing import Any

from apiary import Database, function
from workflows.symi import arguments
from workflows.symi.placement import Plan, contiguous, placement_digest, plan_layer, replica_counts
from workflows.symi.policies import (
    Oracle,
    Policy,
    PolicyState,
    advance,
    initial_state,
    parse_policy,
)

from .errors import Conflict, UnknownRun, declared, refused
from .records import Cluster, StoredPlan
from .traces import run_row

__all__ = [
    "make_plan",
    "open_study",
    "store_plans",
    "stored_cluster",
    "study_row",
]


@function
def open_study(
    db: Database, study: str, run: str, kind: str, cluster: Cluster, latency: str, run_id: str
) -> None:
    """Put a run on a cluster. Conflict: the study exists with another run or cluster."""
    stored_run = run_row(db, run)
    with declared():
        arguments.positive_int("ranks", cluster.ranks)
        arguments.positive_int("slots_per_rank", cluster.slots_per_rank)
        arguments.positive_number("capacity_factor", cluster.capacity_factor)
        arguments.fits(stored_run.experts, cluster.slots)
    db.execute(
        "INSERT INTO symi.study (study, run, kind, ranks, slots_per_rank, capacity_factor, latency,"
        " run_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (study) DO NOTHING",
        study,
        run,
        kind,
        cluster.ranks,
        cluster.slots_per_rank,
        cluster.capacity_factor,
        latency,
        run_id,
    )
    stored = study_row(db, study)
    given = (run, kind, cluster, latency)
    found = (stored.run, stored.kind, stored_cluster(stored), stored.latency)
    if given != found:
        raise Conflict(
            f"study {study!r} exists and is another one: {found!r}, given {given!r}; choose "
            "another name",
            study=study,
        )


@function
def make_plan(
    db: Database,
    run: str,
    iteration: int,
    layer: int,
    ranks: int,
    slots_per_rank: int,
    policy: str,
    run_id: str,
) -> StoredPlan:
    """The placement on which ``iteration`` of a run runs, from the popularity before it; stored.

    It is kept in the study ``<run> on <N>x<s>``. ``iteration`` may be the one after the last.
    InvalidPlacement: fewer slots than experts. InvalidArgument: no such policy, iteration or layer.
    """
    stored = run_row(db, run)
    with declared():
        chosen = parse_policy(policy)
    last = stored.first_iteration + stored.iterations - (1 if isinstance(chosen, Oracle) else 0)
    if not stored.first_iteration <= iteration <= last or not 0 <= layer < stored.layers:
        raise refused(
            "iteration, layer",
            [iteration, layer],
            f"{stored.first_iteration}..{last} and 0..{stored.layers - 1}",
            "plan an iteration of the run, or the one after its last",
        )
    cluster = Cluster(ranks=ranks, slots_per_rank=slots_per_rank)
    study = f"{run} on {ranks}x{slots_per_rank}"
    open_study(study, run, "planning", cluster, "none", run_id)
    rows = db.values(
        "SELECT array_agg(tokens ORDER BY expert) FROM symi.popularity"
        " WHERE run = $1 AND layer = $2 AND iter <= $3 GROUP BY iter ORDER BY iter",
        run,
        layer,
        iteration,
    )
    index = iteration - stored.first_iteration
    with declared():
        plan, state = _planned(chosen, rows, index, stored.experts, cluster)
    store_plans(db, study, str(chosen), [(iteration, layer, state)], run_id)
    return StoredPlan(
        study=study,
        policy=str(chosen),
        iteration=iteration,
        layer=layer,
        counts=plan.counts,
        placement=plan.placement,
        sources=plan.sources,
        moved=plan.moved,
        digest=plan.digest,
    )


def _planned(
    policy: Policy, rows: list[list[int]], index: int, experts: int, cluster: Cluster
) -> tuple[Plan, PolicyState]:
    """The plan of iteration number ``index`` of a layer and the policy's state there."""
    states = _course(policy, rows, index, experts, cluster.slots)
    before = contiguous(states[-2].counts) if index else None
    plan = plan_layer(
        states[-1].counts,
        ranks=cluster.ranks,
        slots_per_rank=cluster.slots_per_rank,
        before=before,
    )
    return plan, states[-1]


def _course(
    policy: Policy, rows: list[list[int]], index: int, experts: int, slots: int
) -> list[PolicyState]:
    """The states of a policy in iterations 0 to ``index``."""
    if isinstance(policy, Oracle):
        arguments.fits(experts, slots)
        return [PolicyState(counts=replica_counts(row, slots)) for row in rows[: index + 1]]
    states = [initial_state(policy, experts=experts, slots=slots)]
    for completed, row in enumerate(rows[:index], start=1):
        states.append(advance(policy, states[-1], completed=completed, popularity=row))
    return states


def store_plans(
    db: Database,
    study: str,
    policy: str,
    states: list[tuple[int, int, PolicyState]],
    run_id: str,
) -> None:
    """Store plans ``(iteration, layer, state)``; what is there already stays."""
    placements = [contiguous(state.counts) for _, _, state in states]
    # An array of arrays would be flattened, so that each travels as its text.
    db.execute(
        "INSERT INTO symi.plan (study, policy, iter, layer, counts, placement, smoothed, digest,"
        " run_id) SELECT $1, $2, iter, layer, counts::int[], placement::int[], smoothed::float8[],"
        "        digest, $9"
        "   FROM unnest($3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[])"
        "        AS t (iter, layer, counts, placement, smoothed, digest)"
        " ON CONFLICT (study, policy, iter, layer) DO NOTHING",
        study,
        policy,
        [iteration for iteration, _, _ in states],
        [layer for _, layer, _ in states],
        [_array(state.counts) for _, _, state in states],
        [_array(placement) for placement in placements],
        [None if state.smoothed is None else _array(state.smoothed) for _, _, state in states],
        [placement_digest(placement) for placement in placements],
        run_id,
    )


def study_row(db: Database, study: str) -> Any:
    """The row of a study; UnknownRun when there is none."""
    found = db.first(
        "SELECT study, run, kind, ranks, slots_per_rank, capacity_factor, latency"
        " FROM symi.study WHERE study = $1",
        study,
    )
    if found is None:
        raise UnknownRun(f"no study {study!r}: symi.simulate and symi.train make one", run=study)
    return found


def stored_cluster(row: Any) -> Cluster:
    """The cluster of a study's row."""
    return Cluster(
        ranks=row.ranks, slots_per_rank=row.slots_per_rank, capacity_factor=row.capacity_factor
    )


def _array(values: list[Any]) -> str:
    # repr keeps every bit of a float.
    return "{" + ",".join(map(repr, values)) + "}"
