"""SYMI as workflows: profile, synthesise, plan, price, simulate, train, validate.

Functions of `functions.symi` keep everything in tables; `plan`, `cost` and `validate` call nothing
else and run inside the database. What computes with numpy, draws or trains is a step in a worker
process, and imports what it needs there: this module is imported wherever the service is deployed.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from apiary import ApplicationError, progress, run_id, step, workflow, write_sources
from functions import symi
from functions.symi.errors import RunFailed, declared, refused
from functions.symi.records import (
    Cluster,
    Cost,
    Hardware,
    LayerProfile,
    PolicySummary,
    RunSummary,
    StoredPlan,
    TrainingShape,
    TrainReport,
)

from .costs import ExpertLayer, Links
from .policies import parse_policy
from .training.config import TrainConfig

__all__ = [
    "Difference",
    "Profile",
    "Simulation",
    "Training",
    "compare",
    "cost",
    "plan",
    "profile",
    "simulate",
    "synth",
    "train",
    "validate",
]

TraceRow = tuple[str, int, int, int, int]
"""run, iteration, layer, expert, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A stored trace and what it looks like."""

    trace: RunSummary
    layers: list[LayerProfile]
    pictures: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A study's policies, in the order in which they were asked for."""

    study: str
    policies: list[PolicySummary]
    pictures: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far a distributed run is from one process with PyTorch's own Adam."""

    loss: float
    """Largest absolute difference of an iteration's loss."""
    steps_with_other_drops: int
    steps_with_other_popularity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A finished training run."""

    report: TrainReport
    reference: Difference | None
    pictures: list[str]


# Traces.


@workflow
def profile(
    run: str | None = None,
    path: str | None = None,
    rows: list[TraceRow] | None = None,
    pictures: bool = True,
) -> Profile:
    """Ingest a popularity trace, or take a stored run, and measure its skew and change.

    ``path`` is a CSV file ``run,iter,layer,expert,tokens`` on the executor's machine; ``rows`` are
    the same inline. ``run`` alone names what is stored already; else it must be the rows' own.
    """
    if path is not None:
        trace = ingest_file(path, run)
    elif rows is not None:
        trace = ingest_rows(rows, run)
    elif run is not None:
        trace = symi.describe_run(run)
    else:
        raise refused("run, path, rows", None, "one of them", "say what to profile")
    layers = measure(trace.run)
    symi.store_layer_profiles(trace.run, layers, run_id())
    drawn = draw_popularity(trace.run) if pictures else []
    return Profile(trace=trace, layers=layers, pictures=drawn)


@workflow
def synth(
    run: str,
    experts: int,
    tokens: int,
    iterations: int,
    seed: int,
    layers: int = 1,
    slow_spread: float = 0.8,
    slow_memory: float = 0.97,
    fast_spread: float = 0.15,
    fast_memory: float = 0.5,
) -> RunSummary:
    """Make a synthetic trace: two random walks of the router's logits per expert."""
    return synthesise(
        run,
        experts,
        tokens,
        iterations,
        seed,
        layers,
        slow_spread,
        slow_memory,
        fast_spread,
        fast_memory,
    )


@step(process=True)
def ingest_file(path: str, run: str | None) -> RunSummary:
    """Read a CSV file of popularity and store it."""
    from . import stored

    with declared():
        return stored.ingest_file(Path(path), run, run_id())


@step(process=True)
def ingest_rows(rows: list[TraceRow], run: str | None) -> RunSummary:
    """Store popularity that was given inline."""
    from . import stored

    with declared():
        return stored.ingest_rows(rows, run, run_id())


@step(process=True)
def synthesise(
    run: str,
    experts: int,
    tokens: int,
    iterations: int,
    seed: int,
    layers: int,
    slow_spread: float,
    slow_memory: float,
    fast_spread: float,
    fast_memory: float,
) -> RunSummary:
    """Draw a synthetic trace and store it."""
    from . import stored

    with declared():
        walks = stored.process(slow_spread, slow_memory, fast_spread, fast_memory)
        return stored.synthesise(run, experts, tokens, iterations, seed, layers, walks, run_id())


@step(process=True)
def measure(run: str) -> list[LayerProfile]:
    """The statistics of every layer of a stored run."""
    from . import stored

    with declared():
        return stored.layer_profiles(stored.load_trace(run))


@step(process=True)
def draw_popularity(run: str) -> list[str]:
    """Draw and keep a heat map of every layer."""
    from . import drawings, stored

    with declared():
        return drawings.keep(run_id(), drawings.of_popularity(stored.load_trace(run)))


# Plans and costs.


@workflow
def plan(
    run: str,
    iteration: int,
    layer: int,
    ranks: int,
    slots_per_rank: int,
    policy: str = "symi",
) -> StoredPlan:
    """The placement on which an iteration runs, by the popularity of those before it."""
    return symi.make_plan(run, iteration, layer, ranks, slots_per_rank, policy, run_id())


@workflow
def cost(layer: ExpertLayer, links: Links, variant: str = "offload") -> Cost:
    """What one iteration of one MoE layer moves and keeps, in the static design and in SYMI's."""
    return symi.price(layer, links, variant, run_id())


@workflow
def validate(run: str) -> list[str]:
    """Violated invariants of everything that is stored of a run; empty when it is sound."""
    return symi.violations(run)


# Simulation.


@workflow
def simulate(
    run: str,
    policies: list[str],
    ranks: int,
    slots_per_rank: int,
    capacity_factor: float = 1.0,
    hardware: Hardware | None = None,
    iterations: dict[str, float] | None = None,
    study: str | None = None,
    pictures: bool = True,
) -> Simulation:
    """Replay a trace under policies: drops and latency of every iteration, minutes to a target.

    Without ``hardware`` latencies are relative, calibrated on the paper's Table 3, and minutes are
    those to loss 4.0 of the policies that it reports. ``iterations`` says how many iterations to
    the target each policy needs. The study is named after this workflow run unless said otherwise.
    """
    name = study or run_id()
    cluster = Cluster(ranks=ranks, slots_per_rank=slots_per_rank, capacity_factor=capacity_factor)
    latency = "calibrated" if hardware is None else "physical"
    symi.open_study(name, run, "simulation", cluster, latency, run_id())
    summaries = replay(name, run, policies, cluster, hardware, iterations or {})
    drawn = draw_simulation(run, policies, cluster, hardware) if pictures else []
    return Simulation(study=name, policies=summaries, pictures=drawn)


@step(process=True)
def replay(
    study: str,
    run: str,
    policies: list[str],
    cluster: Cluster,
    hardware: Hardware | None,
    iterations: dict[str, float],
) -> list[PolicySummary]:
    """Simulate each policy and store its course."""
    from . import simulating, stored

    with declared():
        job = simulating.Job.of(policies, cluster, hardware, iterations)
        trace = stored.load_trace(run)
        summaries = []
        for done, policy in enumerate(job.policies):
            progress(done, len(job.policies), f"simulating {policy}")
            summaries.append(job.replay(trace, policy, study, run_id()))
    return summaries


@step(process=True)
def draw_simulation(
    run: str, policies: list[str], cluster: Cluster, hardware: Hardware | None
) -> list[str]:
    """Draw survival and latency by policy, and for each policy demand and last placement."""
    from . import drawings, simulating, stored

    with declared():
        job = simulating.Job.of(policies, cluster, hardware, {})
        trace = stored.load_trace(run)
        results = [job.simulated(trace, policy) for policy in job.policies]
        return drawings.keep(run_id(), drawings.of_simulation(trace, results, cluster))


# Training.


@workflow
def train(
    run: str,
    config: TrainConfig,
    policy: str = "symi",
    directory: str | None = None,
    reference: bool = False,
    pictures: bool = True,
) -> Training:
    """Train the small mixture-of-experts transformer in ``config.ranks`` processes.

    Every iteration commits by `symi.step`. Whatever dies, the run goes on from the last committed
    iteration: by itself, and by another workflow run of the same arguments after it has FAILED.
    ``directory`` keeps checkpoints on a machine that all attempts run on, by default a folder of
    the executor's account. ``reference`` compares with training in one process.
    """
    shape = TrainingShape(
        layers=config.layers,
        experts=config.experts,
        cluster=Cluster(
            ranks=config.ranks,
            slots_per_rank=config.slots_per_rank,
            capacity_factor=config.capacity_factor,
        ),
        expert_parameters=config.expert_parameters,
    )
    symi.open_training(run, shape, policy, {"digest": config.digest}, run_id())
    try:
        train_ranks(run, config, directory)
        difference = compare_with_reference(run, config, policy) if reference else None
    except Exception:
        symi.close_training(run, "FAILED")
        raise
    symi.close_training(run, "COMPLETE")
    drawn = draw_training(run) if pictures else []
    return Training(report=symi.training_report(run), reference=difference, pictures=drawn)


@workflow
def compare(runs: list[str]) -> list[str]:
    """Draw the losses of several training runs, against iterations and against minutes."""
    return draw_losses(runs)


def _may_go_on(error: BaseException) -> bool:
    """Dead ranks and processes are gone on from; another declared outcome would come again."""
    return isinstance(error, RunFailed) or not isinstance(error, ApplicationError)


@step(process=True, retries=3, retry_if=_may_go_on)
def train_ranks(run: str, config: TrainConfig, directory: str | None) -> int:
    """Train from the last committed iteration on; returns how many this attempt committed."""
    from . import stored
    from .training.launch import train as trained

    def advanced(iteration: int) -> None:
        progress(iteration, config.steps, f"iteration {iteration}")

    control = stored.DatabaseControl(run=run, run_id=run_id(), advanced=advanced)
    # The ranks are programs of their own: they import what was deployed from here.
    with tempfile.TemporaryDirectory(prefix="apiary-symi-") as sources, declared():
        write_sources(sources)
        result = trained(config, control, _checkpoints(run, directory), Path(sources))
    return len(result.records)


@step(process=True)
def compare_with_reference(run: str, config: TrainConfig, policy: str) -> Difference:
    """Train the same in one process, an expert after the other, and compare what is stored."""
    from . import stored
    from .training.reference import distance

    with declared():
        found = distance(stored.iterations(run), config, parse_policy(policy))
    return Difference(
        loss=found.loss,
        steps_with_other_drops=found.steps_with_other_drops,
        steps_with_other_popularity=found.steps_with_other_popularity,
    )


@step(process=True)
def draw_training(run: str) -> list[str]:
    """Draw loss, popularity, and the placement after the last iteration."""
    from . import drawings, stored

    with declared():
        placement = symi.committed(run).placements[0]
        slots_per_rank = len(placement) // symi.training_report(run).ranks
        svgs = {
            **drawings.of_losses({run: stored.iterations(run)}),
            **drawings.of_popularity(stored.load_trace(run)),
            **drawings.of_slots("after the last iteration", placement, slots_per_rank),
        }
        return drawings.keep(run_id(), svgs)


@step(process=True)
def draw_losses(runs: list[str]) -> list[str]:
    """Draw the loss curves of training runs."""
    from . import drawings, stored

    with declared():
        losses = drawings.of_losses({run: stored.iterations(run) for run in runs})
        return drawings.keep(run_id(), losses)


def _checkpoints(run: str, directory: str | None) -> Path:
    """The folder of a run's checkpoints and logs."""
    if directory is not None:
        return Path(directory)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "apiary" / "symi" / f"run-{quote(run, safe='')}"
