"""Profiling a real PyTorch model on this machine, layer by layer.

Every layer is run by itself on its own input, as a pipeline stage would: forward, then backward
from a gradient of its output. Ten rounds; the first five measurements are dropped and the rest
averaged. What a layer keeps for its backward are the tensors that autograd packs, counted once per
storage, parameters left out. GPU types can be emulated by the number of threads and a slow-down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

import torch
from torch import Tensor, nn

from workflows.sailor.errors import BadJob
from workflows.sailor.live_model import TinyGpt, batch_of, build_layer, loss_of
from workflows.sailor.profile import LayerSize, LayerTime, Profile

ROUNDS: Final = 10
DROPPED: Final = 5
NANO: Final = 1e-9


def profile_live(
    shape: TinyGpt,
    microbatches: Sequence[int],
    *,
    gpu: str = "cpu",
    threads: int = 1,
    slow_down: float = 1.0,
) -> Profile:
    """Measure every layer at every microbatch size, at t = 1."""
    if not microbatches or min(microbatches) < 1 or slow_down <= 0:
        raise BadJob(
            f"microbatches {list(microbatches)}, slow-down {slow_down}: expected positive numbers"
        )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        sizes = [size for size, _ in _measure(shape, 1, slow_down)]
        times = {
            (gpu, m, 1): tuple(measured for _, measured in _measure(shape, m, slow_down))
            for m in microbatches
        }
    finally:
        torch.set_num_threads(before)
    return Profile(model="tiny-gpt", source="measured", sizes={1: tuple(sizes)}, times=times)


def _measure(shape: TinyGpt, microbatch: int, slow: float) -> list[tuple[LayerSize, LayerTime]]:
    tokens, targets = batch_of(shape, 0, microbatch)
    given, out = tokens, []
    for index in range(shape.layers):
        layer = build_layer(shape, index)
        last = index == shape.layers - 1
        finish = (lambda logits: loss_of(logits, targets, 1.0)) if last else None
        result, size = _size(layer, given, finish)
        out.append((size, _time(layer, given, finish, slow)))
        given = result.detach()
    return out


Finish = Callable[[Tensor], Tensor] | None


def _run(layer: nn.Module, given: Tensor, finish: Finish) -> Tensor:
    output: Tensor = layer(given)
    return output if finish is None else finish(output)


def _fresh(given: Tensor) -> Tensor:
    return given.detach().requires_grad_() if given.is_floating_point() else given


def _size(layer: nn.Module, given: Tensor, finish: Finish) -> tuple[Tensor, LayerSize]:
    """Output and sizes of a layer; kept tensors are counted in elements of four bytes."""
    own = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = _run(layer, _fresh(given), finish)
    size = LayerSize(
        parameters=sum(parameter.numel() for parameter in layer.parameters()),
        output_floats=output.numel(),
        input_floats=given.numel(),
        kept_floats=sum(kept.values()) / 4,
    )
    return output, size


def _time(layer: nn.Module, given: Tensor, finish: Finish, slow: float) -> LayerTime:
    optimizer = torch.optim.Adam(layer.parameters())
    rounds: list[tuple[int, int, int]] = []
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        inputs = _fresh(given)
        started = time.perf_counter_ns()
        output = _run(layer, inputs, finish)
        forward = time.perf_counter_ns()
        gradient = torch.ones_like(output)
        ready = time.perf_counter_ns()
        output.backward(gradient)  # type: ignore[no-untyped-call]
        backward = time.perf_counter_ns()
        optimizer.step()
        stepped = time.perf_counter_ns()
        rounds.append((forward - started, backward - ready, stepped - backward))
    forward_ns, backward_ns, update_ns = zip(*rounds[DROPPED:], strict=True)
    return LayerTime(
        forward_s=slow * fmean(forward_ns) * NANO,
        backward_s=slow * fmean(backward_ns) * NANO,
        update_s=slow * fmean(update_ns) * NANO,
    )
