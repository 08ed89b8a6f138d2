"""The same training in one process, an expert after the other, with PyTorch's own Adam.

It shares the model and the task with the distributed run, and nothing of dispatch, gradient
exchange, sharded optimizer or weight scatter: agreement of the losses is what shows those right.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import refused
from ..control import Control, IterationRecord, MemoryControl
from ..placement import counts_of
from ..policies import Policy
from .config import TrainConfig
from .data import global_batch, successors
from .model import DenseModel, expert_output, forward_loss, initial_expert

__all__ = ["Difference", "distance", "largest_difference", "train_reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far two runs are apart."""

    loss: float
    """Largest absolute difference of a step's loss."""
    steps_with_other_drops: int
    steps_with_other_popularity: int


def largest_difference(
    run: Sequence[IterationRecord], reference: Sequence[IterationRecord]
) -> Difference:
    """Compare two runs over the same iterations."""
    if [one.iteration for one in run] != [other.iteration for other in reference] or not run:
        raise refused(
            "run", f"{len(run)} iterations", f"the same {len(reference)}", "compare equal lengths"
        )
    pairs = list(zip(run, reference, strict=True))
    return Difference(
        loss=max(abs(one.loss - other.loss) for one, other in pairs),
        steps_with_other_drops=sum(one.dropped != other.dropped for one, other in pairs),
        steps_with_other_popularity=sum(one.popularity != other.popularity for one, other in pairs),
    )


def distance(run: Sequence[IterationRecord], config: TrainConfig, policy: Policy) -> Difference:
    """How far a whole run is from the reference, which is trained here on one core."""
    control = MemoryControl(
        policy, layers=config.layers, experts=config.experts, slots=config.slots
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return largest_difference(run, train_reference(config, control))
    finally:
        torch.set_num_threads(threads)


def train_reference(config: TrainConfig, control: Control) -> list[IterationRecord]:
    """Train from the first step; ``control`` decides capacities as it does placements."""
    dense = DenseModel(config)
    experts = [
        [initial_expert(config, layer, e).requires_grad_() for e in range(config.experts)]
        for layer in range(config.layers)
    ]
    optimizer = torch.optim.Adam(
        [*dense.parameters(), *(weights for layer in experts for weights in layer)],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
    )
    chain = successors(config)
    placements = control.begin().placements
    records = []
    for step in range(1, config.steps + 1):
        started = time.perf_counter()
        routing = _Routing(config, experts, placements)
        inputs, targets = global_batch(config, chain, step)
        optimizer.zero_grad(set_to_none=False)
        loss = forward_loss(config, dense, inputs, targets, routing)
        total = loss.cross_entropy + loss.balance
        total.backward()  # type: ignore[no-untyped-call]
        # Adam moves on its moments also where an expert had no token: its gradient is zero.
        for weights in (w for layer in experts for w in layer):
            if weights.grad is None:
                weights.grad = torch.zeros_like(weights)
        optimizer.step()
        record = IterationRecord(
            iteration=step,
            popularity=routing.popularity,
            loss=total.item(),
            cross_entropy=loss.cross_entropy.item(),
            dropped=routing.dropped,
            gradient_bytes=0,
            weight_bytes=0,
            latency_s=time.perf_counter() - started,
        )
        placements = control.step(record)
        records.append(record)
    return records


class _Routing:
    """Every expert computes its first ``capacity`` tokens in order; notes what it saw."""

    def __init__(
        self, config: TrainConfig, experts: list[list[Tensor]], placements: list[list[int]]
    ) -> None:
        self._config = config
        self._experts = experts
        self._placements = placements
        self.popularity: list[list[int]] = []
        self.dropped: list[int] = []

    def __call__(self, layer: int, hidden: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        counts = counts_of(self._placements[layer], self._config.experts)
        outputs = torch.zeros_like(hidden)
        popularity = torch.bincount(chosen, minlength=self._config.experts)
        dropped = 0
        for expert, replicas in enumerate(counts):
            tokens = (chosen == expert).nonzero().flatten()
            kept = tokens[: replicas * self._config.slot_capacity]
            dropped += len(tokens) - len(kept)
            result = expert_output(self._config, self._experts[layer][expert], hidden[kept])
            outputs = outputs.index_add(0, kept, result)
        self.popularity.append(popularity.tolist())
        self.dropped.append(dropped)
        return outputs, popularity
