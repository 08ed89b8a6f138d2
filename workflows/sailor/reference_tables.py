"""Tables of the published planner: tensor degrees by heuristic, stage times, all-reduce times.

Kept apart from our own model on purpose: it has its own price list, sends undivided gradients over
the link of the tensor degree, and picks one degree per (GPU type, stage, microbatch).
"""

from __future__ import annotations

from functools import cache
from typing import Final

from workflows.sailor.memory import worker_memory
from workflows.sailor.network import BUCKET_BYTES, Endpoint, Link
from workflows.sailor.plan import even_split
from workflows.sailor.problem import Problem
from workflows.sailor.stages import weight_bytes

PLANNER_USD_PER_HOUR: Final = {"A100-40": 3.74, "V100-16": 2.8, "GH-96": 11.06}
SPEEDUP_THRESHOLD: Final = 1.5
FIRST_GUESS_S: Final = 1000.0
DEGREES: Final = (1, 2, 4)


class ReferenceTables:
    """Everything that the published search looks up, for one problem and a list of GPU types."""

    def __init__(self, problem: Problem, gpus: list[str]) -> None:
        self.problem = problem
        self.gpus = gpus
        self.usd_per_s = [
            PLANNER_USD_PER_HOUR.get(
                gpu, 3600 * problem.prices.usd_per_second(gpu, problem.links.zones[0])
            )
            / 3600
            for gpu in gpus
        ]
        self.stage_s = cache(self._stage_s)
        self.ring_s = cache(self._ring_s)
        self.hop_s = cache(self._hop_s)

    def splits(self, depth: int) -> list[range]:
        """Layers of each stage."""
        out, start = [], 0
        for size in even_split(self.problem.job.layers, depth):
            out.append(range(start, start + size))
            start += size
        return out

    def _stage_s(self, gpu: int, m: int, t: int, start: int, stop: int) -> float:
        """Σ (f + b); 0 where nothing was measured, as the published planner has it."""
        rows = self.problem.profile.times.get((self.gpus[gpu], m, t))
        if rows is None:
            return 0.0
        return sum(row.forward_s + row.backward_s for row in rows[start:stop])

    def update_s(self, gpu: int, m: int, t: int) -> float:
        """The largest optimizer step of a layer."""
        rows = self.problem.profile.times.get((self.gpus[gpu], m, t), ())
        return max((row.update_s for row in rows), default=0.0)

    def degrees(self, depth: int, m: int, *, several_types: bool) -> list[list[int] | None]:
        """Tensor degree per GPU type and stage; None for a type that fits no degree somewhere."""
        stages = self.splits(depth)
        out: list[list[int] | None] = []
        for g in range(len(self.gpus)):
            row: list[int] | None = []
            for i, layers in enumerate(stages):
                least = self._least_degree(g, m, depth, i, layers)
                if least is None:
                    row = None
                    break
                scaled = 1 if g == 0 and several_types else self._scaled_degree(g, m, layers)
                row.append(max(scaled, least))  # type: ignore[union-attr]
            out.append(row)
        return out

    def _least_degree(self, g: int, m: int, depth: int, i: int, layers: range) -> int | None:
        if m > max(self.problem.profile.microbatches([self.gpus[g]]), default=0):
            return None
        for t in DEGREES:
            worker = worker_memory(
                self.problem,
                stage=i,
                layers=layers,
                gpu=self.gpus[g],
                degree=t,
                microbatch=m,
                flight=depth - i,
                published=True,
            )
            if worker.fits:
                return t
        return None

    def _scaled_degree(self, g: int, m: int, layers: range) -> int:
        previous, chosen = FIRST_GUESS_S, 0
        for t in DEGREES:
            seconds = self.stage_s(g, m, t, layers.start, layers.stop)
            if seconds > 0 and previous / seconds < SPEEDUP_THRESHOLD:
                break
            if seconds == 0 and previous == 0:
                break
            previous, chosen = seconds, t
        return chosen

    def link(self, a: tuple[int, int, str], b: tuple[int, int, str]) -> Link:
        """Link between (gpu index, degree, zone) and another."""
        return self.problem.links.find(
            Endpoint(zone=a[2], gpu=self.gpus[a[0]], count=a[1]),
            Endpoint(zone=b[2], gpu=self.gpus[b[0]], count=b[1]),
        )

    def _ring_s(self, gpu: int, t: int, zone: str, start: int, stop: int, width: int) -> float:
        """All-reduce of the undivided weights; parts are whole bytes."""
        link = self.link((gpu, t, zone), (gpu, t, zone))
        remaining = int(weight_bytes(self.problem, range(start, stop)))
        total = 0.0
        while remaining > 0:
            bucket = min(remaining, int(BUCKET_BYTES))
            total += 2 * (width - 1) * link.send_s(int(bucket / width), published=True)
            remaining -= bucket
        return total

    def _hop_s(self, a: tuple[int, int, str], b: tuple[int, int, str], size: float) -> float:
        return self.link(a, b).send_s(size, published=True)
