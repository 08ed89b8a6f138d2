"""Every error survives pickling with its data: it may come from another process."""

from __future__ import annotations

import pickle

import pytest

from workflows.sailor import errors
from workflows.sailor.published import job_from_published, plan_from_published, read_json
from workflows.sailor.validation import summarise

TREE = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.SailorError)
]


@pytest.mark.parametrize("kind", TREE)
def test_an_error_survives_pickling(kind):
    error = kind("what was wrong")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "what was wrong"
    assert vars(again) == vars(error)


def test_files_that_are_not_what_they_should_be_are_named(tmp_path):
    with pytest.raises(errors.BadProfileFile, match=r"nothing\.json: no such file"):
        read_json(tmp_path / "nothing.json")
    (tmp_path / "half.json").write_text('{"a": ')
    with pytest.raises(errors.BadProfileFile, match=r"half\.json"):
        read_json(tmp_path / "half.json")
    with pytest.raises(errors.BadProfileFile, match="'global_batch_size' missing"):
        job_from_published({"model": "m"})


def test_a_tensor_group_over_two_machines_is_refused():
    machine = ["A100-40", 4, "us-central1-a"]
    pipeline = {
        "num_stages": 1,
        "layers_per_stage": [[0, 1, 2]],
        "tmp_per_stage": [[[[machine, machine], 8]]],
        "dp": [1],
    }
    with pytest.raises(errors.BadProfileFile, match="spans 2 machines"):
        plan_from_published({"pipeline_list": [pipeline], "mbs": 1}, 3)


def test_a_summary_of_nothing_is_refused():
    with pytest.raises(errors.BadProfileFile, match="no measured plan"):
        summarise([])


def test_an_unknown_model_is_named(published, reference):
    from workflows.sailor.published import profile_from_published

    times = read_json(reference / "profiles_sim.json")
    sizes = read_json(reference / "llm_info.json")
    with pytest.raises(errors.UnknownName, match="BLOOM-7"):
        profile_from_published("BLOOM-7", times, sizes)


def test_a_price_outside_its_validity_is_missing():
    from workflows.sailor.prices import GpuPrice, PriceTable

    table = PriceTable(
        [
            GpuPrice(gpu="A100-40", usd_per_hour=3.6, valid_to_s=100),
            GpuPrice(
                gpu="A100-40", usd_per_hour=1.8, zone="z-1-a", valid_from_s=50, valid_to_s=100
            ),
        ]
    )
    assert table.usd_per_second("A100-40", "z-1-a", 10) == pytest.approx(0.001)
    assert table.usd_per_second("A100-40", "z-1-a", 60) == pytest.approx(0.0005)
    with pytest.raises(errors.MissingPrice, match="at time 100 s"):
        table.usd_per_second("A100-40", "z-1-a", 100)
    assert PriceTable.from_json(table.to_json()).to_json() == table.to_json()


@pytest.mark.parametrize(
    ("a", "b", "usd"),
    [
        ("us-central1-a", "us-central1-a", 0.0),
        ("us-central1-a", "us-central1-b", 0.01),
        ("us-central1-a", "us-west1-b", 0.02),
        ("europe-west1-b", "europe-west4-a", 0.02),
        ("us-central1-a", "europe-west4-a", 0.05),
    ],
)
def test_listed_traffic_prices(a, b, usd):
    from workflows.sailor.prices import listed_egress_usd_per_gb

    assert listed_egress_usd_per_gb(a, b) == usd
