"""The library on the service's tables: traces, and the control state of a training run.

For the bodies of steps: everything here calls functions of `functions.symi`, each a transaction of
its own. Needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from functions import symi
from functions.symi.records import LayerProfile, Observed, RunSummary

from .arguments import refused
from .control import Committed, IterationRecord, Placements
from .statistics import layer_statistics
from .synthetic import PopularityProcess, synthesize
from .trace import Trace, ingest, read_csv

__all__ = [
    "DatabaseControl",
    "ingest_file",
    "ingest_rows",
    "iterations",
    "layer_profiles",
    "load_trace",
    "process",
    "store_trace",
    "synthesise",
]

_RECORDS_AT_ONCE = 500

_PORTION_CELLS = 250_000
"""Tokens in one call: some two megabytes of its four as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseControl:
    """A training run's control state in the database; see `workflows.symi.control.Control`."""

    run: str
    run_id: str
    """Workflow run that trains."""
    advanced: Callable[[int], None]
    """Told of every committed iteration."""

    def begin(self) -> Committed:
        """Where to go on."""
        return symi.committed(self.run)

    def step(self, record: IterationRecord) -> Placements:
        """Commit an iteration as one transaction."""
        observed = Observed(
            loss=record.loss,
            cross_entropy=record.cross_entropy,
            dropped=record.dropped,
            gradient_bytes=record.gradient_bytes,
            weight_bytes=record.weight_bytes,
            latency_s=record.latency_s,
        )
        placements = symi.step(self.run, record.iteration, record.popularity, observed, self.run_id)
        self.advanced(record.iteration)
        return placements

    def rank_state(self, rank: int, pid: int, state: str) -> None:
        """Note what a rank's process does."""
        symi.note_rank(self.run, rank, pid, state, self.run_id)


def ingest_file(path: Path, run: str | None, run_id: str) -> RunSummary:
    """Read a CSV file of popularity and store it; ``run``, if given, must be the rows' own."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            trace = read_csv(lines)
    except OSError as error:
        raise refused("path", str(path), "a readable CSV file", str(error)) from error
    return _ingested(trace, run, run_id)


def ingest_rows(
    rows: list[tuple[str, int, int, int, int]], run: str | None, run_id: str
) -> RunSummary:
    """Store rows of popularity, as `ingest_file`."""
    return _ingested(ingest(rows), run, run_id)


def _ingested(trace: Trace, run: str | None, run_id: str) -> RunSummary:
    if run is not None and run != trace.run:
        raise refused("run", run, f"{trace.run!r}, as the rows say", "leave it out")
    return store_trace(trace, "trace", {}, run_id)


def process(
    slow_spread: float, slow_memory: float, fast_spread: float, fast_memory: float
) -> PopularityProcess:
    """Both random walks of a synthetic trace."""
    return PopularityProcess(
        slow_spread=slow_spread,
        slow_memory=slow_memory,
        fast_spread=fast_spread,
        fast_memory=fast_memory,
    )


def synthesise(
    run: str,
    experts: int,
    tokens: int,
    iterations: int,
    seed: int,
    layers: int,
    walks: PopularityProcess,
    run_id: str,
) -> RunSummary:
    """Draw a synthetic trace and store it with what it was drawn from."""
    trace = synthesize(
        experts=experts,
        tokens=tokens,
        iterations=iterations,
        seed=seed,
        layers=layers,
        process=walks,
        run=run,
    )
    origin = {"tokens": tokens, "seed": seed, "process": asdict(walks)}
    return store_trace(trace, "synthetic", origin, run_id)


def store_trace(trace: Trace, kind: str, origin: dict[str, Any], run_id: str) -> RunSummary:
    """Store a whole trace in portions; what is stored already is compared, not written again."""
    symi.open_trace(
        trace.run, kind, trace.layers, trace.experts, trace.first_iteration, origin, run_id
    )
    for start, count in _portions(trace.iterations, trace.layers * trace.experts):
        symi.store_popularity(
            trace.run,
            trace.first_iteration + start,
            trace.experts,
            trace.layers,
            trace.tokens[start : start + count].ravel().tolist(),
        )
    return symi.finish_trace(trace.run)


def load_trace(run: str) -> Trace:
    """A stored run's popularity."""
    summary = symi.describe_run(run)
    layers = [
        [
            tokens
            for start, count in _portions(summary.iterations, summary.experts)
            for tokens in symi.popularity(run, layer, summary.first_iteration + start, count)
        ]
        for layer in range(summary.layers)
    ]
    tokens = np.stack([np.array(layer, dtype=np.int64) for layer in layers], axis=1)
    return Trace(run=run, first_iteration=summary.first_iteration, tokens=tokens)


def layer_profiles(trace: Trace) -> list[LayerProfile]:
    """The statistics of every layer."""
    found = (layer_statistics(trace, layer) for layer in range(trace.layers))
    return [
        LayerProfile(
            layer=each.layer,
            iterations=each.iterations,
            mean_tokens=each.mean_tokens,
            max_over_mean=each.max_over_mean,
            largest_max_over_mean=each.largest_max_over_mean,
            gini=each.gini,
            entropy_bits=each.entropy_bits,
            swing=each.swing,
            autocorrelation=each.autocorrelation,
        )
        for each in found
    ]


def iterations(run: str) -> list[IterationRecord]:
    """All observed iterations of a training run."""
    found: list[IterationRecord] = []
    while portion := symi.iterations(run, len(found) + 1, _RECORDS_AT_ONCE):
        found += portion
    return found


def _portions(iterations: int, cells: int) -> Iterator[tuple[int, int]]:
    """(first, count) of iterations that hold at most a portion each."""
    size = max(1, _PORTION_CELLS // cells)
    for start in range(0, iterations, size):
        yield start, min(size, iterations - start)
