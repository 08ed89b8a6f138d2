"""Requests depend on their number alone, and are what their sources say."""

from __future__ import annotations

import random

import pytest

from apiary.bench.workloads import WORKLOADS, Scale, chosen_workloads, last_name, nurand
from apiary.errors import BadArgument


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_a_request_depends_on_its_number_alone(name: str) -> None:
    workload, scale = WORKLOADS[name], Scale()
    first = [workload.request(number, scale) for number in range(50)]
    assert first == [workload.request(number, scale) for number in range(50)]
    assert all(request.is_workflow == workload.is_workflow for request in first)
    if name not in ("mixed",):
        assert len({str(request) for request in first}) > 1


def test_the_shop_browses_nine_times_out_of_ten() -> None:
    targets = [WORKLOADS["shop"].request(number, Scale()).target for number in range(2000)]
    assert 0.88 < targets.count("shop.get_item") / 2000 < 0.94
    assert 0.06 < targets.count("shop.checkout") / 2000 < 0.10


def test_last_names_are_those_of_tpcc() -> None:
    assert last_name(371) == "PRICALLYOUGHT"  # TPC-C 4.3.2.3
    assert last_name(40) == "BARPRESBAR"


def test_nurand_stays_in_its_range_and_prefers_some() -> None:
    rng = random.Random(1)
    drawn = [nurand(rng, 255, 0, 999) for _ in range(5000)]
    assert min(drawn) >= 0
    assert max(drawn) <= 999
    counts = sorted((drawn.count(value) for value in set(drawn)), reverse=True)
    assert counts[0] > 3 * 5000 / 1000


def test_an_unknown_workload_is_named() -> None:
    with pytest.raises(BadArgument, match="unknown workload 'nothing'"):
        chosen_workloads(["reserve", "nothing"])
