"""How every benchmark here measures: interleaved rounds, percentiles, the machine's load."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

__all__ = ["Variant", "interleave", "report"]

Variant = Callable[[int], Awaitable[object]]


async def interleave(
    variants: Mapping[str, Variant], *, rounds: int, warm_up: int
) -> dict[str, list[float]]:
    """Run every variant once per round, in random order; seconds per call of each.

    Every variant sees the same noise of the machine. ``variant(i)`` gets the round's number.
    """
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for number in range(-warm_up, rounds):
        random.shuffle(order)
        for name in order:
            began = time.perf_counter()
            await variants[name](number)
            if number >= 0:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of them lie."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def report(title: str, seconds: Mapping[str, Sequence[float]], baseline: str) -> str:
    """A table in microseconds: p10, p50, p99, and the ratio of each p50 to the baseline's."""
    base = percentile(sorted(seconds[baseline]), 0.5)
    width = max(len(name) for name in seconds)
    lines = [
        f"{title} (n = {len(seconds[baseline])} per variant, load average "
        f"{' '.join(f'{load:.2f}' for load in os.getloadavg())})",
        f"{'':{width}}  {'p10':>8} {'p50':>8} {'p99':>8} us   p50 / {baseline}",
    ]
    for name, values in seconds.items():
        ordered = sorted(values)
        p10, p50, p99 = (percentile(ordered, share) * 1e6 for share in (0.10, 0.50, 0.99))
        ratio = p50 / 1e6 / base
        lines.append(f"{name:{width}}  {p10:8.0f} {p50:8.0f} {p99:8.0f}      {ratio:.2f}")
    return "\n".join(lines)
