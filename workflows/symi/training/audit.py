"""Are all copies of the experts what they must be? A collective check of bit-equality."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import InvariantViolated
from .config import TrainConfig

__all__ = ["audit_copies", "weight_digest"]


def audit_copies(
    config: TrainConfig,
    placements: Sequence[Sequence[int]],
    weights: Sequence[Sequence[Tensor]],
    shards: Tensor,
) -> None:
    """Every slot of every rank holds exactly the concatenation of its expert's shards.

    ``weights[layer][k]`` are this rank's slots, ``shards[L, E, shard]`` its optimizer's weights.

    Raises:
        InvariantViolated: on every rank, naming the slots that differ.
    """
    gathered = [torch.empty_like(shards) for _ in range(config.ranks)]
    dist.all_gather(gathered, shards)
    whole = torch.cat(gathered, dim=2)[..., : config.expert_parameters]
    mine = [[weight_digest(slot) for slot in layer] for layer in weights]
    digests: list[list[list[str]]] = [[] for _ in range(config.ranks)]
    dist.all_gather_object(digests, mine)
    wrong = [
        f"layer {layer}, slot {slot}, expert {expert}"
        for layer, placement in enumerate(placements)
        for slot, expert in enumerate(placement)
        if digests[slot // config.slots_per_rank][layer][slot % config.slots_per_rank]
        != weight_digest(whole[layer, expert])
    ]
    if wrong:
        raise InvariantViolated(
            "slots differ from the shards of their expert: " + "; ".join(wrong), slots=wrong
        )


def weight_digest(weights: Tensor) -> str:
    """SHA-256 of a tensor's bytes."""
    return hashlib.sha256(weights.detach().contiguous().numpy().tobytes()).hexdigest()
