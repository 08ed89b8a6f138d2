"""Adam on one rank's shards of all experts, wherever the experts are placed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .config import TrainConfig

__all__ = ["ShardedAdam"]


class ShardedAdam:
    """Master weights and both moments, each ``[L, E, shard]``; plain Adam without decay.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
    w -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
    """

    def __init__(self, config: TrainConfig, weights: Tensor) -> None:
        """Start from this rank's shards of the initial weights."""
        self._config = config
        self.weights = weights
        self._first = torch.zeros_like(weights)
        self._second = torch.zeros_like(weights)
        self._steps = 0

    def step(self, gradients: Tensor) -> None:
        """One update; an expert without tokens has a zero gradient, not none."""
        config = self._config
        self._steps += 1
        self._first.lerp_(gradients, 1.0 - config.beta1)
        self._second.mul_(config.beta2).addcmul_(gradients, gradients, value=1.0 - config.beta2)
        correction = 1.0 - config.beta1**self._steps
        scale = math.sqrt(1.0 - config.beta2**self._steps)
        denominator = (self._second.sqrt() / scale).add_(config.epsilon)
        self.weights.addcdiv_(self._first, denominator, value=-config.learning_rate / correction)

    def state(self) -> dict[str, Tensor | int]:
        """Everything that a checkpoint needs."""
        return {
            "weights": self.weights,
            "first": self._first,
            "second": self._second,
            "steps": self._steps,
        }

    def load(self, state: dict[str, Tensor | int]) -> None:
        """Go on from a checkpointed `state`."""
        weights, first, second = state["weights"], state["first"], state["second"]
        steps = state["steps"]
        if not (
            isinstance(weights, Tensor)
            and isinstance(first, Tensor)
            and isinstance(second, Tensor)
            and isinstance(steps, int)
        ):
            raise TypeError("optimizer state must be three tensors and a number of steps")
        self.weights, self._first, self._second, self._steps = weights, first, second, steps
