"""The live parts on this machine: profiler, bandwidth, 1F1B over processes, reconfiguration."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from workflows.sailor.errors import BadJob, LiveRunError  # noqa: E402
from workflows.sailor.live_checkpoint import Checkpoint, next_slot  # noqa: E402
from workflows.sailor.live_group import run_group  # noqa: E402
from workflows.sailor.live_model import TinyGpt, batch_of, build_layer  # noqa: E402
from workflows.sailor.live_network import Sample, fit_network, measure_network  # noqa: E402
from workflows.sailor.live_pipeline import (  # noqa: E402
    LiveJob,
    live_problem,
    predict_live,
    run_live,
)
from workflows.sailor.live_profile import profile_live  # noqa: E402
from workflows.sailor.network import GB  # noqa: E402
from workflows.sailor.planner import search  # noqa: E402

SHAPE = TinyGpt(blocks=2, hidden=64, heads=4, sequence_length=32, vocabulary=211)


def samples_of(c0: float, c1: float, c2: float) -> list[Sample]:
    from math import log2

    sizes = [2**k for k in range(16, 25)]
    return [
        Sample(size_bytes=x, gb_per_s=c0 * log2(x / 1e6) ** 2 + c1 * log2(x / 1e6) + c2)
        for x in sizes
    ]


def test_layers_and_batches_depend_only_on_the_seed():
    first, again = (list(build_layer(SHAPE, 1).parameters()) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(batch_of(SHAPE, 3, 4)[0], batch_of(SHAPE, 3, 4)[0])
    assert not torch.equal(batch_of(SHAPE, 3, 4)[0], batch_of(SHAPE, 4, 4)[0])


def test_the_profiler_counts_parameters_outputs_and_kept_tensors():
    profile = profile_live(SHAPE, [1, 2])
    embedding, block, head = profile.sizes[1][0], profile.sizes[1][1], profile.sizes[1][3]
    h, s = SHAPE.hidden, SHAPE.sequence_length
    assert embedding.parameters == (SHAPE.vocabulary + s) * h
    assert block.parameters == 12 * h * h + 13 * h
    assert head.parameters == SHAPE.vocabulary * h + 2 * h
    assert block.output_floats == s * h
    # at least the inputs of the four matrix products: h, h, h and 4h values per token
    assert 7 * s * h <= block.kept_floats <= 40 * s * h
    for point in (("cpu", 1, 1), ("cpu", 2, 1)):
        assert all(t.forward_s > 0 and t.update_s > 0 for t in profile.times[point])
        assert all(t.backward_s > 0 for t in profile.times[point])


def test_a_slow_down_emulates_another_type():
    profile = profile_live(SHAPE, [1], gpu="slow", slow_down=1000.0)
    assert profile.gpus == ("slow",)
    assert profile.time_of("slow", 1, 1)[1].forward_s > 1e-3
    with pytest.raises(BadJob, match="positive"):
        profile_live(SHAPE, [0])


def test_a_fit_recovers_the_polynomial_it_was_made_from():
    fit = fit_network(samples_of(-0.02, 0.3, 2.0))
    assert (fit.c0, fit.c1, fit.c2) == pytest.approx((-0.02, 0.3, 2.0))
    assert fit.r_squared == pytest.approx(1.0)
    assert fit.link("l").gb_per_s(2**20) == pytest.approx(samples_of(-0.02, 0.3, 2.0)[4].gb_per_s)
    with pytest.raises(BadJob, match="at least 3"):
        fit_network(samples_of(0, 0, 1)[:2])


def test_bandwidth_between_two_processes_is_measured():
    samples = measure_network(2, [2**16, 2**18, 2**20, 2**22], rounds=5)
    assert [s.size_bytes for s in samples] == [2**16, 2**18, 2**20, 2**22]
    assert all(s.gb_per_s > 0 for s in samples)
    fit = fit_network(samples)
    assert fit.max_bytes_per_s == pytest.approx(max(s.gb_per_s for s in samples) * GB)
    with pytest.raises(BadJob, match="even number"):
        measure_network(3)


def _fails(rank: int, world: int, argument: object) -> None:
    if rank == 1:
        raise ValueError(f"worker {rank} of {world} has had enough of {argument}")


def test_a_failing_worker_reaches_the_caller_with_its_traceback():
    with pytest.raises(LiveRunError, match="had enough of it"):
        run_group(_fails, 2, "it", timeout_s=60)


@pytest.mark.campaign
def test_every_split_trains_the_same_model(tmp_path):
    def losses(split, replicas=1):
        return run_live(LiveJob(shape=SHAPE, split=split, replicas=replicas, steps=4)).losses

    whole = losses((4,))
    assert whole[-1] < whole[0]
    assert losses((2, 2)) == pytest.approx(whole, rel=1e-4)
    assert losses((1, 3)) == pytest.approx(whole, rel=1e-4)
    assert losses((4,), replicas=2) == pytest.approx(whole, rel=1e-4)


@pytest.mark.campaign
def test_two_pipelines_of_two_stages_work_together():
    whole = run_live(LiveJob(shape=SHAPE, split=(4,), steps=3)).losses
    both = run_live(LiveJob(shape=SHAPE, split=(2, 2), replicas=2, steps=3)).losses
    assert both == pytest.approx(whole, rel=1e-4)


def test_the_loss_curve_is_unbroken_over_two_to_one_to_two_stages(tmp_path):
    unbroken = run_live(LiveJob(shape=SHAPE, split=(4,), steps=9)).losses
    folder, curve, at = str(tmp_path), [], None
    for split in ((2, 2), (4,), (1, 3)):
        run = run_live(LiveJob(shape=SHAPE, split=split, steps=3, start=at, save_to=folder))
        assert run.first_step == len(curve)
        curve += run.losses
        at = run.checkpoint
    assert curve == pytest.approx(unbroken, rel=1e-3)
    assert at == Checkpoint(folder=folder, slot=0, step=9)
    assert Checkpoint.from_json(at.to_json()) == at
    assert next_slot(at) == 1


def test_a_checkpoint_of_another_step_is_refused(tmp_path):
    run = run_live(LiveJob(shape=SHAPE, split=(4,), steps=1, save_to=str(tmp_path)))
    assert run.checkpoint is not None
    stale = Checkpoint(folder=str(tmp_path), slot=run.checkpoint.slot, step=7)
    with pytest.raises(LiveRunError, match="is of step 1"):
        run_live(LiveJob(shape=SHAPE, split=(4,), steps=1, start=stale))
    missing = Checkpoint(folder=str(tmp_path), slot=1, step=1)
    with pytest.raises(LiveRunError, match="is missing"):
        run_live(LiveJob(shape=SHAPE, split=(4,), steps=1, start=missing))


def test_a_live_job_that_cannot_run_is_refused():
    with pytest.raises(BadJob, match="together they are all layers"):
        LiveJob(shape=SHAPE, split=(1, 2))
    with pytest.raises(BadJob, match="m·D = 6"):
        LiveJob(shape=SHAPE, split=(4,), replicas=3)
    with pytest.raises(BadJob, match="heads"):
        TinyGpt(hidden=65, heads=4)


def test_a_measured_machine_can_be_simulated_and_planned_for():
    profile = profile_live(SHAPE, [1, 2, 4])
    fit = fit_network(samples_of(0.0, 0.0, 1.0))
    estimate = predict_live(LiveJob(shape=SHAPE, split=(2, 2)), profile, fit)
    alone = predict_live(LiveJob(shape=SHAPE, split=(4,)), profile, fit)
    assert 0 < estimate.iteration_s < alone.iteration_s
    problem = live_problem(SHAPE, profile, fit, 16)
    assert search(problem, {("cpu", "local"): 2}).best.estimate.feasible
