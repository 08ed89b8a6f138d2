"""Plans: the split of layers, their JSON forms, and every rule that a plan can break."""

from __future__ import annotations

import pytest

from workflows.sailor.errors import BadJob, BadPlan, MissingProfile, NotAvailable, UnknownName
from workflows.sailor.plan import (
    Plan,
    Replica,
    check_available,
    check_layer_lists,
    even_split,
    parse_availability,
    stages_from_split,
    uniform_plan,
)
from workflows.sailor.published import plan_from_published, plan_to_published
from workflows.sailor.simulator import simulate

Z, B, W = "us-central1-a", "us-central1-b", "us-west1-b"


def a100(degree: int, zone: str = Z) -> Replica:
    return Replica(gpu="A100-40", degree=degree, zone=zone)


def one_stage(
    *replicas: Replica, microbatch: int = 2, shares: tuple[int, ...] | None = None
) -> Plan:
    return Plan(
        microbatch=microbatch, stages=stages_from_split([26], [list(replicas)]), shares=shares
    )


@pytest.mark.parametrize(
    ("layers", "stages", "split"),
    [
        (26, 2, [13, 13]),
        (26, 4, [6, 6, 7, 7]),
        (26, 7, [3, 3, 4, 4, 4, 4, 4]),
        (34, 5, [6, 7, 7, 7, 7]),
    ],
)
def test_the_last_stages_get_the_extra_layers(layers, stages, split):
    assert list(even_split(layers, stages)) == split


@pytest.mark.parametrize(
    ("layers", "stages", "split"), [(26, 4, [7, 7, 6, 6]), (34, 5, [7, 7, 7, 7, 6])]
)
def test_the_short_form_gives_the_extra_layers_to_the_first_stages(layers, stages, split):
    short = {"D": 2, "P": stages, "T": 4, "mbs": 1, "gpu_type": "A100-40", "zone": Z}
    assert list(plan_from_published(short, layers).split) == split


def test_a_plan_survives_both_json_forms():
    plan = uniform_plan(layers=26, stages=4, replicas=3, replica=a100(2), microbatch=2)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan_from_published(plan_to_published(plan), 26) == plan
    assert len(plan.to_json()["stages"][0]["replicas"]) == 1


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[*range(13)], [*range(14, 26)]], "layer 13 missing"),
        ([[*range(13)], [*range(12, 26)]], "layer 12 of stage 1 is repeated"),
        ([[*range(13)], [*range(13, 25)]], "layer 25 missing"),
        ([[*range(13)], [*range(13, 27)]], "layer 26 does not exist"),
        ([[*range(26)], []], "stage 1 is empty"),
    ],
)
def test_layers_must_be_a_partition_in_order(lists, message):
    with pytest.raises(BadPlan, match=message):
        check_layer_lists(lists, 26)


def test_a_tensor_group_stays_in_one_node(published):
    with pytest.raises(BadPlan, match="tensor degree 8 exceeds 4"):
        simulate(published(), one_stage(a100(8)))


def test_a_missing_profile_is_named(published):
    plan = one_stage(Replica(gpu="V100-16", degree=1, zone=Z), microbatch=8)
    with pytest.raises(MissingProfile, match="no profile for OPT-350/V100-16/m=8/t=1"):
        simulate(published(), plan)


def test_an_unknown_gpu_is_named(published):
    with pytest.raises(UnknownName, match="TPU-9"):
        simulate(published(), one_stage(Replica(gpu="TPU-9", degree=1, zone=Z)))


def test_replicas_of_a_stage_stay_in_one_region(published):
    with pytest.raises(BadPlan, match="us-central1 and us-west1"):
        simulate(published(), one_stage(a100(4), a100(4, W)))
    assert simulate(published(), one_stage(a100(4), a100(4, B))).feasible


@pytest.mark.parametrize("global_batch", [-1, 0])
def test_a_global_batch_below_one_is_rejected(published, global_batch):
    with pytest.raises(BadJob, match="global_batch"):
        published(global_batch=global_batch)


def test_a_microbatch_of_zero_and_no_replicas_are_rejected(published):
    with pytest.raises(BadJob, match="microbatch is 0"):
        simulate(published(), one_stage(a100(2), microbatch=0))
    with pytest.raises(BadJob, match="D = 0"):
        simulate(published(), one_stage())
    with pytest.raises(BadJob, match="D is 0"):
        uniform_plan(layers=26, stages=1, replicas=0, replica=a100(1), microbatch=1)


def test_a_batch_smaller_than_the_replicas_is_a_warning(published):
    estimate = simulate(published(global_batch=4), one_stage(*[a100(2)] * 3))
    assert estimate.microbatches == 1
    assert "replicas idle" in estimate.warnings[0]


def test_shares_must_cover_the_global_batch(published):
    with pytest.raises(BadPlan, match="less than the global batch of 1024"):
        simulate(published(), one_stage(a100(2), a100(2), shares=(255, 256)))
    assert simulate(published(), one_stage(a100(2), a100(2), shares=(256, 256))).microbatches == 256


def test_more_gpus_than_available_are_refused():
    plan = one_stage(a100(4), a100(4))
    with pytest.raises(NotAvailable, match="uses 8 A100-40 in us-central1-a, available are 7"):
        check_available(plan, {("A100-40", Z): 7})
    check_available(plan, {("A100-40", Z): 8})


def test_availability_keys_are_gpu_and_zone():
    assert parse_availability({"A100-40_us-central1-a": 32}) == {("A100-40", Z): 32}
    with pytest.raises(BadJob, match="A100-40"):
        parse_availability({"A100-40": 32})
    with pytest.raises(BadJob, match="-1"):
        parse_availability({"A100-40_us-central1-a": -1})
