"""Checkpoints of one rank: its optimizer shards and, on rank 0, the dense model.

A rank writes iteration t before t is committed, and removes t - 1 only after: whichever of the two
turns out to be committed when a rank dies in between, its files are there on every rank. A file is
complete or absent: it is written under another name, flushed to disk and renamed. Should a rank of
an earlier attempt still be alive, it writes under a name of its own, and the same bytes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from ..errors import InvalidArgument
from .config import TrainConfig

__all__ = ["Checkpoints"]

_UNFINISHED = ".unfinished"


class Checkpoints:
    """One run's checkpoint folder."""

    def __init__(self, directory: Path, config: TrainConfig) -> None:
        self._directory = directory
        self._digest = config.digest

    def path(self, rank: int, iteration: int) -> Path:
        """The file of a rank at the end of an iteration."""
        return self._directory / f"rank-{rank}-iteration-{iteration:06d}.pt"

    def save(self, rank: int, iteration: int, state: dict[str, Any]) -> None:
        """Write a rank's state durably."""
        path = self.path(rank, iteration)
        unfinished = path.with_suffix(f".{os.getpid()}{_UNFINISHED}")
        with unfinished.open("wb") as file:
            torch.save({"config": self._digest, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        folder = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def load(self, rank: int, iteration: int) -> dict[str, Any]:
        """Read a rank's state.

        Raises:
            InvalidArgument: there is no such file, or it belongs to another configuration.
        """
        path = self.path(rank, iteration)
        if not path.exists():
            raise InvalidArgument(
                f"no checkpoint {path.name}: iteration {iteration} is committed, but its files are "
                "not in the run's folder; resume with the folder that the run was started with",
                argument="directory",
                given=str(self._directory),
                expected=path.name,
            )
        stored = torch.load(path, weights_only=True)
        if stored["config"] != self._digest:
            raise InvalidArgument(
                f"checkpoint {path.name} was written by another configuration: resume with the "
                "same model, seed and number of ranks, or start a run in an empty folder",
                argument="config",
                given=self._digest,
                expected=stored["config"],
            )
        state: dict[str, Any] = stored["state"]
        return state

    def sweep(self) -> None:
        """Remove what ranks left unfinished when they were killed."""
        for path in self._directory.glob(f"*{_UNFINISHED}"):
            path.unlink(missing_ok=True)

    def forget_before(self, rank: int, committed: int) -> None:
        """Remove the file that no resumption can need once ``committed`` is committed."""
        self.path(rank, committed - 1).unlink(missing_ok=True)
