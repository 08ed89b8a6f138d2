"""Costs and pictures, kept with the workflow run that asked for them."""

from __future__ import annotations

from apiary import Database, function
from workflows.symi import costs, memory
from workflows.symi.costs import ExpertLayer, Links, Variant

from .errors import declared
from .records import Cost

__all__ = ["price", "store_picture"]


@function
def price(db: Database, layer: ExpertLayer, links: Links, variant: str, run_id: str) -> Cost:
    """Volume, time and memory of one iteration of one layer in both designs; stored."""
    with declared():
        chosen = Variant.named(variant)
        cost = costs.communication_cost(layer, links, chosen)
        kept = memory.rank_memory(layer)
        advice = costs.advice(cost)
    db.execute(
        "INSERT INTO symi.cost (run_id, variant, ranks, experts, slots_per_rank, gradient_bytes,"
        " weight_bytes, optimizer_bytes, pci_bytes_per_s, network_bytes_per_s,"
        " gradient_volume_bytes, weight_volume_bytes, static_s, symi_s, overhead_percent,"
        " move_weights_s, move_optimizer_s, optimizer_total_bytes, device_bytes, host_bytes)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,"
        " $19, $20) ON CONFLICT (run_id, variant) DO NOTHING",
        run_id,
        chosen.value,
        layer.ranks,
        layer.experts,
        layer.slots_per_rank,
        layer.gradient_bytes,
        layer.weight_bytes,
        layer.optimizer_bytes,
        links.pci_bytes_per_s,
        links.network_bytes_per_s,
        cost.gradient_volume_bytes,
        cost.weight_volume_bytes,
        cost.static_s,
        cost.symi_s,
        cost.overhead_percent,
        cost.move_weights_s,
        cost.move_optimizer_s,
        cost.optimizer_total_bytes,
        kept.device_bytes,
        kept.host_bytes,
    )
    return Cost(communication=cost, memory=kept, advice=advice)


@function
def store_picture(db: Database, run_id: str, name: str, svg: str) -> str:
    """Keep a picture of a workflow run; drawn again it replaces itself."""
    db.execute(
        "INSERT INTO symi.picture (run_id, name, svg) VALUES ($1, $2, $3)"
        " ON CONFLICT (run_id, name) DO UPDATE SET svg = excluded.svg",
        run_id,
        name,
        svg,
    )
    return name
