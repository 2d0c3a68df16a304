"""Feed-forward blocks, which work on each token separately: MLP, mixture of experts (MoE), per-layer inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, norm
from roofmodel.counting.collective import Collective
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.routing import expert_load
from roofmodel.counting.workload import Step
from roofmodel.models.layers import MLP, MoE, PerLayerGate
from roofmodel.numbers.algebra import Number, quotient


def feed_forward(mlp: MLP, block: BlockContext) -> Iterator[Operator]:
    """The MLP: up, activation, down. With a gate: down(act(gate) x up)."""
    return _mlp(_build(mlp, block), mlp, "", block.input, block.output)


def experts(moe: MoE, block: BlockContext) -> Iterator[Operator]:
    """MoE: router with top-k routing, the chosen experts, their weighted sum; and the shared expert, if there is one.

    `b:t:x` are the (token, expert) pairs that the router chose, `active` per token. Only the weights of experts that
    at least one token chose are read (`routing.py`). Under uniform routing, their expected number is
    x (1 - (1 - active / x)^tokens).

    With expert parallelism, each of `ep` GPUs has the same number of pairs under uniform routing; otherwise the busiest
    GPU is counted (`expert_load`).
    Within a replica, the GPUs have the same tokens and sum the outputs of their experts at the end. Across replicas,
    each GPU sends a token once to each GPU that has any of its experts, in the format of the GEMMs, and receives the
    sum of their outputs (all-to-all).
    """
    step, expert, gpus = block.step, moe.expert, block.step.parallel
    tokens = step.batch * step.tokens
    build = _build(expert, block, x=moe.experts, **{"b:t:x": tokens * moe.active})
    bias = " + B_router[x]" if moe.router_bias else ""
    router_input = block.input
    if moe.router_norm:
        router_input = "router_input[b t d]"
        yield norm(build, "router", moe.router_norm, block.residual, router_input)
    yield build.operator("mlp.router", "mlp", f"{router_input} W_router[d x]{bias} -> r[b t x]")
    correction = " B_correction[x]" if moe.correction else ""
    yield build.operator(
        "mlp.choose", "mlp", f"r[b t x]{correction} -> weight[b:t:x]", kind="routing",
        flops=vector_flops.SOFTMAX + vector_flops.CHOOSE + moe.correction,
    )  # fmt: skip
    local_experts = quotient(moe.experts, gpus.ep)
    load = expert_load(moe, step.routing, tokens * gpus.replicas, gpus.ep)
    build = build._replace(sizes={**build.sizes, "x": local_experts, "b:t:x": load.pairs})
    if not gpus.experts_span_replicas:  # each GPU has all tokens
        build = build._replace(sizes={**build.sizes, "b:t:X": tokens * moe.active})
    rows = block.input
    if gpus.experts_span_replicas:
        rows = "n[b:t:x d]"
        yield build.gather("mlp.permute", "mlp", f"{block.input} -> {rows}")
        exchange = _exchange_of_tokens(moe, step)
        yield _in_gemm_format(build).exchange("mlp.dispatch", f"{rows} -> {rows}", exchange)
    for operator in _mlp(build, expert, "expert_", rows, "y[b:t:x d]"):
        yield with_touched_experts(operator, load.touched, local_experts)
    if gpus.experts_span_replicas:
        yield build.exchange("mlp.collect", "y[b:t:x d] -> y[b:t:x d]", exchange)
    yield build.operator(
        "mlp.combine", "mlp", f"y[b:t:x d] weight[b:t:x] => {block.output}", kind="elementwise", flops=2
    )
    if moe.shared:
        yield from _shared(moe, moe.shared, block)


def _exchange_of_tokens(moe: MoE, step: Step) -> Collective:
    """The all-to-all of an MoE layer. Where all tokens choose the same experts, there are no others."""
    exchange = Collective("alltoall", step.parallel.ep, experts=moe.active, active=moe.active)
    if step.routing.name == "same":
        return exchange
    return exchange._replace(experts=moe.experts, groups=moe.groups, active_groups=moe.active_groups)


def _in_gemm_format(build: Builder) -> Builder:
    """The builder of tensors that are sent in the format of the experts' GEMMs, if it is narrower (DeepEP)."""
    widths = build.widths
    if "W_expert_up" in widths.unconverted:
        return build
    return build._replace(widths=widths._replace(dtype=widths.gemm_input))


def _shared(moe: MoE, shared: MLP, block: BlockContext) -> Iterator[Operator]:
    build = _build(shared, block)
    yield from _mlp(build, shared, "shared_", block.input, "z[b t d]")
    weight = ""
    if moe.shared_gate:
        weight = " s[b t]"
        yield build.operator("mlp.shared_gate_scalar", "mlp", f"{block.input} W_shared_scalar[d] -> s[b t]")
        yield build.operator(
            "mlp.shared_sigmoid",
            "mlp",
            "s[b t] -> s[b t]",
            kind="elementwise",
            flops=vector_flops.ACTIVATION["sigmoid"],
        )
    yield build.operator(
        "mlp.shared_add", "mlp", f"z[b t d] {block.output}{weight} -> {block.output}", kind="elementwise",
        flops=1 + bool(weight),
    )  # fmt: skip


def _build(mlp: MLP, block: BlockContext, **sizes: Number) -> Builder:
    return block.build(f=mlp.width, F=2 * mlp.width, a=vector_flops.LEARNED_PARAMETERS.get(mlp.activation, 0), **sizes)


def _mlp(build: Builder, mlp: MLP, name: str, x: str, output: str) -> Iterator[Operator]:
    """An MLP whose matrices and operators have the prefix `name`; a grouped GEMM over experts if it works on b:t:x."""
    rows, expert = ("b:t:x", "x ") if "b:t:x" in output else ("b t", "")
    kind = "grouped_gemm" if expert else "gemm"
    up, gate = f"u[{rows} f]", f"w[{rows} f]"

    def linear(which: str, source: str, into: str, out: str, result: str) -> Operator:
        bias = f" + B_{name}{which}[{expert}{out}]" if mlp.bias else ""
        line = f"{source} W_{name}{which}[{expert}{into} {out}]{bias} -> {result}"
        return build.operator(f"mlp.{name}{which}", "mlp", line, kind=kind)

    if mlp.gated and mlp.fused:
        yield linear("gate_up", x, "d", "F", f"{gate} {up}")
    elif mlp.gated:
        yield linear("gate", x, "d", "f", gate)
    if not (mlp.gated and mlp.fused):
        yield linear("up", x, "d", "f", up)
    learned = f" B_{name}activation[a]" if mlp.activation in vector_flops.LEARNED_PARAMETERS else ""
    yield build.operator(
        f"mlp.{name}activation", "mlp", f"{gate + ' ' if mlp.gated else ''}{up}{learned} -> {up}", kind="elementwise",
        flops=vector_flops.ACTIVATION[mlp.activation] + mlp.gated, function=mlp.activation,
        keeps="outputs" if mlp.activation == "relu" and not mlp.gated else "inputs",  # as autograd
    )  # fmt: skip
    yield linear("down", up, "f", "d", output)


def with_touched_experts(operator: Operator, touched: Number, experts: Number) -> Operator:
    """The operator of `experts` experts, which reads only the weights of `touched` of them."""
    touched_elements = {t.name: quotient(t.elements(operator.sizes), experts) * touched for t in operator.parameters}
    return replace(operator, touched=touched_elements)


def layer_input(part: PerLayerGate, block: BlockContext) -> Iterator[Operator]:
    """The per-layer input block (Gemma 3n and 4): down projection, activation, multiplication by the input, up."""
    step, build = block.step, block.build(y=part.width, L=part.layers)
    yield build.operator("layer_input.gate", "input", f"{block.input} W_layer_gate[d y] -> w[b t y]")
    times = build.operator(
        "layer_input.times", "input", "w[b t y] inputs[b t L y] -> u[b t y]", kind="elementwise",
        flops=vector_flops.ACTIVATION[part.activation] + 1,
    )  # fmt: skip
    yield replace(times, touched={"inputs": step.batch * step.tokens * part.width})  # one layer's slice
    yield build.operator("layer_input.up", "input", f"u[b t y] W_layer_up[y d] -> {block.output}")
