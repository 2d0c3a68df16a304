"""Training with GEMMs below 16 bits: the formats of the GEMMs' inputs, and the casts that produce them.

A recipe narrows the three GEMMs of each linear layer: forward, gradient of the input, gradient of the weight. The head,
the router of experts, embeddings, attention, norms, softmax, the loss, gradients and the optimizer keep the formats of
training in 16 bits. Recipes as in Transformer Engine (transformer_engine/common/recipe):

* `fp8`: one scale per tensor, from its largest magnitude, which a kernel reads first (Float8CurrentScaling);
* `fp8_block`: scales of 1 x 128 values, of weights of 128 x 128 (Float8BlockScaling; DeepSeek-V3, arXiv 2412.19437,
  section 3.3);
* `mxfp8`: scales of 1 x 32 values (MXFP8BlockScaling; OCP microscaling formats);
* `nvfp4`: scales of 1 x 16 values and one per tensor, from its largest magnitude (NVFP4BlockScaling; arXiv
  2509.25149).

A cast reads 16 bits and writes two narrow copies, one along each axis over which a GEMM sums: the forward pass sums
over the width of a tensor, the gradient of the weight over its tokens. Of the input of a GEMM, only a copy is kept for
the backward pass. Both copies of a weight stay in memory, and are written once per step; of sharded weights, which are
freed, in every microbatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import FORMATS, Format, Tensor, parse
from roofmodel.counting.workload import Step
from roofmodel.numbers.algebra import Number

COPIES = 2
"""Narrow copies of a tensor: along its rows, and along its columns."""


class Recipe(NamedTuple):
    """The formats of the inputs of narrow GEMMs, and whether a kernel reads a tensor for its largest magnitude."""

    inputs: Format
    weights: Format
    reads_amax: bool


RECIPES = {
    "fp8": Recipe(FORMATS["fp8"], FORMATS["fp8"], True),
    "fp8_block": Recipe(Format("fp8_block", 8, block=128, scale_bits=32), FORMATS["fp8_block"], False),
    "mxfp8": Recipe(FORMATS["mxfp8"], FORMATS["mxfp8"], False),
    "nvfp4": Recipe(FORMATS["nvfp4"], FORMATS["nvfp4"], True),
}


def is_narrow(operator: Operator) -> bool:
    """Whether a recipe narrows the operator of a forward pass: a GEMM of a layer with a converted weight."""
    if (
        operator.kind not in ("gemm", "grouped_gemm")
        or operator.layers is None
        or operator.multiplies_unconverted_weights
    ):
        return False
    return any(factor.is_parameter for factor in operator.lines[0].factors)


def with_narrow_inputs(passed: Iterable[Operator], recipe: Recipe) -> Iterator[Operator]:
    """The operators of a forward pass, whose narrow GEMMs read the copies."""
    for operator in passed:
        yield _reading(operator, operator.lines[0].factors, recipe) if is_narrow(operator) else operator


def with_narrow_gradients(
    gradients: Iterable[Operator], passed: Iterable[Operator], recipe: Recipe
) -> Iterator[Operator]:
    """The operators of a backward pass; those of a narrow GEMM read copies, too."""
    narrow = {(operator.name, operator.layers) for operator in passed if is_narrow(operator)}
    for gradient in gradients:
        name, _, kind = gradient.name.rpartition(".")
        if (name.partition(".grad")[0], gradient.layers) not in narrow:
            yield gradient
        elif kind in ("grad_input", "grad_weight"):
            yield _reading(gradient, gradient.lines[0].factors, recipe)
        else:
            yield _reading(gradient, (), recipe)


def with_casts(operators: Iterable[Operator], recipe: Recipe) -> Iterator[Operator]:
    """The operators of a pass with the casts of activations and gradients before the first GEMM that reads them."""
    cast: set[tuple[str, tuple[int, ...] | None]] = set()
    for operator in operators:
        if operator.widths.by_matrix and operator.kind in ("gemm", "grouped_gemm"):
            for tensor in operator.lines[0].factors:
                key = (tensor.name, operator.layers)
                is_kept = operator.name.endswith(".grad_weight") and not tensor.name.startswith("grad.")
                if not (tensor.is_parameter or is_kept or key in cast):
                    cast.add(key)
                    yield from _casts(operator, tensor, recipe)
        yield operator
        cast -= {(tensor.name, operator.layers) for tensor in operator.writes}


def weight_casts(passed: Iterable[Operator], recipe: Recipe) -> Iterator[Operator]:
    """The casts of the weights of a forward pass."""
    for operator in passed:
        if is_narrow(operator):
            for tensor in operator.parameters:
                if tensor in operator.lines[0].factors:
                    yield from _casts(operator, tensor, recipe)


def copies_bytes(passed: Sequence[Operator], step: Step) -> Number:
    """Bytes of the narrow copies of all weights; 0 without a recipe."""
    if step.recipe is None:
        return 0
    weights = RECIPES[step.recipe].weights
    return sum(
        operator.count * COPIES * weights.bytes(tensor.elements(operator.sizes))
        for operator in passed
        if is_narrow(operator)
        for tensor in operator.lines[0].factors
        if tensor.is_parameter
    )


def _reading(operator: Operator, tensors: Iterable[Tensor], recipe: Recipe) -> Operator:
    """The operator, which reads these tensors in the formats of the recipe, and no others."""
    formats = tuple(
        (tensor.name.removeprefix("grad."), recipe.weights if tensor.is_parameter else recipe.inputs)
        for tensor in tensors
    )
    return operator.with_widths(operator.widths._replace(by_matrix=formats))


def _casts(operator: Operator, tensor: Tensor, recipe: Recipe) -> Iterator[Operator]:
    """The kernels that read a tensor of a GEMM and write its copies: its largest magnitude, then the copies."""
    axes, which = " ".join(tensor.axes), "W" if tensor.is_parameter else tensor.name.rpartition(".")[2]
    form = recipe.weights if tensor.is_parameter else recipe.inputs
    rows, columns = (f"{along}.{tensor.name}" for along in ("rows", "columns"))
    widths = operator.widths._replace(by_matrix=((rows, form), (columns, form)))
    elements = tensor.elements(operator.sizes)
    copied = replace(
        operator.with_widths(widths), name=f"{operator.name}.cast_{which}", kind="elementwise", matmul_flops=0,
        lines=(parse(f"{tensor} => {rows}[{axes}] {columns}[{axes}]"),), vector_flops=vector_flops.SCALE * elements,
        touched={}, gradient_flops={}, function="", parts=(), eager=None,
    )  # fmt: skip
    if recipe.reads_amax:
        yield replace(
            copied, name=f"{operator.name}.amax_{which}", kind="reduction", lines=(parse(f"{tensor} => amax[]"),),
            vector_flops=2 * elements,
        )  # fmt: skip
    yield copied
