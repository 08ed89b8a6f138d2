"""Real training runs, shared by the tests that look at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pytest

from workflows.symi.control import IterationRecord, MemoryControl, Placements
from workflows.symi.policies import parse_policy
from workflows.symi.training.config import TrainConfig

if TYPE_CHECKING:
    from pathlib import Path


class RecordingControl(MemoryControl):
    """Control state that also keeps the placements on which each iteration ran."""

    def __init__(self, policy: str, config: TrainConfig) -> None:
        super().__init__(
            parse_policy(policy), layers=config.layers, experts=config.experts, slots=config.slots
        )
        self.placements: list[Placements] = [self.begin().placements]

    def step(self, record: IterationRecord) -> Placements:
        answer = super().step(record)
        self.placements.append(answer)
        return answer


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a training run left."""

    config: TrainConfig
    records: list[IterationRecord]
    placements: list[Placements]


Trained = Callable[[int, str, int], Run]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """``trained(ranks, policy, steps)``: a real run; ranks 0 is the one-process reference."""
    pytest.importorskip("torch")
    return cache(lambda ranks, policy, steps: _train(tmp_path_factory, ranks, policy, steps))


def _train(factory: pytest.TempPathFactory, ranks: int, policy: str, steps: int) -> Run:
    import torch

    from workflows.symi.training.launch import train
    from workflows.symi.training.reference import train_reference

    config = TrainConfig(ranks=max(ranks, 1), steps=steps, audit_every=10)
    control = RecordingControl(policy, config)
    folder: Path = factory.mktemp("run")
    if ranks:
        records = train(config, control, folder).records
    else:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        records = train_reference(config, control)
        torch.set_num_threads(threads)
    return Run(config=config, records=records, placements=control.placements)
