"""Gates on the normed input of attention and experts, and on attention by its up-projection of queries (A.X K2)."""

from __future__ import annotations

from typing import Any

from roofmodel.counting.blocks import operators
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.models.config import architecture

BATCH, TOKENS, HIDDEN, RANK, HEADS, NOPE, ROTARY, VALUE, LATENT = 2, 8, 32, 5, 4, 6, 2, 7, 12
CONFIG = {
    "model_type": "axk2", "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "vocab_size": 50, "q_lora_rank": LATENT, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROTARY,
    "v_head_dim": VALUE, "gated_norm_rank": RANK, "n_routed_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
ARCH = architecture(CONFIG, "drawn", "config.json")


def layers(**parallel: Any) -> dict[str, Operator]:
    """The operators of a dense layer and of one with experts, by name; those of the latter, if both have one."""
    work = Workload(("train" if parallel else "prefill",), BATCH, TOKENS, parallel=Parallel(**parallel))
    return {op.name: op for op in operators(ARCH, work.steps()[0])}


def test_a_dense_mlp_has_no_gate_on_its_norm() -> None:
    every = operators(ARCH, Workload(("prefill",), BATCH, TOKENS).steps()[0])
    gated = [(op.name, op.layers) for op in every if op.name.endswith("_gate_up")]
    # the first layer is dense by default
    assert gated == [
        ("norm.attention_gate_up", (0,)), ("norm.attention_gate_up", (1,)), ("norm.mlp_gate_up", (1,)),
        ("mlp.expert_gate_up", (1,)),
    ]  # fmt: skip


def test_a_gate_multiplies_each_element_of_the_normed_input_by_the_sigmoid_of_another_one() -> None:
    gate = layers()["norm.attention_gate"]
    elements = BATCH * TOKENS * HIDDEN
    assert gate.vector_flops == elements * (1 + 3)  # the product 1, the sigmoid 3
    assert sum(map(gate.bytes_of, gate.reads)) == 2 * elements * 2  # two tensors in fp16
    assert sum(map(gate.bytes_of, gate.writes)) == elements * 2


def test_gpus_of_a_tensor_parallel_group_compute_the_gates_of_their_own_tokens() -> None:
    gate = layers(tp=2, sequence=True)["norm.attention_gate_up"]
    assert gate.matmul_flops == 2 * BATCH * (TOKENS // 2) * RANK * HIDDEN
    assert sum(t.elements(gate.sizes) for t in gate.parameters) == RANK * HIDDEN


def test_the_up_projection_reads_the_query_latent_before_and_after_its_norm() -> None:
    counted = layers()
    concat, up = counted["attention.q_concat"], counted["attention.q_up"]
    latents = BATCH * TOKENS * 2 * LATENT
    assert (concat.matmul_flops, concat.vector_flops) == (0, 0)
    assert [sum(map(concat.bytes_of, tensors)) for tensors in (concat.reads, concat.writes)] == [2 * latents] * 2
    assert up.matmul_flops == 2 * latents * HEADS * (NOPE + ROTARY + VALUE)
    assert counted["attention.index_q"].reads[0].elements(up.sizes) == latents / 2  # the indexer reads the normed one
