"""Labels of operators and of their groups in tables and pictures."""

from __future__ import annotations

import re
from dataclasses import replace

from roofmodel.counting.operator import Operator

LABELS = {
    "embedding.token": "token lookup",
    "embedding.type": "token-type lookup",
    "embedding.add_type": "add token types",
    "embedding.position": "position lookup",
    "embedding.add_position": "add positions",
    "embedding.relative": "relative position lookup",
    "embedding.project": "projection to hidden size",
    "embedding.layers": "per-layer lookup",
    "embedding.layers_project": "projection to per-layer inputs",
    "embedding.layers_add": "add per-layer inputs",
    "embedding.all_reduce": "all-reduce of embeddings",
    "embedding.reduce_scatter": "reduce-scatter of embeddings",
    "embedding.reduce_scatter.grad": "all-gather of embedding gradients",
    "attention.all_gather": "all-gather before attention",
    "attention.all_gather.grad": "reduce-scatter before attention",
    "attention.reduce_scatter": "reduce-scatter after attention",
    "attention.reduce_scatter.grad": "all-gather after attention",
    "attention.all_reduce": "all-reduce after attention",
    "attention.kv.ring": "ring of keys and values",
    "attention.kv.ring.grad": "ring of their gradients",
    "attention.kv.all_gather": "all-gather of keys and values",
    "attention.kv.all_gather.grad": "reduce-scatter of their gradients",
    "attention.heads.alltoall": "all-to-all from tokens to heads",
    "attention.heads.alltoall.grad": "all-to-all of their gradients",
    "attention.output_heads.alltoall": "all-to-all from heads to tokens",
    "attention.output_heads.alltoall.grad": "all-to-all of output gradients",
    "attention.replicate": "all-reduce before attention",
    "attention.q.replicate": "all-reduce before Q projection",
    "attention.asked.replicate": "all-reduce of the Q latent",
    "attention.latent.replicate": "all-reduce of the KV latent",
    "attention.source.replicate": "all-reduce of the encoder output",
    "mlp.all_gather": "all-gather before the MLP",
    "mlp.all_gather.grad": "reduce-scatter before the MLP",
    "mlp.reduce_scatter": "reduce-scatter after the MLP",
    "mlp.reduce_scatter.grad": "all-gather after the MLP",
    "mlp.all_reduce": "all-reduce after the MLP",
    "mlp.latent.all_reduce": "all-reduce of the experts' latent",
    "mlp.replicate": "all-reduce before the MLP",
    "mlp.dispatch": "all-to-all dispatch to experts",
    "mlp.collect": "all-to-all combine from experts",
    "mlp.permute": "permute tokens by expert",
    "mlp.zero_experts": "experts without computation",
    "experts.all_reduce": "all-reduce after the experts",
    "experts.replicate": "all-reduce before the experts",
    "convolution.all_reduce": "all-reduce after the convolution",
    "convolution.replicate": "all-reduce before the convolution",
    "ssm.all_reduce": "all-reduce after the SSM",
    "ssm.replicate": "all-reduce before the SSM",
    "ssm.select.all_reduce": "all-reduce of dt, B, C",
    "ssm.select.replicate": "all-reduce of dt, B, C",
    "linear.all_reduce": "all-reduce after linear attention",
    "linear.replicate": "all-reduce before linear attention",
    "head.all_gather": "all-gather of logits",
    "head.replicate": "all-reduce before the LM head",
    "head.input.all_gather": "all-gather before the LM head",
    "head.input.all_gather.grad": "reduce-scatter before the LM head",
    "head.loss_largest.all_reduce": "all-reduce of maximum logits",
    "head.loss_sum.all_reduce": "all-reduce of softmax sums",
    "head.loss_target.all_reduce": "all-reduce of target logits",
    "gradients.all_reduce": "all-reduce of gradients",
    "gradients.expert_all_reduce": "all-reduce of expert gradients",
    "gradients.reduce_scatter": "reduce-scatter of gradients",
    "gradients.expert_reduce_scatter": "reduce-scatter of expert gradients",
    "weights.all_gather": "all-gather of updated weights",
    "weights.expert_all_gather": "all-gather of updated expert weights",
    "shards.all_gather": "all-gather of a layer's weights",
    "shards.root_all_gather": "all-gather of weights outside layers",
    "shards.expert_all_gather": "all-gather of a layer's experts",
    "shards.reduce_scatter": "reduce-scatter of a layer's gradients",
    "shards.root_reduce_scatter": "reduce-scatter of gradients outside layers",
    "shards.expert_reduce_scatter": "reduce-scatter of expert gradients",
    "shards.all_reduce": "all-reduce of gradient shards",
    "shards.root_all_reduce": "all-reduce of gradient shards outside layers",
    "shards.expert_all_reduce": "all-reduce of expert gradient shards",
    "gradients.tied_all_reduce": "all-reduce of tied embedding gradients",
    "stage.send": "send activations to the next stage",
    "stage.receive": "send gradients to the previous stage",
    "stage.all_gather": "all-gather of received activations",
    "stage.split": "split of received gradients",
    "attention.qkv": "Q, K, V projection",
    "attention.q": "Q projection",
    "attention.q_down": "Q down-projection",
    "attention.q_up": "Q up-projection",
    "attention.q_concat": "Q latents: concatenation",
    "attention.kv_down": "KV down-projection",
    "attention.kv_up": "KV up-projection",
    "attention.kv_norm": "latent norm",
    "attention.k_rotary_norm": "rotary key norm",
    "attention.absorb_k": "absorbed K up-projection",
    "attention.absorb_v": "absorbed V up-projection",
    "attention.k": "K projection",
    "attention.k_v": "K, V projection",
    "attention.choose": "top-k routing",
    "attention.combine": "weighted sum of attention experts",
    "attention.add_bias": "add bias",
    "attention.v": "V projection",
    "attention.rotary": "rotary embedding",
    "attention.scores": "scores QKᵀ",
    "attention.softmax": "softmax",
    "attention.mix": "weighted sum of V",
    "attention.flash": "attention core (SDPA)",
    "attention.gate_projection": "gate projection",
    "attention.gate": "gate per head",
    "attention.output": "output projection",
    "attention.k_filter": "key filter",
    "attention.v_filter": "value filter",
    "attention.k_taps": "key filter: computed taps",
    "attention.v_taps": "value filter: computed taps",
    "attention.sinks": "computed sinks",
    "attention.relative_states": "relative positions of queries",
    "attention.relative_norm": "norm of relative positions",
    "attention.relative_logits": "terms of distances",
    "convolution.attention_filter": "filter of attention output",
    "convolution.mlp_filter": "filter of MLP output",
    "attention.index_q": "indexer: queries",
    "attention.index_k": "indexer: keys",
    "attention.index_norm": "indexer: key norm",
    "attention.index_q_norm": "indexer: query norm",
    "attention.index_rotary": "indexer: rotary",
    "attention.index_weights": "indexer: weights",
    "attention.index_scores": "indexer: scores",
    "attention.index_choose": "top-k selection",
    "attention.index_q_rotary": "indexer: rotary",
    "attention.index_content": "indexer: content of entries",
    "attention.index_gate": "indexer: weights of entries",
    "attention.index_pool": "indexer: keys of pools",
    "attention.index": "indexer: new entries",
    "attention.kv": "shared K and V projection",
    "attention.q_heads_norm": "norm per query head",
    "attention.compress_content": "content of entries",
    "attention.compress_gate": "weights of entries",
    "attention.compress": "new compressed entries",
    "attention.output_rotary": "inverse rotary embedding",
    "attention.output_down": "output down-projection",
    "attention.position_k": "position keys",
    "attention.position_q": "position queries",
    "ssm.input": "input and gate projection",
    "ssm.filter": "causal convolution",
    "ssm.select": "dt, B, C projection",
    "ssm.low_norm": "dt norm",
    "ssm.enter_norm": "B norm",
    "ssm.leave_norm": "C norm",
    "ssm.step": "dt projection",
    "ssm.output": "output projection",
    "linear.qkv": "Q, K, V projection",
    "linear.q": "Q projection",
    "linear.k": "K projection",
    "linear.v": "V projection",
    "linear.gate": "gate projection",
    "linear.write": "beta projection",
    "linear.forget": "decay projection",
    "linear.forget_down": "decay down-projection",
    "linear.forget_up": "decay up-projection",
    "linear.gate_down": "gate down-projection",
    "linear.gate_up": "gate up-projection",
    "linear.qkv_gate": "Q, K, V, gate projection",
    "linear.write_forget": "beta and decay projection",
    "linear.filter": "causal convolution",
    "linear.norm": "gated norm",
    "linear.heads_norm": "norm per head",
    "linear.gated": "multiply by the gate",
    "linear.output": "output projection",
    "convolution.input": "input and gate projection",
    "convolution.enter": "gate before the convolution",
    "convolution.leave": "gate after the convolution",
    "convolution.output": "output projection",
    "mlp.choose": "top-k routing",
    "mlp.combine": "weighted sum of experts",
    "mlp.add_bias": "add bias",
    "mlp.gate": "gate",
    "mlp.up": "up",
    "mlp.activation": "activation",
    "mlp.down": "down",
    "layer_input.times": "activation and multiply",
    "embedding.streams": "copy to residual streams",
    "embedding.streams_project": "projections to residual streams",
    "mlp.threshold": "threshold of gates",
    "ngrams.lookup": "n-gram lookup",
    "ngrams.keys": "n-gram keys",
    "ngrams.values": "n-gram values",
    "ngrams.gate": "n-gram gate",
    "ngrams.filter": "filter of n-grams",
    "ngrams.add": "add n-grams",
    "embedding.tokens": "prepend learned tokens",
    "embedding.resize_positions": "resize position embeddings",
    "head.pool": "average pooling",
    "head.logits": "LM head",
    "head.project": "projection to embedding size",
}
"""Labels by operator name; another operator is shown by its name."""
MERGED = {"norm": "norms", "activation": "activations", "residual": "residual adds", "bias": "bias gradients"}
"""Groups that are one row: their operators are the same in all places."""
TITLES = {"mlp": "MLP", "input": "per-layer input", "ssm": "SSM", "linear": "linear attention"}
GRADIENTS = {"grad": "", "grad_input": ": dX", "grad_weight": ": dW"}
"""What the last part of a gradient's operator name appends to the label."""


def kind(group: str) -> str:
    """The group without stack and number, which selects its color: `stage` of `stage2`, `attention` of `encoder
    attention`."""
    return group.rstrip("0123456789").rpartition(" ")[2]


def title(group: str) -> str:
    """The name of a group in a table: `MLP`, `stage 1`, `encoder MLP`."""
    stem = group.rstrip("0123456789")
    sort, number = kind(group), group[len(stem) :]
    return f"{stem.removesuffix(sort)}{TITLES.get(sort, sort)} {number}".rstrip()


def merged_label(name: str) -> str:
    """The label of a group that is one row, of any stack; empty for other groups and for operators."""
    sort = kind(name)
    return name.removesuffix(sort) + MERGED[sort] if sort in MERGED else ""


CASTS = ("cast_", "amax_")
"""Beginnings of the last parts of the names of casts (counting/training/recipes.py)."""


def label(operator: Operator) -> str:
    """The name of an operator in a table, with its filter's size if it is a convolution: `shortcut 1×1`."""
    own = operator.name.removeprefix("encoder.").removeprefix("cross_")
    name, _, last = own.rpartition(".")
    if last.startswith(CASTS):
        return _cast_label(operator, name, last)
    if not last.startswith("grad"):
        name, last = own, "grad"
    words = LABELS.get(own) or LABELS.get(name) or name.partition(".")[2].replace("_", " ")
    if operator.kind in ("conv", "pool") and "r" in operator.sizes:
        words += f" {operator.sizes['r']}×{operator.sizes['s']}"
    return words + GRADIENTS.get(last, f": d{last.removeprefix('grad_').upper()}")


def _cast_label(operator: Operator, gemm: str, last: str) -> str:
    """The label of a cast before a GEMM: `Q projection: cast n`, `down: cast dm` in the backward pass."""
    name, is_gradient, _ = gemm.partition(".grad")
    step, _, tensor = last.partition("_")
    words = label(replace(operator, name=name))
    return f"{words}: {step} {'d' * bool(is_gradient)}{tensor}"


def operator_name(words: str) -> str:
    """The name that `--op` takes for a label or a group in a table, in any case; other text is read as a name.

    `communication: all-reduce after attention` -> `attention.all_reduce`, `norm: final` -> `norm.final`, `linear
    attention` -> `linear`. Where several operators share a label, the common end of their names.
    """
    groups = {text.lower(): group for group, text in TITLES.items()}
    stack = "encoder." if words.lower().startswith("encoder ") else ""
    if (group := words.lower()[len(stack) :]) in groups:
        return stack + groups[group]
    wanted = group.rpartition(": ")[2]
    names = [name for name, text in (LABELS | MERGED).items() if text.lower() == wanted]
    ends = {name.rpartition(".")[2] for name in names}
    if not names:
        numbered = re.sub(r"^stage (?=\d)", "stage", words, flags=re.IGNORECASE)
        return stack + numbered[len(stack) :].replace(": ", ".").replace(" ", "_")
    return ends.pop() if len(ends) == 1 < len(names) else stack + names[0]
