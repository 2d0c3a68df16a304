"""The context of a block (its pass and tensors), and the norms that all kinds of blocks use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.workload import Step
from roofmodel.models.layers import Norm
from roofmodel.numbers.algebra import Number


class BlockContext(NamedTuple):
    """What a block needs to build its operators: the pass, and its input and output tensors, both `hidden` wide.

    `input` and `output` are tensors with axes, such as `x[b t d]`. `residual` is the input of the layer's residual
    connection; `input` is the same tensor or its norm.
    """

    step: Step
    hidden: Number
    causal: bool
    input: str
    output: str
    residual: str = ""

    def build(self, **sizes: Number) -> Builder:
        """A builder with the axes of the pass, the hidden size, and the given axis sizes of the block."""
        return Builder({**self.step.token_axes, "d": self.hidden, **sizes}, self.step.widths)


def fused_or_eager(
    name: str,
    group: str,
    operators: Callable[[Step], Iterable[Operator]],
    step: Step,
    *,
    kind: str,
    causal: bool = True,
) -> Iterator[Operator]:
    """One fused kernel under flash attention, each operator by itself under eager attention.

    `operators` builds the operators of a step. The fused kernel carries what eager attention runs in its place, so
    that one walk through the model gives both counts.
    """
    if step.attention == "eager":
        yield from operators(step)
        return
    eager = step._replace(attention="eager")
    fused = fuse(name, group, operators(step), kind=kind)
    yield replace(fused, causal=causal, eager=lambda: tuple(operators(eager)))


def norm(build: Builder, place: str, spec: Norm, source: str, target: str) -> Operator:
    """A norm over the last axis of `source`, with gain and bias if the norm has them."""
    axis = source.rpartition(" ")[2].rstrip("]")
    gain, bias = norm_parameters(place, spec, axis)
    return build.operator(
        f"norm.{place}", "norm", f"{source}{gain}{bias} -> {target}", kind="norm", flops=norm_flops(spec),
        function=spec.kind,
    )  # fmt: skip


def norm_parameters(place: str, spec: Norm, axes: str) -> tuple[str, str]:
    """Gain and bias as text for a line, each with a leading blank; empty if the norm has none."""
    return f" G_{place}[{axes}]" if spec.gain else "", f" B_{place}_norm[{axes}]" if spec.bias else ""


def norm_flops(spec: Norm) -> int:
    """Vector FLOPs per element, without gain and bias if the norm has none."""
    return vector_flops.NORM[spec.kind] - (spec.kind == "layernorm") * (not spec.bias) - (not spec.gain)
