"""What every block is given: where it stands, and the pass that runs it; and the norm, which stands everywhere."""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number
from roofmodel.counting import vector
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Norm


class Site(NamedTuple):
    """Where a block stands: the tensor it reads, the one it gives, both `hidden` wide, and the pass that runs it."""

    step: Step
    hidden: Number
    causal: bool
    reads: str
    gives: str

    def build(self, **sizes: Number) -> Builder:
        """A builder of the block's operators: the sizes of its own axes beside those of every block."""
        return Builder({"b": self.step.batch, "t": self.step.tokens, "d": self.hidden, **sizes}, self.step.widths)


def norm(build: Builder, place: str, spec: Norm, source: str, target: str) -> Operator:
    """A norm over the hidden size, with gain and bias where it has them."""
    axis = source.rpartition(" ")[2].rstrip("]")
    gain, bias = norm_parameters(place, spec, axis)
    return build.operator(
        f"norm.{place}", "norm", f"{source}{gain}{bias} -> {target}", kind="norm", vector=norm_flops(spec)
    )


def norm_parameters(place: str, spec: Norm, axes: str) -> tuple[str, str]:
    """Gain and bias as tensors of a line, each with a blank before it; empty where the norm lacks them."""
    return f" G_{place}[{axes}]" if spec.gain else "", f" B_{place}_norm[{axes}]" if spec.bias else ""


def norm_flops(spec: Norm) -> int:
    """Vector FLOPs per element."""
    return vector.NORM[spec.kind] - (spec.kind == "layernorm") * (not spec.bias) - (not spec.gain)


def norm_kind(operator: Operator) -> str | None:
    """Which norm an operator is, whatever gain and bias it has: `norm_flops` backwards; None where it is none."""
    gain, bias = bool(operator.parameters), len(operator.parameters) > 1
    specs = (Norm("layernorm", gain, bias), Norm("rmsnorm", gain, bias), Norm("batchnorm", gain, bias))
    each = operator.vector_flops / operator.writes[0].elements(operator.sizes)
    return next((spec.kind for spec in specs if norm_flops(spec) == each), None)
