"""The blocks of a transformer layer: attention and feed-forward blocks.

Attention has a KV cache and is eager or fused (flash): self-attention, cross-attention, disentangled attention of
DeBERTa. Feed-forward blocks work on each token separately: MLP, mixture of experts (MoE), per-layer inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import (
    BlockContext,
    attention_sizes,
    exchange_heads,
    fused_or_eager,
    norm,
    norm_flops,
    norm_parameters,
    replicated_input,
    share_sequence,
    sum_block_output,
)
from roofmodel.counting.operator import Builder, Collective, Operator
from roofmodel.counting.tensors import Sizes
from roofmodel.counting.workload import Step, attended, pairs
from roofmodel.models.layers import (
    MLP,
    Attention,
    CrossAttention,
    DisentangledAttention,
    HeadNorm,
    LinearMixer,
    LinearMLP,
    LowRank,
    MoE,
    Norm,
    PerLayerGate,
    ResidualFilter,
)
from roofmodel.numbers.algebra import Number, half, minimum, quotient


def attention(att: Attention, block: BlockContext) -> Iterator[Operator]:
    """Self-attention: projections, rotary embedding, scores, softmax, weighted sum of values, output projection.

    The operator that produces keys or values writes them to the cache; scores and weighted sum read the cache. An
    encoder, or a forward pass without a cache, keeps them as activations.
    """
    step, x = block.step, block.input

    def keys_and_pairs(step: Step) -> Sizes:
        if att.selection:
            from roofmodel.counting.selected_keys import attended_blocks, pairs_in_blocks, pooled_keys, pooled_pairs

            blocks = att.selection.block_size, att.selection.blocks
            kept = att.selection.blocks * att.selection.block_size
            if att.selection.pools:
                return {"s": pooled_keys(step, *blocks), "t:s": pooled_pairs(step, *blocks), "sparse": kept}
            return {"s": attended_blocks(step, *blocks), "t:s": pairs_in_blocks(step, *blocks), "sparse": kept}
        if att.image_window:  # eager attention, too, computes one window after the other
            return {"s": step.tokens, "t:s": att.image_window.pairs(step.image)}
        sizes = {
            "s": attended(step, att.window, att.window_evicts, att.chunked),
            "t:s": pairs(step, att.window, block.causal, att.window_evicts, att.chunked),
        }
        if att.window is not None:
            sizes["windowed"] = 1
        return sizes

    build = _build(att, block, keys_and_pairs(step))
    cache = "cache." if step.cached and block.causal else ""
    if att.kv_sharing:  # layers that share keys and values use the tensors of one layer, by kind of attention
        cache += "full_" if att.window is None else "window_"
    # Norms and rotary embedding apply before keys and values are cached.
    fresh_k = "k" if att.rotary_dim or att.norm or att.kv_taps else f"{cache}k"
    fresh_v = "v" if att.value_norm or att.kv_taps else f"{cache}v"
    q, k, v = "q[b t k g h]", f"{fresh_k}[b t k h]", f"{fresh_v}[b t k {_value_axis(att)}]"
    sources = dict(zip("qkv", (x, *(block.key_value_inputs or (x, x))), strict=True))
    if att.experts:
        from roofmodel.counting.layers import attention_experts

        yield from attention_experts.projections(att.experts, block, build, k, v)
    elif att.fused:
        bias = " + B_qkv[c]" if att.qkv_bias else ""
        yield build.operator("attention.qkv", "attention", f"{x} W_qkv[d c]{bias} -> {q} {k} {v}")
    else:
        q_out = f"{q} gate[b t k g h]" if att.gate == "queries" else q
        for name, out in _projected(att, {"q": q_out, "k": k, "v": v}):
            yield _projection(build, att, name, sources[name], out)
    if att.kv_taps:
        from roofmodel.counting.layers.token_convolution import residual_filter

        key = "k" if att.rotary_dim or att.norm else f"{cache}k"
        value = "v" if att.value_norm else f"{cache}v"
        for name, source, target, width in zip(
            "kv", (k, v), (k.replace(fresh_k, key, 1), v.replace(fresh_v, value, 1)), att.keys_and_values, strict=True
        ):
            filter_, computed = ResidualFilter(width, att.kv_taps), ""
            if att.computed_taps:
                computed = f"taps_{name}[b t k rt]"
                line = f"{sources[name]} W_{name}_taps[d k rt] -> {computed}"
                taps = build._replace(sizes={**build.sizes, "rt": att.kv_taps})
                yield taps.operator(f"attention.{name}_taps", "attention", line)
            yield from residual_filter(filter_, build, step, "attention", f"{name}_filter", source, target, computed)
    if att.value_norm and att.kv_sharing != "reuses":
        source = k if att.values_from_keys else v
        yield _head_norm(build, "v", att.value_norm, source, f"{cache}v[b t k {_value_axis(att)}]")
    if att.norm:
        yield from head_norms(build, att, att.norm, "k" if att.rotary_dim else f"{cache}k")
    if att.rotary_dim:
        yield rotary(build, att, cache)

    if att.computed_sinks:
        yield build.operator("attention.sinks", "attention", f"{x} W_sinks[d k g] -> sinks[b t k g]")
    if att.gate in ("head", "element"):
        axes = _gate_axes(att)
        yield build.operator(
            "attention.gate_projection", "attention", f"{x} W_gate_heads[d {axes}] -> gate[b t {axes}]"
        )
    if att.selection:
        from roofmodel.counting.layers.indexer import select_blocks, select_pools

        select = select_pools if att.selection.pools else select_blocks
        yield from select(att.selection, att.rotary_dim, block, cache)
    against_positions: tuple[Operator, ...] = ()
    if att.disentangled:
        build = build._replace(sizes={**build.sizes, "w": att.disentangled.rows})
        yield from position_projections(att.disentangled, build)
        against_positions = position_scores(att.disentangled, build, cache)
    if att.relative_keys:
        yield build.operator(
            "attention.position_k", "attention", "distance[t d] W_position_k[d k g h] -> position.k[t k g h]"
        )
        line = "q[b t k g h] position.k[s k g h] -> c2p[b k g t:s]"
        against_positions = (build.operator("attention.content_to_position", "attention", line, kind="bmm"),)
    if att.relative_logits:
        build = build._replace(sizes={**build.sizes, "w": att.relative_logits.rows, "wr": att.relative_logits.width})
        line = f"{x} W_relative[d k g wr] -> relative[b t k g wr]"
        yield build.operator("attention.relative_states", "attention", line)
        if att.relative_logits.norm:
            states = "relative[b t k g wr]"
            yield _head_norm(build, "relative", att.relative_logits.norm, states, states, "k g wr")
        line = "relative[b t k g wr] H_relative_logits[wr w] -> c2p[b t k g w]"
        yield build.operator("attention.relative_logits", "attention", line)
    if att.relative_rows:
        yield relative_bias(build._replace(sizes={**build.sizes, "w": att.relative_rows}), "attention")

    added = " + alibi[b k g s]" if att.alibi else " + bias[k g t:s]" if att.relative_bias else ""
    added += " + c2p[b t k g w]" if att.relative_logits else ""
    added += "".join(f" + {operator.lines[0].outputs[0]}" for operator in against_positions)
    if att.differential:
        yield from _differential(build, att, block, cache, keys_and_pairs)
    else:
        yield from _core(build, att, block, "attention", cache, keys_and_pairs, added, block.causal, against_positions)
    if att.inner_norm:
        yield _inner_norm(
            build, "attention", att.inner_norm, f"o[b t k g {_value_axis(att)}]", f"k g {_value_axis(att)}"
        )
    if att.gate:
        yield gate(build, "attention", f"k g {_value_axis(att)}", _gate_axes(att))
    if att.experts:
        yield from attention_experts.output(att.experts, block, build)
    else:
        yield _output(build, att, block, "attention")


def _inner_norm(build: Builder, place: str, spec: Norm, tensor: str, gains: str) -> Operator:
    """A norm before an output projection."""
    gain, bias = norm_parameters(f"{place}_inner", spec, gains)
    line = f"{tensor}{gain}{bias} -> {tensor}"
    return build.operator(f"{place}.inner_norm", place, line, kind="norm", flops=norm_flops(spec), function=spec.kind)


def _differential(
    build: Builder, att: Attention, block: BlockContext, cache: str, keys_and_pairs: Callable[[Step], Sizes]
) -> Iterator[Operator]:
    """Differential attention (arXiv 2410.05258) as transformers computes it.

    All heads attend to each half of the values. The second half of the heads, times a learned factor, is subtracted
    from the first; a norm over both halves follows.
    """
    build = build._replace(sizes={**build.sizes, "kd": half(att.kv_heads), "gd": 2 * build.sizes["g"]})
    for number in ("1", "2"):
        mix = f"p[b kd gd t:s] {cache}v[b s kd h] -> o{number}[b t k g h]"
        yield from _core(
            build, att, block, "attention", cache, keys_and_pairs, masked=block.causal, mix=mix, name=f"_{number}"
        )
    factors = " ".join(f"G_lambda_{name}[h]" for name in ("q1", "k1", "q2", "k2"))
    line = f"o1[b t k g h] o2[b t k g h] {factors} -> o[b t k g h]"
    yield build.operator("attention.difference", "attention", line, kind="elementwise", flops=2)
    norm = Norm("rmsnorm", gain=False)
    line = "o[b t k g h] -> o[b t k g h]"
    yield build.operator(
        "attention.norm", "attention", line, kind="norm", flops=norm_flops(norm) + 1, function="rmsnorm"
    )


def cross_attention(cross: CrossAttention, block: BlockContext) -> Iterator[Operator]:
    """Cross-attention: queries of the decoder over keys and values of the encoder output.

    The pass that runs the encoder computes and caches keys and values; later passes only read them.
    """
    att, step = cross.attention, block.step
    keys_and_pairs = {"s": step.source, "t:s": step.tokens * step.source}
    build = _build(att, block, keys_and_pairs)
    cache = "cache." if step.cached else ""
    yield _projection(build, att, "q", block.input, "q[b t k g h]", "cross_")
    if step.encodes:
        yield from replicated_input(build, step, "cross_attention.source", "source[b s d]")
        for name in ("k", "v"):
            yield _projection(build, att, name, "source[b s d]", f"{cache}{name}[b s k h]", "cross_")
    yield from _core(build, att, block, "cross_attention", cache, lambda step: keys_and_pairs)
    yield _output(build, att, block, "cross_attention")


def _build(att: Attention, block: BlockContext, keys_and_pairs: Sizes) -> Builder:
    """A builder with the sizes of the heads, of the keys per query and of the query-key pairs per head."""
    return block.build(
        k=att.kv_heads, g=quotient(att.heads, att.kv_heads), h=att.head_dim, r=att.rotary_dim,
        c=att.heads * att.head_dim + sum(att.keys_and_values),
        **{"h'": att.value_dim or 0, "hg": 2 * att.head_dim, **keys_and_pairs},
    )  # fmt: skip


def _projected(att: Attention, tensors: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The projections of the layer: not keys and values from another layer, nor values that equal the keys."""
    for name, out in tensors.items():
        if name == "q" or not (att.kv_sharing == "reuses" or (name == "v" and att.values_from_keys)):
            yield name, out


def _value_axis(att: Attention) -> str:
    """The axis of the value head size."""
    return "h" if att.value_dim is None else "h'"


def _projection(build: Builder, att: Attention, name: str, source: str, out: str, cross: str = "") -> Operator:
    """The projection of `source` to queries, keys or values."""
    axes = {"q": "k g hg" if att.gate == "queries" else "k g h", "k": "k h", "v": f"k {_value_axis(att)}"}[name]
    bias = f" + B_{cross}{name}[{axes}]" if att.qkv_bias and not (name == "k" and att.keys_without_bias) else ""
    text = f"{source} W_{cross}{name}[d {axes}]{bias} -> {out}"
    return build.operator(f"{cross}attention.{name}", _group(f"{cross}attention"), text)


def _group(place: str) -> str:
    return place.replace("_", " ")


def _core(
    build: Builder,
    att: Attention,
    block: BlockContext,
    place: str,
    cache: str,
    keys_and_pairs: Callable[[Step], Sizes],
    added: str = "",
    masked: bool = False,
    ahead: tuple[Operator, ...] = (),
    mix: str = "",
    name: str = "",
) -> Iterator[Operator]:
    """Scores, softmax and weighted sum, in one kernel or several.

    `keys_and_pairs` gives the sizes of `s` and `t:s` in a step. The terms in `added` (biases, and
    results of the operators in `ahead`) are added to the scores. Where scores are `masked`, eager attention applies the
    mask.
    """
    group, h = _group(place), _value_axis(att)
    sinks = " B_sinks[k g]" * att.sinks + " sinks[b t k g]" * att.computed_sinks
    mix = mix or f"p[b k g t:s] {cache}v[b s k {h}] -> o[b t k g {h}]"

    own_keys = [f"{cache}k[b t k h]", f"{cache}v[b t k {h}]"]
    sizes = attention_sizes(build.sizes, block.step, keys_and_pairs)
    yield from share_sequence(build, sizes, block.step, ["q[b t k g h]"], own_keys)

    def core(step: Step) -> tuple[Operator, ...]:
        inner = build._replace(sizes=attention_sizes(build.sizes, step, keys_and_pairs))
        scores = f"q[b t k g h] {cache}k[b s k h]{added} -> a[b k g t:s]"
        mask = vector_flops.MASK if masked and step.attention == "eager" else 0
        return (
            *ahead,
            inner.operator(f"{place}.scores{name}", group, scores, kind="bmm"),
            inner.operator(
                f"{place}.softmax{name}",
                group,
                f"a[b k g t:s]{sinks} -> p[b k g t:s]",
                kind="softmax",
                flops=vector_flops.SCALE + mask + vector_flops.SOFTMAX,
                keeps="outputs",
            ),
            inner.operator(f"{place}.mix{name}", group, mix, kind="bmm"),
        )

    yield from fused_or_eager(f"{place}.flash{name}", group, core, block.step, kind="attention", causal=masked)
    yield from exchange_heads(build, block.step, "attention.output_heads", f"o[b t k g {h}]")


def _output(build: Builder, att: Attention, block: BlockContext, place: str) -> Operator:
    """The output projection."""
    cross, h = place.removesuffix("attention"), _value_axis(att)
    bias = f" + B_{cross}out[d]" if att.out_bias else ""
    line = f"o[b t k g {h}] W_{cross}out[k g {h} d]{bias} -> {block.output}"
    return build.operator(f"{place}.output", _group(place), line)


def gate(build: Builder, place: str, axes: str, gated: str) -> Operator:
    """The output of the heads times a gate (sigmoid or softplus), per head or per element."""
    line = f"o[b t {axes}] gate[b t {gated}] -> o[b t {axes}]"
    operator = build.operator(f"{place}.gate", _group(place), line, kind="elementwise", flops=1)
    gates = operator.reads[1].elements(build.sizes)
    return replace(operator, vector_flops=operator.vector_flops + vector_flops.GATE * gates)


def _gate_axes(att: Attention) -> str:
    return "k g" if att.gate == "head" else f"k g {_value_axis(att)}"


def relative_bias(build: Builder, group: str) -> Operator:
    """The relative-position bias of each pair, by head and distance: a lookup in a small table, which is read whole."""
    return build.operator(f"{group}.relative", group, "E_relative[w k g] -> bias[k g t:s]", kind="gather")


def head_norms(build: Builder, att: Attention, spec: HeadNorm, normed_k: str) -> Iterator[Operator]:
    """Norms of queries and new keys, per head or over all heads: the FLOPs per element are the same."""
    for name, axes, out in (("q", "k g h", "q"), ("k", "k h", normed_k)):
        if name == "q" or att.kv_sharing != "reuses":
            gains = "h" if spec.gains == "shared" else axes
            own = spec.norm._replace(gain=False) if name == "k" and spec.gains == "queries" else spec.norm
            yield _head_norm(build, name, own, f"{name}[b t {axes}]", f"{out}[b t {axes}]", gains)


def _head_norm(build: Builder, name: str, spec: Norm, source: str, target: str, gains: str = "h") -> Operator:
    gain, bias = norm_parameters(name, spec, gains)
    line = f"{source}{gain}{bias} -> {target}"
    return build.operator(
        f"attention.{name}_norm", "attention", line, kind="norm", flops=norm_flops(spec), function=spec.kind
    )


def rotary(build: Builder, att: Attention, cache: str) -> Operator:
    """Rotary embedding of queries and new keys, for `r` of the `h` elements of each head."""
    keys = att.kv_sharing != "reuses"
    k_in, k_out = (" k[b t k h]", f" {cache}k[b t k h]") if keys else ("", "")
    text = f"q[b t k g h]{k_in} cos[t r] sin[t r] -> q[b t k g h]{k_out}"
    operator = build.operator(
        "attention.rotary", "attention", text, kind="elementwise", keeps="nothing", function="rotary"
    )
    size = build.sizes
    rotated = size["b"] * size["t"] * size["k"] * (size["g"] + int(keys)) * size["r"]
    return replace(operator, vector_flops=vector_flops.ROTARY * rotated)


def position_projections(spec: DisentangledAttention, build: Builder) -> Iterator[Operator]:
    """Keys and queries of the `w` relative positions (DeBERTa, arXiv 2006.03654): once per layer for all sequences."""
    for name, wanted in (("k", spec.content_to_position), ("q", spec.position_to_content)):
        if wanted or spec.shared_projections:
            matrix = name if spec.shared_projections else f"position_{name}"
            line = f"relative[w d] W_{matrix}[d k g h] + B_{matrix}[k g h] -> position.{name}[w k g h]"
            yield build.operator(f"attention.position_{name}", "attention", line)


def position_scores(spec: DisentangledAttention, build: Builder, cache: str) -> tuple[Operator, ...]:
    """Scores of all queries and keys against all relative positions; a gather then picks the distance of each pair."""
    lines = (
        (spec.content_to_position, "content_to_position", "q[b t k g h] position.k[w k g h] -> c2p[b k g t w]"),
        (spec.position_to_content, "position_to_content", f"{cache}k[b s k h] position.q[w k g h] -> p2c[b k g s w]"),
    )
    return tuple(
        build.operator(f"attention.{name}", "attention", line, kind="bmm") for wanted, name, line in lines if wanted
    )


def feed_forward(mlp: MLP, block: BlockContext) -> Iterator[Operator]:
    """The MLP: up, activation, down. With a gate: down(act(gate) x up)."""
    return _mlp(_mlp_builder(mlp, block), mlp, "", block.input, block.output)


def linear_mixer(part: LinearMixer, block: BlockContext) -> Iterator[Operator]:
    """One square matrix in place of attention; a GPU has some of its inputs, and a partial sum of its outputs."""
    yield _square_matrix("attention", part, block)


def linear_mlp(part: LinearMLP, block: BlockContext) -> Iterator[Operator]:
    """One square matrix in place of an MLP, likewise."""
    yield _square_matrix("mlp", part, block)


def _square_matrix(place: str, part: LinearMixer | LinearMLP, block: BlockContext) -> Operator:
    source, output = block.input.replace(" d]", " c]"), block.output.replace(" d]", " d']")
    bias = f" + B_{place}_linear[d']" if part.bias else ""
    build = block.build(c=part.width, **{"d'": block.hidden})
    return build.operator(f"{place}.linear", place, f"{source} W_{place}_linear[c d']{bias} -> {output}")


def low_rank(part: LowRank, block: BlockContext) -> Iterator[Operator]:
    """Two matrices, with fewer columns between them (LAuReL)."""
    build = block.build(rr=part.rank)
    yield build.operator("laurel.left", "residual", f"{block.input} W_laurel_left[d rr] -> narrow[b t rr]")
    yield build.operator("laurel.right", "residual", f"narrow[b t rr] W_laurel_right[rr d] -> {block.output}")


def experts(moe: MoE, block: BlockContext) -> Iterator[Operator]:
    """MoE: router with top-k routing, the chosen experts, their weighted sum; and the shared expert, if there is one.

    `b:t:x` are the (token, expert) pairs that the router chose, `active` per token. Only the weights of experts that
    at least one token chose are read (`Step.routing`). Under uniform routing, their expected number is
    x (1 - (1 - active / x)^tokens).

    Experts without computation return the token itself; under uniform routing, they have their share of its choices.

    With expert parallelism, each of `ep` GPUs has the same number of pairs under uniform routing; otherwise the busiest
    GPU is counted (`expert_load`).
    Within a replica, the GPUs have the same tokens and sum the outputs of their experts at the end. Across replicas,
    each GPU sends a token once to each GPU that has any of its experts, in the format of the GEMMs, and receives the
    sum of their outputs (all-to-all).
    """
    from roofmodel.counting.expert_load import expert_load, with_touched_experts

    step, expert, gpus = block.step, moe.expert, block.step.parallel
    tokens = step.batch * step.tokens
    build = _mlp_builder(expert, block, x=moe.choices, **{"b:t:x": tokens * moe.active})
    bias = " + B_router[x]" if moe.router_bias else ""
    router_input = block.input
    if moe.router_norm:
        router_input = "router_input[b t d]"
        yield norm(build, "router", moe.router_norm, block.residual, router_input)
    scored, weights = "x", "weight[b:t:x]"
    if moe.weighted_shared:
        scored, weights = "xr", "weight[b:t:x] shared_weight[b t xs]"
    scale = " B_router_scale[one]" if moe.router_scale else ""
    routing = build._replace(
        sizes={**build.sizes, "xs": moe.weighted_shared, "xr": moe.experts + moe.weighted_shared, "one": 1}
    )
    yield routing.operator("mlp.router", "mlp", f"{router_input} W_router[d {scored}]{bias} -> r[b t {scored}]")
    correction = " B_correction[x]" if moe.correction else ""
    yield routing.operator(
        "mlp.choose", "mlp", f"r[b t {scored}]{correction}{scale} -> {weights}", kind="routing",
        flops=vector_flops.SOFTMAX + vector_flops.CHOOSE + moe.correction,
    )  # fmt: skip
    rows, outer, result = block.input, build, block.output
    if moe.latent:
        rows, result = "latent[b t d]", "routed[b t d]"
        outer = build._replace(sizes={**build.sizes, "zx": moe.latent})
        bias = " + B_latent_down[zx]" if moe.latent_bias else ""
        line = f"{block.input} W_latent_down[d zx]{bias} -> latent[b t zx]"
        yield outer.operator("mlp.latent_down", "mlp", line)
        if moe.latent_input_norm:
            yield norm(outer, "expert_input", moe.latent_input_norm, "latent[b t zx]", "latent[b t zx]")
        build = build._replace(sizes={**build.sizes, "d": moe.latent})
    local_experts = quotient(moe.experts, gpus.ep)
    load = expert_load(moe, step.routing, tokens * gpus.replicas, gpus.ep)
    if moe.capacity:
        taken = step.batch * gpus.replicas * moe.capacity * load.touched
        load = load._replace(pairs=minimum(load.pairs, taken))
    build = build._replace(sizes={**build.sizes, "x": local_experts, "b:t:x": load.pairs})
    if not gpus.experts_span_replicas:  # each GPU has all tokens
        build = build._replace(sizes={**build.sizes, "b:t:X": tokens * moe.active_mlps})
    if gpus.experts_span_replicas:
        source, rows = rows, "n[b:t:x d]"
        yield build.gather("mlp.permute", "mlp", f"{source} -> {rows}")
        exchange = _exchange_of_tokens(moe, step)
        yield _in_gemm_format(build).exchange("mlp.dispatch", f"{rows} -> {rows}", exchange)
    for operator in _mlp(build, expert, "expert_", rows, "y[b:t:x d]"):
        yield with_touched_experts(operator, load.touched, local_experts)
    if moe.expert_norm:
        yield norm(build, "expert_output", moe.expert_norm, "y[b:t:x d]", "y[b:t:x d]")
    if gpus.experts_span_replicas:
        yield build.exchange("mlp.collect", "y[b:t:x d] -> y[b:t:x d]", exchange)
    yield build.operator("mlp.combine", "mlp", f"y[b:t:x d] weight[b:t:x] => {result}", kind="elementwise", flops=2)
    if moe.sum_bias:
        line = f"{result} + B_expert_sum[d] -> {result}"
        yield build.operator("mlp.add_bias", "mlp", line, kind="elementwise")
    if moe.zero_experts:
        line = f"{block.input} zero_weight[b t] {result} -> {result}"
        yield build.operator("mlp.zero_experts", "mlp", line, kind="elementwise", flops=2)
    if moe.latent_norm:
        yield from sum_block_output(build, step, "mlp.latent", result)
        yield norm(outer, "expert_latent", moe.latent_norm, "routed[b t zx]", "routed[b t zx]")
    if moe.latent:
        bias = " + B_latent_up[d]" if moe.latent_bias else ""
        yield outer.operator("mlp.latent_up", "mlp", f"routed[b t zx] W_latent_up[zx d]{bias} -> {block.output}")
    if moe.shared:
        yield from _shared(moe, moe.shared, block)


def _exchange_of_tokens(moe: MoE, step: Step) -> Collective:
    """The all-to-all of an MoE layer. Where all tokens choose the same experts, there are no others."""
    if step.routing.name == "same":
        return Collective("alltoall", step.parallel.ep, experts=moe.common_mlps, active=moe.common_mlps)
    return Collective(
        "alltoall", step.parallel.ep, experts=moe.experts, zero_experts=moe.zero_experts, active=moe.active,
        groups=moe.groups, active_groups=moe.active_groups,
    )  # fmt: skip


def _in_gemm_format(build: Builder) -> Builder:
    """The builder of tensors that are sent in the format of the experts' GEMMs, if it is narrower (DeepEP)."""
    widths = build.widths
    if "W_expert_up" in widths.unconverted:
        return build
    return build._replace(widths=widths._replace(dtype=widths.gemm_input))


def _shared(moe: MoE, shared: MLP, block: BlockContext) -> Iterator[Operator]:
    build = _mlp_builder(shared, block, xs=moe.weighted_shared)
    yield from _mlp(build, shared, "shared_", block.input, "z[b t d]")
    weight = " shared_weight[b t xs]" if moe.weighted_shared else ""
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


def _mlp_builder(mlp: MLP, block: BlockContext, **sizes: Number) -> Builder:
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
    if mlp.sparse_gate:
        yield build.operator(
            f"mlp.{name}threshold", "mlp", f"{gate} -> {gate}", kind="elementwise", flops=vector_flops.THRESHOLD
        )
    learned = f" B_{name}activation[a]" if mlp.activation in vector_flops.LEARNED_PARAMETERS else ""
    yield build.operator(
        f"mlp.{name}activation", "mlp", f"{gate + ' ' if mlp.gated else ''}{up}{learned} -> {up}", kind="elementwise",
        flops=vector_flops.ACTIVATION[mlp.activation] + mlp.gated, function=mlp.activation,
        keeps="outputs" if mlp.activation == "relu" and not mlp.gated else "inputs",  # as autograd
    )  # fmt: skip
    if mlp.inner_norm:
        yield _inner_norm(build, "mlp", mlp.inner_norm, up, "f")
    yield linear("down", up, "f", "d", output)
    if mlp.scale:
        scaling = build._replace(sizes={**build.sizes, "one": 1})
        line = f"{output} B_mlp_scale[one] -> {output}"
        yield scaling.operator(f"mlp.{name}scale", "mlp", line, kind="elementwise", flops=1)


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
