"""The dense part of the transformer, the experts' weights, and the loss.

    x = emb + pos;  per layer: x += O attention(LN1 x);  h = LN2 x;  x += gate * expert(h);  head(x)

How tokens reach their expert is the caller's: `forward` takes it as a function, so that the
distributed run and the one-process reference share everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import TrainConfig

__all__ = ["DenseModel", "Loss", "RouteTokens", "expert_output", "forward_loss", "initial_expert"]


class Loss(NamedTuple):
    """The two parts of the loss, both already weighted."""

    cross_entropy: Tensor
    """Sum of the tokens' cross-entropy / (B T)."""
    balance: Tensor
    """auxiliary * sum over layers of E * sum_e f_e P_e."""


RouteTokens = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(layer, hidden [n, D], expert of each token [n]) to (expert outputs [n, D], with zeros for
dropped tokens, and the popularity over all ranks [E])."""

_EXPERT_SEED_STRIDE = 1_000_003


class DenseModel(nn.Module):
    """All parameters that every rank has; drawn in this order from the seed, then float64."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        width, layers = config.width, range(config.layers)
        self.heads = config.heads
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.embedding = nn.Embedding(config.vocabulary, width)
            self.position = nn.Parameter(torch.randn(config.sequence, width) * 0.02)
            self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in layers)
            self.output = nn.ModuleList(nn.Linear(width, width) for _ in layers)
            self.norm1 = nn.ModuleList(nn.LayerNorm(width) for _ in layers)
            self.norm2 = nn.ModuleList(nn.LayerNorm(width) for _ in layers)
            self.gate = nn.ModuleList(nn.Linear(width, config.experts, bias=False) for _ in layers)
            self.head = nn.Linear(width, config.vocabulary)
        self.double()

    def attend(self, layer: int, x: Tensor) -> Tensor:
        """O(causal attention(LN1 x)), ``[B, T, D]``."""
        rows, length, width = x.shape
        split = self.qkv[layer](self.norm1[layer](x)).view(rows, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.output[layer](mixed.transpose(1, 2).reshape(rows, length, width))
        return result


def initial_expert(config: TrainConfig, layer: int, expert: int) -> Tensor:
    """The flat initial weights of an expert, ``[PE]`` float64: w1 / sqrt(D), w2 / sqrt(FF)."""
    seed = 100 * layer + expert + _EXPERT_SEED_STRIDE * config.seed
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(config.width, config.hidden, generator=generator, dtype=torch.float64)
    second = torch.randn(config.hidden, config.width, generator=generator, dtype=torch.float64)
    return torch.cat(
        [
            (first / math.sqrt(config.width)).flatten(),
            (second / math.sqrt(config.hidden)).flatten(),
        ]
    )


def expert_output(config: TrainConfig, weights: Tensor, rows: Tensor) -> Tensor:
    """GELU(rows w1) w2, ``[n, D]``."""
    border = config.width * config.hidden
    first = weights[:border].view(config.width, config.hidden)
    second = weights[border:].view(config.hidden, config.width)
    return functional.gelu(rows @ first) @ second


def forward_loss(
    config: TrainConfig, dense: DenseModel, inputs: Tensor, targets: Tensor, route: RouteTokens
) -> Loss:
    """These rows' part of the loss: summed over all ranks' rows it is the loss of the batch."""
    x = dense.embedding(inputs) + dense.position
    balance = x.new_zeros(())
    for layer in range(config.layers):
        x = x + dense.attend(layer, x)
        hidden = dense.norm2[layer](x).flatten(0, 1)
        probabilities = dense.gate[layer](hidden).softmax(dim=-1)
        strength, chosen = probabilities.max(dim=-1)
        outputs, popularity = route(layer, hidden, chosen)
        x = x + (strength[:, None] * outputs).view_as(x)
        balance = balance + _balance(config, popularity, probabilities)
    logits = dense.head(x).flatten(0, 1)
    entropy = functional.cross_entropy(logits, targets.flatten(), reduction="sum")
    return Loss(cross_entropy=entropy / config.tokens, balance=config.auxiliary * balance)


def _balance(config: TrainConfig, popularity: Tensor, probabilities: Tensor) -> Tensor:
    """E * sum_e f_e P_e: f the share of all ranks' tokens, P these rows' part of the mean."""
    share = popularity / config.tokens
    return config.experts * (share * probabilities.sum(dim=0) / config.tokens).sum()
