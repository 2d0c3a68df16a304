"""Low-rank adapters (LoRA, arXiv 2106.09685) on the weight matrices of a training step.

The weight matrix `W[d f]` of a linear layer is frozen, and two matrices of a rank r are trained beside it, as in PEFT's
`lora.Linear`: u = x W + (x A) B with `A[d r]` and `B[r f]`. Their names start with `Lora`; where a pass has such
parameters, only they have gradients (`backward.differentiable`). The factor alpha / r and dropout are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.quantized_modules import MODULES
from roofmodel.counting.tensors import Tensor
from roofmodel.counting.workload import Adapters
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number


def target(operator: Operator) -> str | None:
    """The name of the linear layer that an operator runs, as transformers names it in Llama: `q_proj`; None for others.

    Experts, whose matrices are one tensor, and the head have no adapters, as under PEFT's `all-linear`.
    """
    if operator.kind != "gemm" or operator.layers is None or len(operator.parameters) == 0:
        return None
    modules = MODULES.get(operator.lines[0].factors[-1].name)
    return modules[0].rpartition(".")[2] if modules else None


def targets(operators: Iterable[Operator]) -> list[str]:
    """The names of the linear layers that can have adapters."""
    return [*dict.fromkeys(name for operator in operators if (name := target(operator)))]


def with_adapters(passed: Sequence[Operator], adapters: Adapters) -> Iterator[Operator]:
    """A forward pass with adapters. GEMMs with the same input stay together, and their adapters follow.

    The first layer is apart from others of its kind: its input, which only frozen weights computed, has no gradient.
    """
    pending: list[Operator] = []  # GEMMs with adapters, all with the same input
    for operator in _first_layer_apart(passed):
        if pending and (not adapters.on(target(operator)) or operator.reads[0] != pending[0].reads[0]):
            yield from _adapters(pending, adapters.rank)
            pending = []
        yield operator
        if adapters.on(target(operator)):
            pending.append(operator)
    yield from _adapters(pending, adapters.rank)


def adapter_parameters(arch: Architecture, operators: Iterable[Operator]) -> Number:
    """The number of parameters of all adapters."""
    return sum(
        arch.copies(operator.layers) * tensor.elements(operator.sizes)
        for operator in operators
        for tensor in operator.parameters
        if tensor.is_adapter
    )


def _first_layer_apart(passed: Sequence[Operator]) -> Iterator[Operator]:
    layers = next(operator.layers for operator in passed if operator.layers)
    own = [operator for operator in passed if operator.layers == layers]
    start = passed.index(own[0])
    yield from passed[:start]
    for part in (layers[:1], layers[1:]):
        yield from (replace(operator, layers=part) for operator in own if part)
    yield from passed[start + len(own) :]


def _adapters(gemms: Sequence[Operator], rank: int) -> Iterator[Operator]:
    for gemm in gemms:
        line, build = gemm.lines[0], Builder({**gemm.sizes, "rl": rank}, gemm.widths)
        source, matrix = line.factors
        name = matrix.name.removeprefix("W_")
        rows = tuple(axis for axis in source.axes if axis not in line.contracted)
        low = Tensor(f"low_{name}", (*rows, "rl"))
        into = Tensor(f"LoraA_{name}", (*(axis for axis in matrix.axes if axis in line.contracted), "rl"))
        back = Tensor(f"LoraB_{name}", ("rl", *(axis for axis in matrix.axes if axis not in line.contracted)))
        added = [Tensor(f"delta_{output.name}", output.axes) for output in line.outputs]
        work = [
            build.operator(f"{gemm.name}.lora_a", gemm.group, f"{source} {into} -> {low}"),
            build.operator(f"{gemm.name}.lora_b", gemm.group, f"{low} {back} -> {' '.join(map(str, added))}"),
        ]
        for own, output in zip(added, line.outputs, strict=True):
            text = f"{output} + {own} -> {output}"
            work.append(build.operator(f"{gemm.name}.lora_add", "residual", text, kind="elementwise"))
        yield from (replace(operator, layers=gemm.layers) for operator in work)
