"""`search`: our planner. One scoring function, the simulator's exact mode, decides everything.

Families of layouts (see `families`) are generated with cheap bounds of time and cost. Layouts whose
bound cannot beat what is known are dropped; the rest wait in order of their bound and are simulated
until no bound is better than the best plan. So within the families the answer is optimal for the
simulator, and the estimate that is returned is the simulator's. Tensor degrees are free, the cost
objective looks at every P, activations are capped by the microbatches there are, microbatches may
be shared out by speed, and layers split unevenly.

With a time limit the best plan so far is returned and `complete` is false.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import ceil, inf

from workflows.sailor.errors import BadJob, BadLink, MissingLink, NoFeasiblePlan
from workflows.sailor.families import Proposal, blocks, packed, separate
from workflows.sailor.layout import to_plans
from workflows.sailor.memory import WorkerMemory, worker_memory
from workflows.sailor.options import Options, Pool, pools_of
from workflows.sailor.plan import Availability, even_split
from workflows.sailor.problem import Problem
from workflows.sailor.search_result import Candidate, Goal, SearchResult
from workflows.sailor.simulator import simulate

KEPT = 5


@dataclass(slots=True, kw_only=True)
class _State:
    """The search as it goes on."""

    goal: Goal
    deadline: float
    keep: int
    best: list[Candidate] = field(default_factory=list)
    waiting: list[tuple[float, int, Proposal]] = field(default_factory=list)
    serial: Iterator[int] = field(default_factory=count)
    considered: int = 0
    pruned: int = 0
    simulated: int = 0
    unusable: set[str] = field(default_factory=set)
    """errors of links that some layout needed"""

    def late(self) -> bool:
        return time.perf_counter() >= self.deadline

    def incumbent(self) -> float:
        """What a new plan must beat."""
        return self.goal.key(self.best[0].estimate)[0] if self.best else inf

    def worth(self, bound_s: float, bound_usd: float) -> bool:
        """Whether a layout with these bounds can be better than the best and keep the limits."""
        goal = self.goal
        if goal.max_cost_usd is not None and bound_usd > goal.max_cost_usd:
            return False
        if goal.max_iteration_s is not None and bound_s > goal.max_iteration_s:
            return False
        return (bound_s if goal.objective == "throughput" else bound_usd) < self.incumbent()

    def offer(self, proposal: Proposal) -> None:
        """Put a layout that can still matter into the queue."""
        self.considered += 1
        throughput = self.goal.objective == "throughput"
        figure = proposal.bound_s if throughput else proposal.bound_usd
        heapq.heappush(self.waiting, (figure, next(self.serial), proposal))

    def settle(self, problem: Problem) -> None:
        """Simulate waiting layouts in order of their bound while one can still win.

        After the deadline it goes on only until there is a plan at all.
        """
        while self.waiting and not (self.late() and self.best):
            figure, _, proposal = heapq.heappop(self.waiting)
            if figure >= self.incumbent():
                self.pruned += 1 + len(self.waiting)
                self.waiting.clear()
                return
            for plan in to_plans(proposal.options, proposal.layout):
                self.simulated += 1
                try:
                    estimate = simulate(problem, plan)
                except (BadLink, MissingLink) as error:
                    self.unusable.add(str(error))
                    continue
                if not estimate.feasible or not self.goal.met_by(estimate):
                    continue
                self.best.append(Candidate(plan=plan, estimate=estimate))
                self.best.sort(key=lambda c: self.goal.key(c.estimate))
                del self.best[self.keep :]


def search(
    problem: Problem,
    available: Availability,
    goal: Goal | None = None,
    *,
    time_limit_s: float | None = None,
    keep: int = KEPT,
) -> SearchResult:
    """The best plans for a job on the available GPUs, best first.

    Raises `NoFeasiblePlan` with reason "memory", "budget" or "throughput" if nothing fits; a search
    that its time limit ends before it has any plan raises it too, and says so.
    """
    if time_limit_s is not None and not time_limit_s > 0:
        raise BadJob(f"time_limit_s is {time_limit_s}, expected a positive number or None")
    goal = goal or Goal()
    started = time.perf_counter()
    deadline = inf if time_limit_s is None else started + time_limit_s
    state = _State(goal=goal, deadline=deadline, keep=keep)
    pools = pools_of(problem, available)
    options = _options(problem, pools)
    for family in _stages_of_search(options, state):
        for proposal in family:
            state.offer(proposal)
            if state.late():
                break
        state.settle(problem)
    complete = not state.late()
    if not state.best:
        raise _nothing(problem, available, goal, options, complete=complete)
    return SearchResult(
        planner="sailor",
        candidates=tuple(state.best),
        seconds=time.perf_counter() - started,
        complete=complete,
        considered=state.considered,
        pruned=state.pruned,
        simulated=state.simulated,
        unusable_links=tuple(sorted(state.unusable | _bad_links(options))),
        bound_s=relaxed_bound_s(options) if goal.objective == "throughput" else None,
    )


def _bad_links(options: Sequence[Options]) -> set[str]:
    return {
        f"link {name}: the fit is not positive where it was needed"
        for chosen in options
        for name in chosen.bad_links
    }


def _options(problem: Problem, pools: Sequence[Pool]) -> list[Options]:
    sizes = problem.profile.microbatches(pool.gpu for pool in pools)
    built = [Options(problem=problem, microbatch=m, pools=pools) for m in sizes]
    return [options for options in built if options.choices]


def _stages_of_search(options: Sequence[Options], state: _State) -> Iterator[Iterator[Proposal]]:
    """Families from cheap to dear, so that an early good plan prunes the later ones."""
    for chosen in options:
        yield blocks(chosen, state.worth, 1)
    for chosen in options:
        yield separate(chosen, state.worth)
    for chosen in options:
        yield packed(chosen, state.worth)
    for chosen in options:
        yield blocks(chosen, state.worth)


def relaxed_bound_s(options: Sequence[Options]) -> float:
    """No plan of any shape on these GPUs is faster: all GPUs always busy, nothing else counted.

    With R microbatches per second, layer l on pool p takes g_pl = min_t t·(f + b) GPU-seconds. For
    any weights w:  R·Σ_l w_l <= Σ_p N_p·max_l (w_l / g_pl); w is the mean of g over the pools.
    """
    best = inf
    for chosen in options:
        need = ceil(chosen.problem.job.global_batch / chosen.microbatch)
        per_layer: dict[int, list[float]] = {}
        for c in chosen.choices:
            row = [float(x) for x in c.degree * (c.layer_s[1:] - c.layer_s[:-1])]
            known = per_layer.get(c.pool)
            per_layer[c.pool] = row if known is None else [*map(min, known, row)]
        weights = [sum(column) for column in zip(*per_layer.values(), strict=True)]
        rate = 0.0
        for pool, row in per_layer.items():
            gpus = sum(n for _, n in chosen.pools[pool].zones)
            rate += gpus * max(w / g for w, g in zip(weights, row, strict=True) if g > 0)
        best = min(best, need * sum(weights) / rate)
    return best


def _nothing(
    problem: Problem,
    available: Availability,
    goal: Goal,
    options: Sequence[Options],
    *,
    complete: bool,
) -> NoFeasiblePlan:
    """Why there is no plan: memory, or the limit that the nearest plan misses."""
    if not complete:
        return NoFeasiblePlan(
            "the time limit ended the search before it found a plan; give it more"
        )
    limited = goal.max_cost_usd is not None or goal.max_iteration_s is not None
    if not limited:
        return _memory_error(problem, options)
    by_cost = goal.max_cost_usd is not None
    nearest = search(problem, available, Goal(objective="cost" if by_cost else "throughput"))
    estimate = nearest.best.estimate
    best = nearest.best.to_json()
    if by_cost and estimate.cost_usd > (goal.max_cost_usd or 0):
        return NoFeasiblePlan(
            f"no plan within {goal.max_cost_usd} USD per iteration; the cheapest costs "
            f"{estimate.cost_usd:.5f} USD at {estimate.iterations_per_s:.5f} it/s",
            reason="budget",
            best=best,
        )
    return NoFeasiblePlan(
        f"no plan with at least {goal.min_iterations_per_s} it/s within the limits; the nearest "
        f"gives {estimate.iterations_per_s:.5f} it/s at {estimate.cost_usd:.5f} USD",
        reason="throughput",
        best=best,
    )


def _memory_error(problem: Problem, options: Sequence[Options]) -> NoFeasiblePlan:
    """The plan that misses its cards by the least, over every P, m and degree."""
    nearest: tuple[float, WorkerMemory] | None = None
    for chosen in options:
        gpus = sum(n for pool in chosen.pools for _, n in pool.zones)
        for choice in chosen.choices:
            pool = chosen.pools[choice.pool]
            for depth in range(1, min(problem.job.layers, gpus // choice.degree) + 1):
                worst = max(
                    (
                        worker_memory(
                            problem,
                            stage=i,
                            layers=range(sum(split[:i]), sum(split[: i + 1])),
                            gpu=pool.gpu,
                            degree=choice.degree,
                            microbatch=chosen.microbatch,
                            flight=depth - i,
                        )
                        for split in (even_split(problem.job.layers, depth),)
                        for i in range(depth)
                    ),
                    key=lambda worker: worker.needed_bytes / worker.limit_bytes,
                )
                miss = worst.needed_bytes / worst.limit_bytes
                if nearest is None or miss < nearest[0]:
                    nearest = (miss, worst)
    if nearest is None:
        return NoFeasiblePlan("no GPU with a profile of the model is available")
    worker = nearest[1]
    return NoFeasiblePlan(
        f"no plan fits memory: the nearest needs {worker.needed_bytes / 1e9:.2f} GB in stage "
        f"{worker.stage} on {worker.gpu} (t={worker.degree}), which has "
        f"{worker.limit_bytes / 1e9:.2f} GB",
        reason="memory",
        best_stage=worker.stage,
        needed_bytes=worker.needed_bytes,
        available_bytes=worker.limit_bytes,
    )
