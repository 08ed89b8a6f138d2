"""One rank of a training run: a process that the launcher starts.

    python -m workflows.symi.training.rank FD       (FD: its end of the channel to the launcher)

An iteration: fill the slots for its placement; forward; backward; collect gradient shards; step;
checkpoint; commit. Rank 0 asks the launcher to commit once every rank's checkpoint is on disk, and
hands the answer, the next placements, to the others. So whatever is committed can be gone on from.
"""

from __future__ import annotations

import socket
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..control import IterationRecord, Placements
from .audit import audit_copies
from .channel import Channel
from .checkpoint import Checkpoints
from .config import TrainConfig
from .data import global_batch, rank_rows, successors
from .dispatch import Dispatcher
from .model import DenseModel, Loss, forward_loss, initial_expert
from .optimizer import ShardedAdam
from .replicas import ReplicaExchange

__all__ = ["Rank", "main"]

_SILENCE_S = 120
"""A collective that waits this long for a peer fails; the launcher normally ends it much sooner."""


class Rank:
    """The state of one rank, from one iteration to the next."""

    def __init__(self, config: TrainConfig, rank: int, directory: Path) -> None:
        self._config = config
        self._rank = rank
        self._checkpoints = Checkpoints(directory, config)
        self._chain = successors(config)
        self._dense = DenseModel(config)
        self._dense_optimizer = torch.optim.Adam(
            self._dense.parameters(),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
        )
        self._exchange = ReplicaExchange(config, rank)
        self._experts = ShardedAdam(config, self._initial_shards())

    def resume(self, iteration: int) -> None:
        """Load the state at the end of a committed iteration."""
        self._experts.load(self._checkpoints.load(self._rank, iteration)["experts"])
        state = self._checkpoints.load(0, iteration)
        self._dense.load_state_dict(state["dense"])
        self._dense_optimizer.load_state_dict(state["dense_optimizer"])

    def iterate(self, iteration: int, placements: Placements) -> IterationRecord:
        """One iteration up to its checkpoint; the record is the same on every rank."""
        started = time.perf_counter()
        config = self._config
        weights, weight_bytes = self._exchange.scatter_weights(placements, self._experts.weights)
        if config.audit_every and iteration % config.audit_every == 0:
            self._audit(placements, weights)
        dispatcher = Dispatcher(config, self._rank, placements, weights)
        inputs, targets = global_batch(config, self._chain, iteration)
        rows = rank_rows(config, self._rank)
        self._dense_optimizer.zero_grad()
        loss = forward_loss(config, self._dense, inputs[rows], targets[rows], dispatcher)
        (loss.cross_entropy + loss.balance).backward()  # type: ignore[no-untyped-call]
        gradients = [[_gradient(slot) for slot in layer] for layer in weights]
        shards, gradient_bytes = self._exchange.gradient_shards(placements, gradients)
        self._experts.step(shards)
        self._step_dense()
        self._save(iteration)
        totals = self._totals(loss, gradient_bytes, weight_bytes)
        return IterationRecord(
            iteration=iteration,
            popularity=dispatcher.popularity,
            loss=totals[0] + totals[1],
            cross_entropy=totals[0],
            dropped=dispatcher.dropped,
            gradient_bytes=int(totals[2]),
            weight_bytes=int(totals[3]),
            latency_s=time.perf_counter() - started,
        )

    def committed(self, iteration: int) -> None:
        """Let go of checkpoints that are no longer needed."""
        self._checkpoints.forget_before(self._rank, iteration)

    def final_audit(self, placements: Placements) -> None:
        """Scatter once more and compare all copies."""
        weights, _ = self._exchange.scatter_weights(placements, self._experts.weights)
        self._audit(placements, weights)

    def _audit(self, placements: Placements, weights: list[list[Tensor]]) -> None:
        audit_copies(self._config, placements, weights, self._experts.weights)

    def _initial_shards(self) -> Tensor:
        config = self._config
        return torch.stack(
            [
                torch.stack(
                    [
                        self._exchange.cut(initial_expert(config, layer, expert))[self._rank]
                        for expert in range(config.experts)
                    ]
                )
                for layer in range(config.layers)
            ]
        )

    def _step_dense(self) -> None:
        """Sum the dense gradients over the ranks as one message, and step."""
        parameters = list(self._dense.parameters())
        flat = torch.cat([_gradient(parameter).flatten() for parameter in parameters])
        dist.all_reduce(flat)
        sizes = [parameter.numel() for parameter in parameters]
        pieces = torch.split(flat, sizes)
        for parameter, gradient in zip(parameters, pieces, strict=True):
            parameter.grad = gradient.view_as(parameter)
        self._dense_optimizer.step()

    def _save(self, iteration: int) -> None:
        """Write this rank's checkpoint; the all-reduce of the totals follows, so all are there."""
        state: dict[str, Any] = {"experts": self._experts.state()}
        if self._rank == 0:
            state["dense"] = self._dense.state_dict()
            state["dense_optimizer"] = self._dense_optimizer.state_dict()
        self._checkpoints.save(self._rank, iteration, state)

    def _totals(self, loss: Loss, gradient_bytes: int, weight_bytes: int) -> list[float]:
        """Both losses and both byte counts, summed over the ranks; also a barrier."""
        parts = [loss.cross_entropy.item(), loss.balance.item(), gradient_bytes, weight_bytes]
        totals = torch.tensor(parts, dtype=torch.float64)
        dist.all_reduce(totals)
        return [float(total) for total in totals]


def main(descriptor: int) -> None:
    """Train as the launcher says over the channel on this file descriptor."""
    channel = Channel(socket.socket(fileno=descriptor))
    order = channel.receive()
    if order is None:
        raise ConnectionError("the launcher closed the channel before it sent the task")
    torch.set_num_threads(1)
    config = TrainConfig(**order["config"])
    rank = order["rank"]
    store = dist.FileStore(order["rendezvous"], config.ranks)  # type: ignore[attr-defined]
    dist.init_process_group(
        "gloo",
        store=store,
        rank=rank,
        world_size=config.ranks,
        timeout=timedelta(seconds=_SILENCE_S),
    )
    _train(channel, config, rank, order)
    dist.destroy_process_group()
    channel.send({"kind": "done"})


def _train(channel: Channel, config: TrainConfig, rank: int, order: dict[str, Any]) -> None:
    state = Rank(config, rank, Path(order["directory"]))
    done, placements = order["iteration"], order["placements"]
    if done:
        state.resume(done)
    for iteration in range(done + 1, config.steps + 1):
        record = state.iterate(iteration, placements)
        placements = _commit(channel, rank, record)
        state.committed(iteration)
    state.final_audit(placements)


def _commit(channel: Channel, rank: int, record: IterationRecord) -> Placements:
    """Rank 0 commits; everyone gets the next placements."""
    answer: list[Placements | None] = [None]
    if rank == 0:
        channel.send({"kind": "step", "record": asdict(record)})
        reply = channel.receive()
        if reply is None:
            raise ConnectionError(f"the launcher is gone; iteration {record.iteration} is open")
        answer = [reply["placements"]]
    dist.broadcast_object_list(answer, src=0)
    if answer[0] is None:
        raise ConnectionError("rank 0 sent no placements")
    return answer[0]


def _gradient(tensor: Tensor) -> Tensor:
    """A leaf's gradient, zero where no token reached it."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


if __name__ == "__main__":
    main(int(sys.argv[1]))
