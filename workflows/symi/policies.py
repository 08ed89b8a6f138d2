"""When replica counts change: static replication, SYMI, FlexMoE and predictors, as pure functions.

A policy is a frozen record; what it remembers of a layer is a `PolicyState`, also plain data, so a
caller can keep it in a table between two iterations:

    state = initial_state(policy, experts=16, slots=64)         # before the first iteration
    state = advance(policy, state, completed=1, popularity=…)   # after iteration 1; and so on

``state.counts`` are the replicas of the coming iteration. ``completed`` is the number of iterations
completed, counting the one whose popularity is given. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from . import arguments
from .placement import replica_counts, uniform_counts

__all__ = [
    "Ema",
    "FlexFull",
    "FlexShift",
    "Oracle",
    "Policy",
    "PolicyState",
    "Static",
    "Symi",
    "advance",
    "initial_state",
    "parse_policy",
    "shift_counts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """What a policy remembers of one layer between iterations."""

    counts: list[int]
    """Replicas of each expert in the coming iteration."""
    smoothed: list[float] | None = None
    """Smoothed popularity (`Ema` only); None before the first iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """DeepSpeed: r = sN / E for every expert, always."""

    def __str__(self) -> str:
        return "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Symi:
    """Re-place after every iteration by its popularity."""

    def __str__(self) -> str:
        return "symi"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlexFull:
    """FlexMoE-k: SYMI's placement, but only after every ``interval``-th iteration."""

    interval: int

    def __post_init__(self) -> None:
        arguments.positive_int("interval", self.interval)

    def __str__(self) -> str:
        return f"flex({self.interval}, full)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlexShift:
    """FlexMoE-k as measured: single replicas move from the least to the most loaded expert.

    At most ``max_moves`` moves after every ``interval``-th iteration, each only while it lowers the
    largest load per replica by at least ``min_gain_tokens``.
    """

    interval: int
    max_moves: int
    min_gain_tokens: float

    def __post_init__(self) -> None:
        arguments.positive_int("interval", self.interval)
        arguments.positive_int("max_moves", self.max_moves)
        arguments.non_negative_number("min_gain_tokens", self.min_gain_tokens)

    def __str__(self) -> str:
        return f"flex({self.interval}, shift, {self.max_moves}, {self.min_gain_tokens:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ema:
    """SYMI on an exponential average: smoothed = beta * smoothed + (1 - beta) * popularity."""

    beta: float

    def __post_init__(self) -> None:
        if arguments.non_negative_number("beta", self.beta) >= 1:
            raise arguments.refused(
                "beta", self.beta, "a weight in [0, 1)", "0 is the same as 'symi'"
            )

    def __str__(self) -> str:
        return f"ema({self.beta:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Place by the popularity of the coming iteration itself: the bound set by rounding only."""

    def __str__(self) -> str:
        return "oracle"


Policy = Static | Symi | FlexFull | FlexShift | Ema | Oracle


def parse_policy(text: str) -> Policy:
    """The policy named by ``text``; ``str(policy)`` gives the text back.

    ``static``, ``symi``, ``oracle``, ``ema(0.5)``, ``flex(50, full)``, and
    ``flex(10, shift, 4, 100)`` for interval, most moves and least gain in tokens.

    Raises:
        InvalidArgument: there is no such policy, or a parameter is out of range.
    """
    for pattern, build in _POLICIES:
        match = re.fullmatch(pattern, text.strip())
        if match:
            return build(match)
    raise arguments.refused(
        "policy",
        text,
        "static, symi, oracle, ema(beta), flex(i, full) or flex(i, shift, max_moves, min_gain)",
        "name one of these",
    )


_NUMBER = r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
_POLICIES: tuple[tuple[str, Callable[[re.Match[str]], Policy]], ...] = (
    ("static", lambda _: Static()),
    ("symi", lambda _: Symi()),
    ("oracle", lambda _: Oracle()),
    (rf"ema\(\s*{_NUMBER}\s*\)", lambda match: Ema(beta=float(match[1]))),
    (r"flex\(\s*(\d+)\s*,\s*full\s*\)", lambda match: FlexFull(interval=int(match[1]))),
    (
        rf"flex\(\s*(\d+)\s*,\s*shift\s*,\s*(\d+)\s*,\s*{_NUMBER}\s*\)",
        lambda match: FlexShift(
            interval=int(match[1]), max_moves=int(match[2]), min_gain_tokens=float(match[3])
        ),
    ),
)


def initial_state(policy: Policy, *, experts: int, slots: int) -> PolicyState:
    """Uniform counts, before anything is known.

    Raises:
        InvalidPlacement: fewer slots than experts.
        InvalidArgument: `Static` where the slots are not a multiple of the experts.
    """
    if isinstance(policy, Static):
        return PolicyState(counts=uniform_counts(experts, slots))
    arguments.fits(experts, slots)
    return PolicyState(counts=replica_counts([0] * experts, slots))


def advance(
    policy: Policy, state: PolicyState, *, completed: int, popularity: Sequence[int | float]
) -> PolicyState:
    """The state after iteration number ``completed`` (from 1) with this popularity.

    Raises:
        InvalidArgument: popularity of another length or negative; `Oracle`, which has no future.
    """
    arguments.positive_int("completed", completed)
    tokens = arguments.popularity(popularity, len(state.counts))
    slots = sum(state.counts)
    match policy:
        case Static():
            return state
        case Symi():
            return replace(state, counts=replica_counts(tokens, slots))
        case FlexFull(interval=interval):
            due = completed % interval == 0
            return replace(state, counts=replica_counts(tokens, slots)) if due else state
        case FlexShift(interval=interval, max_moves=moves, min_gain_tokens=gain):
            due = completed % interval == 0
            return (
                replace(state, counts=shift_counts(state.counts, tokens, moves, gain))
                if due
                else state
            )
        case Ema(beta=beta):
            smoothed = _smoothed(state.smoothed, tokens, beta)
            return PolicyState(counts=replica_counts(smoothed, slots), smoothed=smoothed)
        case Oracle():
            raise arguments.refused(
                "policy",
                "oracle",
                "a policy that looks back",
                "the oracle needs the coming iteration's popularity and exists in simulation only",
            )


def shift_counts(
    counts: Sequence[int], popularity: Sequence[int | float], max_moves: int, min_gain_tokens: float
) -> list[int]:
    """Move replicas one by one from the least to the most loaded expert (FlexMoE's policy).

    The receiver has the largest load_i / r_i; the giver, among experts with r_i > 1, the smallest
    load_i / (r_i - 1). It stops where the largest load per replica would fall by less than
    ``min_gain_tokens``, or not at all.
    """
    moved = list(counts)
    for _ in range(max_moves):
        loads = _loads(moved, popularity)
        receiver = loads.index(max(loads))
        givers = [expert for expert, count in enumerate(moved) if count > 1 and expert != receiver]
        if not givers:
            break
        giver = min(givers, key=lambda expert: Fraction(popularity[expert]) / (moved[expert] - 1))
        trial = list(moved)
        trial[receiver] += 1
        trial[giver] -= 1
        gain = max(loads) - max(_loads(trial, popularity))
        if gain <= 0 or gain < min_gain_tokens:
            break
        moved = trial
    return moved


def _loads(counts: Sequence[int], popularity: Sequence[int | float]) -> list[Fraction]:
    return [Fraction(tokens) / count for tokens, count in zip(popularity, counts, strict=True)]


def _smoothed(
    before: Sequence[float] | None, tokens: Sequence[int | float], beta: float
) -> list[float]:
    if before is None:
        return [float(count) for count in tokens]
    return [beta * old + (1.0 - beta) * new for old, new in zip(before, tokens, strict=True)]
