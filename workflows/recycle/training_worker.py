"""One worker of the real training run: a process that runs its part of each step's schedule.

It obeys its controller:

    configure   leave the old groups, form new ones, undo a step too many, copy state; say ready
    go          run one step and say done, then ask for the next
    stop        end

A peer that dies breaks the groups: the worker leaves them, which in turn wakes those who wait for
it, and waits for the next configuration. If the controller dies it waits for another one. Its
state stays in memory all the while.

Run as ``python -m workflows.recycle.training_worker DIRECTORY PIPELINE STAGE [mortal]``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from workflows.recycle.errors import TrainingFailed
from workflows.recycle.job import Worker
from workflows.recycle.training_link import Link, LinkClosedError, connect
from workflows.recycle.training_model import StageCell, StageState, micro_batch, micro_batch_loss
from workflows.recycle.training_spec import ADDRESS_FILE, SPEC_FILE, TrainingSpec

__all__ = ["TrainingWorker", "main"]


_T = TypeVar("_T")


class _GroupBrokenError(Exception):
    """A peer is gone: the process group is of no use any more."""


class _Op(NamedTuple):
    kind: str
    home: int
    micro_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    """One `configure` message."""

    token: str
    step: int
    role: Worker
    ranks: dict[Worker, int]
    """Rank of every role."""
    executor: list[list[list[int]]]
    """Executing pipeline of (home, stage, micro-batch)."""
    ops: list[_Op]
    copies: list[tuple[int, int, int]]
    """(rank of the source, rank of the receiver, stage)"""

    @classmethod
    def from_message(cls, message: dict[str, Any], worker: Worker) -> _Configuration:
        names = {tuple(row["role"]): tuple(row["worker"]) for row in message["members"]}
        ranks = {Worker(*role): rank for rank, role in enumerate(sorted(names))}
        of_name = {name: ranks[Worker(*role)] for role, name in names.items()}
        role = next(Worker(*role) for role, name in names.items() if name == worker)
        return cls(
            token=message["token"],
            step=message["step"],
            role=role,
            ranks=ranks,
            executor=message["executor"],
            ops=[_Op(*op) for op in message["ops"]],
            copies=[
                (of_name[tuple(m["source"])], of_name[tuple(m["worker"])], m["to_role"][1])
                for m in message["moves"]
            ],
        )

    def rank_of(self, home: int, stage: int, j: int) -> int:
        """Who executes a cell."""
        return self.ranks[Worker(self.executor[home][stage][j], stage)]

    def peers(self, stage: int) -> list[int]:
        """The ranks of a stage, in the order of its roles."""
        return [rank for role, rank in sorted(self.ranks.items()) if role.stage == stage]


class TrainingWorker:
    """The worker's state and its way through the controller's commands."""

    def __init__(self, spec: TrainingSpec, directory: Path, worker: Worker, mortal: bool) -> None:
        self.spec, self.directory, self.worker = spec, directory, worker
        self.kills = [kill for kill in spec.kills if mortal and kill.worker == worker]
        # A newcomer has no state until it has copied one.
        self.state = StageState(spec, worker.stage) if mortal else None
        self.configuration: _Configuration | None = None
        self.stage_group: Any = None
        self.token = ""

    def run(self) -> None:
        """Obey until told to stop."""
        link: Link | None = None
        try:
            while True:
                try:
                    link = link or self._connect()
                    if not self._obey(link, link.receive(self.spec.patience_s)):
                        return
                except LinkClosedError:
                    link = None
                    self._leave_groups()
                except _GroupBrokenError as error:
                    sys.stderr.write(f"group broken: {error}\n")
                    self._report_broken(link)
        finally:
            self._leave_groups()

    def _connect(self) -> Link:
        hello = {"kind": "hello", "worker": list(self.worker)}
        return connect(self.directory / ADDRESS_FILE, hello, self.spec.patience_s)

    def _report_broken(self, link: Link | None) -> None:
        """Leave the groups, so that peers who wait for this worker wake up, and say so."""
        token = self.token
        self._leave_groups()
        if link is not None:
            try:
                link.send({"kind": "broken", "token": token})
            except LinkClosedError:
                # The next receive finds the same and looks for another controller.
                return

    def _obey(self, link: Link, command: dict[str, Any]) -> bool:
        """Carry out one command; False if it is the last."""
        if command["kind"] == "configure":
            self.token = command["token"]
            self._configure(_Configuration.from_message(command, self.worker))
            link.send({"kind": "ready", "token": command["token"]})
        elif command["kind"] == "go":
            # A step granted before the groups broke is not run: its configuration is gone.
            if self.configuration and command["token"] == self.configuration.token:
                self._train_step(link, self.configuration)
        elif command["kind"] == "stop":
            return False
        else:
            raise TrainingFailed(f"unknown command {command['kind']!r}")
        return True

    def _leave_groups(self) -> None:
        self.configuration, self.stage_group = None, None
        if dist.is_initialized():
            dist.destroy_process_group()

    def _configure(self, configuration: _Configuration) -> None:
        self._leave_groups()
        rank = configuration.ranks[configuration.role]

        def form() -> None:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{self.directory}/group-{configuration.token}",
                rank=rank,
                world_size=len(configuration.ranks),
                timeout=timedelta(seconds=self.spec.patience_s / 3),
            )
            for stage in range(self.spec.stages):
                group = dist.new_group(configuration.peers(stage))
                if stage == configuration.role.stage:
                    self.stage_group = group
            self._copy_states(configuration, rank)
            dist.barrier()

        if self.state is not None and not self.state.go_back_to(configuration.step):
            raise TrainingFailed(
                f"worker {tuple(self.worker)} has done {self.state.steps_done} steps and cannot go "
                f"back to step {configuration.step}"
            )
        _communicate(form)
        self.configuration = configuration

    def _copy_states(self, configuration: _Configuration, rank: int) -> None:
        """Send or receive parameters and optimizer state for every copy of the plan."""
        for source, receiver, stage in configuration.copies:
            if rank == source and self.state is not None:
                dist.send(self.state.flat(), receiver)
            elif rank == receiver:
                fresh = StageState(self.spec, stage)
                flat = torch.empty_like(fresh.flat())
                dist.recv(flat, source)
                fresh.take_over(flat, configuration.step)
                self.state = fresh

    def _train_step(self, link: Link, configuration: _Configuration) -> None:
        state = self.state
        if state is None or state.stage != configuration.role.stage:
            raise TrainingFailed(f"worker {tuple(self.worker)} has no state for its role")
        step = state.steps_done
        run = _Step(self.spec, configuration, state, step, self._maybe_die)
        state.step(self._sum_over_peers(run.run(), configuration))
        link.send(
            {
                "kind": "done",
                "token": configuration.token,
                "step": step,
                "loss": run.loss,
                "digest": state.digest(),
                "rollbacks": state.rollbacks,
            }
        )

    def _maybe_die(self, step: int, operation: int) -> None:
        if any((kill.step, kill.operation) == (step, operation) for kill in self.kills):
            os.kill(os.getpid(), signal.SIGKILL)

    def _sum_over_peers(self, grads: list[Tensor], configuration: _Configuration) -> list[Tensor]:
        """The stage's gradients, summed in the order of the roles: the same bits on every peer."""
        peers = configuration.peers(configuration.role.stage)
        flat = torch.cat([g.reshape(-1) for g in grads])
        if len(peers) > 1:
            parts = [torch.empty_like(flat) for _ in peers]
            _communicate(lambda: dist.all_gather(parts, flat, group=self.stage_group))
            flat = parts[0]
            for part in parts[1:]:
                flat = flat + part
        sizes = [g.numel() for g in grads]
        return [part.view_as(g) for part, g in zip(torch.split(flat, sizes), grads, strict=True)]


class _Step:
    """One iteration of one worker: its operations in the order of the plan."""

    def __init__(
        self,
        spec: TrainingSpec,
        configuration: _Configuration,
        state: StageState,
        step: int,
        before_op: Callable[[int, int], None],
    ) -> None:
        self.spec, self.configuration, self.state = spec, configuration, state
        self.step, self.before_op = step, before_op
        self.stage = configuration.role.stage
        self.last = self.stage == spec.stages - 1
        self.cells: dict[tuple[int, int], StageCell] = {}
        self.sending: list[tuple[Any, Tensor]] = []
        self.loss = 0.0
        self.grads = [torch.zeros_like(p) for p in state.parameters]

    def run(self) -> list[Tensor]:
        """All operations; the sum of the weight gradients."""
        for index, op in enumerate(self.configuration.ops):
            self.before_op(self.step, index)
            {"F": self._forward, "I": self._input_grad, "W": self._weight_grad}[op.kind](op)
        for work, _ in self.sending:
            _communicate(work.wait)
        return self.grads

    def _tag(self, kind: int, op: _Op) -> int:
        cell = op.home * self.spec.micro_batches + op.micro_batch
        return 2 * cell + kind

    def _send(self, tensor: Tensor, stage: int, kind: int, op: _Op) -> None:
        target = self.configuration.rank_of(op.home, stage, op.micro_batch)
        tensor = tensor.detach().contiguous()
        work = _communicate(lambda: dist.isend(tensor, target, tag=self._tag(kind, op)))
        self.sending.append((work, tensor))

    def _receive(self, stage: int, kind: int, op: _Op) -> Tensor:
        source = self.configuration.rank_of(op.home, stage, op.micro_batch)
        shape = (self.spec.samples_per_micro_batch, self.spec.width)
        tensor = torch.empty(shape, dtype=torch.float64)
        _communicate(lambda: dist.recv(tensor, source, tag=self._tag(kind, op)))
        return tensor

    def _forward(self, op: _Op) -> None:
        inputs, targets = micro_batch(self.spec, self.step, op.home, op.micro_batch)
        if self.stage > 0:
            inputs = self._receive(self.stage - 1, 0, op).requires_grad_()
        outputs = self.state.module(inputs)
        if self.last:
            outputs = micro_batch_loss(self.spec, outputs, targets)
            self.loss += outputs.item()
        else:
            self._send(outputs, self.stage + 1, 0, op)
        self.cells[op.home, op.micro_batch] = StageCell(inputs=inputs, outputs=outputs)

    def _input_grad(self, op: _Op) -> None:
        cell = self.cells[op.home, op.micro_batch]
        if not self.last:
            cell.output_grad = self._receive(self.stage + 1, 1, op)
        if self.stage > 0:
            self._send(cell.input_grad(), self.stage - 1, 1, op)

    def _weight_grad(self, op: _Op) -> None:
        cell = self.cells.pop((op.home, op.micro_batch))
        for total, grad in zip(self.grads, cell.weight_grads(self.state.parameters), strict=True):
            total.add_(grad)


def _communicate(call: Callable[[], _T]) -> _T:
    """Run a call that communicates; torch reports a lost peer as a RuntimeError."""
    try:
        return call()
    except RuntimeError as error:
        raise _GroupBrokenError(str(error)) from error


def main(arguments: list[str]) -> None:
    """Entry point of the process."""
    directory = Path(arguments[0])
    worker = Worker(int(arguments[1]), int(arguments[2]))
    mortal = arguments[3:] == ["mortal"]
    torch.set_num_threads(1)
    spec = TrainingSpec.from_json(json.loads((directory / SPEC_FILE).read_text("utf-8")))
    TrainingWorker(spec, directory, worker, mortal).run()


if __name__ == "__main__":
    main(sys.argv[1:])
