"""Convolutions over the tokens of a sequence: DeBERTa, audio frames, causal filters of Mamba and LFM2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, fused_or_eager
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import FrameConvolution
from roofmodel.models.layers import ResidualFilter, TokenConvolution
from roofmodel.models.recurrent_layers import ShortConvolution
from roofmodel.numbers.algebra import Number, is_just, maximum, product, quotient


def token_convolution(conv: TokenConvolution, block: BlockContext) -> Iterator[Operator]:
    """A convolution over neighboring tokens and its activation (DeBERTa, on the embedding output)."""
    channels = quotient(block.hidden, conv.groups)
    # Padding is not read from memory.
    build = block.build(g=conv.groups, i=channels, o=channels, r=conv.kernel, **{"t+r": block.step.tokens})
    source = block.input.replace("[b t d]", "[b t+r g i]")
    line = f"{source} K_filter[g o i r] + B_filter[g o] -> c[b t g o]"
    yield build.operator("convolution.filter", "convolution", line, kind="convolution")
    yield build.operator(
        "convolution.activation", "convolution", f"c[b t d] -> {block.output}", kind="elementwise",
        flops=vector_flops.ACTIVATION[conv.activation],
    )  # fmt: skip


def frames(filters: Sequence[FrameConvolution], hidden: Number, step: Step) -> Iterator[Operator]:
    """Strided convolutions over audio frames; their output is the tokens `x` of the pass."""
    length, reads = step.tokens * product(f.stride for f in filters), "frames"
    for number, (channels, taps, stride, activation) in enumerate(filters, start=1):
        next_length, outputs = quotient(length, stride), "x" if number == len(filters) else f"frames_{number}"
        build = Builder(
            {"b": step.batch, "t": next_length, "d": hidden, "c": channels, "r": taps, "t+r": length}, step.widths
        )
        name, filter_, bias = (f"{prefix}convolution_{number}" for prefix in ("embedding.", "K_", "B_"))
        line = f"{reads}[b t+r c] {filter_}[d c r] + {bias}[d] -> {outputs}[b t d]"
        yield build.operator(name, "embedding", line, kind="convolution")
        yield build.operator(
            f"{name}_activation", "embedding", f"{outputs}[b t d] -> {outputs}[b t d]", kind="elementwise",
            flops=vector_flops.ACTIVATION[activation],
        )  # fmt: skip
        length, reads = next_length, outputs


def causal_filter(
    build: Builder,
    step: Step,
    place: str,
    bias: bool,
    activation: str | None,
    outputs: str,
    separate_inputs: Sequence[str] = (),
    own_code: bool = False,
) -> Iterator[Operator]:
    """A depthwise causal convolution of width r over c channels, and its activation.

    Reads `u[b t c]`, or the tensors `separate_inputs`, which are concatenated first. The cache has the last r tokens of
    each channel. Under flash attention, one kernel does all of it. `own_code`: the eager code is RecurrentGemma's.
    """
    operators = partial(_filter_operators, build, place, bias, activation, outputs, separate_inputs, own_code=own_code)
    yield from fused_or_eager(f"{place}.filter", place, operators, step, kind="convolution")


def _filter_operators(
    build: Builder,
    place: str,
    bias: bool,
    activation: str | None,
    outputs: str,
    separate_inputs: Sequence[str],
    step: Step,
    name: str = "filter",
    own_code: bool = False,
    computed_taps: str = "",
) -> list[Operator]:
    old_state, new_state = (f" cache.{name}[b c r]" if is_cached else "" for is_cached in (step.resumed, step.cached))
    fused = step.attention == "flash"
    width = build.sizes["r"]
    build = build._replace(sizes={**build.sizes, "t+r": step.tokens + (width if step.resumed else 0)})
    places = step.tokens + width - 1 if own_code else _places_computed(step, width)  # it pads both ends
    filtering = build._replace(sizes={**build.sizes, "t": step.tokens if fused else places})
    added = " + B_filter[c]" if bias else ""
    arrow, kind, flops = "->", "convolution", 0
    if own_code and not fused and is_just(step.tokens, 1):  # it multiplies and sums the cached tokens and the new one
        filtering, arrow, kind, flops = build, "=>", "elementwise", 2 * width
    line = f"u[b t+r c] K_{name}[c r]{added} {arrow} u[b t c]"
    if computed_taps:
        filtering, line = build, f"u[b t+r c] K_{name}[c r] {computed_taps} -> u[b t c]"
    operators = [filtering.operator(f"{place}.{name}", place, line, kind=kind, flops=flops)]
    if computed_taps:  # not a convolution: for each tap, add its two parts, multiply, add
        operators[0] = replace(operators[0], vector_flops=3 * product(build.sizes[axis] for axis in "btcr"))
    if activation:
        line, flops = f"u[b t c] -> {outputs}", vector_flops.ACTIVATION[activation]
        operators.append(build.operator(f"{place}.activation", place, line, kind="elementwise", flops=flops))
    if step.cached:
        shift = filtering._replace(sizes={**filtering.sizes, "t": step.tokens})
        line = f"u[b t c]{old_state} -> u[b t+r c]{new_state}"
        operators.insert(0, shift.operator(f"{place}.shift", place, line, kind="copy"))
    if separate_inputs:
        line = f"{' '.join(separate_inputs)} -> u[b t c]"
        operators.insert(0, build.operator(f"{place}.join", place, line, kind="copy", keeps="nothing"))
    return operators


def residual_filter(
    conv: ResidualFilter,
    build: Builder,
    step: Step,
    place: str,
    name: str,
    source: str,
    target: str,
    computed_taps: str = "",
) -> Iterator[Operator]:
    """`target` is `source` plus its causal filter; both are tensors with the filter's channels as last axes.

    The filter is learned, or the sum of a learned one and `computed_taps` of each token and head (Inkling 2).
    Under flash attention, one kernel does all of it.
    """
    build = build._replace(sizes={**build.sizes, "c": conv.width, "r": conv.taps, "rt": conv.taps})

    def operators(step: Step) -> Iterator[Operator]:
        yield from _filter_operators(build, place, False, None, "", [source], step, name, computed_taps=computed_taps)
        line = f"{source} + u[b t c] -> {target}"
        yield build.operator(f"{place}.{name}_add", place, line, kind="elementwise", keeps="nothing")

    yield from fused_or_eager(f"{place}.{name}", place, operators, step, kind="convolution")


def _places_computed(step: Step, width: Number) -> Number:
    """Number of positions that the reference code computes: it pads both ends and drops all but the new tokens.

    (transformers: causal_conv1d_fn, causal_conv1d_update, LinearAttentionLayer.update_conv_state)
    """
    if step.recurrent:
        return 2  # r cached tokens and the new one
    if step.resumed:
        return step.tokens + 2 * width - 1
    return step.mean_of(lambda tokens: maximum(tokens, width) + width - 1)


def short_convolution(conv: ShortConvolution, block: BlockContext) -> Iterator[Operator]:
    """LFM2's short convolution (arXiv 2511.23404): a causal filter between two gates; no activation.

    One input projection gives both gates and the filter input. The cache has the last tokens of the filter. Names:
    `enter` is B and `leave` is C of the reference code.
    """
    build = block.build(c=conv.width, C=3 * conv.width, r=conv.filter)
    bias = " + B_conv_in[C]" if conv.filter_bias else ""
    line = f"{block.input} W_conv_in[d C]{bias} -> enter[b t c] leave[b t c] u[b t c]"
    yield build.operator("convolution.input", "convolution", line)
    line = "enter[b t c] u[b t c] -> u[b t c]"
    yield build.operator("convolution.enter", "convolution", line, kind="elementwise", flops=1)
    yield from causal_filter(build, block.step, "convolution", conv.filter_bias, None, "u[b t c]")
    line = "leave[b t c] u[b t c] -> u[b t c]"
    yield build.operator("convolution.leave", "convolution", line, kind="elementwise", flops=1)
    bias = " + B_conv_out[d]" if conv.filter_bias else ""
    yield build.operator("convolution.output", "convolution", f"u[b t c] W_conv_out[c d]{bias} -> {block.output}")
