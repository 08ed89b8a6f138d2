"""From one plan to the next: what each worker must do.

Workers of the old plan keep their process where the new plan needs a worker of the same GPU type,
zone and degree; the others leave or join. A worker that stays loads the layers it does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workflows.sailor.plan import Plan, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker is in a plan."""

    stage: int
    replica: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What one worker (a tensor group) does at a change of plan."""

    kind: Literal["stay", "move", "join", "leave"]
    worker: Replica
    before: Place | None
    after: Place | None
    load_layers: tuple[int, ...]
    """layers to load from the checkpoint"""
    drop_layers: tuple[int, ...]


def actions(old: Plan | None, new: Plan) -> list[Action]:
    """One action per worker of either plan; as many as possible keep the layers they hold."""
    before = dict(_places(old)) if old else {}
    matched = _match(old, new)
    out: list[Action] = []
    for place, replica in _places(new):
        needed = set(new.stages[place.stage].layers)
        source = matched.get(place)
        if old is None or source is None:
            out.append(_action("join", replica, None, place, set(), needed))
            continue
        held = set(old.stages[source.stage].layers)
        same = held == needed and source == place
        out.append(_action("stay" if same else "move", replica, source, place, held, needed))
    for place in before.keys() - set(matched.values()):
        held = set(old.stages[place.stage].layers) if old else set()
        out.append(_action("leave", before[place], place, None, held, set()))
    return out


def _match(old: Plan | None, new: Plan) -> dict[Place, Place]:
    """New place -> old place of the same kind of worker, largest overlap of layers first."""
    if old is None:
        return {}
    pairs = [
        (len(set(old.stages[a.stage].layers) & set(new.stages[b.stage].layers)), a == b, b, a)
        for b, wanted in _places(new)
        for a, have in _places(old)
        if wanted == have
    ]
    found: dict[Place, Place] = {}
    taken: set[Place] = set()
    for _, _, place, source in sorted(pairs, key=lambda pair: (-pair[0], not pair[1])):
        if place not in found and source not in taken:
            found[place] = source
            taken.add(source)
    return found


def _places(plan: Plan) -> list[tuple[Place, Replica]]:
    return [
        (Place(stage=i, replica=j), replica)
        for i, stage in enumerate(plan.stages)
        for j, replica in enumerate(stage.replicas)
    ]


def _action(
    kind: Literal["stay", "move", "join", "leave"],
    worker: Replica,
    before: Place | None,
    after: Place | None,
    held: set[int],
    needed: set[int],
) -> Action:
    return Action(
        kind=kind,
        worker=worker,
        before=before,
        after=after,
        load_layers=tuple(sorted(needed - held)),
        drop_layers=tuple(sorted(held - needed)),
    )
