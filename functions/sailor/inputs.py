"""Models, profiles, networks and prices: stored once under the hash of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import product
from math import inf
from typing import Any

from apiary import Database, function
from workflows.sailor.catalogue import JOBS
from workflows.sailor.hardware import GPU_TYPES, GpuType
from workflows.sailor.job import Job
from workflows.sailor.network import LinkTable
from workflows.sailor.prices import LIST_PRICES, PriceTable
from workflows.sailor.problem import Problem
from workflows.sailor.profile import Profile
from workflows.sailor.roofline import assumed_links, roofline_profile

from .errors import Conflict, MissingProfile, UnknownName, declared
from .records import Imported, Inputs

__all__ = [
    "choose_inputs",
    "load_problem",
    "problem_of",
    "register_model",
    "store_gpu_type",
    "store_network",
    "store_prices",
    "store_profile",
]

BEST = "best"
ROOFLINE = "roofline"
ASSUMED = "assumed"


def checksum(document: Any) -> str:
    """The name of a content."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@function
def register_model(db: Database, job: dict[str, Any], run_id: str) -> str:
    """Store a model. Conflict: it is stored with other figures."""
    with declared():
        return _register(db, Job.from_json(job), run_id)


def _register(db: Database, job: Job, run_id: str) -> str:
    db.execute(
        "INSERT INTO sailor.model (model_id, global_batch, layers, blocks, hidden, heads,"
        " sequence_length, vocabulary, optimizer, precision, run_id)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (model_id) DO NOTHING",
        job.model,
        job.global_batch,
        job.layers,
        job.blocks,
        job.hidden,
        job.heads,
        job.sequence_length,
        job.vocabulary,
        job.optimizer,
        job.precision,
        run_id,
    )
    stored = stored_job(db, job.model)
    if stored != job:
        raise Conflict(
            f"model {job.model!r} is stored as {stored.to_json()}, given {job.to_json()}; choose "
            "another name",
            name=job.model,
        )
    return job.model


def stored_job(db: Database, model_id: str) -> Job:
    """The model's row as the library's record, or UnknownName."""
    row = db.first(
        "SELECT model_id AS model, global_batch, layers, blocks, hidden, heads, sequence_length,"
        " vocabulary, optimizer, precision FROM sailor.model WHERE model_id = $1",
        model_id,
    )
    if row is None:
        known = db.values("SELECT model_id FROM sailor.model ORDER BY model_id")
        raise UnknownName(
            f"unknown model {model_id!r}; stored are {', '.join(known) or 'none'}, built in are "
            f"{', '.join(JOBS)}; register it with sailor.register",
            kind="model",
            name=model_id,
        )
    return Job.from_json(row)


@function
def store_profile(db: Database, profile: dict[str, Any], run_id: str) -> Imported:
    """Store a profile of a registered model; the same content again changes nothing."""
    with declared():
        return _store_profile(db, Profile.from_json(profile), run_id)


def _store_profile(db: Database, profile: Profile, run_id: str) -> Imported:
    job = stored_job(db, profile.model)
    Problem(job=job, profile=profile, links=LinkTable({}))  # refuses another number of layers
    document = profile.to_json()
    name = checksum(document)
    rows = len(document["sizes"]) + len(document["times"])
    stored = db.execute(
        "INSERT INTO sailor.profile (profile_id, model_id, source, run_id)"
        " VALUES ($1, $2, $3, $4) ON CONFLICT (profile_id) DO NOTHING",
        name,
        profile.model,
        profile.source,
        run_id,
    )
    if stored:
        db.execute_many(
            "INSERT INTO sailor.layer_mem (profile_id, degree, layer, parameters, output_floats,"
            " input_floats, kept_floats) VALUES ($1, $2, $3, $4, $5, $6, $7)",
            [(name, *row) for row in document["sizes"]],
        )
        db.execute_many(
            "INSERT INTO sailor.layer_time (profile_id, gpu, microbatch, degree, layer, forward_s,"
            " backward_s, update_s) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            [(name, *row) for row in document["times"]],
        )
    return Imported(
        kind="profile", name=profile.model, checksum=name, rows=rows, stored=bool(stored)
    )


@function
def store_network(
    db: Database,
    links: list[list[Any]],
    source: str,
    run_id: str,
    samples: list[tuple[int, float]] | None = None,
    r_squared: float | None = None,
) -> Imported:
    """Store links, with what they were fitted from; the same content again changes nothing."""
    with declared():
        table = LinkTable.from_json(links)
    imported = _store_network(db, table, source, run_id, r_squared)
    if imported.stored and samples:
        db.execute_many(
            "INSERT INTO sailor.link_sample (network_id, size_bytes, gb_per_s) VALUES ($1, $2, $3)",
            [(imported.checksum, size, rate) for size, rate in samples],
        )
    return imported


def _store_network(
    db: Database, table: LinkTable, source: str, run_id: str, r_squared: float | None = None
) -> Imported:
    rows = table.to_json()
    name = checksum([source, rows])
    stored = db.execute(
        "INSERT INTO sailor.network (network_id, source, r_squared, run_id)"
        " VALUES ($1, $2, $3, $4) ON CONFLICT (network_id) DO NOTHING",
        name,
        source,
        r_squared,
        run_id,
    )
    if stored:
        db.execute_many(
            "INSERT INTO sailor.link (network_id, zone_a, gpu_a, count_a, zone_b, gpu_b, count_b,"
            " c0, c1, c2, max_bytes_per_s) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            [(name, *row) for row in rows],
        )
    return Imported(kind="network", name=source, checksum=name, rows=len(rows), stored=bool(stored))


@function
def store_prices(db: Database, prices: dict[str, Any], source: str, run_id: str) -> Imported:
    """Store a price list, which is the newest from then on; the same content changes nothing."""
    with declared():
        return _store_prices(db, PriceTable.from_json(prices), source, run_id)


def _store_prices(db: Database, prices: PriceTable, source: str, run_id: str) -> Imported:
    document = prices.to_json()
    name = checksum([source, document])
    stored = db.execute(
        "INSERT INTO sailor.price_list (price_list_id, source, run_id) VALUES ($1, $2, $3)"
        " ON CONFLICT (price_list_id) DO NOTHING",
        name,
        source,
        run_id,
    )
    if stored:
        db.execute_many(
            "INSERT INTO sailor.price (price_list_id, gpu, zone, valid_from_s, valid_to_s,"
            " usd_per_hour) VALUES ($1, $2, $3, $4, $5, $6)",
            [
                (name, p.gpu, p.zone or "", p.valid_from_s, p.valid_to_s, p.usd_per_hour)
                for p in prices.gpu_rows
            ],
        )
        db.execute_many(
            "INSERT INTO sailor.egress (price_list_id, zone_a, zone_b, usd_per_gb)"
            " VALUES ($1, $2, $3, $4)",
            [(name, a, b, usd) for a, b, usd in document["egress"]],
        )
    rows = len(prices.gpu_rows) + len(document["egress"])
    return Imported(kind="prices", name=source, checksum=name, rows=rows, stored=bool(stored))


@function
def store_gpu_type(db: Database, card: dict[str, Any]) -> None:
    """Store a GPU type, or replace its figures: plans that are stored keep theirs."""
    with declared():
        _store_cards(db, [GpuType.from_json(card)])


def _store_cards(db: Database, cards: Sequence[GpuType]) -> None:
    db.execute_many(
        "INSERT INTO sailor.gpu_type (gpu, memory_bytes, gpus_per_node, fixed_bytes,"
        " matmul_flops_per_s, half_flops_per_s, memory_bytes_per_s, peer_bytes_per_s)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (gpu) DO UPDATE"
        " SET memory_bytes = excluded.memory_bytes, gpus_per_node = excluded.gpus_per_node,"
        " fixed_bytes = excluded.fixed_bytes, matmul_flops_per_s = excluded.matmul_flops_per_s,"
        " half_flops_per_s = excluded.half_flops_per_s,"
        " memory_bytes_per_s = excluded.memory_bytes_per_s,"
        " peer_bytes_per_s = excluded.peer_bytes_per_s",
        [tuple(card.to_json().values()) for card in cards],
    )


@function
def choose_inputs(
    db: Database, model: str, gpus: list[str], zones: list[str], profile: str, run_id: str
) -> Inputs:
    """The newest inputs that cover a model on these GPU types in these zones.

    ``profile`` is "best" (measured or published where it covers all the GPU types, else roofline),
    "roofline", or the id of a stored one. What the product itself brings is stored at first use.
    """
    with declared():
        return inputs_for(db, model, gpus, zones, profile, run_id)


def inputs_for(
    db: Database,
    model: str,
    gpus: Sequence[str],
    zones: Sequence[str],
    profile: str,
    run_id: str,
) -> Inputs:
    """`choose_inputs` as a part of another function."""
    _bring_own(db, model, run_id)
    known = db.values("SELECT gpu FROM sailor.gpu_type ORDER BY gpu")
    for gpu in gpus:
        if gpu not in known:
            raise UnknownName(
                f"unknown GPU type {gpu!r}; known are {', '.join(known)}", kind="gpu", name=gpu
            )
    profile_id, source = _choose_profile(db, model, gpus, profile, run_id)
    return Inputs(
        model_id=model,
        profile_id=profile_id,
        profile_source=source,
        network_id=_choose_network(db, gpus, zones, run_id),
        price_list_id=db.value(
            "SELECT price_list_id FROM sailor.price_list ORDER BY version DESC LIMIT 1"
        ),
    )


def _bring_own(db: Database, model: str, run_id: str) -> None:
    """Store GPU types, list prices and a model of the catalogue where there are none yet."""
    if db.value("SELECT count(*) FROM sailor.gpu_type WHERE memory_bytes_per_s > 0") == 0:
        _store_cards(db, list(GPU_TYPES.values()))
    if db.value("SELECT count(*) FROM sailor.price_list") == 0:
        _store_prices(db, LIST_PRICES, "list", run_id)
    if model in JOBS and not db.value(
        "SELECT count(*) FROM sailor.model WHERE model_id = $1", model
    ):
        _register(db, JOBS[model], run_id)


def _choose_profile(
    db: Database, model: str, gpus: Sequence[str], wanted: str, run_id: str
) -> tuple[str, str]:
    if wanted not in (BEST, ROOFLINE):
        row = db.first(
            "SELECT profile_id, source FROM sailor.profile WHERE profile_id = $1 AND model_id = $2",
            wanted,
            model,
        )
        if row is None:
            raise MissingProfile(
                f"no profile {wanted!r} of {model}; give best, roofline or the id of a stored one"
            )
        return row.profile_id, row.source
    if wanted == BEST:
        row = db.first(
            "SELECT profile_id, source FROM sailor.profile p WHERE model_id = $1"
            " AND source <> 'roofline' AND (SELECT count(DISTINCT gpu) FROM sailor.layer_time t"
            "  WHERE t.profile_id = p.profile_id AND gpu = ANY($2)) = $3"
            " ORDER BY stored_at DESC, profile_id LIMIT 1",
            model,
            list(gpus),
            len(set(gpus)),
        )
        if row is not None:
            return row.profile_id, row.source
    cards = {card.name: card for card in stored_cards(db) if card.memory_bytes_per_s > 0}
    for gpu in gpus:
        if gpu not in cards:
            raise MissingProfile(
                f"no profile of {model} on {gpu}, and its peak rates are not known; measure it"
            )
    made = roofline_profile(stored_job(db, model), sorted(cards), table=cards)
    return _store_profile(db, made, run_id).checksum, ROOFLINE


def covering_profile(
    db: Database, model: str, gpus: Iterable[str], wanted: str
) -> tuple[str, set[str]]:
    """The profile to take when not all of these GPU types need be used, and those that it covers.

    Of the stored ones that are not roofline, the one that covers most; else roofline.
    """
    wished = sorted(gpus)
    if wanted != ROOFLINE:
        row = db.first(
            "SELECT profile_id, array_agg(DISTINCT gpu) AS gpus FROM sailor.profile"
            " JOIN sailor.layer_time USING (profile_id) WHERE model_id = $1 AND gpu = ANY($2)"
            " AND source <> 'roofline' AND ($3 = 'best' OR profile_id = $3)"
            " GROUP BY profile_id, stored_at"
            " ORDER BY count(DISTINCT gpu) DESC, stored_at DESC, profile_id LIMIT 1",
            model,
            wished,
            wanted,
        )
        if row is not None:
            return row.profile_id, set(row.gpus)
        if wanted != BEST:
            return wanted, set()
    known = {card.name for card in stored_cards(db) if card.memory_bytes_per_s > 0}
    return ROOFLINE, known & set(wished)


def _choose_network(db: Database, gpus: Sequence[str], zones: Sequence[str], run_id: str) -> str:
    pairs = list(product(sorted(set(zones)), sorted(set(zones)), sorted(set(gpus))))
    found: str | None = db.value(
        "SELECT network_id FROM sailor.network n WHERE source <> 'assumed'"
        " AND NOT EXISTS (SELECT FROM unnest($1::text[], $2::text[], $3::text[]) w(a, b, gpu)"
        "  WHERE NOT EXISTS (SELECT FROM sailor.link l WHERE l.network_id = n.network_id"
        "   AND zone_a = w.a AND zone_b = w.b AND gpu_a = w.gpu AND gpu_b = w.gpu))"
        " ORDER BY stored_at DESC, network_id LIMIT 1",
        [a for a, _, _ in pairs],
        [b for _, b, _ in pairs],
        [gpu for _, _, gpu in pairs],
    )
    if found is not None:
        return found
    cards = {card.name: card for card in stored_cards(db)}
    table = assumed_links(sorted(set(zones)), sorted(set(gpus)), cards)
    return _store_network(db, table, ASSUMED, run_id).checksum


def stored_cards(db: Database) -> list[GpuType]:
    """All GPU types."""
    rows = db.query(
        "SELECT gpu AS name, memory_bytes, gpus_per_node, fixed_bytes, matmul_flops_per_s,"
        " half_flops_per_s, memory_bytes_per_s, peer_bytes_per_s FROM sailor.gpu_type ORDER BY gpu"
    )
    return [GpuType.from_json(row) for row in rows]


@function
def load_problem(db: Database, inputs: Inputs, gpus: list[str], zones: list[str]) -> dict[str, Any]:
    """The stored inputs as the library reads them, as far as these GPU types and zones go."""
    return problem_document(db, inputs, gpus, zones)


def problem_of(db: Database, inputs: Inputs, gpus: Sequence[str], zones: Sequence[str]) -> Problem:
    """`load_problem` as a part of another function."""
    return Problem.from_json(problem_document(db, inputs, gpus, zones))


def problem_document(
    db: Database,
    inputs: Inputs,
    gpus: Sequence[str],
    zones: Sequence[str],
) -> dict[str, Any]:
    """`Problem.to_json` of what is stored."""
    return {
        "job": stored_job(db, inputs.model_id).to_json(),
        "profile": _profile_document(db, inputs, gpus),
        "links": _link_rows(db, inputs.network_id, gpus, zones),
        "prices": _price_document(db, inputs.price_list_id),
        "gpus": [card.to_json() for card in stored_cards(db)],
        "priced_at_s": 0.0,
    }


def _profile_document(
    db: Database,
    inputs: Inputs,
    gpus: Sequence[str],
) -> dict[str, Any]:
    # One row per point, its layers as arrays: a hundred rows instead of thousands.
    sizes = db.query(
        "SELECT degree, array_agg(parameters ORDER BY layer) AS parameters,"
        " array_agg(output_floats ORDER BY layer) AS output,"
        " array_agg(input_floats ORDER BY layer) AS given,"
        " array_agg(kept_floats ORDER BY layer) AS kept"
        " FROM sailor.layer_mem WHERE profile_id = $1 GROUP BY degree",
        inputs.profile_id,
    )
    times = db.query(
        "SELECT gpu, microbatch, degree, array_agg(forward_s ORDER BY layer) AS forward,"
        " array_agg(backward_s ORDER BY layer) AS backward,"
        " array_agg(update_s ORDER BY layer) AS step"
        " FROM sailor.layer_time WHERE profile_id = $1 AND gpu = ANY($2)"
        " GROUP BY gpu, microbatch, degree",
        inputs.profile_id,
        list(gpus),
    )
    return {
        "model": inputs.model_id,
        "source": inputs.profile_source,
        "sizes": [
            [row.degree, layer, *figures]
            for row in sizes
            for layer, figures in enumerate(
                zip(row.parameters, row.output, row.given, row.kept, strict=True)
            )
        ],
        "times": [
            [row.gpu, row.microbatch, row.degree, layer, *figures]
            for row in times
            for layer, figures in enumerate(zip(row.forward, row.backward, row.step, strict=True))
        ],
    }


def _link_rows(
    db: Database,
    network_id: str,
    gpus: Sequence[str],
    zones: Sequence[str],
) -> list[list[Any]]:
    rows = db.query(
        "SELECT zone_a, gpu_a, count_a, zone_b, gpu_b, count_b, c0, c1, c2, max_bytes_per_s"
        " FROM sailor.link WHERE network_id = $1 AND gpu_a = ANY($2) AND gpu_b = ANY($2)"
        " AND zone_a = ANY($3) AND zone_b = ANY($3)",
        network_id,
        list(gpus),
        list(zones),
    )
    return [list(row.values()) for row in rows]


def _price_document(db: Database, price_list_id: str) -> dict[str, Any]:
    prices = db.query(
        "SELECT gpu, zone, usd_per_hour, valid_from_s, valid_to_s FROM sailor.price"
        " WHERE price_list_id = $1",
        price_list_id,
    )
    egress = db.query(
        "SELECT zone_a, zone_b, usd_per_gb FROM sailor.egress WHERE price_list_id = $1",
        price_list_id,
    )
    return {
        "gpus": [
            [
                row.gpu,
                row.zone or None,
                row.usd_per_hour,
                None if row.valid_from_s == -inf else row.valid_from_s,
                None if row.valid_to_s == inf else row.valid_to_s,
            ]
            for row in prices
        ],
        "egress": [list(row.values()) for row in egress],
    }
