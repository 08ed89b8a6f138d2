"""Measuring bandwidth between real processes and fitting the network model to it.

Two halves of the group send to one another in pairs at once; the aggregate bandwidth is
(pairs · rounds · size / time). Fit: bw(x) = c0·u² + c1·u + c2 with u = log2(bytes / 1e6).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from workflows.sailor.errors import BadJob
from workflows.sailor.live_group import run_group
from workflows.sailor.network import GB, Link

SIZES_BYTES: Final = tuple(2**k for k in range(16, 25))
ROUNDS: Final = 20
WARM_UP: Final = 3
COEFFICIENTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured point."""

    size_bytes: int
    gb_per_s: float
    """aggregate of all pairs, 1e9 bytes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted link and how well it explains the samples."""

    c0: float
    c1: float
    c2: float
    max_bytes_per_s: float
    r_squared: float
    samples: tuple[Sample, ...]

    def link(self, name: str) -> Link:
        """The link for the simulator."""
        return Link(
            name=name, c0=self.c0, c1=self.c1, c2=self.c2, max_bytes_per_s=self.max_bytes_per_s
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def _exchange(rank: int, world: int, argument: Any) -> list[float]:
    """Seconds of the measured rounds per size, on this rank."""
    sizes, rounds = argument
    half = world // 2
    peer, sends = (rank + half, True) if rank < half else (rank - half, False)
    out: list[float] = []
    for size in sizes:
        buffer = torch.zeros(size, dtype=torch.uint8)
        token = torch.zeros(1, dtype=torch.uint8)
        for index in range(WARM_UP + rounds):
            if index == WARM_UP:
                dist.barrier()
                started = time.perf_counter()
            if sends:
                dist.send(buffer, peer)
            else:
                dist.recv(buffer, peer)
        # the last byte has arrived when the receiver says so
        if sends:
            dist.recv(token, peer)
        else:
            dist.send(token, peer)
        out.append(time.perf_counter() - started)
    return out


def measure_network(
    processes: int = 2, sizes: Sequence[int] = SIZES_BYTES, *, rounds: int = ROUNDS
) -> list[Sample]:
    """Aggregate bandwidth of processes/2 pairs at each size, over loopback."""
    if processes < 2 or processes % 2:
        raise BadJob(f"{processes} processes: expected an even number, at least 2")
    if len(sizes) < COEFFICIENTS or min(sizes) < 1 or rounds < 1:
        raise BadJob(f"{len(sizes)} sizes, {rounds} rounds: expected at least 3 sizes and 1 round")
    per_rank = run_group(_exchange, processes, (tuple(sizes), rounds))
    slowest = [max(column) for column in zip(*per_rank, strict=True)]
    pairs = processes // 2
    return [
        Sample(size_bytes=size, gb_per_s=pairs * rounds * size / seconds / GB)
        for size, seconds in zip(sizes, slowest, strict=True)
    ]


def fit_network(samples: Sequence[Sample]) -> Fit:
    """Least squares of a polynomial of degree two in log2(bytes / 1e6)."""
    if len(samples) < COEFFICIENTS:
        raise BadJob(f"{len(samples)} samples: a polynomial of degree 2 needs at least 3")
    u = np.log2(np.array([s.size_bytes for s in samples]) / 1e6)
    measured = np.array([s.gb_per_s for s in samples])
    c0, c1, c2 = (float(c) for c in np.polyfit(u, measured, 2))
    rest = float(((measured - np.polyval([c0, c1, c2], u)) ** 2).sum())
    spread = float(((measured - measured.mean()) ** 2).sum())
    return Fit(
        c0=c0,
        c1=c1,
        c2=c2,
        max_bytes_per_s=float(measured.max() * GB),
        r_squared=1.0 - rest / spread if spread > 0 else 1.0,
        samples=tuple(samples),
    )
