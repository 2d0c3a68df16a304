"""State-space layers: Mamba (Gu and Dao, arXiv 2312.00752), Mamba-2 (Dao and Gu, arXiv 2405.21060), RG-LRU.

In Mamba each channel has its own decay. In Mamba-2 the channels of a head share a decay, so that chunks of tokens are
computed as GEMMs. In RG-LRU (De et al., arXiv 2402.19427) each channel has one number as its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import (
    BlockContext,
    all_reduce,
    fused_or_eager,
    norm_flops,
    norm_parameters,
    replicated_input,
)
from roofmodel.counting.layers.token_convolution import causal_filter
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.layers import Mamba
from roofmodel.models.recurrent_layers import GatedRecurrence, Mamba2
from roofmodel.numbers.algebra import Number, ceil_div, half, quotient


def mamba2(mixer: Mamba2, block: BlockContext) -> Iterator[Operator]:
    """Mamba-2: one input projection (gate, input, B, C, time step), causal filter, scan, gated norm, output.

    m heads of size h share the B (`enter`) and C (`leave`) of each of g groups. The cache has a state of h x z per head
    and the last tokens of the filter; its size does not depend on the sequence length.
    """
    step, channels = block.step, mixer.heads * mixer.head_dim
    columns = channels + 2 * mixer.groups * mixer.state
    build = block.build(
        g=mixer.groups, m=quotient(mixer.heads, mixer.groups), h=mixer.head_dim, z=mixer.state, r=mixer.filter,
        c=columns, C=channels + columns + mixer.heads,
    )  # fmt: skip
    bias = " + B_ssm_in[C]" if mixer.bias else ""
    line = f"{block.input} W_ssm_in[d C]{bias} -> gate[b t g m h] u[b t c] step[b t g m]"
    yield build.operator("ssm.input", "ssm", line)
    outputs = "u[b t g m h] enter[b t g z] leave[b t g z]"
    yield from causal_filter(build, step, "ssm", mixer.filter_bias, mixer.activation, outputs)

    def scan(step: Step) -> tuple[Operator, ...]:
        if step.recurrent:
            return _mamba2_recurrence(build, step)
        return _mamba2_chunks(_with_chunk_sizes(build, step, mixer), step)

    yield from fused_or_eager("ssm.scan", "ssm", scan, step, kind="scan")
    gain = " G_gate[g m h]" if mixer.gate_norm else ""
    yield build.operator(
        "ssm.gate", "ssm", f"y[b t g m h] gate[b t g m h]{gain} -> y[b t g m h]", kind="elementwise",
        flops=vector_flops.ACTIVATION["silu"] + 1 + (vector_flops.NORM["rmsnorm"] if mixer.gate_norm else 0),
    )  # fmt: skip
    bias = " + B_ssm_out[d]" if mixer.out_bias else ""
    yield build.operator("ssm.output", "ssm", f"y[b t g m h] W_ssm_out[g m h d]{bias} -> {block.output}")


def _with_chunk_sizes(build: Builder, step: Step, mixer: Mamba2) -> Builder:
    """The builder with the axis sizes of chunks.

    The reference code pads the last chunk, computes all pairs, and repeats B and C for every head.
    """
    size, sizes = mixer.chunk, in_chunks(step, mixer.chunk)
    if step.attention == "eager":
        filled = sizes["j"] * size
        # one state more than chunks: the initial state
        passing = step.mean_of(lambda tokens: (ceil_div(tokens, size) + 1) ** 2)
        sizes |= {"t": filled, "s": filled, "t:s": filled * size, "t:j": filled}
        sizes |= {"j": sizes["j"] + 1, "j'": sizes["j"] + 1, "j:j'": passing}
        sizes |= {"g": mixer.heads, "m": 1}
    return build._replace(sizes={**build.sizes, **sizes})


def causal_pairs(tokens: Number, size: Number) -> Number:
    """Causal (query, key) pairs within chunks of `size` tokens."""
    rest = tokens % size
    return (tokens // size) * half(size * (size + 1)) + half(rest * (rest + 1))


def in_chunks(step: Step, size: Number, pairs: Callable[[Number, Number], Number] = causal_pairs) -> dict[str, Number]:
    """Axis sizes for chunks of `size` tokens: `j` chunks, `t:s` pairs within chunks, `t:j` tokens with their state.

    `pairs` gives the number of pairs from the number of tokens and the chunk size.
    """
    return {
        "s": step.tokens,
        "j": step.mean_of(lambda tokens: ceil_div(tokens, size)),
        "t:s": step.mean_of(lambda tokens: pairs(tokens, size)),
        "t:j": step.tokens,
    }


def _mamba2_chunks(build: Builder, step: Step) -> tuple[Operator, ...]:
    """The four steps of listing 1 (arXiv 2405.21060): within chunks, chunk states, state passing, output from states.

    For state passing, the reference code multiplies by a matrix of decays; a kernel loops over the chunks.
    """
    heads = build.sizes["m"]
    old_state, new_state = (" cache.state[b g m h z]" if is_cached else "" for is_cached in (step.resumed, step.cached))
    if step.attention == "flash":
        passing = "states[b j g m h z] chunk_decay[b j g m] => start_state[b j g m h z]"
    else:
        passing = "states[b j' g m h z] chunk_decay[b j:j' g m] -> start_state[b j g m h z]"

    decay = "step[b t g m] B_step[g m] A[g m] -> decay[b t g m] chunk_decay[b j g m]"
    total = "y[b t g m h] state_output[b t:j g m h] decay[b t g m] u[b t g m h] D[g m]"

    def vector_operator(name: str, line: str, flops: Number) -> Operator:
        return build.operator(f"ssm.{name}", "ssm", line, kind="elementwise", flops=flops)

    def bmm_operator(name: str, line: str, flops: Number = 0) -> Operator:
        return build.operator(f"ssm.{name}", "ssm", line, kind="bmm", flops=flops)

    return (
        # step times A 1, clamp 2, cumulative sum along the chunk 1
        vector_operator("decay", decay, vector_flops.STEP + 4),
        vector_operator("drive", "u[b s g m h] step[b s g m] -> drive[b s g m h]", 1),
        bmm_operator("scores", "leave[b t g z] enter[b s g z] -> a[b g t:s]"),
        # per head: difference of two sums 1, exp 1, times the score 1
        vector_operator("weigh", "a[b g t:s] decay[b t g m] -> p[b g m t:s]", 3 * heads),
        bmm_operator("mix", "p[b g m t:s] drive[b s g m h] -> y[b t g m h]"),
        vector_operator("fade", "enter[b s g z] decay[b s g m] -> decayed_b[b s g m z]", heads),
        bmm_operator("states", "decayed_b[b s g m z] drive[b s g m h] -> states[b j g m h z]"),
        bmm_operator("passing", passing, 2),
        bmm_operator("read_out", "leave[b t g z] start_state[b j g m h z] -> state_output[b t:j g m h]"),
        # state_output times its decay 1, plus y 1, plus D u 2
        vector_operator("sum", f"{total}{old_state} -> y[b t g m h]{new_state}", 4),
    )


def _mamba2_recurrence(build: Builder, step: Step) -> tuple[Operator, ...]:
    """One token: state = decay state + drive, y = C state + D u. Only the reference code computes C state as a GEMM."""
    arrow = "=>" if step.attention == "flash" else "->"
    lines = (
        # + 2: multiply by A, exp
        ("decay", "elementwise", "step[b t g m] B_step[g m] A[g m] -> decay[b t g m]", vector_flops.STEP + 2),
        (
            "recurrence", "scan",
            "cache.state[b g m h z] decay[b t g m] step[b t g m] enter[b t g z] u[b t g m h]"
            " -> state[b t g m h z] cache.state[b g m h z]", 3,
        ),
        ("read_out", "bmm", f"state[b t g m h z] leave[b t g z] {arrow} y[b t g m h]", 2),
        ("skip", "elementwise", "y[b t g m h] u[b t g m h] D[g m] -> y[b t g m h]", 2),
    )  # fmt: skip
    return tuple(build.operator(f"ssm.{name}", "ssm", line, kind=kind, flops=n) for name, kind, line, n in lines)


def mamba(mixer: Mamba, block: BlockContext) -> Iterator[Operator]:
    """Mamba (arXiv 2312.00752): input and gate, causal filter, selection of time step, B and C, scan, output.

    Names: `enter` is B, `leave` is C and `step` is delta of the paper. The cache has a state of z per channel and the
    last tokens of the filter; its size does not depend on the sequence length.
    """
    build = block.build(
        c=mixer.width,
        C=2 * mixer.width,
        z=mixer.state,
        q=mixer.step_rank,
        Q=mixer.step_rank + 2 * mixer.state,
        r=mixer.filter,
    )
    bias = " + B_ssm_in[C]" if mixer.bias else ""
    yield build.operator("ssm.input", "ssm", f"{block.input} W_ssm_in[d C]{bias} -> u[b t c] gate[b t c]")
    yield from causal_filter(build, block.step, "ssm", mixer.filter_bias, mixer.activation, "u[b t c]")
    selected = "low[b t q] enter[b t z] leave[b t z]"
    yield build.operator("ssm.select", "ssm", f"u[b t c] W_select[c Q] -> {selected}")
    yield from all_reduce(build, block.step, "ssm.select", selected)  # partial sums over the channels of each GPU
    if mixer.norm:
        for name, axis in (("low", "q"), ("enter", "z"), ("leave", "z")):
            gain, shift = norm_parameters(name, mixer.norm, axis)
            line = f"{name}[b t {axis}]{gain}{shift} -> {name}[b t {axis}]"
            yield build.operator(
                f"ssm.{name}_norm",
                "ssm",
                line,
                kind="norm",
                flops=norm_flops(mixer.norm),
                function=mixer.norm.kind,
            )
    yield from replicated_input(build, block.step, "ssm.select", selected)
    yield build.operator("ssm.step", "ssm", "low[b t q] W_step[q c] -> step[b t c]")
    yield from fused_or_eager("ssm.scan", "ssm", partial(_mamba_scan, build), block.step, kind="scan")
    bias = " + B_ssm_out[d]" if mixer.out_bias else ""
    yield build.operator("ssm.output", "ssm", f"y[b t c] W_ssm_out[c d]{bias} -> {block.output}")


def _mamba_scan(build: Builder, step: Step) -> tuple[Operator, ...]:
    """The recurrence (eq. 2a and 2b of the paper), token by token: h = decay h + drive, y = C h + D x, gated.

    The fused scan runs on the vector units and writes only the last state; the reference code computes C h as a GEMM.
    """
    state = build.sizes["z"]
    old_state, new_state = (" cache.state[b c z]" if is_cached else "" for is_cached in (step.resumed, step.cached))
    arrow = "=>" if step.attention == "flash" else "->"
    return (
        build.operator(
            "ssm.discretise", "ssm",
            "step[b t c] B_step[c] A[c z] enter[b t z] u[b t c] -> decay[b t c z] drive[b t c z]",
            kind="elementwise", flops=vector_flops.STEP + 1 + vector_flops.DISCRETIZE * state,  # 1: step times u
        ),
        build.operator(
            "ssm.recurrence", "ssm", f"decay[b t c z] drive[b t c z]{old_state} -> state[b t c z]{new_state}",
            kind="scan", flops=2,
        ),
        build.operator(
            "ssm.read_out", "ssm", f"state[b t c z] leave[b t z] {arrow} y[b t c]", kind="bmm", flops=2
        ),
        build.operator(
            "ssm.gate", "ssm", "y[b t c] u[b t c] D[c] gate[b t c] -> y[b t c]", kind="elementwise",
            flops=2 + vector_flops.ACTIVATION["silu"] + 1,
        ),
    )  # fmt: skip


def gated_recurrence(mixer: GatedRecurrence, block: BlockContext) -> Iterator[Operator]:
    """RG-LRU (arXiv 2402.19427, section 2.4): gate and input, causal filter, two gates per channel, recurrence, output.

    A square matrix per head computes each gate. The cache has one number per channel and the last tokens of the filter.
    Names: `enter` is the input gate and `forget` the recurrence gate of the paper, `A` its Lambda.
    """
    build = block.build(
        c=mixer.width, r=mixer.filter, m=mixer.heads,
        **dict.fromkeys(("cm", "cm'"), quotient(mixer.width, mixer.heads)),
    )  # fmt: skip
    yield build.operator("ssm.gate_input", "ssm", f"{block.input} W_ssm_gate[d c] + B_ssm_gate[c] -> gate[b t c]")
    yield build.operator("ssm.input", "ssm", f"{block.input} W_ssm_in[d c] + B_ssm_in[c] -> u[b t c]")
    yield from causal_filter(build, block.step, "ssm", True, None, "u[b t c]", own_code=True)
    for name in ("enter", "forget"):
        line = f"u[b t m cm] W_{name}[m cm cm'] + B_{name}[m cm'] -> {name}[b t m cm']"
        yield build.operator(f"ssm.{name}", "ssm", line, kind="bmm")
    scan = partial(_gated_scan, build, mixer.activation)
    yield from fused_or_eager("ssm.scan", "ssm", scan, block.step, kind="scan")
    yield build.operator("ssm.output", "ssm", f"y[b t c] W_ssm_out[c d] + B_ssm_out[d] -> {block.output}")


def _gated_scan(build: Builder, activation: str, step: Step) -> tuple[Operator, ...]:
    """decay = exp(-8 softplus(A) sigmoid(forget)), y = decay y + sqrt(1 - decay^2) sigmoid(enter) u, token by token."""
    old_state, new_state = (" cache.state[b c]" if is_cached else "" for is_cached in (step.resumed, step.cached))
    sigmoid = vector_flops.ACTIVATION["sigmoid"]
    lines = (
        ("decay", "elementwise", "forget[b t c] A[c] -> decay[b t c]", sigmoid + 3),  # times -8, times A, exp
        # decay^2, 1 minus it, root, two products
        ("drive", "elementwise", "enter[b t c] u[b t c] decay[b t c] -> drive[b t c]", sigmoid + 5),
        ("recurrence", "scan", f"decay[b t c] drive[b t c]{old_state} -> y[b t c]{new_state}", 2),
        (
            "gate", "elementwise", "y[b t c] gate[b t c] -> y[b t c]", vector_flops.ACTIVATION[activation] + 1,
        ),
    )  # fmt: skip
    return tuple(build.operator(f"ssm.{name}", "ssm", line, kind=kind, flops=n) for name, kind, line, n in lines)
