"""The page about this library says what the library computes."""

from __future__ import annotations

from pathlib import Path

from workflows.symi import figures
from workflows.symi.control import FileControl
from workflows.symi.latency import calibrate
from workflows.symi.placement import plan_layer, replica_counts
from workflows.symi.policies import parse_policy
from workflows.symi.simulation import simulate
from workflows.symi.synthetic import synthesize
from workflows.symi.trace import read_csv

PAGE = Path(figures.__file__).with_name("README.md").read_text(encoding="utf-8")


def test_the_page_s_table_is_the_computed_one() -> None:
    assert figures.figures_table(figures.all_figures()) in PAGE


def test_the_page_s_first_example_runs(tmp_path: Path) -> None:
    counts = replica_counts([70, 10, 10, 10], slots=8)
    assert counts == [5, 1, 1, 1]
    assert plan_layer(counts, ranks=4, slots_per_rank=2).placement == [0, 0, 0, 0, 0, 1, 2, 3]
    table = tmp_path / "popularity.csv"
    rows = synthesize(experts=16, tokens=32768, iterations=20, seed=0).rows()
    lines = ["run,iter,layer,expert,tokens", *(",".join(map(str, row)) for row in rows)]
    table.write_text("\n".join(lines))
    with table.open() as file:
        trace = read_csv(file)
    results = simulate(
        trace,
        [parse_policy("static"), parse_policy("symi")],
        ranks=16,
        slots_per_rank=4,
        latency=calibrate(),
    )
    assert results[1].drop_share < results[0].drop_share
    control = FileControl(tmp_path / "journal", parse_policy("symi"), layers=2, experts=8, slots=16)
    assert control.begin().iteration == 0
