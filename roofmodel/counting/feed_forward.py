"""The part that works on each token alone: an MLP, or experts among which a router chooses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.algebra import Number, mean, power, quotient
from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, norm
from roofmodel.counting.collective import Collective
from roofmodel.counting.operator import Builder, Operator
from roofmodel.models.layers import MLP, LayerInput, MoE


def feed_forward(mlp: MLP, block: BlockContext) -> Iterator[Operator]:
    """Up, activation, down; with a gate: act(gate) times up, then down."""
    return _mlp(_build(mlp, block), mlp, "", block.input, block.output)


def experts(moe: MoE, block: BlockContext) -> Iterator[Operator]:
    """Router, the chosen experts, the sum of what they give; beside them the shared expert, which takes every token.

    `b:t:x` are the (token, expert) pairs that the router chose, `active` for each token. Of the experts' weights those
    of the experts that any token chose are read: x (1 - (1 - active / x)^tokens) of them are expected if the router
    chooses evenly.

    Where experts are dealt out among `ep` GPUs, each has as many pairs. These GPUs may all have the same tokens, those
    of their replica, and add up at the end what their experts gave. Or they are those of several replicas, each of
    which sends a part of its tokens' pairs to the GPU of the expert, and gets back what that gave.
    """
    step, expert, gpus = block.step, moe.expert, block.step.parallel
    tokens = step.batch * step.tokens
    build = _build(expert, block, x=moe.experts, **{"b:t:x": tokens * moe.active})
    bias = " + B_router[x]" if moe.router_bias else ""
    asks = block.input
    if moe.router_norm:
        asks = "asks[b t d]"
        yield norm(build, "router", moe.router_norm, block.residual, asks)
    yield build.operator("mlp.router", "mlp", f"{asks} W_router[d x]{bias} -> r[b t x]")
    correction = " B_correction[x]" if moe.correction else ""
    yield build.operator(
        "mlp.choose", "mlp", f"r[b t x]{correction} -> weight[b:t:x]", kind="routing",
        flops=vector_flops.SOFTMAX + vector_flops.CHOOSE + moe.correction,
    )  # fmt: skip
    here, met = quotient(moe.experts, gpus.ep), tokens * gpus.replicas
    build = build._replace(sizes={**build.sizes, "x": here, "b:t:x": mean(met * moe.active, gpus.ep)})
    rows = block.input
    if gpus.across:
        rows = "n[b:t:x d]"
        yield build.gather("mlp.permute", "mlp", f"{block.input} -> {rows}")
        yield build.exchange("mlp.dispatch", f"{rows} -> {rows}", Collective("alltoall", gpus.ep))
    chosen = mean(touched(moe, met), gpus.ep)
    for operator in _mlp(build, expert, "expert_", rows, "y[b:t:x d]"):
        yield of_some_experts(operator, chosen, here)
    if gpus.across:
        yield build.exchange("mlp.collect", "y[b:t:x d] -> y[b:t:x d]", Collective("alltoall", gpus.ep))
    yield build.operator(
        "mlp.combine", "mlp", f"y[b:t:x d] weight[b:t:x] => {block.output}", kind="elementwise", flops=2
    )
    if moe.shared:
        yield from _shared(moe, moe.shared, block)


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


def _mlp(build: Builder, mlp: MLP, name: str, x: str, gives: str) -> Iterator[Operator]:
    """An MLP whose matrices and operators carry `name`; over the pairs b:t:x it is one of x experts."""
    rows, expert = ("b:t:x", "x ") if "b:t:x" in gives else ("b t", "")
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
    )  # fmt: skip
    yield linear("down", up, "f", "d", gives)


def touched(moe: MoE, tokens: Number) -> Number:
    """How many experts at least one token chose, expected where each chooses evenly: all where all are active."""
    return moe.experts * (1 - power(1 - moe.active / moe.experts, tokens))


def of_some_experts(operator: Operator, touched: Number, experts: Number) -> Operator:
    """The operator of `experts` experts reading the weights of the touched ones only."""
    read = {t.name: quotient(t.elements(operator.sizes), experts) * touched for t in operator.parameters}
    return replace(operator, touched=read)


def layer_input(part: LayerInput, block: BlockContext) -> Iterator[Operator]:
    """In a layer: down to the width of its input, times that behind an activation, and up again."""
    step, build = block.step, block.build(y=part.width, L=part.layers)
    yield build.operator("layer_input.gate", "input", f"{block.input} W_layer_gate[d y] -> w[b t y]")
    times = build.operator(
        "layer_input.times", "input", "w[b t y] inputs[b t L y] -> u[b t y]", kind="elementwise",
        flops=vector_flops.ACTIVATION[part.activation] + 1,
    )  # fmt: skip
    yield replace(times, touched={"inputs": step.batch * step.tokens * part.width})  # its own of them
    yield build.operator("layer_input.up", "input", f"u[b t y] W_layer_up[y d] -> {block.output}")
