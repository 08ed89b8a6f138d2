"""The task: rows of an order-1 Markov chain in which every token has four likely successors."""

from __future__ import annotations

import torch
from torch import Tensor

from .config import TrainConfig

__all__ = ["global_batch", "rank_rows", "successors"]

_SUCCESSOR_SHARES = (0.6, 0.25, 0.1, 0.05)
_CHAIN_SEED = 7
_BATCH_SEED = 1000
_SEED_STRIDE = 1_000_003


def successors(config: TrainConfig) -> Tensor:
    """``[V, 4]``: the successors of each token, most likely first."""
    generator = torch.Generator().manual_seed(_CHAIN_SEED + _SEED_STRIDE * config.seed)
    shape = (config.vocabulary, len(_SUCCESSOR_SHARES))
    return torch.randint(config.vocabulary, shape, generator=generator)


def global_batch(config: TrainConfig, chain: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a step (from 1), each ``[B, T]``; targets are one token ahead."""
    generator = torch.Generator().manual_seed(_BATCH_SEED + _SEED_STRIDE * config.seed + step)
    shares = torch.tensor(_SUCCESSOR_SHARES)
    token = torch.randint(config.vocabulary, (config.batch,), generator=generator)
    columns = [token]
    for _ in range(config.sequence):
        choice = torch.multinomial(shares, config.batch, replacement=True, generator=generator)
        token = chain[token, choice]
        columns.append(token)
    rows = torch.stack(columns, dim=1)
    return rows[:, :-1], rows[:, 1:]


def rank_rows(config: TrainConfig, rank: int) -> slice:
    """The consecutive rows of the global batch that a rank trains on."""
    share = config.batch // config.ranks
    return slice(rank * share, (rank + 1) * share)
