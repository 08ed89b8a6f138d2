"""The network model: worked example 6.1, the ends of the measured range, and bad links."""

from __future__ import annotations

import pytest

from workflows.sailor.errors import BadLink, MissingLink, UnknownName
from workflows.sailor.network import Endpoint, Link, LinkTable, constant_link

Z, W = "us-central1-a", "us-west1-b"
SIZES = (65_536, 1_048_576, 8_388_608, 62.5e6, 2.0**30)
TABLE = [
    (("A100-40", 1, Z), ("A100-40", 1, Z), (0.525274, 1.126451, 1.526064, 1.870288, 2.287594)),
    (("A100-40", 4, Z), ("A100-40", 4, Z), (2.115657, 4.591753, 5.678568, 6.101473, 5.646940)),
    (("V100-16", 4, Z), ("V100-16", 4, Z), (2.044628, 3.469032, 4.359866, 5.075822, 5.846917)),
    (("A100-40", 4, Z), ("V100-16", 4, Z), (2.044628, 3.469032, 4.359866, 5.075822, 5.846917)),
    (("A100-40", 4, Z), ("A100-40", 4, W), (0.148852, 0.379815, 0.544450, 0.696465, 0.899975)),
]


def end(gpu: str, count: int, zone: str) -> Endpoint:
    return Endpoint(gpu=gpu, count=count, zone=zone)


@pytest.mark.parametrize(("sender", "receiver", "expected"), TABLE)
def test_bandwidth_of_published_links(published, sender, receiver, expected):
    link = published().links.find(end(*sender), end(*receiver))
    for size, gb_per_s in zip(SIZES, expected, strict=True):
        assert link.gb_per_s(size, published=True) == pytest.approx(gb_per_s, abs=1e-6)


def test_send_and_all_reduce_of_one_pair(published):
    link = published().links.find(end("A100-40", 1, Z), end("A100-40", 1, Z))
    assert link.send_s(62.5e6) == pytest.approx(0.033417317, abs=1e-9)
    assert link.all_reduce_s(814_862_336, 8) == pytest.approx(0.774871, abs=1e-6)
    assert link.all_reduce_s(1e6, 2) == pytest.approx(0.0010272017, abs=1e-10)
    assert link.all_reduce_s(1.2e9, 4) == pytest.approx(0.9213079424, abs=2e-9)
    assert link.all_reduce_s(1e9, 1) == 0.0
    assert link.send_s(0) == 0.0


def test_a_fit_is_held_at_the_ends_of_the_measured_range():
    link = Link(name="l", c0=0.8, c1=16.4, c2=80.0, max_bytes_per_s=90e9)
    assert link.gb_per_s(10) == link.gb_per_s(2**16)
    assert link.gb_per_s(2.0**40) == 90.0  # never above the measured maximum


def test_a_negative_fit_is_an_error_that_names_the_link():
    link = Link(
        name="A100 pair", c0=0.80818532, c1=16.40103598, c2=32.98046678, max_bytes_per_s=2.5e11
    )
    assert link.gb_per_s(100_000, published=True) < 0
    with pytest.raises(BadLink, match="A100 pair"):
        link.gb_per_s(100_000)


def test_a_link_without_bandwidth_is_rejected():
    with pytest.raises(BadLink, match="z -> w"):
        constant_link("z -> w", 0.0)


def test_no_link_between_types_that_were_not_measured_together(published):
    with pytest.raises(MissingLink, match="no link"):
        published().links.find(end("GH-96", 4, "us-central1-b"), end("A100-40", 4, Z))


def test_an_unknown_zone_is_named(published):
    with pytest.raises(UnknownName, match="mars-1-a"):
        published().links.find(end("A100-40", 4, "mars-1-a"), end("A100-40", 4, Z))


def test_unlike_endpoints_get_the_slower_of_the_two_measured_links():
    alike = {
        ("z", "z", "fast", 1): constant_link("f1", 2e9),
        ("z", "z", "fast", 4): constant_link("f4", 8e9),
        ("z", "z", "slow", 1): constant_link("s1", 1e9),
        ("z", "z", "slow", 4): constant_link("s4", 4e9),
    }
    table = LinkTable.from_alike(alike)
    assert table.find(end("fast", 4, "z"), end("fast", 1, "z")).name == "f1"
    assert table.find(end("fast", 4, "z"), end("slow", 4, "z")).name == "s4"
    assert table.find(end("slow", 4, "z"), end("fast", 1, "z")).name == "f1"


def test_unlike_endpoints_of_the_published_table_follow_the_same_rule(published):
    links = dict(published().links.items())
    alike = {
        (a, b, g, k): link for (a, g, k, b, g2, k2), link in links.items() if (g, k) == (g2, k2)
    }
    derived = LinkTable.from_alike(alike)
    key = (Z, "A100-40", 4, Z, "V100-16", 4)
    assert dict(derived.items())[key].c0 == links[key].c0


def test_links_survive_json(published):
    links = published().links
    assert LinkTable.from_json(links.to_json()).to_json() == links.to_json()
