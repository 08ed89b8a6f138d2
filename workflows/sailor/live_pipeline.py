"""Really training the tiny GPT with 1F1B over processes of this machine.

Rank = replica + D·stage. A worker runs the operations of its stage in the simulator's order
(`schedule.operations`), receives when an operation needs its input and sends without waiting, so no
two stages can block one another. After the last backward the replicas of a stage sum their
gradients, and every layer steps with its own Adam.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workflows.sailor.errors import BadJob
from workflows.sailor.hardware import GIB, GpuType
from workflows.sailor.live_checkpoint import Checkpoint, load_layer, next_slot, save_layer
from workflows.sailor.live_group import run_group
from workflows.sailor.live_model import TinyGpt, batch_of, build_layer, loss_of
from workflows.sailor.live_network import Fit
from workflows.sailor.network import LinkTable
from workflows.sailor.plan import Plan, Replica, stages_from_split
from workflows.sailor.prices import GpuPrice, PriceTable
from workflows.sailor.problem import Problem
from workflows.sailor.profile import Profile
from workflows.sailor.schedule import operations
from workflows.sailor.simulator import Estimate, simulate

LIVE_ZONE = "local"
LIVE_GPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """What to run."""

    shape: TinyGpt
    split: tuple[int, ...]
    """layers per stage"""
    replicas: int = 1
    microbatch: int = 2
    global_batch: int = 16
    steps: int = 5
    start: Checkpoint | None = None
    save_to: str | None = None
    """folder for a checkpoint after the last step; None: no checkpoint"""

    def __post_init__(self) -> None:
        if sum(self.split) != self.shape.layers or min(self.split) < 1:
            raise BadJob(
                f"split {list(self.split)} of a model of {self.shape.layers} layers: every stage "
                "needs a layer and together they are all layers"
            )
        if self.global_batch % (self.microbatch * self.replicas) or self.steps < 1:
            raise BadJob(
                f"a live run of {self.steps} steps needs a global batch ({self.global_batch}) that "
                f"m·D = {self.microbatch * self.replicas} divides, and at least one step"
            )

    @property
    def microbatches(self) -> int:
        """N_b."""
        return self.global_batch // (self.microbatch * self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """What happened."""

    first_step: int
    losses: tuple[float, ...]
    step_s: tuple[float, ...]
    """of the slowest worker"""
    checkpoint: Checkpoint | None

    @property
    def iteration_s(self) -> float:
        """Median without the first step."""
        return median(self.step_s[1:] or self.step_s)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def run_live(job: LiveJob) -> LiveRun:
    """Train for some steps in P·D processes."""
    results = run_group(_worker, len(job.split) * job.replicas, job)
    columns = zip(*(seconds for _, seconds in results), strict=True)
    losses = [sum(parts) for parts in zip(*(losses for losses, _ in results), strict=True)]
    first = job.start.step if job.start else 0
    checkpoint = None
    if job.save_to is not None:
        checkpoint = Checkpoint(
            folder=job.save_to, slot=next_slot(job.start), step=first + job.steps
        )
    return LiveRun(
        first_step=first,
        losses=tuple(losses),
        step_s=tuple(max(column) for column in columns),
        checkpoint=checkpoint,
    )


class _Stage:
    """One worker: its layers, its neighbours, and one training step."""

    def __init__(self, job: LiveJob, rank: int) -> None:
        self.job = job
        self.stage, self.replica = divmod(rank, job.replicas)
        self.depth = len(job.split)
        start = sum(job.split[: self.stage])
        self.indices = range(start, start + job.split[self.stage])
        self.layers = [build_layer(job.shape, i) for i in self.indices]
        rate = job.shape.learning_rate
        self.optimizers = [torch.optim.Adam(x.parameters(), lr=rate) for x in self.layers]
        if job.start is not None:
            for i, layer, optimizer in zip(self.indices, self.layers, self.optimizers, strict=True):
                load_layer(job.start, i, layer, optimizer)
        self.before = rank - job.replicas if self.stage > 0 else None
        self.after = rank + job.replicas if self.stage + 1 < self.depth else None
        self.group = self._own_group()
        self.sent: list[tuple[Any, Tensor]] = []

    def _own_group(self) -> Any:
        """The replicas of this stage; every worker has to create every group."""
        own = None
        for stage in range(self.depth):
            ranks = [stage * self.job.replicas + j for j in range(self.job.replicas)]
            group = dist.new_group(ranks)
            own = group if stage == self.stage else own
        return own

    def step(self, step: int) -> float:
        """One iteration; this worker's part of the loss."""
        tokens, targets = batch_of(self.job.shape, step, self.job.global_batch)
        m, width = self.job.microbatch, self.job.replicas
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        given: dict[int, Tensor] = {}
        made: dict[int, Tensor] = {}
        loss = 0.0
        for is_forward, k in operations(self.stage, self.depth, self.job.microbatches):
            rows = slice((k * width + self.replica) * m, (k * width + self.replica + 1) * m)
            if is_forward:
                given[k] = self._input(tokens[rows])
                made[k] = self._forward(given[k], targets[rows])
                loss += float(made[k].detach()) if self.after is None else 0.0
            else:
                self._backward(given.pop(k), made.pop(k))
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
        self._reduce()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def _input(self, tokens: Tensor) -> Tensor:
        if self.before is None:
            return tokens
        shape = self.job.shape
        received = torch.empty(self.job.microbatch, shape.sequence_length, shape.hidden)
        dist.recv(received, self.before)
        return received.requires_grad_()

    def _forward(self, x: Tensor, targets: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        if self.after is None:
            return loss_of(x, targets, self.job.microbatch / self.job.global_batch)
        self._send(x.detach(), self.after)
        return x

    def _backward(self, given: Tensor, made: Tensor) -> None:
        if self.after is None:
            made.backward()  # type: ignore[no-untyped-call]
        else:
            gradient = torch.empty_like(made)
            dist.recv(gradient, self.after)
            made.backward(gradient)  # type: ignore[no-untyped-call]
        if self.before is not None and given.grad is not None:
            self._send(given.grad, self.before)

    def _send(self, tensor: Tensor, peer: int) -> None:
        tensor = tensor.contiguous()
        self.sent.append((dist.isend(tensor, peer), tensor))

    def _reduce(self) -> None:
        """Sum the gradients over the replicas: losses are weighted, so the sum is the mean."""
        if self.job.replicas > 1:
            for parameter in _parameters(self.layers):
                dist.all_reduce(parameter.grad, group=self.group)

    def save(self, checkpoint: Checkpoint) -> None:
        """The first replica of a stage writes its layers."""
        if self.replica == 0:
            for i, layer, optimizer in zip(self.indices, self.layers, self.optimizers, strict=True):
                save_layer(checkpoint.place, i, checkpoint.step, layer, optimizer)


def _parameters(layers: Sequence[nn.Module]) -> list[nn.Parameter]:
    return [p for layer in layers for p in layer.parameters() if p.grad is not None]


def _worker(rank: int, world: int, job: LiveJob) -> tuple[list[float], list[float]]:
    """Losses and seconds of every step on one worker."""
    del world
    stage = _Stage(job, rank)
    first = job.start.step if job.start else 0
    losses: list[float] = []
    seconds: list[float] = []
    for step in range(first, first + job.steps):
        dist.barrier()
        started = time.perf_counter()
        losses.append(stage.step(step))
        seconds.append(time.perf_counter() - started)
    if job.save_to is not None:
        slot = next_slot(job.start)
        stage.save(Checkpoint(folder=job.save_to, slot=slot, step=first + job.steps))
    return losses, seconds


def live_problem(shape: TinyGpt, profile: Profile, fit: Fit, global_batch: int) -> Problem:
    """This machine as the simulator sees it: processes as GPUs of one type, loopback as links."""
    key = (LIVE_ZONE, LIVE_GPU, 1, LIVE_ZONE, LIVE_GPU, 1)
    card = GpuType(name=LIVE_GPU, memory_bytes=2 * GIB, gpus_per_node=1, fixed_bytes=0.3e9)
    return Problem(
        job=shape.job(global_batch),
        profile=profile,
        links=LinkTable({key: fit.link("loopback")}),
        prices=PriceTable([GpuPrice(gpu=LIVE_GPU, usd_per_hour=0.05)]),
        gpus={LIVE_GPU: card},
    )


def live_plan(job: LiveJob) -> Plan:
    """The plan of a live run."""
    replica = Replica(gpu=LIVE_GPU, degree=1, zone=LIVE_ZONE)
    rows = [[replica] * job.replicas] * len(job.split)
    return Plan(microbatch=job.microbatch, stages=stages_from_split(job.split, rows))


def predict_live(job: LiveJob, profile: Profile, fit: Fit) -> Estimate:
    """What the simulator says about a live run; sends go beside the computing, as they do there."""
    problem = live_problem(job.shape, profile, fit, job.global_batch)
    return simulate(problem, live_plan(job), blocking_sends=False)
