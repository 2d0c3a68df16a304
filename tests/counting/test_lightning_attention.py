"""Lightning attention (a fixed decay per head): counts derived by hand.

B = 2 sequences, T = 70 new tokens, D = hidden size 8; 2 heads of size 4; two full blocks of 32 tokens and one of 6.
"""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting import phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import kv_cache_bytes
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.models.config import architecture

CONFIG = {
    "model_type": "minimax", "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 11, "num_attention_heads": 2,
    "num_key_value_heads": 1, "intermediate_size": 6, "num_local_experts": 2, "num_experts_per_tok": 1,
    "block_size": 32,
}  # fmt: skip
STATES = 2 * 4 * 4  # elements of a sequence's state


def operators(phase: Any, attention: Any, context: int | None = None, tokens: int = 70, tp: int = 1) -> list[Operator]:
    work = Workload((phase,), 2, tokens, context, attention=attention, logits="all", parallel=Parallel(tp=tp))
    return list(phases.operators(architecture(CONFIG, "x", "x"), work.steps()[0]))


def count(*arguments: Any, **settings: Any) -> dict[str, Operator]:
    return {op.name: op for op in operators(*arguments, **settings)}


def test_a_fused_scan_computes_the_pairs_of_each_block_and_passes_states_between_blocks() -> None:
    scan = count("prefill", "flash")["linear.scan"]
    pairs = 2 * (32 * 33 // 2) + 6 * 7 // 2
    scores_and_mix = 2 * (2 * 2 * 2 * pairs * 4)  # 2 FLOPs, 2 sequences, 2 heads of size 4
    states = 2 * (2 * 2 * 70 * STATES)  # per token: update of the state, query x first state of the block
    assert scan.cost.matmul_flops == scores_and_mix + states
    assert scan.cost.bytes_read == 2 * (2 * 70 * 3 * 2 * 4)  # queries, keys, values
    assert scan.cost.bytes_written == 2 * 2 * (70 * 2 * 4 + STATES)


def test_a_decode_reads_and_writes_states_of_constant_size() -> None:
    scan = count("decode", "flash", 1000)["linear.scan"]
    assert scan.cost.matmul_flops == 0
    assert scan.cost.vector_flops == 2 * 5 * STATES  # * decay, key * value, +, * query, +
    assert scan.cost.cache_bytes == 2 * 2 * STATES
    arch = architecture(CONFIG, "x", "x")
    for context in (1, 1000):
        expected = 2 * 2 * (STATES + (context + 1) * 2 * 4)  # and keys and values of one head in the other layer
        assert kv_cache_bytes(arch, Workload(("decode",), 2, context=context).steps()[0]) == expected


def test_the_reference_code_continues_from_a_state_token_by_token() -> None:
    ops = count("prefill", "eager", 9)
    assert "linear.scores" not in ops
    for name in ("linear.states", "linear.read_out"):
        assert ops[name].cost.matmul_flops == 2 * 2 * 70 * STATES


def test_tensor_parallelism_shards_the_heads() -> None:
    whole, half = count("prefill", "flash"), count("prefill", "flash", tp=2)
    for name in ("linear.qkv", "linear.scan", "linear.gate", "linear.output"):
        assert 2 * half[name].cost.matmul_flops == whole[name].cost.matmul_flops


@pytest.mark.parametrize("tokens", [6, 32, 64, 70])
def test_flops_of_several_blocks_equal_those_of_the_class(tokens: int) -> None:
    """Also a training step: the state of the first block is zero, and what the last block adds to it is not read."""
    pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")
    from tests import oracle

    model = oracle.build({**CONFIG, "architectures": ["MiniMaxForCausalLM"]})
    trained = operators("train", "eager", tokens=tokens)
    assert sum(op.total.matmul_flops for op in trained) == oracle.training_flops(model, 2, tokens)
    for context in (None, 40):
        ours = sum(op.total.matmul_flops for op in operators("prefill", "eager", context, tokens))
        assert ours == oracle.matmul_flops(model, 2, tokens, context or 0)
