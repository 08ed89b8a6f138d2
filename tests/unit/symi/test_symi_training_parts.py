"""Parts of the training, each against a direct computation."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from workflows.symi.errors import InvalidArgument, InvalidPlacement  # noqa: E402
from workflows.symi.training.checkpoint import Checkpoints  # noqa: E402
from workflows.symi.training.config import TrainConfig  # noqa: E402
from workflows.symi.training.data import global_batch, rank_rows, successors  # noqa: E402
from workflows.symi.training.dispatch import instance_tokens, positions_in_class  # noqa: E402
from workflows.symi.training.launch import rank_environment  # noqa: E402
from workflows.symi.training.model import DenseModel, initial_expert  # noqa: E402
from workflows.symi.training.optimizer import ShardedAdam  # noqa: E402
from workflows.symi.training.replicas import local_sum  # noqa: E402

CONFIG = TrainConfig()


def test_the_reference_run_is_the_default() -> None:
    assert (CONFIG.tokens, CONFIG.slot_capacity, CONFIG.expert_parameters) == (512, 32, 4096)
    assert [replace(CONFIG, ranks=ranks).slots_per_rank for ranks in (1, 2, 4)] == [16, 8, 4]
    assert replace(CONFIG, steps=9).digest == CONFIG.digest != replace(CONFIG, ranks=2).digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 3}, "slots is 16; expected a multiple of 3"),
        ({"batch": 15, "ranks": 2}, "batch is 15"),
        ({"capacity_factor": 0.0}, "capacity_factor"),
        ({"capacity_factor": 0.01}, "tokens is 512"),
        ({"steps": 0}, "steps"),
        ({"learning_rate": -1.0}, "learning_rate"),
    ],
)
def test_runs_that_cannot_be_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        TrainConfig(**change)  # type: ignore[arg-type]
    with pytest.raises(InvalidPlacement):
        replace(CONFIG, experts=17)


def test_batches_follow_the_chain_and_ranks_share_them() -> None:
    chain = successors(CONFIG)
    inputs, targets = global_batch(CONFIG, chain, 1)
    assert inputs.shape == targets.shape == (16, 32)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert all(
        following in chain[token]
        for token, following in zip(inputs.flatten(), targets.flatten(), strict=True)
    )
    assert torch.equal(global_batch(CONFIG, chain, 1)[0], inputs)
    assert not torch.equal(global_batch(CONFIG, chain, 2)[0], inputs)
    rows = [inputs[rank_rows(replace(CONFIG, ranks=4), rank)] for rank in range(4)]
    assert torch.equal(torch.cat(rows), inputs)


def test_building_a_model_leaves_the_caller_s_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = DenseModel(CONFIG)
    assert torch.equal(torch.rand(3), expected)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert not torch.equal(initial_expert(CONFIG, 0, 1), initial_expert(CONFIG, 1, 1))


def test_worked_example_of_the_representative() -> None:
    on_rank_0 = local_sum([0, 0], [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])])
    on_rank_1 = local_sum([0], [torch.tensor([5.0, 6.0])])
    assert on_rank_0[0].tolist() == [4, 6]
    assert (on_rank_0[0] + on_rank_1[0]).tolist() == [9, 12]


_TWO_RANKS = """
import json, sys, torch, torch.distributed as dist
from workflows.symi.errors import InvariantViolated
from workflows.symi.training.audit import audit_copies
from workflows.symi.training.config import TrainConfig
from workflows.symi.training.replicas import ReplicaExchange
rank, store = int(sys.argv[1]), dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
config = TrainConfig(ranks=2, slots=4, experts=2, width=1, heads=1, hidden=1, layers=1)
exchange = ReplicaExchange(config, rank)
slots = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]][rank]
gradients = [[torch.tensor(slot, dtype=torch.float64) for slot in slots]]
shards, sent = exchange.gradient_shards([[0, 0, 0, 1]], gradients)
weights, _ = exchange.scatter_weights([[0, 1, 1, 1]], shards)
print(json.dumps([shards.tolist(), sent, [slot.tolist() for slot in weights[0]]]))

audit_copies(config, [[0, 1, 1, 1]], weights, shards)
if rank == 1:
    weights[0][0].data[1] = torch.nextafter(weights[0][0].data[1], torch.tensor(9.0).double())
try:
    audit_copies(config, [[0, 1, 1, 1]], weights, shards)
except InvariantViolated as error:
    print(json.dumps(error.slots))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What the two real ranks print, line by line."""
    meeting = tmp_path_factory.mktemp("two") / "ranks"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _TWO_RANKS, str(rank), str(meeting)],
            stdout=subprocess.PIPE,
            env=rank_environment(),
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    return [[json.loads(line) for line in output.splitlines()] for output in outputs]


def test_worked_example_of_the_gradient_sum_over_two_ranks(two_ranks: list[list[Any]]) -> None:
    first, second = (lines[0] for lines in two_ranks)
    # Expert 0 on both ranks: [9, 12]; expert 1 on rank 1 only: [7, 8]. Each rank owns one number.
    assert first[0] == [[[9], [7]]]
    assert second[0] == [[[12], [8]]]
    assert (first[1], second[1]) == (0, 8)
    assert first[2] == [[9, 12], [7, 8]]
    assert second[2] == [[7, 8], [7, 8]]


def test_an_audit_names_a_slot_that_is_off_by_one_bit_on_every_rank(
    two_ranks: list[list[Any]],
) -> None:
    assert [lines[1:] for lines in two_ranks] == [[["layer 0, slot 2, expert 1"]]] * 2


def test_positions_count_earlier_tokens_of_the_same_class() -> None:
    chosen = torch.tensor([2, 0, 2, 2, 1, 0])
    assert positions_in_class(chosen, 3).tolist() == [0, 0, 1, 2, 0, 1]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=3, max_size=3),
    st.integers(1, 10),
)
def test_every_rank_knows_who_sends_how_much_to_which_slot(
    by_rank: list[list[int]], replicas: list[int], slot_capacity: int
) -> None:
    counts = torch.tensor(replicas)
    flow = instance_tokens(torch.tensor(by_rank), counts, counts * slot_capacity)
    expected = [[0] * sum(replicas) for _ in by_rank]
    for expert, count in enumerate(replicas):
        position = 0
        for rank, tokens in enumerate(by_rank):
            for _ in range(tokens[expert]):
                if position < slot_capacity * count:
                    expected[rank][sum(replicas[:expert]) + position % count] += 1
                position += 1
    assert flow.tolist() == expected
    assert int(flow.sum(0).max()) <= slot_capacity


def test_the_sharded_optimizer_is_adam_also_without_tokens() -> None:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    whole = start.clone().requires_grad_()
    adam = torch.optim.Adam([whole], lr=CONFIG.learning_rate)
    sharded = ShardedAdam(CONFIG, start.clone())
    for step in range(6):
        gradient = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
        gradient[step % 2, step % 3] = 0
        whole.grad = gradient.clone()
        adam.step()
        sharded.step(gradient)
    assert (sharded.weights - whole).abs().max() <= 1e-15
    resumed = ShardedAdam(CONFIG, torch.zeros(2, 3, 5, dtype=torch.float64))
    resumed.load(sharded.state())
    assert torch.equal(resumed.weights, sharded.weights)
    with pytest.raises(TypeError, match="three tensors"):
        resumed.load({"weights": 1, "first": 1, "second": 1, "steps": 1})


def test_checkpoints_are_of_one_configuration_and_the_old_ones_go(tmp_path: Path) -> None:
    files = Checkpoints(tmp_path, CONFIG)
    for iteration in (1, 2, 3):
        files.save(0, iteration, {"value": torch.tensor([iteration])})
    files.forget_before(0, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rank-0-iteration-000002.pt",
        "rank-0-iteration-000003.pt",
    ]
    assert files.load(0, 2)["value"].item() == 2
    with pytest.raises(InvalidArgument, match=r"rank-0-iteration-000001\.pt"):
        files.load(0, 1)
    with pytest.raises(InvalidArgument, match="another configuration"):
        Checkpoints(tmp_path, replace(CONFIG, ranks=2)).load(0, 2)
