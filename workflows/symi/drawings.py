"""The pictures of the workflows by name, and keeping them with a workflow run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions import symi
from functions.symi.records import Cluster

from .control import IterationRecord
from .pictures import (
    latency_bars,
    loss_curves,
    popularity_heatmap,
    replica_steps,
    slot_map,
    survival_lines,
)
from .placement import contiguous
from .simulation import PolicyResult, slot_capacities
from .trace import Trace

__all__ = ["keep", "of_losses", "of_popularity", "of_simulation", "of_slots"]

Drawings = dict[str, str]
"""SVG by name."""


def keep(run_id: str, drawings: Mapping[str, str]) -> list[str]:
    """Store drawings with a workflow run; their names."""
    return [symi.store_picture(run_id, name, svg) for name, svg in drawings.items()]


def of_popularity(trace: Trace) -> Drawings:
    """A heat map of every layer."""
    return {
        f"popularity, layer {layer}": popularity_heatmap(
            trace.tokens[:, layer], first_iteration=trace.first_iteration
        )
        for layer in range(trace.layers)
    }


def of_simulation(trace: Trace, results: Sequence[PolicyResult], cluster: Cluster) -> Drawings:
    """Survival and latency of all policies; of each, demand and last placement of layer 0."""
    capacity = float(slot_capacities(trace, cluster.slots, cluster.capacity_factor).mean())
    parts = {
        result.policy: {name: float(part.mean()) for name, part in result.latency.items()}
        for result in results
    }
    drawn = {
        "survival": survival_lines({result.policy: result.survival for result in results}),
        "latency": latency_bars(parts),
    }
    for result in results:
        counts = result.counts[:, 0]
        drawn[f"replicas, {result.policy}"] = replica_steps(trace.tokens[:, 0], counts, capacity)
        last = contiguous(counts[-1].tolist())
        drawn |= of_slots(result.policy, last, cluster.slots_per_rank)
    return drawn


def of_losses(runs: Mapping[str, Sequence[IterationRecord]]) -> Drawings:
    """Cross-entropy of training runs, against iterations and against minutes."""
    losses = {run: [record.cross_entropy for record in records] for run, records in runs.items()}
    seconds = {run: [record.latency_s for record in records] for run, records in runs.items()}
    return {"loss": loss_curves(losses, seconds)}


def of_slots(what: str, placement: Sequence[int], slots_per_rank: int) -> Drawings:
    """A map of all slots."""
    return {f"slots, {what}": slot_map(placement, slots_per_rank)}
