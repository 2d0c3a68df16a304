"""Tables of hashed n-grams: rows that a token's last tokens choose are added to all residual streams (Qwen4-Exp).

A matrix makes a value of the rows, and another one a key for each stream; the product of key and stream gates the
value. A causal filter over tokens at equal distances follows. Source: Qwen4ExpTextPLELayer of transformers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import fused_or_eager, norm_flops
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Stack
from roofmodel.models.layers import NGrams, Norm
from roofmodel.numbers.algebra import product, quotient

GROUP = "input"
GATE_FLOPS = 8  # per stream: magnitude 1, max 1, root 1, times the sign 1, divide 1, sigmoid 3
_NORM = Norm("rmsnorm", gain=True, bias=False)


def ngrams(part: NGrams, stack: Stack, step: Step) -> Iterator[Operator]:
    """The lookup, the gated value in each stream, the filter, and the sum."""
    row, streams = quotient(part.width, part.tables), quotient(part.channels, stack.hidden)
    build = Builder(
        {
            **step.token_axes, "d": stack.hidden, "ns": streams, "nr": part.rows, "nt": part.tables, "nw": row,
            "ne": part.width, "c": part.channels, "r": part.taps, "rc": part.reach,
            "t+r": step.tokens + (part.reach if step.resumed else 0),
        },
        step.widths,
    )  # fmt: skip
    yield build.gather("ngrams.lookup", GROUP, "E_ngrams[nr nw] -> rows[b t nt nw]")
    yield build.operator("ngrams.keys", GROUP, "rows[b t ne] W_ngram_keys[ne ns d] -> keys[b t ns d]")
    yield _norm(build, "keys", "keys[b t ns d]", "keys[b t ns d]")
    yield build.operator("ngrams.values", GROUP, "rows[b t ne] W_ngram_values[ne d] -> value[b t d]")
    yield _norm(build, "queries", "x[b t ns d]", "queries[b t ns d]")
    gates = product(build.sizes[axis] for axis in ("b", "t", "ns"))
    line = "keys[b t ns d] queries[b t ns d] => gate[b t ns]"
    operator = build.operator("ngrams.gate", GROUP, line, kind="elementwise", flops=2)
    yield replace(operator, vector_flops=operator.vector_flops + GATE_FLOPS * gates)
    line = "value[b t d] gate[b t ns] -> gated[b t ns d]"
    yield replace(build.operator("ngrams.gated", GROUP, line, kind="elementwise"), vector_flops=gates * stack.hidden)
    yield _norm(build, "filter", "gated[b t ns d]", "u[b t ns d]")

    def filtered(step: Step) -> Iterator[Operator]:
        if step.cached:
            old = " cache.ngrams[b c rc]" if step.resumed else ""
            line = f"u[b t c]{old} -> u[b t+r c] cache.ngrams[b c rc]"
            yield build.operator("ngrams.shift", GROUP, line, kind="copy")
        line = "u[b t+r c] K_ngrams[c r] -> u[b t c]"
        yield build.operator("ngrams.filter", GROUP, line, kind="convolution")
        yield build.operator(
            "ngrams.activation", GROUP, "u[b t c] -> u[b t c]", kind="elementwise",
            flops=vector_flops.ACTIVATION["silu"],
        )  # fmt: skip

    yield from fused_or_eager("ngrams.filter", GROUP, filtered, step, kind="convolution")
    line = "x[b t ns d] + gated[b t ns d] + u[b t ns d] -> x[b t ns d]"
    yield build.operator("ngrams.add", GROUP, line, kind="elementwise")


def _norm(build: Builder, name: str, source: str, target: str) -> Operator:
    """An RMS norm of each stream, with gains of its own."""
    return build.operator(
        f"norm.ngram_{name}", "norm", f"{source} G_ngram_{name}[ns d] -> {target}", kind="norm",
        flops=norm_flops(_NORM), function="rmsnorm",
    )  # fmt: skip
