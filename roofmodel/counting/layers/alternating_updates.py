"""AltUp: several residual streams, of which each layer computes one (Baykal et al., arXiv 2301.13310; Gemma 3n).

A small router makes coefficients of a stream. Before a layer, each stream is predicted as a sum of all streams with
such coefficients; the layer reads the first prediction. After it, each prediction is corrected by the difference
between the layer's output and the first prediction. Source: Gemma3nTextAltUp of transformers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, norm
from roofmodel.counting.layers.transformer import layer_input
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import AlternatingUpdates, Stack
from roofmodel.models.layers import Branch
from roofmodel.numbers.algebra import product

GROUP = "residual"
LENGTH_FLOPS = 4  # per element, to give a stream the length of another: square 1, sum 1, two factors 2
COEFFICIENTS = "coefficients[b t ns ns']"


class AlternatingStreams(NamedTuple):
    """The operators of the streams of a stack in a pass."""

    stack: Stack
    updates: AlternatingUpdates
    step: Step

    @property
    def _build(self) -> Builder:
        count, hidden = self.updates.count, self.stack.hidden
        sizes = {"d": hidden, "d'": hidden, "ns": count, "ns'": count, "nu": count - 1, "np": count * count}
        return Builder({**self.step.token_axes, **sizes}, self.step.widths)

    def expand_embedding(self) -> Iterator[Operator]:
        """The first stream is the token embedding; the others are projections of it that have its length."""
        build = self._build
        line = "x[b t d] W_streams_in[nu d d'] -> others[b t nu d']"
        yield build.operator("embedding.streams_project", "embedding", line)
        line = "others[b t nu d] x[b t d] -> streams[b t ns d]"
        yield _with_length_of_first(build, "embedding.streams", "embedding", line)

    def close(self) -> Iterator[Operator]:
        """The output is the mean of the first stream and of projections of the others that have its length."""
        build = self._build
        line = "streams[b t nu d] W_streams_out[nu d d'] -> others[b t nu d']"
        yield build.operator("residual.streams_project", GROUP, line)
        mean = _with_length_of_first(build, "residual.streams_mean", GROUP, "others[b t nu d] x[b t d] -> x[b t d]")
        added = product(build.sizes[axis] for axis in ("b", "t", "ns", "d"))
        yield replace(mean, vector_flops=mean.vector_flops + added)

    def predict(self) -> Iterator[Operator]:
        """The streams as the layer expects them; its blocks read the first one, `x`."""
        build = self._build
        yield from self._routed(build, "predict", "streams[b t d]")
        line = "route[b t ns] W_predict[ns np] -> coefficients[b t np]"
        yield build.operator("residual.predict_coefficients", GROUP, line)
        line = f"{COEFFICIENTS} streams[b t ns d] + streams[b t ns' d] -> predictions[b t ns' d]"
        yield build.operator("residual.predict", GROUP, line, kind="bmm")

    def correct(self) -> Iterator[Operator]:
        """The predicted streams plus the error of the first prediction times a coefficient each."""
        build = self._build
        yield from self._routed(build, "correct", "x[b t d]")
        line = "route[b t ns] W_correct[ns ns'] -> coefficients[b t ns']"
        yield build.operator("residual.correct_coefficients", GROUP, line)
        line = "x[b t d] predictions[b t ns d] coefficients[b t ns] => streams[b t ns d]"
        # the error of the first stream 1; for each stream, times its coefficient 1 and add 1; coefficients plus one 1
        error, all_streams, added = (product(build.sizes[axis] for axis in axes) for axes in ("btd", *_STREAMS))
        operator = build.operator("residual.correct", GROUP, line, kind="elementwise")
        yield replace(operator, vector_flops=error + 2 * all_streams + added)

    def _routed(self, build: Builder, place: str, source: str) -> Iterator[Operator]:
        """A number per stream, from one of them; the two routers of a layer have the same parameters."""
        normed = norm(build, "router", self.stack.norm, source, "n[b t d]")
        yield replace(normed, name=f"norm.{place}")
        yield build.operator(f"residual.{place}_route", GROUP, "n[b t d] W_streams_router[d ns] -> route[b t ns]")
        yield build.operator(
            f"residual.{place}_tanh", GROUP, "route[b t ns] -> route[b t ns]", kind="elementwise",
            flops=vector_flops.ACTIVATION["tanh"],
        )  # fmt: skip

    def add_layer_input(self, branch: Branch) -> Iterator[Operator]:
        """The input of the layer, gated by the corrected first stream, is added to the other streams."""
        build, source, output = self._build, "streams[b t d]", "i[b t d]"
        if self.updates.scales_output:
            line = f"{source} G_streams_scale[d] -> x[b t d]"
            yield build.operator("residual.streams_scale", GROUP, line, kind="elementwise", flops=1)
            source = "x[b t d]"
        context = BlockContext(self.step, self.stack.hidden, self.stack.causal, source, output)
        yield from layer_input(branch.part, context)  # type: ignore[arg-type]
        if branch.after:
            yield norm(build, "layer_input_output", branch.after, output, output)
        line = f"streams[b t nu d] + {output} -> streams[b t nu d]"
        yield build.operator("residual.layer_input", GROUP, line, kind="elementwise")


_STREAMS = ("b", "t", "ns", "d"), ("b", "t", "ns")


def _with_length_of_first(build: Builder, name: str, group: str, line: str) -> Operator:
    """Gives the other streams the length of the first: for this one, the squares are summed only."""
    operator = build.operator(name, group, line, kind="norm", flops=LENGTH_FLOPS, function="rmsnorm")
    squares = 2 * product(build.sizes[axis] for axis in "btd")
    return replace(operator, vector_flops=operator.vector_flops + squares)
