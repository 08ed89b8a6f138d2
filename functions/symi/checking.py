"""What must hold of everything that is stored of a run; nothing that is wrong is passed over."""

from __future__ import annotations

from typing import Any

from apiary import Database, function
from workflows.symi.capacity import drops, real_slot_capacity, whole_slot_capacity
from workflows.symi.invariants import plan_violations, replay_violations
from workflows.symi.placement import contiguous, replica_counts
from workflows.symi.policies import Oracle, parse_policy

from .traces import run_row

__all__ = ["violations"]

_ROUNDING = 1e-9
"""Relative difference that sums in another order may make."""


@function
def violations(db: Database, run: str) -> list[str]:
    """Every violated invariant of a run and its studies, in words; empty when it is sound.

    A simulated or trained course is replayed from the stored popularity: every placement must be
    its policy's, every drop what is over capacity, every survival what the drops make it.
    """
    stored = run_row(db, run)
    found = _trace_violations(db, stored)
    if found:
        return found  # what follows reads it as whole
    layers = [_popularity(db, run, layer) for layer in range(stored.layers)]
    studies = db.query(
        "SELECT study, kind, ranks, slots_per_rank, capacity_factor FROM symi.study"
        " WHERE run = $1 ORDER BY study",
        run,
    )
    for study in studies:
        found += _plan_violations(db, study)
        if study.kind == "planning":
            continue
        policies = db.values(
            "SELECT DISTINCT policy FROM symi.iter WHERE study = $1 ORDER BY policy", study.study
        )
        for policy in policies:
            found += _course_violations(db, stored, study, policy, layers)
    return found


def _trace_violations(db: Database, stored: Any) -> list[str]:
    whole = db.one(
        "SELECT count(*) AS cells, min(iter) AS first, max(iter) AS last,"
        " max(layer) AS layer, max(expert) AS expert FROM symi.popularity WHERE run = $1",
        stored.run,
    )
    expected = stored.iterations * stored.layers * stored.experts
    if whole.cells != expected:
        return [f"{whole.cells} cells of popularity are stored, {expected} make the run whole"]
    last = stored.first_iteration + stored.iterations - 1
    bounds = (whole.first, whole.last, whole.layer, whole.expert)
    wanted = (stored.first_iteration, last, stored.layers - 1, stored.experts - 1)
    if whole.cells and bounds != wanted:
        return [f"first and last iteration, layer and expert are {bounds}, not {wanted}"]
    return []


def _plan_violations(db: Database, study: Any) -> list[str]:
    found = []
    for row in db.query(
        "SELECT policy, iter, layer, counts, placement, digest FROM symi.plan WHERE study = $1"
        " ORDER BY policy, iter, layer",
        study.study,
    ):
        where = f"study {study.study}, {row.policy}, iteration {row.iter}, layer {row.layer}"
        found += [
            f"{where}: {problem}"
            for problem in plan_violations(
                counts=row.counts,
                placement=row.placement,
                digest=row.digest,
                slots=study.ranks * study.slots_per_rank,
            )
        ]
    return found


def _course_violations(
    db: Database, stored: Any, study: Any, policy: str, layers: list[list[list[int]]]
) -> list[str]:
    where = f"study {study.study}, {policy}"
    lost = [0.0] * stored.iterations
    found: list[str] = []
    for layer, popularity in enumerate(layers):
        plans = db.query(
            "SELECT counts, placement FROM symi.plan WHERE study = $1 AND policy = $2"
            " AND layer = $3 AND iter < $4 ORDER BY iter",
            study.study,
            policy,
            layer,
            stored.first_iteration + stored.iterations,
        )
        if len(plans) != stored.iterations:
            found.append(f"{where}, layer {layer}: {len(plans)} of {stored.iterations} plans")
            continue
        placements = [row.placement for row in plans]
        problems = _replayed(policy, popularity, placements)
        found += [f"{where}, layer {layer}: {problem}" for problem in problems]
        found += _drop_violations(db, stored, study, policy, layer, popularity, plans, lost)
    return found or _survival_violations(db, stored, study, policy, layers, lost)


def _replayed(policy: str, popularity: list[list[int]], placements: list[list[int]]) -> list[str]:
    chosen = parse_policy(policy)
    if not isinstance(chosen, Oracle):
        return replay_violations(chosen, popularity=popularity, placements=placements)
    return [
        f"iteration {index + 1} ran on {placement}, not on the oracle's placement"
        for index, (tokens, placement) in enumerate(zip(popularity, placements, strict=True))
        if placement != contiguous(replica_counts(tokens, len(placement)))
    ]


def _drop_violations(
    db: Database,
    stored: Any,
    study: Any,
    policy: str,
    layer: int,
    popularity: list[list[int]],
    plans: list[Any],
    lost: list[float],
) -> list[str]:
    """Compare one layer's drops; adds what was dropped to ``lost[iteration]``."""
    rows = db.query(
        "SELECT iter, expert, tokens FROM symi.dropped"
        " WHERE study = $1 AND policy = $2 AND layer = $3",
        study.study,
        policy,
        layer,
    )
    kept = {(row.iter, row.expert): row.tokens for row in rows}
    found = []
    for index, (tokens, plan) in enumerate(zip(popularity, plans, strict=True)):
        iteration = stored.first_iteration + index
        expected = drops(tokens, plan.counts, _slot_capacity(study, sum(tokens)))
        lost[index] += sum(expected)
        for expert, count in enumerate(expected):
            given = kept.pop((iteration, expert), 0.0)
            if abs(given - count) > _ROUNDING * max(1.0, count):
                found.append(
                    f"study {study.study}, {policy}, iteration {iteration}, layer {layer}, expert "
                    f"{expert}: {given} tokens are stored as dropped, {count} are over capacity"
                )
    found += [f"study {study.study}, {policy}: a drop at {key} of no iteration" for key in kept]
    return found


def _slot_capacity(study: Any, tokens: int) -> float:
    """Whole tokens where they were really computed, fractions in a simulation."""
    slots = study.ranks * study.slots_per_rank
    if not tokens:
        return 0.0
    if study.kind == "training":
        return whole_slot_capacity(tokens, slots, study.capacity_factor)
    return real_slot_capacity(1.0, slots, study.capacity_factor) * tokens


def _survival_violations(
    db: Database,
    stored: Any,
    study: Any,
    policy: str,
    layers: list[list[list[int]]],
    lost: list[float],
) -> list[str]:
    where = f"study {study.study}, {policy}"
    kept = db.query(
        "SELECT iter, survival FROM symi.iter WHERE study = $1 AND policy = $2 ORDER BY iter",
        study.study,
        policy,
    )
    expected = range(stored.first_iteration, stored.first_iteration + stored.iterations)
    if [row.iter for row in kept] != list(expected):
        return [f"{where}: iterations {[row.iter for row in kept]} are stored"]
    found = []
    for index, row in enumerate(kept):
        survival = 1.0 - lost[index] / max(sum(sum(layer[index]) for layer in layers), 1)
        if abs(row.survival - survival) > _ROUNDING:
            found.append(
                f"{where}, iteration {row.iter}: survival {row.survival} is stored, the drops "
                f"make it {survival}"
            )
    return found


def _popularity(db: Database, run: str, layer: int) -> list[list[int]]:
    return db.values(
        "SELECT array_agg(tokens ORDER BY expert) FROM symi.popularity"
        " WHERE run = $1 AND layer = $2 GROUP BY iter ORDER BY iter",
        run,
        layer,
    )
