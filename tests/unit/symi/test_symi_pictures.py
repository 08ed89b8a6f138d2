"""Pictures are valid SVG, tell their data, and are the same for the same data."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from workflows.symi import pictures
from workflows.symi.errors import InvalidArgument
from workflows.symi.latency import calibrate
from workflows.symi.policies import parse_policy
from workflows.symi.simulation import simulate
from workflows.symi.synthetic import synthesize

TRACE = synthesize(experts=16, tokens=32768, iterations=60, seed=0)
RESULTS = simulate(
    TRACE,
    [parse_policy(name) for name in ("static", "symi", "flex(10, full)")],
    ranks=16,
    slots_per_rank=4,
    latency=calibrate(),
)
TOKENS, COUNTS = TRACE.tokens[:, 0], RESULTS[1].counts[:, 0]
SURVIVAL = {result.policy: result.survival for result in RESULTS}
LOSS = {result.policy: np.linspace(4.3, 1.3, 60) for result in RESULTS}
SECONDS = {result.policy: result.latency_s for result in RESULTS}
PARTS = {
    result.policy: {name: float(part.mean()) for name, part in result.latency.items()}
    for result in RESULTS
}

DRAWN: dict[str, tuple[Callable[[], str], list[str]]] = {
    "heat map": (lambda: pictures.popularity_heatmap(TOKENS), ["Popularity", "expert"]),
    "replicas": (lambda: pictures.replica_steps(TOKENS, COUNTS, 512), ["demand", "replicas"]),
    "survival": (lambda: pictures.survival_lines(SURVIVAL), ["static", "symi", "flex(10, full)"]),
    "loss": (lambda: pictures.loss_curves(LOSS, SECONDS), ["Loss by iteration", "minutes"]),
    "latency": (lambda: pictures.latency_bars(PARTS), ["rebalance", "iteration", "symi"]),
    "slots": (lambda: pictures.slot_map([0, 0, 0, 0, 0, 1, 2, 3], 2), ["rank", "slot"]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_each_picture_is_svg_with_its_labels_and_reproducible(name: str) -> None:
    draw, labels = DRAWN[name]
    text = draw()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    # Matplotlib draws text as paths and leaves each text as a comment.
    assert all(f"<!-- {label} -->" in text for label in labels)
    assert draw() == text


def test_a_slot_map_shows_every_slot() -> None:
    text = pictures.slot_map([7, 7, 8, 9], 2)
    assert (text.count("<!-- 7 -->"), text.count("<!-- 8 -->"), text.count("<!-- 9 -->")) == (
        2,
        1,
        1,
    )


def test_other_data_is_another_picture() -> None:
    assert pictures.popularity_heatmap(TOKENS) != pictures.popularity_heatmap(TOKENS[::-1])


def test_chosen_experts_are_shown() -> None:
    text = pictures.replica_steps(TOKENS, COUNTS, 512, experts=[3, 11])
    assert "<!-- Expert 3 -->" in text
    assert "<!-- Expert 11 -->" in text


@pytest.mark.parametrize(
    "draw",
    [
        lambda: pictures.popularity_heatmap([1, 2]),
        lambda: pictures.replica_steps(TOKENS, COUNTS[:5], 512),
        lambda: pictures.survival_lines({}),
        lambda: pictures.survival_lines({"symi": []}),
        lambda: pictures.loss_curves(LOSS, {}),
        lambda: pictures.slot_map([0, 1, 2], 2),
    ],
)
def test_data_that_cannot_be_drawn_is_refused(draw: Callable[[], str]) -> None:
    with pytest.raises(InvalidArgument):
        draw()
