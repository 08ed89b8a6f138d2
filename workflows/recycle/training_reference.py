"""The same training on one process, without pipelines: what the real run must equal.

It uses torch's own backward pass and optimizer, not those of the workers.
"""

from __future__ import annotations

import torch
from torch import nn

from workflows.recycle.training_model import build_stage, micro_batch, micro_batch_loss
from workflows.recycle.training_spec import TrainingSpec

__all__ = ["reference_losses"]


def reference_losses(spec: TrainingSpec) -> list[float]:
    """The mean loss of every step."""
    model = nn.Sequential(*(build_stage(spec, stage) for stage in range(spec.stages)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate)
    losses = []
    for step in range(spec.steps):
        optimizer.zero_grad()
        total = 0.0
        for home in range(spec.pipelines):
            for j in range(spec.micro_batches):
                inputs, targets = micro_batch(spec, step, home, j)
                loss = micro_batch_loss(spec, model(inputs), targets)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses
