"""The model of the real training run: stages with a split backward, AdamW, and the data.

Everything is float64 and seeded by its place, so that a run on many processes and a run on one
compute the same numbers up to the order of sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from workflows.recycle.training_spec import TrainingSpec

__all__ = ["AdamW", "StageCell", "StageState", "build_stage", "micro_batch", "micro_batch_loss"]


def build_stage(spec: TrainingSpec, stage: int) -> nn.Sequential:
    """The layers of one stage, with the parameters that its place and the seed give."""
    generator = torch.Generator().manual_seed(1_000_003 * spec.seed + stage)
    layers: list[nn.Module] = []
    for _ in range(spec.layers_per_stage):
        linear = nn.Linear(spec.width, spec.width, dtype=torch.float64)
        with torch.no_grad():
            for parameter in linear.parameters():
                parameter.uniform_(-1, 1, generator=generator).div_(spec.width**0.5)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers)


def micro_batch(spec: TrainingSpec, step: int, home: int, j: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one micro-batch, each of shape (samples, width)."""
    place = (step * spec.pipelines + home) * spec.micro_batches + j
    generator = torch.Generator().manual_seed(7_919 * spec.seed + 104_729 * (place + 1))
    shape = (2, spec.samples_per_micro_batch, spec.width)
    both = torch.randn(shape, generator=generator, dtype=torch.float64)
    return both[0], torch.tanh(both[0].roll(1, dims=1) + 0.1 * both[1])


def micro_batch_loss(spec: TrainingSpec, outputs: Tensor, targets: Tensor) -> Tensor:
    """Its part of the mean loss of the iteration: mean squared error / (P*M)."""
    return nn.functional.mse_loss(outputs, targets) / spec.job.batch


@dataclass(slots=True)
class StageCell:
    """One micro-batch in one stage, from its F to its W."""

    inputs: Tensor
    outputs: Tensor
    """The activation for the next stage, or the loss in the last one."""
    output_grad: Tensor | None = None
    """From the next stage; None in the last one."""

    def input_grad(self) -> Tensor:
        """I: the gradient for the stage before; the graph stays for W."""
        grads = torch.autograd.grad(self.outputs, self.inputs, self.output_grad, retain_graph=True)
        return grads[0]

    def weight_grads(self, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """W: the gradients for the parameters."""
        return torch.autograd.grad(self.outputs, list(parameters), self.output_grad)


class AdamW:
    """AdamW with its whole state in plain tensors (Loshchilov and Hutter, arXiv 1711.05101).

    theta <- theta*(1 - lr*wd) - lr*m_hat/(sqrt(v_hat) + eps)
    """

    beta1, beta2, eps, weight_decay = 0.9, 0.999, 1e-8, 0.01

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        self.parameters, self.learning_rate = list(parameters), learning_rate
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]
        self.t = 0

    @torch.no_grad()
    def step(self, grads: Sequence[Tensor]) -> None:
        """One update of all parameters."""
        self.t += 1
        for p, m, v, g in zip(self.parameters, self.m, self.v, grads, strict=True):
            m.mul_(self.beta1).add_(g, alpha=1 - self.beta1)
            v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
            m_hat = m / (1 - self.beta1**self.t)
            v_hat = v / (1 - self.beta2**self.t)
            p.mul_(1 - self.learning_rate * self.weight_decay)
            p.sub_(self.learning_rate * m_hat / (v_hat.sqrt() + self.eps))


class StageState:
    """What a worker of a stage must keep: parameters, optimizer state, steps done, a saved copy.

    Stages step at different times, at most one step apart. The copy from before the last step
    takes a stage that stepped too early back exactly.
    """

    def __init__(self, spec: TrainingSpec, stage: int) -> None:
        self.stage = stage
        self.module = build_stage(spec, stage)
        self.parameters = list(self.module.parameters())
        self.optimizer = AdamW(self.parameters, spec.learning_rate)
        self.steps_done = 0
        self.rollbacks = 0
        self._before_last: Tensor | None = None

    @torch.no_grad()
    def flat(self) -> Tensor:
        """The whole state as one tensor: parameters, m, v, t."""
        tensors = [*self.parameters, *self.optimizer.m, *self.optimizer.v]
        t = torch.tensor([float(self.optimizer.t)], dtype=torch.float64)
        return torch.cat([*(tensor.reshape(-1) for tensor in tensors), t])

    @torch.no_grad()
    def load_flat(self, flat: Tensor) -> None:
        """Take over a state that `flat` gave."""
        at = 0
        for tensor in [*self.parameters, *self.optimizer.m, *self.optimizer.v]:
            tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()
        self.optimizer.t = int(flat[at].item())

    def step(self, grads: Sequence[Tensor]) -> None:
        """Save the state, then update it."""
        self._before_last = self.flat()
        self.optimizer.step(grads)
        self.steps_done += 1

    def take_over(self, flat: Tensor, steps_done: int) -> None:
        """Become a copy of a peer."""
        self.load_flat(flat)
        self.steps_done = steps_done
        self._before_last = None

    def go_back_to(self, steps_done: int) -> bool:
        """Undo the last step if it is one too many; False if that cannot be done."""
        if self.steps_done == steps_done:
            return True
        if self.steps_done != steps_done + 1 or self._before_last is None:
            return False
        self.load_flat(self._before_last)
        self.steps_done, self._before_last = steps_done, None
        self.rollbacks += 1
        return True

    def digest(self) -> str:
        """A hash of all parameters, bit by bit."""
        sha = hashlib.sha256()
        for parameter in self.parameters:
            sha.update(parameter.detach().contiguous().numpy().tobytes())
        return sha.hexdigest()
