"""Linear attention by the delta rule: counts derived by hand, and FLOPs of the reference code in transformers.

B = 2 sequences, T = 70 new tokens, D = hidden size 8; 2 key heads of size 3, 4 value heads of size 5, a filter of width
4; two chunks: one full (64 tokens) and one of 6 tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roofmodel.counting import phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import kv_cache_bytes
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.models.config import architecture
from roofmodel.models.layers import Attention

CONFIG = {
    "model_type": "qwen3_next", "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 11, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 4, "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3, "linear_value_head_dim": 5,
    "linear_conv_kernel_dim": 4, "num_experts": 0, "intermediate_size": 6,
}  # fmt: skip
KIMI = {
    "model_type": "kimi_linear", "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 11, "num_attention_heads": 2,
    "linear_num_heads": 4, "linear_head_dim": 3, "layer_types": ["linear_attention", "full_attention"],
    "mlp_layer_types": ["dense", "dense"], "kv_lora_rank": 6, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2,
    "v_head_dim": 4, "intermediate_size": 6,
}  # fmt: skip
STATES = 4 * 3 * 5  # elements of a sequence's state
COLUMNS = 2 * 2 * 3 + 4 * 5  # queries and keys, values
PAIRS = 64 * 65 // 2 + 6 * 7 // 2  # of a token with itself and earlier tokens of its chunk


def operators(
    phase: Any, attention: Any, context: int | None = None, tokens: int = 70, tp: int = 1, config: Any = CONFIG
) -> list[Operator]:
    work = Workload((phase,), 2, tokens, context, attention=attention, logits="all", parallel=Parallel(tp=tp))
    return list(phases.operators(architecture(config, "x", "x"), work.steps()[0]))


def count(*arguments: Any, **settings: Any) -> dict[str, Operator]:
    return {op.name: op for op in operators(*arguments, **settings)}


def test_a_fused_scan_computes_the_pairs_of_each_chunk_and_passes_states_between_chunks() -> None:
    scan = count("prefill", "flash")["linear.scan"]
    overlaps_and_scores = 2 * (2 * 2 * 2 * PAIRS * 3)  # 2 FLOPs, 2 sequences, 2 key heads of size 3
    values_and_mix = 2 * (2 * 2 * 4 * PAIRS * 5)  # 4 value heads of size 5
    keys = 2 * 2 * 4 * PAIRS * 3
    states = 3 * (2 * 2 * 70 * STATES)  # per token: key x first state, query x first state, update
    assert scan.cost.matmul_flops == overlaps_and_scores + values_and_mix + keys + states
    # queries, keys, values; write strength and decay; A and the bias of the step
    assert scan.cost.bytes_read == 2 * (2 * 70 * (COLUMNS + 2 * 4) + 2 * 4)
    assert scan.cost.bytes_written == 2 * 2 * (70 * 4 * 5 + STATES)


def test_the_inverse_of_a_triangular_matrix_is_computed_row_by_row() -> None:
    """Row i of the inverse is a weighted sum of the rows j < i, each with j elements: 2 FLOPs per element."""
    rows = sum(2 * sum(j for j in range(i)) for i in range(64)) + sum(2 * sum(j for j in range(i)) for i in range(6))
    (invert,) = (part for part in count("prefill", "flash")["linear.scan"].parts if part.name == "linear.invert")
    assert invert.vector_flops == 2 * 4 * rows


def test_the_gradient_of_the_inverse_is_two_triangular_matrix_multiplications() -> None:
    """T = (I + A)^-1 with A strictly lower triangular, so dA is the strict lower triangle of -T' G T'.

    T has ones on its diagonal, so each of the two multiplications has one multiply-add per triple of tokens i < j < k.
    """

    def gradient(inverse: Any, output_gradient: Any) -> tuple[Any, int]:
        n, flops = len(inverse), 0
        right, result = np.tril(output_gradient, -1), np.zeros((n, n))
        for p in range(n):
            for j in range(p):  # G T': rows p > j
                for q in range(j):
                    right[p, j] += output_gradient[p, q] * inverse[j, q]
                    flops += 2
        for i in range(n):
            for j in range(i):  # T' (G T')
                result[i, j] = right[i, j]
                for p in range(i + 1, n):
                    result[i, j] += inverse[p, i] * right[p, j]
                    flops += 2
        return -result, flops

    random = np.random.default_rng(0)
    system, output_gradient = (np.tril(random.normal(size=(6, 6)), -1) for _ in range(2))

    def loss(system: Any) -> float:
        return float((output_gradient * np.linalg.inv(np.eye(6) + system)).sum())

    computed, _ = gradient(np.linalg.inv(np.eye(6) + system), output_gradient)
    for i in range(6):
        for j in range(i):
            step = np.zeros((6, 6))
            step[i, j] = 1e-6
            assert (loss(system + step) - loss(system - step)) / 2e-6 == pytest.approx(
                computed[i, j], rel=1e-5, abs=1e-6
            )

    rows = sum(gradient(np.eye(n), np.eye(n))[1] for n in (64, 6))  # T = 70: chunks of 64 and 6 tokens
    scan = next(op for op in operators("train", "flash") if op.name == "linear.scan.grad")
    (invert,) = (part for part in scan.parts if part.name == "linear.invert.grad")
    assert invert.vector_flops == 2 * 4 * rows  # 2 sequences, 4 value heads


def test_a_decode_is_vector_work_that_reads_and_writes_the_state_once() -> None:
    scan = count("decode", "flash", 1000)["linear.scan"]
    assert scan.cost.matmul_flops == 0
    assert scan.cost.cache_bytes == 2 * 2 * STATES
    assert scan.cost.bytes_written == 2 * 2 * (STATES + 4 * 5)
    # per element of the state, 7: * decay, * key, +, key * update, +, * query, +
    # per value, 2: - predicted value, * write strength; per query element, 7: norms of query and key 2 * 3, * scale
    # per head, 9: sigmoid 3, step + bias 1, softplus 3, * A 1, exp 1
    assert scan.cost.vector_flops == 2 * (7 * STATES + 2 * 4 * 5 + 7 * 2 * 3 + 9 * 4)


def test_a_hybrids_cache_has_constant_states_and_growing_keys_and_values() -> None:
    arch = architecture(CONFIG, "x", "x")
    for context in (1, 1000):
        kv_elements = (context + 1) * 2 * 4  # keys and values of one head of 4, in the other layer
        expected = 2 * 2 * (STATES + 4 * COLUMNS + kv_elements)  # fp16, 2 sequences; the filter's last 4 tokens
        assert kv_cache_bytes(arch, Workload(("decode",), 2, context=context).steps()[0]) == expected


def test_gated_attention_has_a_gate_as_wide_as_the_queries() -> None:
    ops = count("prefill", "flash")
    assert ops["attention.q"].cost.matmul_flops == 2 * (2 * 70) * 8 * (2 * 2 * 4)
    assert ops["attention.gate"].cost.vector_flops == (3 + 1) * 2 * 70 * 2 * 4  # sigmoid 3, multiplication 1


def test_tensor_parallelism_shards_key_and_value_heads() -> None:
    whole, half = count("prefill", "flash"), count("prefill", "flash", tp=2)
    for name in ("linear.qkv_gate", "linear.write_forget", "linear.filter", "linear.scan", "linear.output"):
        assert 2 * half[name].cost.matmul_flops == whole[name].cost.matmul_flops
    assert half["linear.all_reduce"].cost.link_bytes == 2 * 70 * 8 * 2  # a ring of two sends each half of it twice


@pytest.mark.parametrize("tokens", [64, 70, 200])
def test_a_training_step_of_several_chunks_takes_the_flops_of_the_class(tokens: int) -> None:
    pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")
    from tests import oracle

    model = oracle.build({**CONFIG, "architectures": ["Qwen3NextForCausalLM"]})
    ours = sum(op.total.matmul_flops for op in operators("train", "eager", tokens=tokens))
    assert ours == oracle.training_flops(model, 2, tokens)


@pytest.mark.parametrize("tokens", [1, 20, 64, 70, 200])
def test_the_gemms_with_the_inverse_equal_those_of_the_exported_class(
    monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """Without export, the class calls a triangular solver that torch's counter lacks (`oracle.flop_counter`)."""
    pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    modeling = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next", reason="it is the oracle")
    from torch.utils.flop_counter import FlopCounterMode

    from tests import oracle

    monkeypatch.setattr(modeling, "is_torchdynamo_exporting", lambda: True)
    monkeypatch.setattr(oracle, "flop_counter", lambda: FlopCounterMode(display=False))
    model = oracle.build({**CONFIG, "architectures": ["Qwen3NextForCausalLM"]})
    ours = sum(op.total.matmul_flops for op in operators("prefill", "eager", tokens=tokens))
    assert ours == oracle.matmul_flops(model, 2, tokens)


def test_elementwise_decay_uses_gemms_in_the_kernel_and_pairwise_sums_in_the_class() -> None:
    """4 heads of size 3. Value heads do not share the GEMM of keys, because their keys decay differently."""
    scan, parts = count("prefill", "flash", config=KIMI)["linear.scan"], count("prefill", "eager", config=KIMI)
    elements = 2 * 4 * 3  # 2 sequences, 4 heads of 3
    assert scan.cost.matmul_flops == 2 * elements * (5 * PAIRS + 3 * 70 * 3)
    assert scan.cost.bytes_read == 2 * (70 * (3 * elements + elements + 2 * 4) + 4 * 3 + 4)
    squares = 2 * 64 * 64  # two chunks; the second one is padded
    # overlap, 5: subtract, exp, 2 multiplications, add; scores, 3: subtract and exp are reused
    assert parts["linear.overlap"].cost.vector_flops == 5 * elements * squares
    assert parts["linear.scores"].cost.vector_flops == 3 * elements * squares
    assert parts["linear.overlap"].cost.matmul_flops == parts["linear.scores"].cost.matmul_flops == 0


def test_decay_and_gate_of_kimi_are_low_rank_projections() -> None:
    ops = count("prefill", "flash", config=KIMI)
    for name in ("forget", "gate"):
        assert ops[f"linear.{name}_down"].cost.matmul_flops == 2 * (2 * 70) * 8 * 3  # the rank is the size of a head
        assert ops[f"linear.{name}_up"].cost.matmul_flops == 2 * (2 * 70) * 3 * (4 * 3)


def test_latent_attention_of_kimi_caches_the_shared_key_without_rotary_embedding() -> None:
    ops = count("decode", "flash", 9, config=KIMI)
    assert "attention.rotary" not in ops
    assert ops["attention.flash"].cost.cache_bytes == 2 * 2 * 10 * (6 + 2)  # 2 sequences, latent of 6, key of 2


def test_ling_gates_the_output_of_each_latent_attention_head() -> None:
    ling = {**KIMI, "model_type": "bailing_hybrid", "head_dim": 3}
    ops = count("decode", "flash", 9, config=ling)
    assert ops["attention.gate_projection"].cost.matmul_flops == 2 * 2 * 8 * 2
    assert ops["attention.gate"].cost.vector_flops == 2 * 2 * (3 + 4)  # per head: sigmoid 3, 4 multiplications
    assert "attention.rotary" in ops


def test_norms_of_olmo_hybrid_are_before_linear_attention_and_after_full_attention() -> None:
    config = {
        "model_type": "olmo_hybrid", "hidden_size": 8, "num_hidden_layers": 4, "vocab_size": 11,
        "num_attention_heads": 2,
    }  # fmt: skip
    for rope, rotary_dim in (({}, 4), ({"rope_parameters": {"rope_theta": None}}, 0)):
        arch = architecture(config | rope, "x", "x")
        for layer in arch.stack.layers[:3]:
            assert all(branch.before and not branch.after for sub in layer for branch in sub.branches)
        assert all(branch.after and not branch.before for sub in arch.stack.layers[3] for branch in sub.branches)
        (attention,) = arch.stack.layers[3][0].branches
        assert isinstance(attention.part, Attention)
        assert attention.part.rotary_dim == rotary_dim
