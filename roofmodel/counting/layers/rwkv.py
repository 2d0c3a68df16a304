"""RWKV-4 (Peng et al., arXiv 2305.13048, section 3.1): time mixing and channel mixing.

Both read mixes of each token and the one before. The cache has the last token and three numbers per channel.
"""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.recurrent_layers import ChannelMix, TimeMix

WKV = 23
"""Vector FLOPs per channel and token. Output: exponent of the token 1, maximum 1, two exponentials of differences 4,
numerator 3, denominator 2, ratio 1. State: decay 1, maximum 1, two exponentials of differences 4, numerator 3,
denominator 2 (`rwkv_linear_attention_cpu` of transformers)."""


def time_mix(mixer: TimeMix, block: BlockContext) -> Iterator[Operator]:
    """Keys, values and receptance, the weighted mean of values (WKV), and the output. `A` is the decay of a channel."""
    build, step = block.build(c=mixer.width, n3=3), block.step
    yield _mixes(build, step, "linear", block.input, ("key", "value", "receptance"))
    for name in ("key", "value", "receptance"):
        line = f"mixed_{name}[b t d] W_linear_{name}[d c] -> {name}[b t c]"
        yield build.operator(f"linear.{name}", "linear", line)
    old, new = _cached(step, "cache.state[b c n3]")
    line = f"key[b t c] value[b t c] A[c] B_first[c]{old} -> y[b t c]{new}"
    yield build.operator("linear.scan", "linear", line, kind="scan", flops=WKV)
    yield build.operator(
        "linear.gate", "linear", "y[b t c] receptance[b t c] -> y[b t c]", kind="elementwise",
        flops=vector_flops.ACTIVATION["sigmoid"] + 1,
    )  # fmt: skip
    yield build.operator("linear.output", "linear", f"y[b t c] W_linear_out[c d] -> {block.output}")


def channel_mix(mlp: ChannelMix, block: BlockContext) -> Iterator[Operator]:
    """Up, activation, down, and a gate on the output; under tensor parallelism each GPU computes the whole gate."""
    build = block.build(f=mlp.width, **{"d'": block.hidden})
    yield _mixes(build, block.step, "mlp", block.input, ("key", "receptance"))
    yield build.operator("mlp.up", "mlp", "mixed_key[b t d] W_up[d f] -> u[b t f]")
    yield build.operator(
        "mlp.activation", "mlp", "u[b t f] -> u[b t f]", kind="elementwise",
        flops=vector_flops.ACTIVATION[mlp.activation], function=mlp.activation,
    )  # fmt: skip
    yield build.operator("mlp.down", "mlp", f"u[b t f] W_down[f d] -> {block.output}")
    yield build.operator("mlp.gate", "mlp", "mixed_receptance[b t d] W_gate[d d'] -> gate[b t d']")
    yield build.operator(
        "mlp.gated", "mlp", f"{block.output} gate[b t d] -> {block.output}", kind="elementwise",
        flops=vector_flops.ACTIVATION["sigmoid"] + 1,
    )  # fmt: skip


def _mixes(build: Builder, step: Step, place: str, source: str, names: tuple[str, ...]) -> Operator:
    """Means of each token and the one before, with learned weights per element: x w + previous (1 - w), 3 FLOPs."""
    old, new = _cached(step, f"cache.{place}_token[b d]")
    weights = " ".join(f"G_{place}_{name}[d]" for name in names)
    mixes = " ".join(f"mixed_{name}[b t d]" for name in names)
    line = f"{source} {weights}{old} -> {mixes}{new}"
    flops = 3 * len(names)
    return build.operator(f"{place}.mix", place, line, kind="elementwise", flops=flops)


def _cached(step: Step, tensor: str) -> tuple[str, str]:
    """The tensor as read from the cache and as written to it, each with a leading blank if the step does so."""
    return f" {tensor}" if step.resumed else "", f" {tensor}" if step.cached else ""
