"""A rank is killed; the run goes on from the last committed iteration with identical losses."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.processes import is_alive
from workflows.symi.control import FileControl, IterationRecord, Placements
from workflows.symi.errors import Conflict, RunFailed
from workflows.symi.policies import Symi
from workflows.symi.training.config import TrainConfig
from workflows.symi.training.launch import rank_environment, train

CONFIG = TrainConfig(ranks=2, steps=6)
KILL_AT = 4

Step = Callable[[IterationRecord], Placements]


class Deadly(FileControl):
    """Control state that kills a rank at a chosen point of committing iteration 4."""

    def __init__(self, path: Path, victim: int, when: str) -> None:
        super().__init__(path, Symi(), layers=2, experts=8, slots=16)
        self._victim = victim
        self._when = when

    def step(self, record: IterationRecord) -> Placements:
        if record.iteration == KILL_AT and self._when == "before the commit":
            self._kill()
        answer = super().step(record)
        if record.iteration == KILL_AT and self._when == "after the commit":
            self._kill()
        if record.iteration == KILL_AT and self._when == "during the next iteration":
            # From another thread, while this one hands out the placements: the ranks are at work.
            threading.Thread(target=self._kill).start()
        return answer

    def _kill(self) -> None:
        os.kill(self.ranks[self._victim][0], signal.SIGKILL)


def journal(path: Path) -> FileControl:
    return FileControl(path, Symi(), layers=2, experts=8, slots=16)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[IterationRecord]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return train(CONFIG, journal(folder / "journal"), folder).records


@pytest.mark.parametrize(
    ("victim", "when"),
    [
        (0, "before the commit"),
        (1, "after the commit"),
        (1, "during the next iteration"),
    ],
)
def test_a_killed_rank_costs_no_committed_iteration(
    tmp_path: Path, undisturbed: list[IterationRecord], victim: int, when: str
) -> None:
    path = tmp_path / "journal"
    deadly = Deadly(path, victim, when)
    with pytest.raises(RunFailed, match=f"rank {victim} ended with -9") as failure:
        train(CONFIG, deadly, tmp_path)
    assert (failure.value.rank, failure.value.exit_code) == (victim, -9)
    assert {state for _, state in deadly.ranks.values()} == {"FAILED"}
    assert not any(is_alive(pid) for pid, _ in deadly.ranks.values())

    committed = journal(path).begin().iteration
    assert KILL_AT <= failure.value.committed == committed < CONFIG.steps
    resumed = journal(path)
    result = train(CONFIG, resumed, tmp_path)
    assert result.resumed_from == committed
    assert {state for _, state in resumed.ranks.values()} == {"SUCCEEDED"}
    assert [_facts(record) for record in resumed.records] == [_facts(r) for r in undisturbed]


class Unreachable(FileControl):
    """Control state whose store is away when iteration 4 is to be committed."""

    def step(self, record: IterationRecord) -> Placements:
        if record.iteration == KILL_AT:
            raise ConnectionError("the store is away")
        return super().step(record)


def test_an_iteration_that_was_not_committed_is_done_again(
    tmp_path: Path, undisturbed: list[IterationRecord]
) -> None:
    path = tmp_path / "journal"
    with pytest.raises(ConnectionError, match="the store is away"):
        train(CONFIG, Unreachable(path, Symi(), layers=2, experts=8, slots=16), tmp_path)
    # Its checkpoint is on disk already, and must not be what the run goes on from.
    assert (tmp_path / f"rank-1-iteration-{KILL_AT:06d}.pt").exists()
    resumed = journal(path)
    assert train(CONFIG, resumed, tmp_path).resumed_from == KILL_AT - 1
    assert [_facts(record) for record in resumed.records] == [_facts(r) for r in undisturbed]


_LAUNCHER = """
import sys
from pathlib import Path
from tests.unit.symi.test_symi_training_kill import CONFIG, journal
from workflows.symi.training.launch import train
folder = Path(sys.argv[1])
control = journal(folder / "journal")
commit = control.step
def step(record):
    answer = commit(record)
    print(record.iteration, *(pid for pid, _ in control.ranks.values()), flush=True)
    return answer
control.step = step
train(CONFIG, control, folder)
"""


def test_a_killed_launcher_takes_its_ranks_along_and_the_run_goes_on(
    tmp_path: Path, undisturbed: list[IterationRecord]
) -> None:
    root = Path(__file__).resolve().parents[3]
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=rank_environment(),
        cwd=root,
    )
    assert launcher.stdout is not None
    with launcher:
        numbers = [int(word) for word in launcher.stdout.readline().split()]
        ends = [os.pidfd_open(pid) for pid in numbers[1:]]
        launcher.kill()
    assert numbers[0] == 1
    for end in ends:
        # A process's descriptor becomes readable when it has ended.
        assert select.select([end], [], [], 120)[0]
        os.close(end)
    resumed = journal(tmp_path / "journal")
    assert 1 <= train(CONFIG, resumed, tmp_path).resumed_from < CONFIG.steps
    assert [_facts(record) for record in resumed.records] == [_facts(r) for r in undisturbed]
    assert not list(tmp_path.glob("meeting-*"))
    assert not list(tmp_path.glob("*.unfinished"))


class Refusing(FileControl):
    """Control state in which another run has already committed iteration 1 differently."""

    def step(self, record: IterationRecord) -> Placements:
        raise Conflict("iteration 1 is committed with other popularity", iteration=1)


def test_a_refused_commit_ends_the_ranks(tmp_path: Path) -> None:
    control = Refusing(tmp_path / "journal", Symi(), layers=2, experts=8, slots=16)
    with pytest.raises(Conflict):
        train(CONFIG, control, tmp_path)
    assert not any(is_alive(pid) for pid, _ in control.ranks.values())


def test_a_finished_run_starts_no_process(tmp_path: Path, undisturbed: object) -> None:
    path = tmp_path / "journal"
    config = TrainConfig(ranks=1, steps=1)
    train(config, journal(path), tmp_path)
    control = journal(path)
    assert train(config, control, tmp_path).records == []
    assert control.ranks == {}


def _facts(record: IterationRecord) -> tuple[object, ...]:
    """Everything but the latency, with losses to the last bit."""
    losses = (record.loss.hex(), record.cross_entropy.hex())
    return (record.iteration, record.popularity, *losses, record.dropped, record.gradient_bytes)
