"""Where the replicas of each expert live in the next iteration (SYMI, Algorithm 1).

``N`` ranks have ``s`` slots each; global slot ``g`` lives on rank ``g // s``. ``E`` experts share
the ``sN`` slots: expert ``i`` gets ``r_i >= 1`` replicas in proportion to the tokens that the
router sent to it in the previous iteration, and its replicas occupy consecutive slots, so that a
class sits on the fewest ranks and only groups of consecutive ranks ever communicate.

The scheduler runs on every rank and, again, inside a database; all must agree. It therefore counts
in whole numbers (shares are scaled to integers, without rounding) and breaks ties by the lowest
index, so that no platform's floating point can decide a tie. Standard library only; what goes in
and comes out is plain lists of numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import arguments
from .errors import InvalidPlacement

__all__ = [
    "Plan",
    "consecutive_groups",
    "contiguous",
    "counts_of",
    "hosts_of",
    "interleaved",
    "moved_slots",
    "placement_digest",
    "plan_layer",
    "rank_slots",
    "replica_counts",
    "sources_of",
    "uniform_counts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The placement of one layer for one iteration."""

    counts: list[int]
    """Replicas of each expert, length E, sum sN."""
    placement: list[int]
    """Expert of each global slot, length sN, ascending."""
    sources: list[list[int]]
    """``sources[e][dst]``: the rank from which ``dst`` collects its gradient shard of ``e``."""
    moved: list[int]
    """Global slots whose expert differs from the previous placement; empty without one."""
    digest: str
    """SHA-256 of the placement, for comparing replays."""


def replica_counts(popularity: Sequence[int | float], slots: int) -> list[int]:
    """Replicas per expert for ``slots`` slots, in proportion to ``popularity`` (Algorithm 1).

    goal_i = pop_i / sum(pop) * sN; start from floor(max(goal_i, 1)), then take from the expert
    that is furthest above its goal, or give to the one furthest below, until sN are placed.
    All zero means nothing is known: the goal is then uniform.

    Raises:
        InvalidArgument: a count is negative or not finite, or there is none.
        InvalidPlacement: there are fewer slots than experts.
    """
    tokens = _whole(arguments.popularity(popularity))
    arguments.fits(len(tokens), slots)
    if not any(tokens):
        tokens = [1] * len(tokens)
    total = sum(tokens)
    counts = [max(1, count * slots // total) for count in tokens]
    # diff_i = c_i - goal_i, multiplied by sum(pop) so that it stays a whole number.
    excess = [count * total - wanted * slots for count, wanted in zip(counts, tokens, strict=True)]
    while sum(counts) > slots:
        expert = excess.index(max(excess))
        # Also lowered where the last replica cannot be taken: the next search must move on.
        excess[expert] -= total
        if counts[expert] > 1:
            counts[expert] -= 1
    while sum(counts) < slots:
        expert = excess.index(min(excess))
        excess[expert] += total
        counts[expert] += 1
    return counts


def uniform_counts(experts: int, slots: int) -> list[int]:
    """The static baseline's replicas, r = sN / E for every expert.

    Raises:
        InvalidArgument: the slots are not a multiple of the experts.
        InvalidPlacement: there are fewer slots than experts.
    """
    arguments.fits(experts, slots)
    if slots % experts:
        raise arguments.refused(
            "slots",
            slots,
            f"a multiple of the {experts} experts",
            "static replication gives every expert the same number; use policy 'symi' instead",
        )
    return [slots // experts] * experts


def contiguous(counts: Sequence[int]) -> list[int]:
    """Expert of each slot: expert 0 ``counts[0]`` times, then expert 1, and so on."""
    _check_counts(counts)
    return [expert for expert, count in enumerate(counts) for _ in range(count)]


def interleaved(counts: Sequence[int]) -> list[int]:
    """Expert of each slot with the replicas of a class far apart: 0, 1, …, E-1, 0, 1, ….

    With equal counts and s <= E no rank holds a class twice, as in DeepSpeed's static layout.
    """
    _check_counts(counts)
    rounds = range(max(counts))
    return [expert for turn in rounds for expert, count in enumerate(counts) if count > turn]


def counts_of(placement: Sequence[int], experts: int) -> list[int]:
    """Replicas of each expert in a placement.

    Raises:
        InvalidPlacement: a slot names no expert, or an expert has no slot.
    """
    counts = [0] * experts
    for slot, expert in enumerate(placement):
        if not 0 <= expert < experts:
            raise _malformed(f"slot {slot} holds expert {expert}", f"an expert in 0..{experts - 1}")
        counts[expert] += 1
    _check_counts(counts)
    return counts


def hosts_of(placement: Sequence[int], slots_per_rank: int) -> list[list[int]]:
    """Ranks that hold at least one replica of each expert, ascending."""
    arguments.positive_int("slots_per_rank", slots_per_rank)
    if not placement or len(placement) % slots_per_rank:
        raise _malformed(
            f"{len(placement)} slots at {slots_per_rank} per rank", "a whole number of ranks"
        )
    hosts: dict[int, set[int]] = {}
    for slot, expert in enumerate(placement):
        hosts.setdefault(expert, set()).add(slot // slots_per_rank)
    counts_of(placement, max(hosts) + 1)
    return [sorted(hosts[expert]) for expert in range(len(hosts))]


def sources_of(hosts: Sequence[Sequence[int]], ranks: int) -> list[list[int]]:
    """``[e][dst]``: the rank that sends ``dst`` its gradient shard of expert ``e`` (Algorithm 2).

    A host serves itself; every other rank takes hosts in turn, sorted(hosts)[dst mod len(hosts)].
    """
    return [
        [rank if rank in holders else sorted(holders)[rank % len(holders)] for rank in range(ranks)]
        for holders in hosts
    ]


def rank_slots(rank: int, slots_per_rank: int) -> range:
    """Global slots of a rank."""
    return range(rank * slots_per_rank, (rank + 1) * slots_per_rank)


def consecutive_groups(ranks: int) -> list[tuple[int, ...]]:
    """All N(N-1)/2 runs of two or more consecutive ranks, in the order of first, then last rank."""
    return [
        tuple(range(first, last + 1)) for first in range(ranks) for last in range(first + 1, ranks)
    ]


def moved_slots(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Global slots that change their expert between two placements of the same cluster."""
    if len(before) != len(after):
        raise _malformed(f"{len(before)} slots before and {len(after)} after", "the same cluster")
    return [slot for slot, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]


def placement_digest(placement: Iterable[int]) -> str:
    """SHA-256 over the expert numbers, separated by commas."""
    return hashlib.sha256(",".join(map(str, placement)).encode("ascii")).hexdigest()


def plan_layer(
    counts: Sequence[int], *, ranks: int, slots_per_rank: int, before: Sequence[int] | None = None
) -> Plan:
    """The whole plan of a layer from its replica counts; ``before`` is the placement it replaces.

    Raises:
        InvalidPlacement: the counts do not fill the slots exactly, or an expert has none.
    """
    slots = arguments.positive_int("ranks", ranks) * arguments.positive_int(
        "slots_per_rank", slots_per_rank
    )
    placement = contiguous(counts)
    if len(placement) != slots:
        raise _malformed(f"counts sum to {len(placement)}", f"{slots} slots")
    return Plan(
        counts=list(counts),
        placement=placement,
        sources=sources_of(hosts_of(placement, slots_per_rank), ranks),
        moved=[] if before is None else moved_slots(before, placement),
        digest=placement_digest(placement),
    )


def _whole(values: Sequence[int | float]) -> list[int]:
    """The same proportions as whole numbers: a float is a fraction over a power of two."""
    ratios = [value.as_integer_ratio() for value in values]
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def _check_counts(counts: Sequence[int]) -> None:
    if not counts:
        raise _malformed("no expert", "at least one")
    for expert, count in enumerate(counts):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise _malformed(
                f"expert {expert} has {count!r} replicas", "at least 1 for every expert"
            )


def _malformed(given: str, expected: str) -> InvalidPlacement:
    return InvalidPlacement(
        f"{given}; expected {expected}: build placements with replica_counts and contiguous",
        argument="placement",
        given=given,
        expected=expected,
    )
