"""Real training: processes that die by SIGKILL, join again, and still compute the same."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from workflows.recycle.control import MemoryControlStore
from workflows.recycle.errors import InvalidArgument, InvalidWorker
from workflows.recycle.job import Worker
from workflows.recycle.training_model import StageState, build_stage, micro_batch, micro_batch_loss
from workflows.recycle.training_reference import reference_losses
from workflows.recycle.training_run import (
    TrainingReport,
    first_state,
    run_training,
    switch_policy,
)
from workflows.recycle.training_spec import Join, Kill, TrainingSpec

VICTIM = Worker(1, 1)
SPEC = TrainingSpec(
    kills=(Kill(worker=VICTIM, step=4, operation=5),),
    joins=(Join(worker=VICTIM, step=7),),
)


def require_equal_to_one_process(report: TrainingReport, spec: TrainingSpec) -> None:
    assert len(report.losses) == spec.steps
    assert report.losses == pytest.approx(reference_losses(spec), rel=0, abs=1e-10)
    for digests in report.digests:
        for stage in range(spec.stages):
            peers = {d for name, d in digests.items() if name.endswith(f".{stage}")}
            assert len(peers) == 1


@pytest.fixture(scope="module")
def killed_twice(tmp_path_factory: pytest.TempPathFactory) -> TrainingReport:
    """A worker dies at step 4 and joins at 7; the controller dies in the middle of the switch."""
    spec = replace(SPEC, kill_controller="before_activate")
    return run_training(spec, tmp_path_factory.mktemp("run"))


def test_losses_equal_those_of_one_process(killed_twice: TrainingReport) -> None:
    require_equal_to_one_process(killed_twice, SPEC)


def test_the_worker_was_away_for_three_steps(killed_twice: TrainingReport) -> None:
    present = ["1.1" in digests for digests in killed_twice.digests]
    assert present == [True] * 4 + [False] * 3 + [True] * 3


def test_the_next_controller_finished_the_switch_once(killed_twice: TrainingReport) -> None:
    assert killed_twice.controllers == 2
    kinds = [event.kind for event in killed_twice.events]
    assert kinds == ["fail", "activate", "join", "activate"]


def test_a_death_at_the_end_of_a_step_without_return(tmp_path: Path) -> None:
    """Some stages may have stepped by then; whoever has goes back."""
    spec = TrainingSpec(steps=4, kills=(Kill(worker=Worker(1, 0), step=2, operation=11),))
    store = MemoryControlStore(first_state(spec), switch_policy(spec))
    report = run_training(spec, tmp_path / "run", store=store)
    assert store.load().iteration == spec.steps
    require_equal_to_one_process(report, spec)
    assert set(report.digests[-1]) == {"0.0", "0.1", "1.1"}


def grads_of(spec: TrainingSpec, state: StageState, step: int) -> tuple[torch.Tensor, ...]:
    inputs, targets = micro_batch(spec, step, 0, 0)
    loss = micro_batch_loss(spec, state.module(inputs), targets)
    return torch.autograd.grad(loss, state.parameters)


def test_a_step_too_many_is_undone_exactly() -> None:
    spec = TrainingSpec(stages=1)
    state = StageState(spec, 0)
    state.step(grads_of(spec, state, 0))
    before = state.flat().clone()
    state.step(grads_of(spec, state, 1))
    assert not torch.equal(state.flat(), before)
    assert state.go_back_to(1)
    assert torch.equal(state.flat(), before)
    assert (state.steps_done, state.rollbacks) == (1, 1)
    assert not state.go_back_to(0)


def test_a_gradient_that_is_not_a_number_is_undone() -> None:
    spec = TrainingSpec(stages=1)
    state = StageState(spec, 0)
    before = state.digest()
    state.step([torch.full_like(p, float("nan")) for p in state.parameters])
    assert not torch.isfinite(state.flat()).all()
    assert state.go_back_to(0)
    assert state.digest() == before


def test_a_copied_state_goes_on_like_its_source() -> None:
    spec = TrainingSpec(stages=1)
    source, copy = StageState(spec, 0), StageState(replace(spec, seed=2), 0)
    source.step(grads_of(spec, source, 0))
    copy.take_over(source.flat(), source.steps_done)
    for state in (source, copy):
        state.step(grads_of(spec, state, 1))
    assert source.digest() == copy.digest()


def test_stages_are_seeded_by_place() -> None:
    first, again, other = (build_stage(SPEC, i) for i in (0, 0, 1))
    weights = [next(iter(stage.parameters())) for stage in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_controller_in_this_process_cannot_be_killed(tmp_path: Path) -> None:
    spec = replace(SPEC, kill_controller="after_activate")
    store = MemoryControlStore(first_state(spec), switch_policy(spec))
    with pytest.raises(InvalidArgument, match="controller process"):
        run_training(spec, tmp_path, store=store)


def test_bad_kill_lists() -> None:
    with pytest.raises(InvalidWorker):
        TrainingSpec(kills=(Kill(worker=Worker(2, 0), step=1),))
    with pytest.raises(InvalidArgument, match="step 10"):
        TrainingSpec(joins=(Join(worker=VICTIM, step=10),))
    assert TrainingSpec.from_json(SPEC.to_json()) == SPEC
