"""From one plan to the next: what each worker must do.

Workers of the old plan keep their process where the new plan needs a worker of the same GPU type,
zone and degree; the others leave or join. A worker that stays loads the layers it does not hold.
"""

from __future__ import annotations

from collections import defaultdict
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
    left: dict[Replica, list[Place]] = defaultdict(list)
    for place, replica in _places(old) if old else []:
        left[replica].append(place)
    out: list[Action] = []
    for place, replica in _places(new):
        layers = set(new.stages[place.stage].layers)
        candidates = left[replica]
        if not candidates:
            out.append(_action("join", replica, None, place, set(), layers))
            continue
        assert old is not None  # candidates come from the old plan
        before = max(candidates, key=lambda p: len(layers & set(old.stages[p.stage].layers)))
        candidates.remove(before)
        held = set(old.stages[before.stage].layers)
        kind: Literal["stay", "move"] = "stay" if held == layers and before == place else "move"
        out.append(_action(kind, replica, before, place, held, layers))
    for replica, places in left.items():
        for place in places:
            held = set(old.stages[place.stage].layers) if old else set()
            out.append(_action("leave", replica, place, None, held, set()))
    return out


def _places(plan: Plan) -> list[tuple[Place, Replica]]:
    return [
        (Place(stage=i, replica=j), replica)
        for i, stage in enumerate(plan.stages)
        for j, replica in enumerate(stage.replicas)
    ]


def _action(  # noqa: PLR0917 - the fields of an action
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
