"""The published planner, reproduced with its heuristics and its faults, for comparison.

Dynamic programming over stages with one tensor degree per (GPU type, stage, microbatch); D in
decreasing order while throughput improves (increasing while cost falls). Reproduced faults: the
cost objective looks only at P = 1; of neighbouring type mixes with the same time only the first is
explored; a result for a region is reused for other region lists; in the last stage a replica may be
placed in a zone that has no GPU left (so a plan can exceed its cluster: `valid` says so). Results
of earlier calls are not mixed in. Use `planner.search` to plan.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise, permutations
from math import inf

from workflows.sailor.memory import plan_memory
from workflows.sailor.plan import Availability, Plan, Replica, stages_from_split
from workflows.sailor.prices import region_of
from workflows.sailor.problem import Problem
from workflows.sailor.reference_tables import ReferenceTables
from workflows.sailor.search_result import Candidate, Goal, SearchResult
from workflows.sailor.simulator import simulate
from workflows.sailor.stages import activation_bytes, weight_bytes

Slot = tuple[int, int, str]
"""(GPU type index, tensor degree, zone)"""
Runs = tuple[tuple[Slot, int], ...]
"""replicas of a stage in order, counted"""
Pool = tuple[tuple[str, tuple[int, ...]], ...]
"""zones of a region with free GPUs per type"""

IN_REGION_USD_PER_GB = 0.01
ONE_REGION_RANK = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partial:
    """A solution for the last stages."""

    stages: tuple[Runs, ...]
    time_s: float
    comm_usd: float
    usd_per_s: float
    straggler_s: float
    first_s: float
    compute_s: float
    hops_s: float
    sync_s: float
    ring_usd: float


def _single(value: float) -> float:
    """Rounded to single precision: the published planner keeps money in it."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


@dataclass(slots=True, kw_only=True)
class _Search:
    tables: ReferenceTables
    goal: Goal
    m: int = 1
    width: int = 1
    stages: Sequence[range] = ()
    degrees: Sequence[list[int] | None] = ()
    memo: dict[tuple[object, ...], _Partial | None] = field(default_factory=dict)
    alone: dict[tuple[object, ...], _Partial] = field(default_factory=dict)

    @property
    def microbatches(self) -> int:
        return self.tables.problem.job.microbatches(self.m, self.width)

    def solve(
        self, i: int, at: int, name: str, regions: Sequence[str], pools: dict[str, Pool], cap: str
    ) -> _Partial | None:
        """Best layout of stages i… on what is left in the regions from `at` on."""
        left = len(self.stages) - i
        key = (self.m, left, self.stages[i].start, self.width, name, cap)
        if key not in self.memo:
            self.memo[key] = None
            if self._hopeless(i, at, regions, pools):
                return None
            find = self._last if left == 1 else self._inner
            self.memo[key] = find(i, at, regions, pools, float(cap))
        return self.memo[key]

    def _mixes(self, i: int, pool: Pool) -> Iterator[tuple[int, ...]]:
        """Replicas per type that sum to D, first type ascending."""
        caps = [
            sum(free[g] // degrees[i] for _, free in pool) if degrees else 0
            for g, degrees in enumerate(self.degrees)
        ]

        def rest(g: int, need: int) -> Iterator[tuple[int, ...]]:
            if g == len(caps) - 1:
                if need <= caps[g]:
                    yield (need,)
                return
            for n in range(min(need, caps[g]) + 1):
                for tail in rest(g + 1, need - n):
                    yield (n, *tail)

        yield from rest(0, self.width)

    def _alone(self, i: int, mix: Sequence[int], zone: str, zones: set[str]) -> _Partial:
        """Time and money of one stage by itself."""
        present = tuple(n > 0 for n in mix)
        key = (self.m, self.width, len(self.stages), i, present, zone, frozenset(zones))
        if key not in self.alone:
            self.alone[key] = self._stage_alone(i, mix, zone, zones)
        return replace(self.alone[key], usd_per_s=self._usd_per_s(i, mix))

    def _stage_alone(self, i: int, mix: Sequence[int], zone: str, zones: set[str]) -> _Partial:
        tables, layers = self.tables, self.stages[i]
        used = [(g, self._degree(g, i)) for g, n in enumerate(mix) if n]
        compute = max(tables.stage_s(g, self.m, t, layers.start, layers.stop) for g, t in used)
        update = max(len(layers) * tables.update_s(g, self.m, t) for g, t in used)
        sync = 0.0
        if self.width > 1:
            slowest, bottleneck = 1e12, used[0]
            for g, t in used:
                for other in sorted(zones):
                    limit = tables.link((g, t, zone), (g, t, other)).max_bytes_per_s
                    if limit < slowest:
                        slowest, bottleneck = limit, (g, t)
            sync = tables.ring_s(*bottleneck, zone, layers.start, layers.stop, self.width)
        ring_usd = 0.0
        if self.width > 1 and len(zones) > 1:
            part = weight_bytes(tables.problem, layers) / self.width
            ring_usd = 2 * (self.width - 1) * len(zones) * part * IN_REGION_USD_PER_GB / 1e9
        return _Partial(
            stages=(),
            time_s=self.microbatches * compute + sync + update,
            comm_usd=ring_usd,
            usd_per_s=self._usd_per_s(i, mix),
            straggler_s=compute,
            first_s=compute,
            compute_s=compute,
            hops_s=0.0,
            sync_s=sync,
            ring_usd=ring_usd,
        )

    def _usd_per_s(self, i: int, mix: Sequence[int]) -> float:
        prices = self.tables.usd_per_s
        return sum(n * self._degree(g, i) * prices[g] for g, n in enumerate(mix))

    def _degree(self, g: int, i: int) -> int:
        degrees = self.degrees[g]
        return degrees[i] if degrees else 0

    def _place_last(self, i: int, mix: Sequence[int], pool: Pool) -> Runs | None:
        """Zone by zone; steps at most one zone ahead per replica, even into an empty one."""
        out: list[Slot] = []
        for g, need in enumerate(mix):
            if not need:
                continue
            t, z = self._degree(g, i), 0
            free = pool[0][1][g]
            for _ in range(need):
                if free < t:
                    z += 1
                    if z == len(pool):
                        return None
                    free = pool[z][1][g]
                out.append((g, t, pool[z][0]))
                free -= t
        return _count(out)

    def _place(self, i: int, mix: Sequence[int], pool: Pool) -> tuple[Runs, Pool] | None:
        """Zone by zone; also what is left of the pool."""
        out: list[tuple[Slot, int]] = []
        left = [list(free) for _, free in pool]
        for g, wanted in enumerate(mix):
            t, z, need = self._degree(g, i), 0, wanted
            while need:
                if z == len(pool):
                    return None
                here = min(need, left[z][g] // t)
                if here:
                    out.append(((g, t, pool[z][0]), here))
                    left[z][g] -= here * t
                    need -= here
                z += 1
        after = tuple((zone, tuple(free)) for (zone, _), free in zip(pool, left, strict=True))
        return tuple(out), after

    def _hopeless(self, i: int, at: int, regions: Sequence[str], pools: dict[str, Pool]) -> bool:
        """Too few GPUs for D replicas of every stage left, even at each type's smallest degree.

        The published planner finds that out by trying; the answer is the same.
        """
        room = 0
        for g, degrees in enumerate(self.degrees):
            if degrees:
                least = min(degrees[i:])
                room += sum(free[g] // least for r in regions[at:] for _, free in pools[r])
        return room < self.width * (len(self.stages) - i)

    def _last(
        self, i: int, at: int, regions: Sequence[str], pools: dict[str, Pool], cap: float
    ) -> _Partial | None:
        pool, best, best_figure = pools[regions[at]], None, inf
        for mix in self._mixes(i, pool):
            runs = self._place_last(i, mix, pool)
            if runs is None:
                continue
            zones = {slot[2] for slot, _ in runs}
            alone = replace(self._alone(i, mix, pool[0][0], zones), stages=(runs,))
            cost = _single(alone.time_s * alone.usd_per_s + alone.ring_usd)
            if self.goal.objective == "throughput":
                if alone.time_s < best_figure and (cap == 0.0 or cost <= cap):
                    best, best_figure = alone, alone.time_s
            elif cost <= best_figure and alone.time_s <= (self.goal.max_iteration_s or inf):
                best, best_figure = alone, cost
        return best

    def _inner(
        self, i: int, at: int, regions: Sequence[str], pools: dict[str, Pool], cap: float
    ) -> _Partial | None:
        if self.goal.objective != "throughput":
            return None  # the published budget test of P > 1 is false for the cost objective
        pool, best, previous = pools[regions[at]], None, inf
        times: dict[tuple[bool, ...], _Partial] = {}
        for mix in self._mixes(i, pool):
            present = tuple(n > 0 for n in mix)
            if present not in times:
                times[present] = self._alone(i, mix, pool[0][0], {pool[0][0]})
            alone = times[present]
            if alone.time_s == previous:
                continue
            placed = self._place(i, mix, pool)
            there = placed and self._next_region(i + 1, at, regions, pools, placed[1])
            if placed is None or there is None:
                continue
            runs, after = placed
            alone = replace(alone, stages=(runs,), usd_per_s=self._usd_per_s(i, mix))
            cost = _single(alone.time_s * alone.usd_per_s + alone.ring_usd)
            if cap != 0.0 and cost > cap:
                continue
            previous = alone.time_s
            left = {**pools, regions[at]: after}
            found = self._with_rest(i, alone, there, regions, left, cap, cost)
            if found is not None and (best is None or found.time_s < best.time_s):
                best = found
        return best

    def _next_region(
        self, i: int, at: int, regions: Sequence[str], pools: dict[str, Pool], after: Pool
    ) -> tuple[int, str] | None:
        """Where the next stage goes: here if D replicas fit, else one region further."""
        fits = sum(
            free[g] // degrees[i]
            for _, free in after
            for g, degrees in enumerate(self.degrees)
            if degrees
        )
        pool = after
        if fits < self.width:
            at += 1
            if at >= len(regions):
                return None
            pool = pools[regions[at]]
        totals = [sum(free[g] for _, free in pool) for g in range(len(self.degrees))]
        return at, f"{regions[at]}_{totals}"

    def _with_rest(
        self,
        i: int,
        alone: _Partial,
        there: tuple[int, str],
        regions: Sequence[str],
        pools: dict[str, Pool],
        cap: float,
        cost: float,
    ) -> _Partial | None:
        """Budget iteration: give the rest what is left, less if another stage is the straggler."""
        remaining = max(_single(cap - cost), 0.0)
        merged = alone
        while True:
            rest = self.solve(i + 1, there[0], there[1], regions, pools, f"{remaining:.2f}")
            if rest is None:
                return None
            merged = self._merge(merged, rest)
            total = replace(
                merged,
                stages=alone.stages + rest.stages,
                usd_per_s=alone.usd_per_s + rest.usd_per_s,
            )
            # the published test compares traffic alone with the limit: time is still zero there
            if cap == 0.0 or _single(total.comm_usd) <= cap:
                return total
            if rest.straggler_s <= merged.straggler_s:
                return None
            remaining = max(_single(cap - _single(total.comm_usd)), 0.0)
            if remaining <= 0.0:
                return None

    def _merge(self, here: _Partial, rest: _Partial) -> _Partial:
        """Join one stage with the solution of the later ones."""
        size = activation_bytes(self.tables.problem, self.stages[0][-1], self.m)
        send = usd = 0.0
        prices = self.tables.problem.prices
        for (a, b), n in _pairs(here.stages[0], rest.stages[0]).items():
            send = max(send, self.tables.hop_s(a, b, size))
            usd += n * prices.egress_usd_per_gb(a[2], b[2]) * size / 1e9 * self.microbatches
        straggler = max(here.straggler_s + send, rest.first_s + send, rest.straggler_s)
        hops = here.hops_s + rest.hops_s + 2 * send
        compute = here.compute_s + rest.compute_s
        sync = max(here.sync_s, rest.sync_s)
        return replace(
            here,
            time_s=(self.microbatches - 1) * straggler + hops + compute + sync,
            comm_usd=2 * usd + here.ring_usd + rest.comm_usd,
            straggler_s=straggler,
            first_s=here.compute_s + send,
            compute_s=compute,
            hops_s=hops,
            sync_s=sync,
        )


def _count(slots: Sequence[Slot]) -> Runs:
    out: list[tuple[Slot, int]] = []
    for slot in slots:
        if out and out[-1][0] == slot:
            out[-1] = (slot, out[-1][1] + 1)
        else:
            out.append((slot, 1))
    return tuple(out)


def _pairs(a: Runs, b: Runs) -> dict[tuple[Slot, Slot], int]:
    """Replica j of one stage with replica j of the next, counted."""
    out: dict[tuple[Slot, Slot], int] = {}
    left, right = list(a), list(b)
    while left and right:
        (x, n), (y, k) = left[0], right[0]
        step = min(n, k)
        out[(x, y)] = out.get((x, y), 0) + step
        left[0], right[0] = (x, n - step), (y, k - step)
        left = left[1:] if n == step else left
        right = right[1:] if k == step else right
    return out


def _pools(available: Availability, gpus: Sequence[str]) -> dict[str, Pool]:
    """Zones of each region, largest first; equal ones in reverse order of mention."""
    zones = list(dict.fromkeys(zone for _, zone in available))[::-1]
    regions: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for zone in zones:
        free = tuple(available.get((gpu, zone), 0) for gpu in gpus)
        if sum(free):
            regions.setdefault(region_of(zone), []).append((zone, free))
    return {
        region: tuple(sorted(pool, key=lambda entry: -sum(entry[1])))
        for region, pool in reversed(regions.items())
    }


def _region_lists(
    tables: ReferenceTables, pools: dict[str, Pool], degrees: Sequence[list[int] | None]
) -> list[tuple[str, ...]]:
    """Single regions first, then sets in their order of the largest bottleneck bandwidth."""
    lists: list[tuple[float, tuple[str, ...]]] = []
    for size in range(1, len(pools) + 1):
        for chosen in combinations(pools, size):
            enough = any(
                sum(free[g] for region in chosen for _, free in pools[region]) >= sum(row or [])
                for g, row in enumerate(degrees)
            )
            if enough:
                lists.append(
                    max(
                        ((_rank(tables, pools, order), order) for order in permutations(chosen)),
                        key=lambda ranked: ranked[0],
                    )
                )
    return [order for _, order in sorted(lists, key=lambda ranked: -ranked[0])]


def _rank(tables: ReferenceTables, pools: dict[str, Pool], order: Sequence[str]) -> float:
    """Smallest bandwidth between neighbours (MB/s); a region by itself comes first."""
    if len(order) == 1:
        return ONE_REGION_RANK
    zones = [pools[region][0][0] for region in order]
    return min(
        max(
            link.max_bytes_per_s / 1e6
            for key, link in tables.problem.links.items()
            if (key[0], key[2], key[3], key[5]) == (a, 1, b, 1)
        )
        for a, b in pairwise(zones)
    )


def _widths(problem: Problem, m: int, most: int, *, descending: bool) -> list[int]:
    """D values at which N_b changes."""
    batches = [problem.job.microbatches(m, d) for d in range(1, most + 1)]
    out = [1] + [d for d in range(2, most + 1) if batches[d - 1] != batches[d - 2]]
    return out[::-1] if descending else out


def reference_plans(
    problem: Problem, available: Availability, goal: Goal
) -> list[tuple[Plan, float, float]]:
    """(plan, its estimate of T, its estimate of C), best first, by the published search."""
    gpus = sorted({gpu for gpu, _ in available})
    tables = ReferenceTables(problem, gpus)
    pools = _pools(available, gpus)
    several = len({gpu for (gpu, _), n in available.items() if n > 0}) > 1
    search = _Search(tables=tables, goal=goal)
    found: list[tuple[Plan, float, float]] = []
    most = sum(available.values())
    cap = f"{goal.max_cost_usd or 0.0:.2f}"
    for depth in range(1, problem.job.layers + 1):
        for m in problem.profile.microbatches(gpus):
            search.m, search.stages = m, tables.splits(depth)
            search.degrees = tables.degrees(depth, m, several_types=several)
            for regions in _region_lists(tables, pools, search.degrees):
                found += _over_widths(search, problem, regions, pools, most, cap)
    limit, floor = goal.max_cost_usd, goal.max_iteration_s
    found = [
        f for f in found if (limit is None or f[2] < limit) and (floor is None or f[1] < floor)
    ]
    throughput = goal.objective == "throughput"
    return sorted(found, key=lambda entry: entry[1] if throughput else entry[2])


def _over_widths(
    search: _Search,
    problem: Problem,
    regions: Sequence[str],
    pools: dict[str, Pool],
    most: int,
    cap: str,
) -> list[tuple[Plan, float, float]]:
    """H3/H4: D in order, until the figure stops improving."""
    goal, found = search.goal, []
    throughput = goal.objective == "throughput"
    limit = goal.max_cost_usd if throughput else goal.max_iteration_s
    best, seen_within = inf, False
    for width in _widths(problem, search.m, most, descending=throughput):
        search.width = width
        name = "".join(f"_{r}_{pools[r]}" for r in sorted(regions))
        solution = search.solve(0, 0, name, regions, pools, cap)
        if solution is None:
            continue
        cost = _single(solution.comm_usd + solution.usd_per_s * solution.time_s)
        figure, other = (solution.time_s, cost) if throughput else (cost, solution.time_s)
        if figure < best:
            if limit is None or (other < limit if throughput else other <= limit):
                best, seen_within = figure, limit is not None
        elif limit is None or seen_within:
            break
        found.append((_as_plan(search, solution), solution.time_s, cost))
    return found


def _as_plan(search: _Search, solution: _Partial) -> Plan:
    replicas = [
        [
            Replica(gpu=search.tables.gpus[g], degree=t, zone=zone)
            for (g, t, zone), n in runs
            for _ in range(n)
        ]
        for runs in solution.stages
    ]
    return Plan(
        microbatch=search.m,
        stages=stages_from_split([len(layers) for layers in search.stages], replicas),
    )


def reference_search(problem: Problem, available: Availability, goal: Goal) -> SearchResult | None:
    """The first plan of the published planner that fits and, simulated, keeps the limit.

    None if there is none. The estimate is the published one (`mode="published"`).
    """
    started = time.perf_counter()
    plans = reference_plans(problem, available, goal)
    seconds = time.perf_counter() - started
    skipped = 0
    for plan, _, _ in plans:
        if not all(worker.fits for worker in plan_memory(problem, plan, published=True)):
            skipped += 1
            continue
        estimate = simulate(problem, plan, mode="published")
        if goal.met_by(estimate):
            return SearchResult(
                planner="reference",
                candidates=(Candidate(plan=plan, estimate=estimate),),
                seconds=seconds,
                complete=True,
                considered=len(plans),
                pruned=0,
                simulated=1,
                skipped_oom=skipped,
            )
    return None
