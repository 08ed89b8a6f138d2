"""DTFM: place devices so that communication is cheap; t = 1, P·D = all devices, m in 1, 2, 4, 8.

A genetic search partitions the devices into P groups of D (a group is a stage), minimising

    DP cost + 2·PP cost
    DP cost = max over groups of max_i Σ_j 2·(delay + 8·S / (bandwidth·D))
    PP cost = shortest open path over the groups; the length between two groups is that of the
              worst pair of the best matching of their devices (bottleneck assignment)

There is no compute and no memory model. Seeded: equal inputs give equal plans. Devices of one node
share the card's peer link.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from workflows.sailor.baseline_others import pipeline_bytes
from workflows.sailor.network import Endpoint
from workflows.sailor.plan import Availability, Plan, Replica, even_split, stages_from_split
from workflows.sailor.prices import region_of
from workflows.sailor.problem import Problem
from workflows.sailor.search_result import Goal
from workflows.sailor.stages import weight_bytes

Floats = NDArray[np.float64]
MICROBATCHES = (1, 2, 4, 8)
POPULATION = 10
TRIALS = 40


def dtfm_plans(
    problem: Problem, available: Availability, goal: Goal, *, seed: int = 0
) -> list[Plan]:
    """DTFM's plans, best first by its communication cost (it has no other figure)."""
    del goal  # DTFM knows no budget and no floor
    devices = [
        Replica(gpu=gpu, degree=1, zone=zone)
        for (gpu, zone), n in available.items()
        for _ in range(n)
    ]
    inverse = _seconds_per_byte(problem, devices)
    ranked: list[tuple[float, Plan]] = []
    for depth in range(1, min(problem.job.layers, len(devices)) + 1):
        if len(devices) % depth:
            continue
        split = even_split(problem.job.layers, depth)
        starts = np.cumsum((0, *split))
        size = max(
            weight_bytes(problem, range(a, a + n)) for a, n in zip(starts, split, strict=False)
        )
        for m in MICROBATCHES:
            if len(devices) // depth * m > problem.job.global_batch:
                continue
            rng = random.Random(f"{seed}/{depth}/{m}")
            search = _Placement(inverse, depth, size, pipeline_bytes(problem, m), devices)
            cost, groups = search.run(rng)
            rows = [[devices[d] for d in group] for group in groups]
            if all(len({region_of(r.zone) for r in row}) == 1 for row in rows):
                ranked.append((cost, Plan(microbatch=m, stages=stages_from_split(split, rows))))
    return [plan for _, plan in sorted(ranked, key=lambda entry: entry[0])]


def _seconds_per_byte(problem: Problem, devices: Sequence[Replica]) -> Floats:
    """1 / bandwidth between every pair of devices."""
    n = len(devices)
    out = np.zeros((n, n))
    known: dict[tuple[str, str, str, str], float] = {}
    for i, a in enumerate(devices):
        for j, b in enumerate(devices):
            card = problem.gpu(a.gpu)
            same_node = a == b and i // card.gpus_per_node == j // card.gpus_per_node
            if same_node and card.peer_bytes_per_s > 0:
                out[i, j] = 1 / card.peer_bytes_per_s
                continue
            key = (a.gpu, a.zone, b.gpu, b.zone)
            if key not in known:
                link = problem.links.find(
                    Endpoint(zone=a.zone, gpu=a.gpu, count=1),
                    Endpoint(zone=b.zone, gpu=b.gpu, count=1),
                )
                known[key] = 1 / link.max_bytes_per_s
            out[i, j] = known[key]
    return out


class _Placement:
    """One genetic search for a fixed P and m."""

    def __init__(
        self,
        inverse: Floats,
        depth: int,
        stage_bytes: float,
        edge_bytes: float,
        devices: Sequence[Replica],
    ) -> None:
        self.inverse, self.depth = inverse, depth
        self.stage_bytes, self.edge_bytes = stage_bytes, edge_bytes
        self.width = len(devices) // depth

    def run(self, rng: random.Random) -> tuple[float, list[list[int]]]:
        """Best cost and its groups in pipeline order."""
        whole = list(range(self.width * self.depth))
        people = [whole] + [rng.sample(whole, len(whole)) for _ in range(POPULATION - 1)]
        costs = [self.cost(person)[0] for person in people]
        for _ in range(TRIALS):
            child = self._child(rng, people)
            cost = self.cost(child)[0]
            worst = max(range(len(people)), key=lambda i: costs[i])
            if cost < costs[worst]:
                people[worst], costs[worst] = child, cost
        best = min(range(len(people)), key=lambda i: costs[i])
        cost, order = self.cost(people[best])
        groups = self._groups(people[best])
        return cost, self._matched([groups[g] for g in order])

    def _child(self, rng: random.Random, people: list[list[int]]) -> list[int]:
        """Part of one parent's order, the rest in the other's order, and one swap."""
        first, second = rng.sample(people, 2)
        cut = rng.randrange(1, len(first)) if len(first) > 1 else 1
        head = first[:cut]
        taken = set(head)
        child = head + [d for d in second if d not in taken]
        i, j = rng.randrange(len(child)), rng.randrange(len(child))
        child[i], child[j] = child[j], child[i]
        return child

    def _groups(self, person: list[int]) -> list[list[int]]:
        return [person[i : i + self.width] for i in range(0, len(person), self.width)]

    def cost(self, person: list[int]) -> tuple[float, list[int]]:
        """DP cost + 2·PP cost, and the order of the groups."""
        groups = self._groups(person)
        dp = 0.0
        for group in groups:
            block = self.inverse[np.ix_(group, group)]
            sums = block.sum(axis=1) - np.diag(block)
            dp = max(dp, float(2 * self.stage_bytes / self.width * sums.max()))
        between = np.zeros((self.depth, self.depth))
        for a in range(self.depth):
            for b in range(a + 1, self.depth):
                pairs = self.inverse[np.ix_(groups[a], groups[b])]
                between[a, b] = between[b, a] = self.edge_bytes * _bottleneck(pairs)
        length, order = _open_path(between)
        return dp + 2 * length, order

    def _matched(self, groups: list[list[int]]) -> list[list[int]]:
        """Order the devices of each group so that replica j talks to its partner."""
        out = groups[:1]
        for group in groups[1:]:
            pairs = self.inverse[np.ix_(out[-1], group)]
            _, columns = linear_sum_assignment(pairs)
            out.append([group[c] for c in columns])
        return out


def _bottleneck(pairs: Floats) -> float:
    """The smallest largest entry of a perfect matching."""
    values = np.unique(pairs)
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        blocked = (pairs > values[middle]).astype(np.float64)
        rows, columns = linear_sum_assignment(blocked)
        low, high = (low, middle) if blocked[rows, columns].sum() == 0 else (middle + 1, high)
    return float(values[low])


def _open_path(between: Floats) -> tuple[float, list[int]]:
    """A short path through all groups: nearest neighbour from every start, the shortest of them."""
    depth = len(between)
    best: tuple[float, list[int]] = (float("inf"), [])
    for start in range(depth):
        order, length = [start], 0.0
        left = set(range(depth)) - {start}
        while left:
            here = order[-1]
            there = min(sorted(left), key=lambda g: between[here, g])
            length += float(between[here, there])
            order.append(there)
            left.remove(there)
        if length < best[0]:
            best = (length, order)
    return best
