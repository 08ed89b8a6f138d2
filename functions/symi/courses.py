"""Simulated courses of policies: stored whole, with the drops that follow from them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from apiary import Database, function
from workflows.symi.capacity import real_slot_capacity
from workflows.symi.policies import PolicyState

from .errors import Conflict, refused
from .records import PolicyCourse
from .studies import store_plans, study_row
from .traces import run_row

__all__ = ["store_course"]


@function
def store_course(db: Database, study: str, course: PolicyCourse, run_id: str) -> float:
    """Store a policy's simulated course, whole, and return its share of dropped tokens.

    Drops follow here from the stored popularity: tokens over cf * tok / (sN) * replicas. The same
    course again changes nothing; Conflict: another one is stored.
    """
    stored = study_row(db, study)
    digest = hashlib.sha256(json.dumps(asdict(course), sort_keys=True).encode()).hexdigest()
    known = db.first(
        "SELECT drop_share, digest FROM symi.result WHERE study = $1 AND policy = $2",
        study,
        course.policy,
    )
    if known is not None:
        if known.digest != digest:
            raise Conflict(
                f"study {study!r} has another result of {course.policy!r}: simulate another study",
                study=study,
                policy=course.policy,
            )
        return float(known.drop_share)
    first = run_row(db, stored.run).first_iteration
    for index, layers in enumerate(course.counts):
        for counts in layers:
            if sum(counts) != stored.ranks * stored.slots_per_rank:
                raise refused(
                    f"counts[{index}]", counts, "the study's slots", "simulate its own cluster"
                )
    states = [
        (first + index, layer, PolicyState(counts=counts))
        for index, layers in enumerate(course.counts)
        for layer, counts in enumerate(layers)
    ]
    store_plans(db, study, course.policy, states, run_id)
    unit = real_slot_capacity(1.0, stored.ranks * stored.slots_per_rank, stored.capacity_factor)
    _insert_course(db, study, course, stored.run, first, unit, run_id)
    return _insert_result(db, study, course, digest, run_id)


def _insert_course(
    db: Database,
    study: str,
    course: PolicyCourse,
    run: str,
    first: int,
    unit: float,
    run_id: str,
) -> None:
    db.execute(
        "INSERT INTO symi.iter (study, policy, iter, latency_ms, survival, run_id)"
        " SELECT $1, $2, $3::int + l.n - 1, 1000 * l.latency_s,"
        "        1 - d.dropped / greatest(d.tokens, 1), $7"
        "   FROM unnest($4::float8[]) WITH ORDINALITY AS l (latency_s, n)"
        "   JOIN (SELECT p.iter, sum(p.tokens)::float8 AS tokens,"
        "                sum(greatest(0, p.tokens"
        "                    - $5::float8 * p.routed * c.counts[p.expert + 1])) AS dropped"
        "           FROM (SELECT iter, layer, expert, tokens,"
        "                        sum(tokens) OVER (PARTITION BY iter, layer)::float8 AS routed"
        "                   FROM symi.popularity WHERE run = $6) p"
        "           JOIN symi.plan c ON c.study = $1 AND c.policy = $2"
        "            AND c.iter = p.iter AND c.layer = p.layer"
        "          GROUP BY p.iter) d ON d.iter = $3::int + l.n - 1",
        study,
        course.policy,
        first,
        course.latency_s,
        unit,
        run,
        run_id,
    )
    db.execute(
        "INSERT INTO symi.dropped (study, policy, iter, layer, expert, tokens)"
        " SELECT $1, $2, p.iter, p.layer, p.expert,"
        "        p.tokens - $3::float8 * p.routed * c.counts[p.expert + 1]"
        "   FROM (SELECT iter, layer, expert, tokens,"
        "                sum(tokens) OVER (PARTITION BY iter, layer)::float8 AS routed"
        "           FROM symi.popularity WHERE run = $4) p"
        "   JOIN symi.plan c ON c.study = $1 AND c.policy = $2"
        "    AND c.iter = p.iter AND c.layer = p.layer"
        "  WHERE p.tokens > $3::float8 * p.routed * c.counts[p.expert + 1]",
        study,
        course.policy,
        unit,
        run,
    )


def _insert_result(
    db: Database, study: str, course: PolicyCourse, digest: str, run_id: str
) -> float:
    share = db.value(
        "SELECT coalesce((SELECT sum(d.tokens) FROM symi.dropped d"
        "  WHERE d.study = $1 AND d.policy = $2), 0) / greatest(sum(p.tokens), 1)"
        "  FROM symi.popularity p JOIN symi.study s ON s.run = p.run WHERE s.study = $1",
        study,
        course.policy,
    )
    parts_ms = {name: 1000 * seconds for name, seconds in course.latency_parts_s.items()}
    db.execute(
        "INSERT INTO symi.result (study, policy, drop_share, mean_latency_ms, latency_parts_ms,"
        " minutes_to_target, digest, run_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        study,
        course.policy,
        share,
        sum(parts_ms.values()),
        parts_ms,
        course.minutes_to_target,
        digest,
        run_id,
    )
    return float(share)
