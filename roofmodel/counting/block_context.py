"""What every block is given: where it stands, and the pass that runs it; and what stands everywhere: the norm, and
the sum of what GPUs that share a layer have of a tensor, and what a stage of layers gets from the one before.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number
from roofmodel.counting import vector_flops
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.norms_and_activations import Norm


class BlockContext(NamedTuple):
    """Where a block stands: the tensor it reads, the one it gives, both `hidden` wide, and the pass that runs it.

    `carried` is what its layer carries past it: what it reads is that, or a norm of it.
    """

    step: Step
    hidden: Number
    causal: bool
    reads: str
    gives: str
    carried: str = ""

    def build(self, **sizes: Number) -> Builder:
        """A builder of the block's operators: the sizes of its own axes beside those of every block."""
        return Builder({**self.step.token_axes, "d": self.hidden, **sizes}, self.step.widths)


def norm(build: Builder, place: str, spec: Norm, source: str, target: str) -> Operator:
    """A norm over the hidden size, with gain and bias where it has them."""
    axis = source.rpartition(" ")[2].rstrip("]")
    gain, bias = norm_parameters(place, spec, axis)
    return build.operator(
        f"norm.{place}", "norm", f"{source}{gain}{bias} -> {target}", kind="norm", flops=norm_flops(spec),
        function=spec.kind,
    )  # fmt: skip


def norm_parameters(place: str, spec: Norm, axes: str) -> tuple[str, str]:
    """Gain and bias as tensors of a line, each with a blank before it; empty where the norm lacks them."""
    return f" G_{place}[{axes}]" if spec.gain else "", f" B_{place}_norm[{axes}]" if spec.bias else ""


def norm_flops(spec: Norm) -> int:
    """Vector FLOPs per element."""
    return vector_flops.NORM[spec.kind] - (spec.kind == "layernorm") * (not spec.bias) - (not spec.gain)
