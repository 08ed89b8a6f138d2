"""Gradients from the replicas to the optimizer shards, and weights back to the slots.

Gradients of replicas are summed, not averaged: the loss is a mean over all tokens of the batch, and
every replica has seen only some of them. On a rank the first slot of a class stands for all its
slots there; the representatives all-reduce within their run of consecutive ranks.

An expert's optimizer lives in N equal shards, one on each rank, wherever the expert is placed. A
rank collects its shard of every expert's gradient from one host each (Algorithm 2), and sends its
shard of the weights to every slot of the next placement. All messages of one phase travel as one
all-to-all whose parts are ordered by layer and then by expert or slot on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ..costs import shard_length
from ..placement import consecutive_groups, hosts_of, rank_slots, sources_of
from .config import TrainConfig

__all__ = ["ReplicaExchange", "local_sum"]

_Placements = Sequence[Sequence[int]]


class ReplicaExchange:
    """The two phases of one rank; all calls are collective."""

    def __init__(self, config: TrainConfig, rank: int) -> None:
        """Create a process group for every run of consecutive ranks."""
        self._config = config
        self._rank = rank
        self._shard = shard_length(config.expert_parameters, config.ranks)
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {
            ranks: dist.new_group(list(ranks)) for ranks in consecutive_groups(config.ranks)
        }

    def gradient_shards(
        self, placements: _Placements, gradients: Sequence[Sequence[Tensor]]
    ) -> tuple[Tensor, int]:
        """This rank's shard of every expert's gradient ``[L, E, shard]``, and bytes it sent.

        Placements are ascending, so that hosts are consecutive ranks; the launcher checks it.
        ``gradients[layer][k]`` is that of this rank's k-th slot. The bytes are of the shards, not
        of the all-reduce.
        """
        config = self._config
        parts: list[list[Tensor]] = [[] for _ in range(config.ranks)]
        expected: list[list[tuple[int, int]]] = [[] for _ in range(config.ranks)]
        for layer, placement in enumerate(placements):
            hosts = hosts_of(placement, config.slots_per_rank)
            sums = self._synchronised(placement, hosts, gradients[layer])
            for expert, sources in enumerate(sources_of(hosts, config.ranks)):
                expected[sources[self._rank]].append((layer, expert))
                for destination, source in enumerate(sources):
                    if source == self._rank:
                        parts[destination].append(sums[expert][destination])
        received, sent = self._all_to_all(parts, [len(cells) for cells in expected])
        shards = received.new_empty(config.layers, config.experts, self._shard)
        cells = torch.tensor([cell for source in expected for cell in source])
        shards[cells[:, 0], cells[:, 1]] = received
        return shards, sent

    def scatter_weights(
        self, placements: _Placements, shards: Tensor
    ) -> tuple[list[list[Tensor]], int]:
        """Fill this rank's slots of a placement; the slots' flat weights, and bytes sent.

        ``shards[L, E, shard]`` are this rank's parts of all experts. Every slot is sent for itself,
        as many bytes for any placement.
        """
        config = self._config
        parts = [
            [
                shards[layer, placement[slot]]
                for layer, placement in enumerate(placements)
                for slot in rank_slots(destination, config.slots_per_rank)
            ]
            for destination in range(config.ranks)
        ]
        count = config.layers * config.slots_per_rank
        received, sent = self._all_to_all(parts, [count] * config.ranks)
        whole = received.view(config.ranks, config.layers, config.slots_per_rank, self._shard)
        flat = whole.permute(1, 2, 0, 3).reshape(config.layers, config.slots_per_rank, -1)
        filled = flat[..., : config.expert_parameters]
        return [[slot.clone().requires_grad_() for slot in layer] for layer in filled], sent

    def cut(self, flat: Tensor) -> Tensor:
        """A flat expert as N shards, ``[N, shard]``; the last is padded with zeros."""
        padding = self._shard * self._config.ranks - len(flat)
        return torch.nn.functional.pad(flat, (0, padding)).view(self._config.ranks, self._shard)

    def _synchronised(
        self, placement: Sequence[int], hosts: list[list[int]], gradients: Sequence[Tensor]
    ) -> dict[int, Tensor]:
        """The summed gradient of each expert on this rank, cut into shards."""
        mine = [placement[slot] for slot in rank_slots(self._rank, self._config.slots_per_rank)]
        sums = {}
        for expert, total in local_sum(mine, gradients).items():
            if len(hosts[expert]) > 1:
                dist.all_reduce(total, group=self._groups[tuple(hosts[expert])])
            sums[expert] = self.cut(total)
        return sums

    def _all_to_all(
        self, parts: Sequence[Sequence[Tensor]], receive: Sequence[int]
    ) -> tuple[Tensor, int]:
        """Shards ``parts[destination]`` out, ``receive[source]`` shards in, and bytes sent away."""
        outgoing = [shard for destination in parts for shard in destination]
        empty = torch.empty(0, self._shard, dtype=torch.float64)
        packed = torch.stack(outgoing) if outgoing else empty
        received = packed.new_empty(sum(receive), self._shard)
        dist.all_to_all_single(received, packed, list(receive), [len(part) for part in parts])
        away = len(outgoing) - len(parts[self._rank])
        return received, away * self._shard * packed.element_size()


def local_sum(experts: Sequence[int], gradients: Sequence[Tensor]) -> dict[int, Tensor]:
    """The representative's sum over the slots of each class on one rank, by ascending expert."""
    sums: dict[int, Tensor] = {}
    for expert, gradient in zip(experts, gradients, strict=True):
        sums[expert] = sums[expert] + gradient if expert in sums else gradient.clone()
    return dict(sorted(sums.items()))
