"""Start the ranks of a run, commit what they report, and clean up whatever happens.

The caller's `Control` lives here, in the launching process: ranks know no database. When a rank
dies, its peers are ended too, and `RunFailed` says from where the same call goes on.
"""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..control import Committed, Control, IterationRecord, Placements
from ..errors import InvalidArgument, InvalidPlacement, RunFailed
from .channel import Channel
from .checkpoint import Checkpoints
from .config import TrainConfig

__all__ = ["TrainResult", "rank_environment", "train"]

# Not from __package__: whoever loads this module from elsewhere may give it another name.
_RANK_PROGRAM = "workflows.symi.training.rank"

_SILENCE_S = 300.0
"""Without any message for this long the run counts as failed."""

_LOG_TAIL_BYTES = 2000
_MEETING = "meeting-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What this call did; earlier iterations of a resumed run are in the control state."""

    resumed_from: int
    """Last iteration that was already committed; 0 for a new run."""
    records: list[IterationRecord]
    """The iterations committed by this call."""


@dataclass(kw_only=True, slots=True)
class _RankProcess:
    rank: int
    process: subprocess.Popen[bytes]
    channel: Channel
    log: Path
    done: bool = False


def train(
    config: TrainConfig, control: Control, directory: Path, sources: Path | None = None
) -> TrainResult:
    """Train ``config.ranks`` processes from the last committed iteration to ``config.steps``.

    ``directory`` keeps checkpoints and the ranks' logs; it must be the same when a run is resumed.
    ``sources`` is the folder that holds the package `workflows` for the ranks, where it is not
    the one that this module was imported from. All slots are compared with the optimizer's shards
    at the end.

    Raises:
        RunFailed: a rank died, or found copies that differ; the end of its log is in the message.
            Call again with the same arguments to go on.
        InvalidArgument: the control state is of another shape, or checkpoints are missing.
        InvalidPlacement: the control state's placements are not ascending.
        Conflict: what ``control`` raises; the ranks are ended.
    """
    directory.mkdir(parents=True, exist_ok=True)
    start = control.begin()
    _checked(config, start.placements)
    records: list[IterationRecord] = []
    if start.iteration < config.steps:
        _sweep(config, directory)
        with tempfile.TemporaryDirectory(dir=directory, prefix=_MEETING) as meeting:
            rendezvous = Path(meeting) / "ranks"
            with _started(config, control, directory, sources) as ranks:
                for member in ranks:
                    _send(member, _order(config, member.rank, start, directory, rendezvous))
                _Attempt(
                    config=config,
                    control=control,
                    ranks=ranks,
                    committed=start.iteration,
                    records=records,
                ).serve()
    return TrainResult(resumed_from=start.iteration, records=records)


def _sweep(config: TrainConfig, directory: Path) -> None:
    """Remove what an attempt left whose launcher was killed."""
    Checkpoints(directory, config).sweep()
    for meeting in directory.glob(f"{_MEETING}*"):
        shutil.rmtree(meeting)


def _order(
    config: TrainConfig, rank: int, start: Committed, directory: Path, rendezvous: Path
) -> dict[str, Any]:
    return {
        "config": asdict(config),
        "rank": rank,
        "iteration": start.iteration,
        "placements": start.placements,
        "directory": str(directory.resolve()),
        "rendezvous": str(rendezvous.resolve()),
    }


def _checked(config: TrainConfig, placements: Placements) -> Placements:
    """The control state's placements, if they are of this run: of its shape, and ascending."""
    shapes = [(len(row), max(row) + 1) for row in placements]
    if shapes != [(config.slots, config.experts)] * config.layers:
        raise InvalidArgument(
            f"the control state has (slots, experts) {shapes} per layer; the configuration has "
            f"{config.layers} layers of {(config.slots, config.experts)}: create it for this run",
            argument="control",
            given=shapes,
            expected=[(config.slots, config.experts)] * config.layers,
        )
    for row in placements:
        if row != sorted(row):
            raise InvalidPlacement(
                f"the control state places {row}; expected experts in ascending order, since only "
                "consecutive ranks form groups: use placement.contiguous",
                argument="control",
                given=row,
                expected=sorted(row),
            )
    return placements


@contextmanager
def _started(
    config: TrainConfig, control: Control, directory: Path, sources: Path | None
) -> Iterator[list[_RankProcess]]:
    """Running ranks, all of them ended on the way out."""
    ranks: list[_RankProcess] = []
    try:
        for rank in range(config.ranks):
            ranks.append(_start_rank(rank, directory, sources))
            control.rank_state(rank, ranks[-1].process.pid, "RUNNING")
        yield ranks
    finally:
        for member in ranks:
            member.process.kill()
            member.process.wait()
            member.channel.close()


def _start_rank(rank: int, directory: Path, sources: Path | None) -> _RankProcess:
    ours, theirs = socket.socketpair()
    log = directory / f"rank-{rank}.log"
    with log.open("wb") as output, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", _RANK_PROGRAM, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=rank_environment(sources),
        )
    return _RankProcess(rank=rank, process=process, channel=Channel(ours), log=log)


def rank_environment(sources: Path | None = None) -> dict[str, str]:
    """This process's environment, such that a rank finds this package and stays on this machine.

    The package is that in ``sources``, by default the one that this module was imported from.
    """
    root = sources or Path(__file__).parents[_RANK_PROGRAM.count(".")]
    path = os.pathsep.join([str(root.resolve()), *(entry for entry in sys.path if entry)])
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    return os.environ | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": loopback,
    }


@dataclass(kw_only=True, slots=True)
class _Attempt:
    """One start of the ranks: what they report, up to their end."""

    config: TrainConfig
    control: Control
    ranks: list[_RankProcess]
    committed: int
    """Last committed iteration."""
    records: list[IterationRecord]
    """The iterations committed by this attempt."""

    def serve(self) -> None:
        """Answer commits until every rank is done."""
        with selectors.DefaultSelector() as selector:
            for member in self.ranks:
                selector.register(member.channel, selectors.EVENT_READ, member)
            while not all(member.done for member in self.ranks):
                ready = selector.select(_SILENCE_S)
                if not ready:
                    raise self._failed(f"no rank spoke for {_SILENCE_S:g} s")
                for key, _ in ready:
                    self._answer(key.data)
                    if key.data.done:
                        selector.unregister(key.fileobj)
        for member in self.ranks:
            member.process.wait()
            self.control.rank_state(member.rank, member.process.pid, "SUCCEEDED")

    def _answer(self, member: _RankProcess) -> None:
        """Handle one message of a rank."""
        message = member.channel.receive()
        if message is None:
            raise self._failed("a rank died")
        if message["kind"] == "done":
            member.done = True
            return
        record = IterationRecord(**message["record"])
        placements = _checked(self.config, self.control.step(record))
        self.records.append(record)
        self.committed = record.iteration
        try:
            member.channel.send({"placements": placements})
        except OSError as error:
            raise self._failed("a rank died") from error

    def _failed(self, reason: str) -> RunFailed:
        """End all ranks, note their states, and describe the one that died first."""
        culprit = _dead_rank(self.ranks)
        for member in self.ranks:
            member.process.kill()
            member.process.wait()
            self.control.rank_state(member.rank, member.process.pid, "FAILED")
        code = culprit.process.returncode
        return RunFailed(
            f"{reason}: rank {culprit.rank} ended with {code}, iteration {self.committed} is "
            "committed; call train again with the same control state and folder to go on.\n"
            f"{_tail(culprit.log)}",
            rank=culprit.rank,
            exit_code=code,
            committed=self.committed,
        )


def _send(member: _RankProcess, message: dict[str, Any]) -> None:
    # A rank that is already dead shows as the end of its channel, where its exit code is known.
    try:
        member.channel.send(message)
    except BrokenPipeError:
        return


def _dead_rank(ranks: list[_RankProcess]) -> _RankProcess:
    """The rank that was killed by a signal, else the first that ended, else rank 0.

    Peers of a killed rank soon fail by themselves, with an ordinary exit code.
    """
    with selectors.DefaultSelector() as selector:
        for member in ranks:
            if not member.done:
                selector.register(member.channel, selectors.EVENT_READ, member)
        at_end: list[_RankProcess] = [key.data for key, _ in selector.select(0)]
    for member in at_end:
        # The channel's end precedes the exit by moments only.
        member.process.wait()
    ended = [member for member in at_end if member.process.returncode != 0]
    signalled = [member for member in ended if member.process.returncode < 0]
    return next(iter([*signalled, *ended, *ranks]))


def _tail(log: Path) -> str:
    return log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
