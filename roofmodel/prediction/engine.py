"""How long the operators of a phase take as a runtime runs them.

Eager: a framework runs operators one by one. Eager attention scales the scores, adds the mask and normalises in three
kernels (transformers' `eager_attention_forward`), each of which reads and writes all of them.

Graph: as an engine runs them, captured as a graph, with neighbours fused. Serving engines and compilers (TensorRT-LLM,
vLLM, torch.compile) launch fewer kernels than a model has operators. Counted here as they do it everywhere: products of
one input, such as queries, keys and values, or gate and up, run as one product with the columns of all; sums and rotary
embedding run inside the kernel beside them, so that they cost their bytes and no launch. Everything else is a kernel of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from roofmodel.algebra import minimum
from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.prediction.roofline import place
from roofmodel.prediction.timing import Expected, expect, expect_together, movement

PASSES = {"softmax": 3}  # over the data, by kind of operator, in eager mode


def expect_eager(operators: Sequence[Operator], device: Device, dtype: str) -> Iterator[Expected | None]:
    """The expected time of one occurrence of each operator, in order."""
    for operator in operators:
        one = expect(operator, device, dtype)
        yield one and PASSES.get(operator.kind, 1) * one


def expect_fused(operators: Sequence[Operator], device: Device, dtype: str) -> Iterator[Expected | None]:
    """The expected time of one occurrence of each operator, in order; what runs together shares its time."""
    for _, run in groupby(operators, key=_input):
        together = list(run)
        if len(together) > 1:
            yield from expect_together(together, device, dtype)
            continue
        (operator,) = together
        alone = expect(operator, device, dtype)
        if alone is not None and _rides_along(operator):
            bound = minimum(alone.seconds, place(operator.cost, device, dtype).bound_seconds)
            alone = Expected(bound, bound, alone.high)  # at most, it is a kernel of its own
        yield alone


def _input(operator: Operator) -> object:
    """The same for products that run as one: of the same input, in the same layers; else the operator itself."""
    if operator.kind != "gemm" or operator.gemm is None:
        return id(operator)
    return operator.lines[0].factors[0], operator.layers, operator.stage


def _rides_along(operator: Operator) -> bool:
    return operator.kind == "elementwise" and movement(operator) in ("add", "rotary")
