"""Tokens to the instances of their experts and back, over all ranks.

One all-gather of E counts tells every rank the global position of each of its tokens within its
class; a position under the class's capacity is kept and goes to instance position mod r. Since
every rank knows all counts, it also knows how many tokens it will receive from whom for which slot,
and no further message is needed before the all-to-all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..placement import counts_of
from .config import TrainConfig
from .model import expert_output

__all__ = ["Dispatcher", "instance_tokens", "positions_in_class"]


class Dispatcher:
    """Routes one iteration's tokens; ``popularity`` and ``dropped`` fill up layer by layer."""

    def __init__(
        self,
        config: TrainConfig,
        rank: int,
        placements: Sequence[Sequence[int]],
        weights: Sequence[Sequence[Tensor]],
    ) -> None:
        """``weights[layer][k]`` are the flat weights in this rank's k-th slot."""
        self._config = config
        self._rank = rank
        self._replicas = [torch.tensor(counts_of(row, config.experts)) for row in placements]
        self._weights = weights
        self.popularity: list[list[int]] = []
        self.dropped: list[int] = []

    def __call__(self, layer: int, hidden: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """See `RouteTokens`; a collective call of all ranks."""
        config, replicas = self._config, self._replicas[layer]
        by_rank = _all_counts(chosen, config)
        capacity = replicas * config.slot_capacity
        position = positions_in_class(chosen, config.experts) + by_rank[: self._rank].sum(0)[chosen]
        first_slot = replicas.cumsum(0) - replicas
        slot = first_slot[chosen] + position % replicas[chosen]
        kept = (position < capacity[chosen]).nonzero().flatten()
        kept = kept[slot[kept].argsort(stable=True)]

        s, rank = config.slots_per_rank, self._rank
        flow = instance_tokens(by_rank, replicas, capacity).view(config.ranks, config.ranks, s)
        send = flow[rank].sum(1).tolist()
        arrivals = flow[:, rank]
        receive = arrivals.sum(1).tolist()
        arrived = _exchange(hidden[kept], send, receive)
        results = self._compute(layer, arrived, arrivals)
        returned = _exchange(results, receive, send)

        popularity = by_rank.sum(0)
        self.popularity.append(popularity.tolist())
        self.dropped.append(int((popularity - capacity).clamp(min=0).sum()))
        return torch.zeros_like(hidden).index_add(0, kept, returned), popularity

    def _compute(self, layer: int, arrived: Tensor, arrivals: Tensor) -> Tensor:
        """Each slot's expert on its tokens; ``arrivals[src, k]`` says how the rows are ordered."""
        slots = torch.arange(arrivals.shape[1]).repeat(arrivals.shape[0])
        local_slot = slots.repeat_interleave(arrivals.flatten())
        order = local_slot.argsort(stable=True)
        groups = torch.split(arrived[order], arrivals.sum(0).tolist())
        results = [
            expert_output(self._config, weights, rows)
            for weights, rows in zip(self._weights[layer], groups, strict=True)
        ]
        return torch.cat(results)[order.argsort()]


def positions_in_class(chosen: Tensor, experts: int) -> Tensor:
    """For each token the number of earlier ones that chose the same expert, ``[n]``."""
    one_hot = torch.nn.functional.one_hot(chosen, experts)
    return (one_hot.cumsum(0) - one_hot).gather(1, chosen[:, None]).squeeze(1)


def instance_tokens(by_rank: Tensor, replicas: Tensor, capacity: Tensor) -> Tensor:
    """``[N, sN]``: tokens that each rank sends to each slot, from counts ``by_rank[N, E]``.

    A rank's tokens of a class have consecutive positions; of those under the capacity, instance j
    takes the ones with position mod r = j.
    """
    end = torch.minimum(by_rank.cumsum(0), capacity)
    begin = torch.minimum(by_rank.cumsum(0) - by_rank, capacity)
    expert = torch.arange(len(replicas)).repeat_interleave(replicas)
    instance = torch.arange(len(expert)) - (replicas.cumsum(0) - replicas)[expert]
    modulus = replicas[expert]

    def before(limit: Tensor) -> Tensor:
        # How many of the positions 0 … limit - 1 belong to the instance.
        return (limit[:, expert] - instance + modulus - 1).div(modulus, rounding_mode="floor")

    return before(end) - before(begin)


def _all_counts(chosen: Tensor, config: TrainConfig) -> Tensor:
    """Tokens per rank and expert, ``[N, E]``: the all-gather of E counts."""
    mine = torch.bincount(chosen, minlength=config.experts)
    gathered = [torch.empty_like(mine) for _ in range(config.ranks)]
    dist.all_gather(gathered, mine)
    return torch.stack(gathered)


def _exchange(rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
    result: Tensor = _AllToAll.apply(rows, send, receive)  # type: ignore[no-untyped-call]
    return result


class _AllToAll(torch.autograd.Function):
    """Rows to all ranks; gradients travel the way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
        ctx.splits = send, receive
        return _all_to_all(rows, send, receive)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        send, receive = ctx.splits
        return _all_to_all(gradients[0], receive, send), None, None


def _all_to_all(rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
    result = rows.new_empty(sum(receive), rows.shape[1])
    dist.all_to_all_single(result, rows.contiguous(), receive, send)
    return result
