"""Which operators the backward pass repeats, so that their results are not kept (`--recompute`).

`selective` recomputes the scores and the softmax of attention, `full` keeps only the input of each layer (Korthikanti
et al., arXiv 2205.05198). `selective:MODULES` recomputes modules of each layer, as Megatron-Core does
(`--recompute-modules`, megatron/core/transformer/transformer_config.py):

- `attention`: the core of attention, with flash attention its kernel (`core_attn`). Its result is kept, because the
  output projection needs it.
- `mlp`: an MLP without experts, with its GEMMs (`mlp`).
- `activation`: the function between the GEMMs of an MLP or of experts (`moe_act`).
- `norm`: the norms before attention and MLP (`layernorm`).
- `moe`: a layer of experts with its router, the exchange of its tokens and shared experts (`moe`).
- `op`: torchtitan's selective checkpointing by operator (torchtitan/distributed/activation_checkpoint.py): the results
  of attention, of collectives that reduce or exchange and of the first, third, ... GEMM of each layer are kept,
  everything else is repeated.

What a module recomputes is available to the gradients of the operators that read it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from roofmodel.counting.operator import Operator

SCORE_KINDS = ("bmm", "softmax", "dropout")
"""Kinds of the attention operators on scores, whose size is quadratic in the length."""
_OF_EXPERTS = re.compile(r"mlp\.(?:router|choose|expert|permute|dispatch|collect|combine|zero_experts|shared)")
_KEPT_KINDS = ("gemm", "grouped_gemm", "attention")


def runs_forward(operator: Operator) -> bool:
    """Whether the forward pass runs the operator: some collectives only exist for their gradient."""
    return operator.collective is None or operator.collective.moves


def gathers_tokens(operator: Operator) -> bool:
    """Whether the operator gathers the tokens that sequence parallelism shards."""
    return operator.collective is not None and operator.collective.adds


def is_core_attention(operator: Operator) -> bool:
    """Whether the operator is between the projections of attention, as one kernel or as several on scores."""
    return operator.group.endswith("attention") and operator.kind in (*SCORE_KINDS, "attention")


def recomputed_operators(
    operators: Sequence[Operator], differentiated: Sequence[set[str]], recompute: str
) -> Iterator[bool]:
    """Whether the backward pass repeats each operator instead of keeping its output.

    With sequence and context parallelism, this includes the exchange of tokens, or of keys and values.
    `differentiated` are the inputs of each operator that need a gradient.
    """
    modules = _modules(recompute)
    gemms = Counter[object]()
    for operator, wanted in zip(operators, differentiated, strict=True):
        in_layer = operator.layers is not None and recompute != "none" and runs_forward(operator)
        gemms[operator.group.startswith("encoder "), operator.layers] += operator.kind == "gemm"
        is_second = not gemms[operator.group.startswith("encoder "), operator.layers] % 2
        repeated = recompute == "full" or (bool(wanted) and any(_is_in(operator, name, is_second) for name in modules))
        yield gathers_tokens(operator) or (in_layer and repeated)


def saves_result(operator: Operator, repeated: bool, recompute: str) -> bool:
    """Whether a result is kept although no gradient may read it: selective checkpointing by operator keeps all."""
    return "op" in _modules(recompute) and not repeated and bool(operator.layers) and operator.kind in _KEPT_KINDS


def _modules(recompute: str) -> list[str]:
    if recompute == "selective":
        return ["scores"]
    return re.split(r"[+,]", recompute.partition(":")[2]) if ":" in recompute else []


def _is_in(operator: Operator, module: str, is_second: bool) -> bool:
    """Whether a module has the operator; `is_second`: the layer has an even number of GEMMs up to it."""
    kind, name = operator.kind, operator.name
    if module in ("scores", "attention"):
        return is_core_attention(operator) and (module == "attention" or kind in SCORE_KINDS)
    if module == "op":
        if kind == "gemm":
            return is_second
        return operator.collective is None and kind not in _KEPT_KINDS
    if module == "activation":
        return kind == "elementwise" and operator.group.endswith("mlp") and name.endswith("activation")
    if module == "norm":
        return kind == "norm" and operator.group.endswith("norm")
    if _OF_EXPERTS.search(name):
        return module == "moe"
    return module == "mlp" and operator.group.endswith("mlp")
