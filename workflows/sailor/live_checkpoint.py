"""Checkpoints of a live run: one file a layer, two slots written in turn.

Files hold what a layer needs to go on: its parameters and the optimizer's moments. That a
checkpoint is complete is not decided here: the run returns a `Checkpoint` after every worker has
written, and the caller keeps it (later in the database). Layers are saved one by one, so that the
next run may split them differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from workflows.sailor.errors import LiveRunError

SLOTS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint, as the caller keeps it."""

    folder: str
    slot: int
    step: int
    """steps done when it was written"""

    @property
    def place(self) -> Path:
        """The folder of the slot."""
        return Path(self.folder) / f"slot-{self.slot}"

    def to_json(self) -> dict[str, Any]:
        """The record as a plain dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Checkpoint:
        """The inverse of `to_json`."""
        return cls(**value)


def next_slot(last: Checkpoint | None) -> int:
    """The slot that does not hold the newest complete checkpoint."""
    return 0 if last is None else (last.slot + 1) % SLOTS


def save_layer(
    place: Path, layer: int, step: int, module: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write one layer; a half-written file never takes the place of an old one."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"layer-{layer}.pt"
    draft = path.with_suffix(".draft")
    state = {"step": step, "module": module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, draft)
    draft.replace(path)


def load_layer(
    checkpoint: Checkpoint, layer: int, module: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Restore one layer, or `LiveRunError` if its file is missing or of another step."""
    path = checkpoint.place / f"layer-{layer}.pt"
    if not path.is_file():
        raise LiveRunError(f"checkpoint of step {checkpoint.step}: {path.name} is missing")
    state = torch.load(path, weights_only=True)
    if state["step"] != checkpoint.step:
        raise LiveRunError(
            f"checkpoint of step {checkpoint.step}: {path.name} is of step {state['step']}"
        )
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
