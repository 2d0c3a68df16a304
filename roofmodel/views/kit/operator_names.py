"""What a person calls operators and their groups."""

from __future__ import annotations

from roofmodel.counting.operator import Operator

# What a person calls an operator; a name that is not here is read as it stands.
LABELS = {
    "embedding.token": "token rows",
    "embedding.type": "token-type rows",
    "embedding.add_type": "add token types",
    "embedding.position": "position rows",
    "embedding.add_position": "add positions",
    "embedding.relative": "relative positions",
    "embedding.project": "to hidden size",
    "embedding.layers": "rows for the layers",
    "embedding.layers_project": "to the layers' inputs",
    "embedding.layers_add": "sum of the layers' inputs",
    "embedding.all_reduce": "all-reduce of token rows",
    "embedding.reduce_scatter": "reduce-scatter of token rows",
    "embedding.reduce_scatter.grad": "all-gather of token rows",
    "attention.all_gather": "all-gather ahead of attention",
    "attention.all_gather.grad": "reduce-scatter ahead of attention",
    "attention.reduce_scatter": "reduce-scatter of attention",
    "attention.reduce_scatter.grad": "all-gather of attention",
    "attention.all_reduce": "all-reduce of attention",
    "attention.replicate": "all-reduce ahead of attention",
    "attention.q.replicate": "all-reduce ahead of queries",
    "attention.asked.replicate": "all-reduce of the latent of q",
    "attention.latent.replicate": "all-reduce of the latent of k, v",
    "attention.source.replicate": "all-reduce of the source",
    "mlp.all_gather": "all-gather ahead of the MLP",
    "mlp.all_gather.grad": "reduce-scatter ahead of the MLP",
    "mlp.reduce_scatter": "reduce-scatter of the MLP",
    "mlp.reduce_scatter.grad": "all-gather of the MLP",
    "mlp.all_reduce": "all-reduce of the MLP",
    "mlp.replicate": "all-reduce ahead of the MLP",
    "mlp.dispatch": "tokens to their experts",
    "mlp.collect": "tokens back from experts",
    "mlp.permute": "tokens by expert",
    "experts.all_reduce": "all-reduce of experts",
    "experts.replicate": "all-reduce ahead of experts",
    "convolution.all_reduce": "all-reduce of filters",
    "convolution.replicate": "all-reduce ahead of filters",
    "ssm.all_reduce": "all-reduce of the state space",
    "ssm.replicate": "all-reduce ahead of the state space",
    "ssm.select.all_reduce": "all-reduce of time step, B, C",
    "ssm.select.replicate": "all-reduce of time step, B, C",
    "linear.all_reduce": "all-reduce of linear attention",
    "linear.replicate": "all-reduce ahead of linear attention",
    "head.all_gather": "logits of all GPUs",
    "head.replicate": "all-reduce ahead of logits",
    "head.input.all_gather": "all-gather ahead of logits",
    "head.input.all_gather.grad": "reduce-scatter ahead of logits",
    "head.loss_largest.all_reduce": "all-reduce of largest logits",
    "head.loss_sum.all_reduce": "all-reduce of sums",
    "head.loss_target.all_reduce": "all-reduce of targets' logits",
    "gradients.all_reduce": "all-reduce of gradients",
    "gradients.expert_all_reduce": "all-reduce of experts' gradients",
    "gradients.tied_all_reduce": "all-reduce of the table's gradients",
    "stage.send": "rows to the next stage",
    "stage.receive": "gradients to the stage before",
    "stage.all_gather": "rows of the stage before",
    "stage.split": "gradients of the next stage",
    "attention.qkv": "q, k, v projection",
    "attention.q": "q projection",
    "attention.q_down": "q to its latent",
    "attention.q_up": "q from its latent",
    "attention.kv_down": "k, v to their latent",
    "attention.kv_up": "k, v from their latent",
    "attention.kv_norm": "latent norm",
    "attention.absorb_k": "q to the latent of k",
    "attention.absorb_v": "v from the latent",
    "attention.k": "k projection",
    "attention.v": "v projection",
    "attention.rotary": "rotary embedding",
    "attention.scores": "scores q·kᵀ",
    "attention.softmax": "softmax",
    "attention.mix": "mix p·v",
    "attention.flash": "scores, softmax, mix",
    "attention.gate_projection": "gate projection",
    "attention.gate": "gate on heads",
    "attention.output": "output projection",
    "attention.index_q": "indexer: queries",
    "attention.index_k": "indexer: keys",
    "attention.index_norm": "indexer: norm of keys",
    "attention.index_rotary": "indexer: rotary",
    "attention.index_weights": "indexer: weights",
    "attention.index_scores": "indexer: scores",
    "attention.index_choose": "choice of tokens",
    "attention.position_k": "keys of positions",
    "attention.position_q": "queries of positions",
    "ssm.input": "input and gate projection",
    "ssm.filter": "causal filter",
    "ssm.select": "time step, B, C projection",
    "ssm.low_norm": "time step norm",
    "ssm.enter_norm": "B norm",
    "ssm.leave_norm": "C norm",
    "ssm.step": "time step projection",
    "ssm.output": "output projection",
    "linear.qkv": "q, k, v projection",
    "linear.q": "q projection",
    "linear.k": "k projection",
    "linear.v": "v projection",
    "linear.gate": "gate projection",
    "linear.write": "writing projection",
    "linear.forget": "decay projection",
    "linear.forget_down": "decay to its low rank",
    "linear.forget_up": "decay from its low rank",
    "linear.gate_down": "gate to its low rank",
    "linear.gate_up": "gate from its low rank",
    "linear.qkv_gate": "q, k, v and gate projection",
    "linear.write_forget": "writing and decay projection",
    "linear.filter": "causal filter",
    "linear.norm": "gated norm",
    "linear.heads_norm": "norm over heads",
    "linear.gated": "times the gate",
    "linear.output": "output projection",
    "convolution.input": "gates and input projection",
    "convolution.enter": "gate ahead of the filter",
    "convolution.leave": "gate behind the filter",
    "convolution.output": "output projection",
    "mlp.choose": "choice of experts",
    "mlp.combine": "sum of experts",
    "mlp.gate": "gate",
    "mlp.up": "up",
    "mlp.activation": "activation",
    "mlp.down": "down",
    "layer_input.times": "activation, times the input",
    "embedding.tokens": "learned tokens ahead",
    "embedding.resize_positions": "resize positions",
    "head.pool": "mean over pixels",
    "head.logits": "logits",
    "head.project": "to embedding size",
}
# Groups whose operators are one and the same thing in several places: one row for all.
MERGED = {"norm": "norms", "activation": "activations", "residual": "residual sums", "bias": "bias gradients"}
TITLES = {"mlp": "MLP", "input": "the layer's own input", "ssm": "state space", "linear": "linear attention"}
# What a person calls a gradient, by the last part of its operator's name.
GRADIENTS = {"grad": "", "grad_input": ": dX", "grad_weight": ": dW"}


def kind(group: str) -> str:
    """What sort of group it is, by which colour goes: `stage` of `stage2`, `attention` of `encoder attention`."""
    return group.rstrip("0123456789").rpartition(" ")[2]


def title(group: str) -> str:
    """A group as a person writes it: `MLP`, `stage 1`, `encoder MLP`."""
    stem = group.rstrip("0123456789")
    sort, number = kind(group), group[len(stem) :]
    return f"{stem.removesuffix(sort)}{TITLES.get(sort, sort)} {number}".rstrip()


def merged_label(name: str) -> str:
    """The label of a group that merges, whichever stack it is in; empty for an operator's name."""
    sort = kind(name)
    return name.removesuffix(sort) + MERGED[sort] if sort in MERGED else ""


def label(operator: Operator) -> str:
    """An operator as a person calls it, with its filter where it slides one: `q projection: dW`, `shortcut 1×1`."""
    own = operator.name.removeprefix("encoder.").removeprefix("cross_")
    name, _, last = own.rpartition(".")
    if not last.startswith("grad"):
        name, last = own, "grad"
    words = LABELS.get(own) or LABELS.get(name) or name.partition(".")[2].replace("_", " ")
    if operator.kind in ("conv", "pool") and "r" in operator.sizes:
        words += f" {operator.sizes['r']}×{operator.sizes['s']}"
    return words + GRADIENTS.get(last, f": d{last.removeprefix('grad_').upper()}")


def called(words: str) -> str:
    """What `--op` takes for what a table says: `communication: all-reduce of attention` -> `attention.all_reduce`, or
    the end of a name, where several operators are called so; `norm: final` -> `norm.final`."""
    names = [name for name, said in (LABELS | MERGED).items() if said == words.rpartition(": ")[2]]
    ends = {name.rpartition(".")[2] for name in names}
    if not names:
        return words.replace(": ", ".").replace(" ", "_")
    return ends.pop() if len(ends) == 1 < len(names) else names[0]
