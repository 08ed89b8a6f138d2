"""A tiny GPT in layers, as the profiler and the live pipeline cut it: embedding, blocks, head.

Everything is seeded: the parameters of a layer depend only on the seed and the layer, the batch of
a step only on the seed and the step. So a layer is the same in whichever process it is built, and
training can be resumed with another split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from workflows.sailor.errors import BadJob
from workflows.sailor.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyGpt:
    """Shape of the model and of its training."""

    blocks: int = 4
    hidden: int = 128
    heads: int = 4
    sequence_length: int = 64
    vocabulary: int = 1000
    seed: int = 0
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.hidden % self.heads:
            raise BadJob(
                f"a tiny GPT with {self.blocks} blocks, hidden {self.hidden} and {self.heads} "
                "heads: expected at least one block and heads that divide the hidden size"
            )

    @property
    def layers(self) -> int:
        """Embedding, blocks, head."""
        return self.blocks + 2

    def job(self, global_batch: int) -> Job:
        """The training job that the simulator knows."""
        return Job(
            model="tiny-gpt",
            global_batch=global_batch,
            layers=self.layers,
            hidden=self.hidden,
            sequence_length=self.sequence_length,
            vocabulary=self.vocabulary,
            heads=self.heads,
            blocks=self.blocks,
        )

    def to_json(self) -> dict[str, Any]:
        """The record as a plain dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TinyGpt:
        """The inverse of `to_json`."""
        return cls(**value)


class Embedding(nn.Module):
    """Words and positions."""

    def __init__(self, shape: TinyGpt) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(shape.sequence_length, shape.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """(m, s) tokens -> (m, s, h)."""
        places = torch.arange(tokens.shape[1])
        out: Tensor = self.words(tokens) + self.positions(places)
        return out


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, shape: TinyGpt) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention = nn.LayerNorm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.hidden)
        self.norm_feed = nn.LayerNorm(shape.hidden)
        self.up = nn.Linear(shape.hidden, 4 * shape.hidden)
        self.down = nn.Linear(4 * shape.hidden, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(m, s, h) -> (m, s, h)."""
        m, s, h = x.shape
        split = (m, s, self.heads, h // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self._qkv(x))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(m, s, h))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm_feed(x))))
        return out

    def _qkv(self, x: Tensor) -> tuple[Tensor, ...]:
        projected: Tensor = self.qkv(self.norm_attention(x))
        return projected.chunk(3, dim=-1)


class Head(nn.Module):
    """The last norm and the words."""

    def __init__(self, shape: TinyGpt) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.hidden)
        self.words = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(m, s, h) -> (m, s, V) logits."""
        out: Tensor = self.words(self.norm(x))
        return out


def build_layer(shape: TinyGpt, layer: int) -> nn.Module:
    """Layer l with its seeded parameters."""
    torch.manual_seed(1_000_003 * shape.seed + layer)
    if layer == 0:
        return Embedding(shape)
    return Head(shape) if layer == shape.layers - 1 else Block(shape)


def batch_of(shape: TinyGpt, step: int, global_batch: int) -> tuple[Tensor, Tensor]:
    """(G, s) tokens and their successors: a seeded walk whose next token can be learned."""
    generator = torch.Generator().manual_seed(7_919 * shape.seed + step)
    start = torch.randint(shape.vocabulary, (global_batch, 1), generator=generator)
    stride = torch.randint(1, 4, (global_batch, 1), generator=generator)
    walk = start + stride * torch.arange(shape.sequence_length + 1)
    tokens = walk % shape.vocabulary
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    """Mean cross-entropy of a microbatch, weighted by its share of the global batch."""
    return share * functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
