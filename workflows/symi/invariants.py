"""What must hold of a stored run; each check returns its violations in words, empty when sound.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence

from .placement import contiguous, placement_digest
from .policies import Policy, advance, initial_state

__all__ = ["drop_violations", "plan_violations", "replay_violations"]


def plan_violations(
    *, counts: Sequence[int], placement: Sequence[int], digest: str, slots: int
) -> list[str]:
    """A stored plan: every slot used, every expert placed, ascending, and its digest true."""
    found = []
    if sum(counts) != slots:
        found.append(f"counts sum to {sum(counts)}, not to {slots} slots")
    found += [
        f"expert {expert} has {count} replicas" for expert, count in enumerate(counts) if count < 1
    ]
    if list(placement) != [expert for expert, count in enumerate(counts) for _ in range(count)]:
        found.append("the placement is not the experts in order, each as often as its count")
    if digest != placement_digest(placement):
        found.append("the digest is not that of the placement")
    return found


def drop_violations(
    *,
    popularity: Sequence[int],
    counts: Sequence[int],
    dropped: Sequence[float],
    slot_capacity: float,
) -> list[str]:
    """Stored drops: exactly what is over capacity."""
    rows = enumerate(zip(popularity, counts, dropped, strict=True))
    return [
        f"expert {expert} dropped {lost} of {tokens} tokens over {count * slot_capacity}"
        for expert, (tokens, count, lost) in rows
        if lost != max(0, tokens - slot_capacity * count)
    ]


def replay_violations(
    policy: Policy,
    *,
    popularity: Sequence[Sequence[int]],
    placements: Sequence[Sequence[int]],
) -> list[str]:
    """One layer, replayed from the first iteration: every stored placement is the policy's.

    ``popularity[t]`` and ``placements[t]`` are those of iteration t + 1.
    """
    if not popularity:
        return []
    state = initial_state(policy, experts=len(popularity[0]), slots=len(placements[0]))
    found = []
    for index, (tokens, stored) in enumerate(zip(popularity, placements, strict=True)):
        expected = contiguous(state.counts)
        if list(stored) != expected:
            found.append(f"iteration {index + 1} ran on {list(stored)}, {policy} gives {expected}")
        state = advance(policy, state, completed=index + 1, popularity=tokens)
    return found
