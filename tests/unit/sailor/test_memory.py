"""Memory of a worker: worked example 6.3 and the cap on microbatches in flight."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workflows.sailor.memory import in_flight, plan_memory, worker_memory
from workflows.sailor.plan import Replica, even_split, uniform_plan

ROWS = [
    (
        "OPT-350",
        "A100-40",
        1,
        0,
        4,
        8,
        103_739_392,
        711_175_424,
        25_247_358_976,
        28_247_358_976,
        True,
    ),
    (
        "OPT-350",
        "V100-16",
        1,
        0,
        4,
        2,
        103_739_392,
        711_175_424,
        8_179_148_800,
        11_179_148_800,
        True,
    ),
    (
        "OPT-350",
        "V100-16",
        1,
        0,
        1,
        1,
        407_431_168,
        2_375_129_856,
        19_278_867_456,
        21_278_867_456,
        False,
    ),
    (
        "GPT-Neo-2.7",
        "V100-16",
        1,
        0,
        4,
        1,
        667_468_800,
        1_971_334_400,
        23_904_588_800,
        26_904_588_800,
        False,
    ),
    (
        "GPT-Neo-2.7",
        "A100-40",
        2,
        0,
        2,
        1,
        699_330_560,
        1_558_581_760,
        29_252_587_520,
        32_252_587_520,
        True,
    ),
    (
        "GPT-Neo-2.7",
        "A100-40",
        2,
        1,
        2,
        1,
        629_539_840,
        1_562_516_224,
        21_359_021_056,
        24_359_021_056,
        True,
    ),
    (
        "LLAMA-3-8",
        "GH-96",
        1,
        0,
        4,
        1,
        2_200_281_088,
        31_477_780_736,
        178_717_869_056,
        181_717_869_056,
        False,
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_worker_memory_of_published_models(published, row):
    model, gpu, depth, stage, degree, m, parameters, kept, core, checked, fits = row
    problem = published(model)
    split = even_split(problem.job.layers, depth)
    start = sum(split[:stage])
    layers = range(start, start + split[stage])
    sizes = problem.profile.size_of(degree)
    assert sum(sizes[layer].parameters for layer in layers) == parameters
    assert sum(sizes[layer].kept_floats for layer in layers) == kept
    worker = worker_memory(
        problem,
        stage=stage,
        layers=layers,
        gpu=gpu,
        degree=degree,
        microbatch=m,
        flight=depth - stage,
        published=True,
    )
    assert worker.model_bytes == core
    assert worker.needed_bytes == checked
    assert worker.fits is fits


def test_a_stage_never_holds_more_microbatches_than_there_are():
    assert [in_flight(i, 4, 2) for i in range(4)] == [2, 2, 2, 1]
    assert [in_flight(i, 4, 9) for i in range(4)] == [4, 3, 2, 1]


def test_the_cap_lowers_activations_and_only_them(published):
    problem = published(global_batch=8)
    plan = uniform_plan(
        layers=26,
        stages=4,
        replicas=1,
        replica=Replica(gpu="A100-40", degree=1, zone="us-central1-a"),
        microbatch=8,
    )
    capped, published_form = plan_memory(problem, plan), plan_memory(problem, plan, published=True)
    assert [x.activations_bytes * n for x, n in zip(capped, (4, 3, 2, 1), strict=True)] == [
        x.activations_bytes for x in published_form
    ]
    assert [x.weights_bytes for x in capped] == [x.weights_bytes for x in published_form]


def test_sgd_keeps_four_bytes_less_per_parameter(published):
    problem = published()
    sgd = replace(problem, job=replace(problem.job, optimizer="sgd"))
    assert (problem.job.model_bytes_per_parameter, sgd.job.model_bytes_per_parameter) == (24, 20)


def test_overhead_is_a_column_of_the_gpu_type(published):
    problem = published()
    card = replace(problem.gpu("A100-40"), fixed_bytes=5e9)
    tuned = replace(problem, gpus={**problem.gpus, "A100-40": card})
    plan = uniform_plan(
        layers=26,
        stages=1,
        replicas=1,
        replica=Replica(gpu="A100-40", degree=4, zone="us-central1-a"),
        microbatch=8,
    )
    assert plan_memory(tuned, plan)[0].peak_bytes - plan_memory(problem, plan)[0].peak_bytes == 2e9
