"""How many tokens an expert may take, and which are dropped.

A slot takes ``cf * tok / (sN)`` tokens of an iteration, an expert with ``r_i`` replicas ``r_i``
times that. Tokens over capacity are dropped: they pass through the residual connection only. Which
ones is decided by a global order, rank first and then the index on the rank: a token stays if its
position within its class is under the class's capacity, and goes to instance position mod r_i, so
that no instance takes more than one slot's share. Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import arguments

__all__ = [
    "class_capacities",
    "drops",
    "real_slot_capacity",
    "survival",
    "whole_slot_capacity",
]


def real_slot_capacity(tokens: float, slots: int, capacity_factor: float = 1.0) -> float:
    """cf * tok / (sN), in tokens; fractional, for simulation."""
    arguments.positive_number("tokens", tokens)
    arguments.positive_int("slots", slots)
    return arguments.positive_number("capacity_factor", capacity_factor) * tokens / slots


def whole_slot_capacity(tokens: int, slots: int, capacity_factor: float = 1.0) -> int:
    """floor(cf * tok / (sN)), in tokens, for real execution.

    Raises:
        InvalidArgument: a slot would take no token at all.
    """
    capacity = int(real_slot_capacity(tokens, slots, capacity_factor))
    if capacity < 1:
        raise arguments.refused(
            "tokens",
            tokens,
            f"at least slots / capacity_factor = {slots / capacity_factor:g}",
            "use a larger batch, fewer slots or a larger capacity factor",
        )
    return capacity


def class_capacities(slot_capacity: float, counts: Sequence[int]) -> list[float]:
    """capacity(i) = slot_capacity * r_i, in tokens."""
    return [slot_capacity * count for count in counts]


def drops(
    popularity: Sequence[int | float], counts: Sequence[int], slot_capacity: float
) -> list[float]:
    """drop(i) = max(0, pop_i - slot_capacity * r_i), in tokens."""
    tokens = arguments.popularity(popularity, len(counts))
    return [
        max(0, count - capacity)
        for count, capacity in zip(tokens, class_capacities(slot_capacity, counts), strict=True)
    ]


def survival(popularity: Sequence[int | float], dropped: Sequence[float]) -> float:
    """1 - sum(drop) / sum(pop); 1 where no token was routed."""
    total = sum(arguments.popularity(popularity, len(dropped)))
    return 1.0 - sum(dropped) / total if total else 1.0
