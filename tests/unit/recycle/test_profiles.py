"""Profiles from raw samples."""

import json

import pytest

from workflows.recycle.errors import InvalidArgument
from workflows.recycle.job import StageTimes
from workflows.recycle.profiles import SampleSummary, StageProfile, profile_stage

SAMPLES = {
    "forward": [10.2, 9.8, 10.0, 50.0],
    "input_grad": [12.0],
    "weight_grad": [9.0, 9.0],
    "all_reduce": [3.0],
    "optimizer": [2.0],
}


def test_medians_become_whole_microseconds() -> None:
    profile = profile_stage(SAMPLES)
    assert profile.operations["forward"] == SampleSummary(median_us=10, p95_us=44, samples=4)
    assert profile.times() == StageTimes(
        forward_us=10, input_grad_us=12, weight_grad_us=9, transfer_us=0, optimizer_us=5
    )
    assert StageProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_units() -> None:
    assert profile_stage(SAMPLES, unit="ms").times().input_grad_us == 12_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward": []}, "at least one sample"),
        ({"forward": [-1.0]}, "not negative"),
        ({"forward": [float("nan")]}, "finite"),
        ({"forward": [0.2]}, "rounds to 0"),
        ({"sideways": [1.0]}, "unknown"),
    ],
)
def test_bad_samples(change: dict[str, list[float]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        profile_stage(SAMPLES | change)


def test_what_is_required() -> None:
    with pytest.raises(InvalidArgument, match="weight_grad"):
        profile_stage({"forward": [1.0], "input_grad": [1.0]})
