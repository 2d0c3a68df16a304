"""Hyper-connections: the residual connection is several streams instead of one (Zhu et al., arXiv 2409.19606).

Before a block, weights that a small matrix computes from all streams collapse them to the block's input. After it, the
output is added to each stream with a weight. With manifold constraints (Xie et al., arXiv 2512.24880), a matrix mixes
the streams, too; iterations of Sinkhorn and Knopp make its rows and columns sum to 1. DeepSeek-V4 computes all of it
in two kernels for each block: one before it and one after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import fused_or_eager, norm_flops
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Stack, Streams
from roofmodel.models.layers import Norm
from roofmodel.numbers.algebra import Number

GROUP = "residual"
SINKHORN_FLOPS = 4  # of an iteration per element: for rows and columns, a sum 1 and a division 1
_UNWEIGHTED = Norm("rmsnorm", gain=False, bias=False)


class HyperConnections(NamedTuple):
    """The operators of the streams of a stack in a pass."""

    stack: Stack
    streams: Streams
    step: Step

    @property
    def tensor(self) -> str:
        """The streams of all tokens."""
        return f"x[b {self.step.parallel.rows} ns d]"

    def _build(self, weights: Number, scales: Number) -> Builder:
        """A builder for `weights` outputs of the small matrix, which have `scales` learned factors."""
        count = self.streams.count
        sizes = {**self.step.token_axes, "d": self.stack.hidden, "ns": count, "ns'": count, "hw": weights, "hs": scales}
        return Builder(sizes, self.step.widths)

    def expand_embedding(self) -> Iterator[Operator]:
        """Each stream starts as the token embedding."""
        build, rows = self._build(0, 0), self.step.parallel.rows
        line = f"x[b {rows} d] -> {self.tensor}"
        yield build.operator("embedding.streams", "embedding", line, kind="elementwise", keeps="nothing")

    def collapse(self, place: str) -> Iterator[Operator]:
        """The input of a block, `c`, and the weights with which its output is added to the streams."""
        count, iterations, rows = self.streams.count, self.streams.sinkhorn, self.step.parallel.rows
        if self.streams.rank:
            yield from self._gated(place, f"c[b {rows} d]", injects=True)
            return
        matrix = count * count if iterations else 0
        build = self._build(2 * count + matrix, 3 if iterations else 2)
        weights = f"pre[b {rows} ns] post[b {rows} ns]" + f" mixing[b {rows} ns ns']" * bool(iterations)
        yield from self._collapsed(place, build, weights, f"c[b {rows} d]", SINKHORN_FLOPS * iterations)

    def close(self) -> Iterator[Operator]:
        """The streams collapse to one after the last layer: by weights, or by their mean."""
        rows = self.step.parallel.rows
        output = f"x[b {rows} d]"
        if self.streams.rank:
            yield from self._gated("streams", output, injects=False)
            return
        if self.streams.head == "mean":
            line = f"{self.tensor} -> {output}"
            build = self._build(0, 0)
            yield build.operator("residual.streams_mean", GROUP, line, kind="elementwise", flops=1, keeps="nothing")
            return
        build = self._build(self.streams.count, 1)
        yield from self._collapsed("streams", build, f"pre[b {rows} ns]", output, 0)

    def _collapsed(self, place: str, build: Builder, weights: str, output: str, further: int) -> Iterator[Operator]:
        """The norm of all streams, the small matrix, the weights, and the sum of the streams times their weights."""
        rows = self.step.parallel.rows
        normed, mix = f"normed[b {rows} ns d]", f"mix[b {rows} hw]"

        def parts(step: Step) -> tuple[Operator, ...]:
            return (
                build.operator(
                    f"residual.{place}_norm", GROUP, f"{self.tensor} -> {normed}", kind="norm",
                    flops=norm_flops(_UNWEIGHTED), function="rmsnorm",
                ),
                build.operator(f"residual.{place}_weights", GROUP, f"{normed} H_{place}[ns d hw] -> {mix}"),
                build.operator(
                    f"residual.{place}_gates", GROUP,
                    f"{mix} B_{place}_hyper[hw] G_{place}_hyper[hs] -> {weights}", kind="elementwise",
                    flops=2 + vector_flops.ACTIVATION["sigmoid"] + further,
                ),
                build.operator(
                    f"residual.{place}_collapse", GROUP, f"{self.tensor} pre[b {rows} ns] => {output}",
                    kind="elementwise", flops=2,
                ),
            )  # fmt: skip

        yield from fused_or_eager(f"residual.{place}_collapse", GROUP, parts, self.step, kind="elementwise")

    def _gated(self, place: str, output: str, *, injects: bool) -> Iterator[Operator]:
        """The mean of the normed streams, each element times a gate of its own (Qwen4ExpTextGatedResidual).

        Two matrices compute the gates from all streams; another one the weights of the block's output (`injects`).
        """
        rows, spec = self.step.parallel.rows, Norm("rmsnorm", gain=True, bias=False)
        build = self._build(0, 0)
        build = build._replace(sizes={**build.sizes, "ng'": self.streams.rank})
        normed, gates = f"normed[b {rows} ns d]", f"gates[b {rows} ns d]"
        narrow, post = f"narrow[b {rows} ng']", f"post[b {rows} ns']"
        yield build.operator(
            f"residual.{place}_norm", GROUP, f"{self.tensor} G_{place}_streams[ns d] -> {normed}", kind="norm",
            flops=norm_flops(spec), function="rmsnorm",
        )  # fmt: skip
        yield build.operator(f"residual.{place}_down", GROUP, f"{normed} H_{place}_down[ns d ng'] -> {narrow}")
        yield build.operator(
            f"residual.{place}_silu", GROUP, f"{narrow} -> {narrow}", kind="elementwise",
            flops=vector_flops.ACTIVATION["silu"],
        )  # fmt: skip
        yield build.operator(f"residual.{place}_up", GROUP, f"{narrow} H_{place}_up[ng' ns d] -> {gates}")
        yield build.operator(
            f"residual.{place}_collapse", GROUP, f"{gates} {normed} => {output}", kind="elementwise",
            flops=vector_flops.ACTIVATION["sigmoid"] + 2,  # times the stream 1, sum 1
        )  # fmt: skip
        if injects:
            yield build.operator(f"residual.{place}_weights", GROUP, f"{normed} H_{place}_post[ns d ns'] -> {post}")
            yield build.operator(
                f"residual.{place}_sigmoid", GROUP, f"{post} -> {post}", kind="elementwise",
                flops=vector_flops.ACTIVATION["sigmoid"],
            )  # fmt: skip

    def expand(self, place: str, output: str) -> Iterator[Operator]:
        """The streams, mixed by the matrix, plus the output of a block times a weight for each stream."""
        rows = self.step.parallel.rows
        mixed, build = f"mixed[b {rows} ns' d]", self._build(0, 0)

        def parts(step: Step) -> Iterator[Operator]:
            streams = self.tensor
            if self.streams.sinkhorn:
                streams = mixed
                line = f"mixing[b {rows} ns ns'] {self.tensor} -> {mixed}"
                yield build.operator(f"residual.{place}_mix", GROUP, line, kind="bmm")
            line = f"{streams} post[b {rows} ns] {output} -> {self.tensor}"
            yield build.operator(f"residual.{place}", GROUP, line, kind="elementwise", flops=2)

        yield from fused_or_eager(f"residual.{place}", GROUP, parts, self.step, kind="elementwise")
