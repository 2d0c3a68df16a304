"""Attention residuals: the input of a sublayer is a mean of earlier sums of outputs, weighted by attention (Kimi-K3).

The residual connection of a block of layers is a sum of its own. A sublayer attends to the finished sums of earlier
blocks and to the running one: a norm of each, its product with a learned query, a softmax over the sums of a token, and
their mean. The final norm reads such a mean, too. Engines run it as one kernel. Sources: `attn_res` of vLLM's Kimi-K3
and the published code (KimiLinearModel); Inkling2BlockAttentionResidual of transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import fused_or_eager, norm_flops
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import ResidualSums
from roofmodel.models.layers import Norm

GROUP = "residual"


def mean_of_sums(
    place: str, of: ResidualSums, earlier: int, build: Builder, step: Step, outputs: Sequence[str]
) -> Iterator[Operator]:
    """Weighted means of `earlier` finished sums and the running one, as `outputs`, such as `c[b t d]`.

    Each output has a learned query of its own.
    """
    rows = step.parallel.rows
    spec, gain = Norm("rmsnorm", gain=not of.normed, bias=False), "" if of.normed else f" G_{place}_sums[d]"
    build = build._replace(sizes={**build.sizes, "rs": earlier + 1, "ra": len(outputs)})
    sums, keys, scores = (f"{name}[b {rows} rs {axis}]" for name, axis in (("sums", "d"), ("keys", "d"), ("a", "ra")))
    weights, values = scores.replace("a[", "p["), keys if of.normed else sums

    def parts(step: Step) -> tuple[Operator, ...]:
        return (
            build.operator(
                f"residual.{place}_norm", GROUP, f"{sums}{gain} -> {keys}", kind="norm",
                flops=norm_flops(spec), function="rmsnorm",
            ),
            build.operator(f"residual.{place}_scores", GROUP, f"{keys} H_{place}_sums[d ra] -> {scores}"),
            build.operator(
                f"residual.{place}_softmax", GROUP, f"{scores} -> {weights}", kind="softmax",
                flops=vector_flops.SOFTMAX, keeps="outputs",
            ),
            build.operator(f"residual.{place}_mean", GROUP, f"{weights} {values} -> {' '.join(outputs)}", kind="bmm"),
        )  # fmt: skip

    yield from fused_or_eager(f"residual.{place}_mean", GROUP, parts, step, kind="elementwise")


def finish_sum(place: str, build: Builder, step: Step) -> Operator:
    """The running sum is stored beside the finished ones."""
    line = f"x[b {step.parallel.rows} d] -> sums[b {step.parallel.rows} d]"
    return build.operator(f"residual.{place}_finish", GROUP, line, kind="elementwise", keeps="nothing")
