"""Reading the published file formats: profiles, links, prices, jobs, quotas and plans.

Only data is read; the result is our own records. Keys of the files are strings, GPU times are
`[forward, backward, update]`, links `[[c0, c1, c2], max bytes/s]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflows.sailor.errors import BadProfileFile, UnknownName
from workflows.sailor.hardware import GPU_TYPES, GpuType
from workflows.sailor.job import Job, Precision
from workflows.sailor.network import Link, LinkTable, link_name
from workflows.sailor.plan import (
    Plan,
    Replica,
    check_layer_lists,
    even_split,
    stages_from_split,
)
from workflows.sailor.prices import LIST_PRICES, GpuPrice, PriceTable
from workflows.sailor.problem import Problem
from workflows.sailor.profile import LayerSize, LayerTime, Profile


def read_json(path: Path) -> Any:
    """The content of a JSON file, or `BadProfileFile` with path and place."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadProfileFile(f"{path.name}: no such file") from error
    except json.JSONDecodeError as error:
        raise BadProfileFile(f"{path.name}: {error}") from error


def job_from_published(value: Mapping[str, Any], *, precision: Precision = "fp32") -> Job:
    """A training configuration file."""
    try:
        return Job(
            model=value["model"],
            global_batch=value["global_batch_size"],
            layers=value["num_all_layers"],
            hidden=value["hidden_size"],
            sequence_length=value["sequence_length"],
            vocabulary=value["vocab_size"],
            heads=value["heads"],
            blocks=value["num_layers"],
            optimizer=value["optimizer"],
            precision=precision,
        )
    except KeyError as error:
        raise BadProfileFile(f"training configuration: key {error} missing") from error


def profile_from_published(
    model: str, times: Mapping[str, Any], sizes: Mapping[str, Any], *, source: str = "published"
) -> Profile:
    """Layer times and sizes of one model out of the two profile files."""
    for name, table in (("layer times", times), ("layer sizes", sizes)):
        if model not in table:
            raise UnknownName(
                f"unknown model {model!r} in the {name}; known are {', '.join(sorted(table))}",
                kind="model",
                name=model,
            )
    where = f"profile of {model}"
    return Profile(
        model=model,
        source=source,
        sizes={
            int(t): tuple(_size(row, where) for row in _layers(layers, f"{where}/t={t}"))
            for t, layers in sizes[model].items()
        },
        times={
            (gpu, int(m), int(t)): tuple(
                _time(row, where) for row in _layers(layers, f"{where}/{gpu}/m={m}/t={t}")
            )
            for gpu, by_m in times[model].items()
            for m, by_t in by_m.items()
            for t, layers in by_t.items()
        },
    )


def _layers(layers: Mapping[str, Any], where: str) -> list[Any]:
    for i in range(len(layers)):
        if str(i) not in layers:
            raise BadProfileFile(f"{where}: layer {i} missing")
    return [layers[str(i)] for i in range(len(layers))]


def _size(row: Mapping[str, Any], where: str) -> LayerSize:
    try:
        return LayerSize(
            parameters=row["params_floats"],
            output_floats=row["act_output_floats"],
            input_floats=row["act_input_floats"],
            kept_floats=row["act_mem_floats"],
        )
    except KeyError as error:
        raise BadProfileFile(f"{where}: key {error} missing") from error


def _time(row: Sequence[float], where: str) -> LayerTime:
    if len(row) != 3 or min(row) < 0:
        raise BadProfileFile(f"{where}: {row} is not [forward, backward, update] seconds")
    return LayerTime(forward_s=row[0], backward_s=row[1], update_s=row[2])


def links_from_published(value: Mapping[str, Any]) -> LinkTable:
    """The nested table of links between zones."""
    links: dict[tuple[str, str, int, str, str, int], Link] = {}
    for zone_a, gpus_a in value.items():
        for gpu_a, counts_a in gpus_a.items():
            for k_a, zones_b in counts_a.items():
                for zone_b, gpus_b in zones_b.items():
                    for gpu_b, counts_b in gpus_b.items():
                        for k_b, entry in counts_b.items():
                            key = (zone_a, gpu_a, int(k_a), zone_b, gpu_b, int(k_b))
                            links[key] = _link(link_name(key), entry)
    return LinkTable(links)


def _link(name: str, entry: Sequence[Any]) -> Link:
    try:
        (c0, c1, c2), limit = entry
    except (TypeError, ValueError) as error:
        raise BadProfileFile(f"link {name}: {entry} is not [[c0, c1, c2], max]") from error
    return Link(name=name, c0=c0, c1=c1, c2=c2, max_bytes_per_s=limit)


def prices_from_published(
    gpu_hours: Mapping[str, Mapping[str, float]], egress: Mapping[str, Mapping[str, float]]
) -> PriceTable:
    """GPU-hours per type and zone; where all zones agree the price holds for every zone.

    GPU types that the file does not price keep our list price.
    """
    rows = [
        GpuPrice(gpu=gpu, zone=zone, usd_per_hour=usd)
        for gpu, zones in gpu_hours.items()
        for zone, usd in zones.items()
    ]
    for gpu, zones in gpu_hours.items():
        if len(set(zones.values())) == 1:
            rows.append(GpuPrice(gpu=gpu, usd_per_hour=next(iter(zones.values()))))
    rows += [row for row in LIST_PRICES.gpu_rows if row.gpu not in gpu_hours]
    return PriceTable(rows, {(a, b): usd for a, row in egress.items() for b, usd in row.items()})


def plan_from_published(value: Mapping[str, Any], layers: int) -> Plan:
    """A single-pipeline plan in the long form, or the short form of uniform plans."""
    if "pipeline_list" not in value:
        replica = Replica(gpu=value["gpu_type"], degree=value["T"], zone=value["zone"])
        split = even_split(layers, value["P"], extra_first=True)
        workers = [[replica] * value["D"]] * value["P"]
        return Plan(microbatch=value["mbs"], stages=stages_from_split(split, workers))
    plans = plans_from_published(value, layers)
    if len(plans) != 1:
        raise BadProfileFile(f"the plan has {len(plans)} pipelines, expected one")
    return plans[0]


def plans_from_published(value: Mapping[str, Any], layers: int) -> list[Plan]:
    """The independent pipelines of a plan in the long form."""
    return [
        Plan(
            microbatch=value["mbs"],
            stages=stages_from_split(
                check_layer_lists(pipeline["layers_per_stage"], layers),
                [[_replica(entry) for entry in stage] for stage in pipeline["tmp_per_stage"]],
            ),
        )
        for pipeline in value["pipeline_list"]
    ]


def _replica(entry: Sequence[Any]) -> Replica:
    machines, degree = entry
    if len(machines) != 1:
        raise BadProfileFile(
            f"a tensor group spans {len(machines)} machines {machines}; it must stay in one node"
        )
    gpu, _, zone = machines[0]
    return Replica(gpu=gpu, degree=degree, zone=zone)


def plan_to_published(plan: Plan) -> dict[str, Any]:
    """The long form of a plan, for tools that read the published format."""
    return {
        "pipeline_list": [
            {
                "num_stages": plan.depth,
                "layers_per_stage": [list(stage.layers) for stage in plan.stages],
                "tmp_per_stage": [
                    [[[[r.gpu, r.degree, r.zone]], r.degree] for r in stage.replicas]
                    for stage in plan.stages
                ],
                "dp": [len(stage.replicas) for stage in plan.stages],
            }
        ],
        "mbs": plan.microbatch,
        "used_gpus": {
            gpu: sum(n for (g, _), n in plan.gpus_used().items() if g == gpu)
            for gpu in dict.fromkeys(g for g, _ in plan.gpus_used())
        },
    }


def problem_from_folder(
    folder: Path,
    job: Job,
    *,
    gpus: Mapping[str, GpuType] = GPU_TYPES,
) -> Problem:
    """A problem from a folder in the published layout (profiles, network/, prices/)."""
    price_file = read_json(folder / "prices" / "gpu_prices.json")
    return Problem(
        job=job,
        profile=profile_from_published(
            job.model,
            read_json(folder / "profiles_sim.json"),
            read_json(folder / "llm_info.json"),
        ),
        links=links_from_published(read_json(folder / "network" / "multizone_bandwidths_het.json")),
        prices=prices_from_published(
            price_file["simulator"], read_json(folder / "prices" / "communication_cost.json")
        ),
        gpus=dict(gpus),
    )
