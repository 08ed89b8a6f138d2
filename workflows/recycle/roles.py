"""Roles for the survivors: from the counts a plan wants to who does what, and who copies from whom.

A plan for counts x has its holes in the last x_i pipelines of each stage. Within a stage a role
can be changed for nothing, since peers hold the same parameters; between stages it costs a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workflows.recycle.errors import NoLiveStage
from workflows.recycle.job import Worker
from workflows.recycle.state import Move

__all__ = ["assign_roles"]


def assign_roles(
    live: Mapping[Worker, Worker], pipelines: int, target: Sequence[int]
) -> tuple[dict[Worker, Worker], tuple[Move, ...]]:
    """Roles for all live workers so that stage i has ``target[i]`` holes, and the copies needed.

    ``live`` maps role to worker. A worker keeps its role if the plan has it. Returns the new map
    and the moves between stages; the sum of ``target`` must be the number of holes.
    """
    stages = len(target)
    by_stage: list[dict[int, Worker]] = [{} for _ in range(stages)]
    for role, worker in live.items():
        by_stage[role.stage][role.pipeline] = worker
    for stage, workers in enumerate(by_stage):
        if not workers:
            raise NoLiveStage(
                f"stage {stage} has no live worker to copy from: restart from a checkpoint",
                stage=stage,
            )
    sources = [workers[min(workers)] for workers in by_stage]
    spare = _take_spare(by_stage, pipelines, target)
    moves: list[Move] = []
    roles: dict[Worker, Worker] = {}
    for stage, workers in enumerate(by_stage):
        wanted = pipelines - target[stage]
        newcomers = [spare.pop(0) for _ in range(max(0, wanted - len(workers)))]
        stage_roles = _fill(stage, wanted, workers, [worker for worker, _ in newcomers])
        roles |= stage_roles
        where = {worker: role for role, worker in stage_roles.items()}
        moves += [
            Move(worker=worker, from_role=old, to_role=where[worker], source=sources[stage])
            for worker, old in newcomers
        ]
    return roles, tuple(moves)


def _take_spare(
    by_stage: list[dict[int, Worker]], pipelines: int, target: Sequence[int]
) -> list[tuple[Worker, Worker]]:
    """Remove from each stage the workers it has over its target; (worker, old role) of each.

    Those in the highest pipelines go: their roles are the holes of the plan.
    """
    spare = []
    for stage, workers in enumerate(by_stage):
        over = max(0, len(workers) - (pipelines - target[stage]))
        for pipeline in sorted(workers, reverse=True)[:over]:
            spare.append((workers.pop(pipeline), Worker(pipeline, stage)))
    return spare


def _fill(
    stage: int, wanted: int, workers: Mapping[int, Worker], newcomers: list[Worker]
) -> dict[Worker, Worker]:
    """Roles 0..wanted-1 of a stage: those already in place stay, the others fill the holes."""
    staying = {k: w for k, w in workers.items() if k < wanted}
    others = [workers[k] for k in sorted(workers) if k >= wanted] + newcomers
    holes = [k for k in range(wanted) if k not in staying]
    staying |= dict(zip(holes, others, strict=True))
    return {Worker(k, stage): worker for k, worker in sorted(staying.items())}
