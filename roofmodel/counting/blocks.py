"""The operators of one pass through an architecture, in the order of the reference code.

tensors.py explains operator lines and lists the axis letters: b batch, t new tokens, s attended tokens, d hidden size,
k key-value heads, g query heads per key-value head, h head size, f MLP width, v vocabulary size, ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import (
    BlockContext,
    gather_tokens,
    norm,
    receive_activations,
    replicated_input,
    send_activations,
    sum_block_output,
    tokens_of_gpu,
)
from roofmodel.counting.layers.transformer import relative_bias
from roofmodel.counting.operator import Builder, Collective, Operator
from roofmodel.counting.tensors import Sizes
from roofmodel.counting.workload import Step, pairs
from roofmodel.models.architecture import (
    Architecture,
    Embedding,
    Head,
    HeadStage,
    Network,
    Patches,
    PerLayerEmbedding,
    Stack,
)
from roofmodel.models.layers import (
    Attention,
    CompressedAttention,
    LatentAttention,
    Layer,
    NGrams,
    Norm,
    Part,
)
from roofmodel.numbers.algebra import Number, quotient

if TYPE_CHECKING:
    from roofmodel.counting.layers.alternating_updates import AlternatingStreams
    from roofmodel.counting.layers.hyper_connections import HyperConnections

# Kind of part -> name of its sublayer, output tensor, and the function of this package that builds its operators.
# Functions are given by name, so that only the modules of the parts of the model are imported.
BLOCKS: dict[str, tuple[str, str, str]] = {
    "Attention": ("attention", "a[b t d]", "transformer.attention"),
    "LatentAttention": ("attention", "a[b t d]", "latent_attention.latent_attention"),
    "CompressedAttention": ("attention", "a[b t d]", "compressed_attention.compressed_attention"),
    "CrossAttention": ("cross_attention", "a[b t d]", "transformer.cross_attention"),
    "LinearMixer": ("attention", "a[b t d]", "transformer.linear_mixer"),
    "LinearMLP": ("mlp", "m[b t d]", "transformer.linear_mlp"),
    "MLP": ("mlp", "m[b t d]", "transformer.feed_forward"),
    "LowRank": ("laurel", "l[b t d]", "transformer.low_rank"),
    "MoE": ("mlp", "m[b t d]", "transformer.experts"),
    "Mamba": ("ssm", "s[b t d]", "mamba.mamba"),
    "Mamba2": ("ssm", "s[b t d]", "mamba.mamba2"),
    "GatedRecurrence": ("ssm", "s[b t d]", "mamba.gated_recurrence"),
    "TimeMix": ("linear", "s[b t d]", "rwkv.time_mix"),
    "ChannelMix": ("mlp", "m[b t d]", "rwkv.channel_mix"),
    "DeltaRule": ("linear", "s[b t d]", "linear_attention.delta_rule"),
    "Lightning": ("linear", "s[b t d]", "linear_attention.lightning"),
    "MatrixMemory": ("linear", "s[b t d]", "linear_attention.matrix_memory"),
    "ShortConvolution": ("convolution", "c[b t d]", "token_convolution.short_convolution"),
    "PerLayerGate": ("layer_input", "i[b t d]", "transformer.layer_input"),
    "TokenConvolution": ("convolution", "c[b t d]", "token_convolution.token_convolution"),
}
PARALLEL_EXPERTS = "experts", "e[b t d]", "transformer.experts"
"""The entry for an MoE block in a sublayer that also has an MLP; a later residual sum may add its output."""
ALL_TOKENS = "all[b t d]"
"""The input of a block after the all-gather of sequence parallelism."""
SEPARATE_INPUTS = "", "k", "v"
"""The ends of the names of a block's inputs, if keys and values have inputs of their own."""


def operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators of one pass. An operator of several identical layers appears once, with the layer numbers."""
    if isinstance(arch.body, Network):
        return tuple(image_classifier(arch, arch.body, step))
    source = encoder(arch.encoder, step.encoder_step) if arch.encoder and step.encodes else ()
    return *source, *stack_operators(arch.stack, step), *closing(arch, step)


def encoder(stack: Stack, step: Step) -> Iterator[Operator]:
    """The operators of the encoder, whose operator and parameter names start with `encoder`; its output is `source`."""
    shared = isinstance(stack.embedding, Embedding) and stack.embedding.shared_with_decoder

    def encoder_name(tensor: str) -> str:
        if tensor[0].isupper() and not (shared and tensor == "E_token"):
            return f"{tensor[:2]}encoder_{tensor[2:]}"
        return "source" if tensor == "x" else tensor

    for operator in stack_operators(stack, step):
        yield operator.renamed("encoder", encoder_name)


def stack_operators(stack: Stack, step: Step) -> Iterator[Operator]:
    """The operators of a stack: embedding, layers, final norm; of a pipeline stage, those on this stage."""
    if stack.stage_slice.first:
        yield from embedding(stack, step)
        if streams := _streams(stack, step):
            yield from streams.expand_embedding()
    yield from receive_activations(stack, step)
    for layer, indices in stack.kinds:
        for operator in layer_operators(layer, stack, step):
            yield replace(operator, layers=indices)
    yield from send_activations(stack, step)
    if stack.stage_slice.last and (streams := _streams(stack, step)):
        yield from streams.close()
    build, x = Builder({**step.token_axes, "d": stack.hidden}, step.widths), f"x[b {step.parallel.rows} d]"
    if stack.stage_slice.last and stack.sums:
        from roofmodel.counting.layers.attention_residuals import mean_of_sums

        yield from mean_of_sums("output", stack.sums, stack.layers[-1][-1].earlier_sums, build, step, (x,))
    if stack.final_norm:
        yield norm(build, "final", stack.final_norm, x, x)


def hyper_connections(stack: Stack, step: Step) -> HyperConnections | None:
    """The operators of the residual streams; None for a model with one stream."""
    if stack.streams is None:
        return None
    from roofmodel.counting.layers.hyper_connections import HyperConnections

    return HyperConnections(stack, stack.streams, step)


def alternating_updates(stack: Stack, step: Step) -> AlternatingStreams | None:
    """The operators of AltUp's streams; None for a model without it."""
    if stack.updates is None:
        return None
    from roofmodel.counting.layers.alternating_updates import AlternatingStreams

    return AlternatingStreams(stack, stack.updates, step)


def _streams(stack: Stack, step: Step) -> HyperConnections | AlternatingStreams | None:
    """The operators of several residual streams; None for a model with one."""
    return hyper_connections(stack, step) or alternating_updates(stack, step)


def stage_operators(model_operators: Sequence[Operator], stack: Stack, step: Step) -> tuple[Operator, ...]:
    """The operators of a pipeline stage, from those of the whole model; `stack` has the layers of the stage."""
    stage_layers = {layer for _, layers in stack.kinds for layer in layers}
    in_layers = [n for n, op in enumerate(model_operators) if op.layers is not None]
    first, end = in_layers[0], in_layers[-1] + 1
    layered = (
        replace(op, layers=tuple(layer for layer in op.layers or () if layer in stage_layers))
        for op in model_operators[first:end]
    )
    return (
        *(model_operators[:first] if stack.stage_slice.first else ()),
        *receive_activations(stack, step),
        *(op for op in layered if op.layers),
        *send_activations(stack, step),
        *(model_operators[end:] if stack.stage_slice.last else ()),
    )


def image_classifier(arch: Architecture, net: Network, step: Step) -> Iterator[Operator]:
    """A convolutional network, and the head on its pooled channels."""
    from roofmodel.counting.layers.convolution import network

    yield from network(net, step)
    yield from head_stages(arch.head, None, {"b": step.batch, "d": net.width}, ("h", "d"), step)


def embedding(stack: Stack, step: Step) -> Iterator[Operator]:
    """The embedding: token, position and type lookups, norm and projection as the model has them; or image patches."""
    table = stack.embedding
    if isinstance(table, Patches):
        from roofmodel.counting.layers.convolution import patches

        yield from patches(table, stack.hidden, step)
        return
    projection = table.projection
    sizes = {**step.token_axes, "d": stack.hidden, "e": table.width, "v": table.vocabulary}
    build, rows, width = Builder(sizes, step.widths), step.parallel.rows, "e" if projection else "d"
    if table.frame_convolutions:
        from roofmodel.counting.layers.token_convolution import frames

        yield from frames(table.frame_convolutions, stack.hidden, step)
    else:
        yield build.gather("embedding.token", "embedding", f"E_token[v {width}] -> x[b t {width}]")
        yield from sum_block_output(build, step, "embedding", f"x[b t {width}]")  # the table is sharded by rows
    for stage in ("tokens", "sums", "norm"):
        if stage == "sums":
            yield from added_rows(table, build, width, rows)
        if stage == "norm" and table.norm:
            yield norm(build, "embedding", table.norm, f"x[b {rows} {width}]", f"x[b {rows} {width}]")
        if projection and projection.after == stage:
            bias, width = " + B_project_in[d]" if projection.bias else "", "d"
            line = f"x[b {rows} e] W_project_in[e d]{bias} -> x[b {rows} d]"
            yield build.operator("embedding.project", "embedding", line)
    yield from relative_positions(table, stack, step)
    if table.per_layer:
        yield from layer_inputs(table.per_layer, build)


def layer_inputs(table: PerLayerEmbedding, build: Builder) -> Iterator[Operator]:
    """The per-layer inputs of all layers (Gemma 3n and 4): a table lookup plus a normed projection of the embedding."""
    build = build._replace(sizes={**build.sizes, "L": table.layers, "y": table.width, "p": table.rows})
    yield build.gather("embedding.layers", "embedding", "E_layers[p L y] -> layer_rows[b t L y]")
    yield build.operator("embedding.layers_project", "embedding", "x[b t d] W_layers[d L y] -> inputs[b t L y]")
    yield norm(build, "layers", table.norm, "inputs[b t L y]", "inputs[b t L y]")
    line = "inputs[b t L y] + layer_rows[b t L y] -> inputs[b t L y]"
    yield build.operator("embedding.layers_add", "embedding", line, kind="elementwise")


def added_rows(table: Embedding, build: Builder, width: str, tokens: str) -> Iterator[Operator]:
    """Lookups that are added to the token embedding: token types, positions, the task."""
    position = "sinusoids" if table.fixed_positions else "E_position"
    for name, tensor, rows, each in (
        ("type", "E_type", table.type_rows, f"b {tokens}"),
        ("position", position, table.position_rows, tokens),
        ("task", "E_task", table.task_rows, f"b {tokens}"),
    ):
        if rows:
            gathering = build._replace(sizes={**build.sizes, "p": rows})
            yield gathering.gather(f"embedding.{name}", "embedding", f"{tensor}[p {width}] -> e[{each} {width}]")
            line = f"x[b {tokens} {width}] + e[{each} {width}] -> x[b {tokens} {width}]"
            yield build.operator(f"embedding.add_{name}", "embedding", line, kind="elementwise")


def relative_positions(table: Embedding, stack: Stack, step: Step) -> Iterator[Operator]:
    """Relative positions that all layers share: the bias of each pair, by head and distance; or embedding vectors."""
    build = Builder({"w": table.relative_rows, "d": stack.hidden}, step.widths)
    att = next((part for part in stack.parts if isinstance(part, Attention)), None)
    if table.relative_norm:
        yield norm(build, "relative", table.relative_norm, "E_relative[w d]", "relative[w d]")
    elif table.relative_rows and not (att and att.relative_bias):
        yield build.gather("embedding.relative", "embedding", "E_relative[w d] -> relative[w d]")
    elif table.relative_rows and att:
        sizes = {
            "w": table.relative_rows, "k": att.kv_heads, "g": quotient(att.heads, att.kv_heads),
            "t:s": pairs(step, None, stack.causal),
        }  # fmt: skip
        yield relative_bias(Builder(sizes, step.widths), "embedding")


def layer_operators(layer: Layer, stack: Stack, step: Step) -> Iterator[Operator]:
    """The operators of a layer. With AltUp, all but its last block read and write one of several streams."""
    first = layer[0].branches[0].part if layer else None  # a layer may compute nothing
    if isinstance(first, NGrams):
        from roofmodel.counting.layers.ngrams import ngrams

        yield from ngrams(first, stack, step)
        layer = layer[1:]
    streams = alternating_updates(stack, step)
    if not streams:
        yield from transformer_layer(layer, stack, step)
        return
    *blocks, layer_input = layer
    yield from streams.predict()
    yield from transformer_layer(tuple(blocks), stack, step)
    yield from streams.correct()
    yield from streams.add_layer_input(layer_input.branches[0])


def transformer_layer(layer: Layer, stack: Stack, step: Step) -> Iterator[Operator]:
    """The sublayers of a layer, each with its norms and its residual connection.

    Under tensor parallelism, each GPU has a partial sum of a branch's output. The outputs of parallel branches are
    added before the all-reduce, unless a branch has a norm on its output.
    """
    build, rows = Builder({**step.token_axes, "d": stack.hidden}, step.widths), step.parallel.rows
    hyper = hyper_connections(stack, step)
    running = f"x[b {rows} d]"
    for sublayer in layer:
        place, x = BLOCKS[type(sublayer.branches[0].part).__name__][0], running
        if hyper or sublayer.earlier_sums:
            x = f"c[b {rows} d]"
        if hyper:
            yield from hyper.collapse(place)
        means: tuple[str, ...] = (x,)
        if sublayer.separate_inputs:
            means = (x, f"ck[b {rows} d]", f"cv[b {rows} d]") if sublayer.earlier_sums else (x, x, x)
        if stack.sums:
            from roofmodel.counting.layers.attention_residuals import finish_sum, mean_of_sums

            if sublayer.earlier_sums:
                yield from mean_of_sums(place, stack.sums, sublayer.earlier_sums, build, step, means)
            if sublayer.starts_sum:
                yield finish_sum(place, build, step)
        inputs, outputs, places = means, list[str](), list[str]()
        separate_sums = len(sublayer.branches) == 1 or any(b.after or b.is_shortcut for b in sublayer.branches)
        for branch in sublayer.branches:
            place, partial_sum, build_block = BLOCKS[type(branch.part).__name__]
            if sublayer.starts_sum:
                partial_sum = "x[b t d]"  # the output is the new sum
            if place in places:
                place, partial_sum, build_block = PARALLEL_EXPERTS
            places.append(place)
            if branch.before:
                inputs = tuple(f"n{name}[b {rows} d]" for name in SEPARATE_INPUTS[: len(means)])
                for name, source, normed in zip(SEPARATE_INPUTS, means, inputs, strict=False):
                    yield norm(build, f"{place}_{name}" if name else place, branch.before, source, normed)
                if branch.gate_rank:
                    yield from norm_gate(build, place, branch.gate_rank, inputs[0])
            if branch.before or not outputs:
                for source in inputs:
                    yield from shared_input(branch.part, build, step, place, source)
            if step.parallel.sequence:
                inputs = (ALL_TOKENS,)
            context = BlockContext(step, stack.hidden, stack.causal, inputs[0], partial_sum, x, inputs[1:])
            yield from builder(build_block)(branch.part, context)
            if branch.filter:  # it is linear: on partial sums before their sum, it costs the same as after it
                from roofmodel.counting.layers.token_convolution import residual_filter

                name, tensor = f"{place}_filter", partial_sum
                yield from residual_filter(branch.filter, build, step, "convolution", name, tensor, tensor)
            output = tokens_of_gpu(partial_sum, step) if separate_sums else partial_sum
            if separate_sums:
                yield from sum_block_output(build, step, place, partial_sum)
            if branch.after:
                yield norm(build, f"{place}_output", branch.after, output, output)
            if branch.scale:
                line = f"{output} G_{place}_scale[d] -> {output}"
                yield build.operator(f"{place}.scale", place, line, kind="elementwise")
            if branch.is_shortcut:
                place = places[0]  # the residual sum of this sublayer does not have its output
            else:
                outputs.append(output)
        if sublayer.adds_input:
            outputs.append(inputs[0])
        if sublayer.adds_shortcut:
            outputs.append(tokens_of_gpu(PARALLEL_EXPERTS[1], step))
        if not separate_sums and not step.parallel.unsharded:
            yield residual(build, f"{place}_branches", " + ".join(outputs), partial_sum)
            yield from sum_block_output(build, step, place, partial_sum)
            outputs = [tokens_of_gpu(partial_sum, step)]
        if sublayer.sum_norm:
            yield residual(build, f"{place}_branches", " + ".join(outputs), outputs[0])
            outputs = outputs[:1]
            yield norm(build, f"{place}_together", sublayer.sum_norm, outputs[0], outputs[0])
        if hyper:
            yield from hyper.expand(place, outputs[0])
        elif sublayer.gated_sum:
            yield gated_sum(build, place, running, outputs[0])
        elif not sublayer.starts_sum:
            yield residual(build, place, " + ".join([running, *outputs]), running)
        if sublayer.after:
            yield norm(build, place, sublayer.after, x, x)


def norm_gate(build: Builder, place: str, rank: Number, normed: str) -> Iterator[Operator]:
    """A gate on a normed input, from that input by two matrices: n x sigmoid(up(silu(down(n)))) (A.X K2)."""
    build = build._replace(sizes={**build.sizes, "ng": rank})
    gate, narrow = normed.replace("n[", "gate[", 1), normed.replace("n[", "w[", 1).replace(" d]", " ng]")
    names = f"norm.{place}_gate", "norm"
    yield build.operator(f"{names[0]}_down", "norm", f"{normed} H_{place}_norm_gate_down[d ng] -> {narrow}")
    yield build.operator(
        f"{names[0]}_activation", "norm", f"{narrow} -> {narrow}", kind="elementwise",
        flops=vector_flops.ACTIVATION["silu"], function="silu",
    )  # fmt: skip
    yield build.operator(f"{names[0]}_up", "norm", f"{narrow} H_{place}_norm_gate_up[ng d] -> {gate}")
    yield build.operator(
        names[0], "norm", f"{normed} {gate} -> {normed}", kind="elementwise", flops=vector_flops.GATE + 1
    )


@cache
def builder(path: str) -> Callable[[Any, BlockContext], Iterator[Operator]]:
    """The function at `module.function` of `counting/layers`."""
    module, _, function = path.partition(".")
    build: Callable[[Any, BlockContext], Iterator[Operator]]
    build = getattr(import_module(f"roofmodel.counting.layers.{module}"), function)
    return build


def shared_input(part: Part, build: Builder, step: Step, place: str, reads: str) -> Iterator[Operator]:
    """Communication before a block: the all-gather of tokens, or the marker for the gradient of a replicated input.

    Latent attention replicates its latents instead, further inside the block.
    """
    if step.parallel.sequence:
        yield from gather_tokens(build, step, place, reads, ALL_TOKENS)
    elif not isinstance(part, LatentAttention | CompressedAttention):
        yield from replicated_input(build, step, place, reads)


def residual(build: Builder, place: str, summands: str, output: str) -> Operator:
    """The addition of the residual connection."""
    return build.operator(f"residual.{place}", "residual", f"{summands} -> {output}", kind="elementwise")


def gated_sum(build: Builder, place: str, running: str, output: str) -> Operator:
    """The residual sum a x + b y with weights per channel; they depend on a learned number each and on no token.

    b = sigmoid(w) and a = sqrt(1 - b^2): work once per channel, which is not counted (Muse Spark).
    """
    line = f"{running} {output} G_{place}_sum[d] -> {running}"
    return build.operator(f"residual.{place}", "residual", line, kind="elementwise", flops=3)


def closing(arch: Architecture, step: Step) -> Iterator[Operator]:
    """The projection back to a narrower embedding, and the head."""
    if not arch.stack.stage_slice.last:
        return
    stack, table = arch.stack, arch.stack.embedding
    sizes = {**step.token_axes, "l": step.logit_positions, "d": stack.hidden, "d'": stack.hidden}
    source, width, rows = "x", "d", step.parallel.rows
    if not isinstance(table, Patches):
        sizes |= {"e": table.width, "v": table.vocabulary}
        if table.projection and table.projection.projects_back:
            build = Builder(sizes, step.widths)
            yield build.operator("head.project", "head", f"x[b {rows} d] W_project_out[d e] -> x[b {rows} e]")
            width = "e"
    if step.parallel.sequence:
        source, build = "all", Builder(sizes, step.widths)
        yield from gather_tokens(build, step, "head.input", f"x[b u {width}]", f"{source}[b t {width}]")
    yield from head_stages(arch.head, stack.norm, sizes, (source, width), step)
    for number, projector in enumerate(arch.head.projectors):
        from roofmodel.counting.layers.image_projector import project

        yield from project(projector, str(number or ""), stack, step)


def head_stages(head: Head, spec: Norm | None, sizes: Sizes, source: tuple[str, str], step: Step) -> Iterator[Operator]:
    """The stages of a head. `source` is the output tensor of the body and the axis along its width."""
    last_output = source
    for stage in head.stages:
        build = Builder({**sizes, "n": stage.classes}, step.widths)
        reads = source if stage.input_from_layers else last_output
        if stage.out == "vocabulary" and not step.parallel.sequence:
            yield from replicated_input(build, step, "head", f"{reads[0]}[{ROWS[stage.rows]} {reads[1]}]")
        yield from dense(build, stage, reads, spec)
        if stage.out == "vocabulary":
            yield from gathered(build, step, ROWS[stage.rows])
        last_output = ("h", WIDTH_AXES[stage.out])


def gathered(build: Builder, step: Step, rows: str) -> Iterator[Operator]:
    """The all-gather of logits if the vocabulary is sharded. Training needs none: each GPU sums its own shard."""
    gpus = step.parallel.tp
    if not step.parallel.unsharded and step.phase != "train":
        gathered_build = build._replace(sizes={**build.sizes, "V": gpus * build.sizes["v"]})
        yield gathered_build.exchange(
            "head.all_gather", f"logits[{rows} v] -> logits[{rows} V]", Collective("all_gather", gpus)
        )


ROWS = {"tokens": "b t", "logits": "b l", "first": "b"}
WIDTH_AXES = {"hidden": "d'", "embedding": "e", "vocabulary": "v", "classes": "n", "pooler": "n"}


def dense(build: Builder, stage: HeadStage, source: tuple[str, str], spec: Norm | None) -> Iterator[Operator]:
    """One dense stage of a head. The matrix before the logits is named E_, since quantization does not apply to it."""
    rows, out, (tensor, width) = ROWS[stage.rows], WIDTH_AXES[stage.out], source
    if stage.out == "vocabulary":
        matrix = f"E_token[v {width}]" if stage.tied else f"E_{stage.name}[v {width}]"
    else:
        matrix = f"W_{stage.name}[{width} {out}]"
    bias = f" + B_{stage.name}[{out}]" if stage.bias else ""
    result = f"{'logits' if stage.out == 'vocabulary' else 'h'}[{rows} {out}]"
    yield build.operator(f"head.{stage.name}", "head", f"{tensor}[{rows} {width}] {matrix}{bias} -> {result}")
    if stage.activation:
        yield build.operator(
            f"head.{stage.name}_activation", "head", f"{result} -> {result}", kind="elementwise",
            flops=vector_flops.ACTIVATION[stage.activation],
        )  # fmt: skip
    if stage.norm and spec:
        closing_norm = norm(build, stage.name, spec, result, result)
        yield replace(closing_norm, name=f"head.{stage.name}_norm", group="head")
