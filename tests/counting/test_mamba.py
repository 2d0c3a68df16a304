"""State-space models: counts of fused scan, cache and reference code, derived by hand.

B = 2 sequences, T = 5 new tokens, D = hidden size 8. Mamba: 16 channels, state 3, time steps of rank 1, filter of width
4. Mamba-2: 4 heads of size 4 in 2 groups, state 3, chunks of 2 tokens.
"""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import kv_cache_bytes
from roofmodel.counting.phases import operators as phase_operators
from roofmodel.counting.workload import Workload
from roofmodel.models.config import architecture

MAMBA = {
    "model_type": "mamba", "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 11, "state_size": 3,
    "expand": 2, "conv_kernel": 4, "time_step_rank": 1,
}  # fmt: skip
MAMBA2 = {
    "model_type": "mamba2", "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 11, "state_size": 3,
    "expand": 2, "conv_kernel": 4, "num_heads": 4, "head_dim": 4, "n_groups": 2, "chunk_size": 2,
}  # fmt: skip


def count(config: dict[str, Any], phase: Any, attention: Any, context: int | None = None) -> dict[str, Operator]:
    work = Workload((phase,), 2, 5, context, attention=attention, logits="all")
    return {op.name: op for op in operators(architecture(config, "x", "x"), work.steps()[0])}


def test_a_fused_scan_has_no_matmul_flops_and_no_state_traffic() -> None:
    cost = count(MAMBA, "forward", "flash")["ssm.scan"].cost
    channel, state = 2 * 5 * 16, 2 * 5 * 16 * 3
    assert cost.matmul_flops == 0
    # per channel, 12: step + bias 1, softplus 3, step * u 1, D * u 1, + 1, silu of the gate 4, * gate 1
    # per element of the state, 7: step * A, exp, * B, decay * h, +, * C, +
    assert cost.vector_flops == 12 * channel + 7 * state
    # step, u, gate; B and C; A, D and the bias of the step. Written: y
    assert cost.bytes_read == 2 * (3 * channel + 2 * (2 * 5 * 3) + 16 * 3 + 16 + 16)
    assert cost.bytes_written == 2 * channel


def test_the_cache_of_a_state_space_layer_does_not_grow_with_the_context() -> None:
    arch = architecture(MAMBA, "x", "x")
    expected = 2 * 2 * 16 * (3 + 4)  # fp16, 2 sequences, 16 channels: a state of 3 and the filter's last 4 tokens
    for context in (1, 1000):
        assert kv_cache_bytes(arch, Workload(("decode",), 2, context=context).steps()[0]) == expected
    reads = sum(op.total.cache_bytes for op in count(MAMBA, "decode", "flash").values())
    assert reads == expected


def test_the_cache_of_a_state_space_layer_has_states_and_convolution_columns() -> None:
    arch = architecture(MAMBA2, "x", "x")
    columns = 16 + 2 * 2 * 3  # channels, and B and C of 2 groups
    expected = 2 * 2 * (16 * 3 + columns * 4)
    assert kv_cache_bytes(arch, Workload(("decode",), 2).steps()[0]) == expected
    assert sum(op.total.cache_bytes for op in count(MAMBA2, "decode", "flash").values()) == expected


def test_a_chunked_fused_scan_computes_unmasked_pairs_once_per_group() -> None:
    cost = count(MAMBA2, "forward", "flash")["ssm.scan"].cost
    pairs = 3 + 3 + 1  # chunks of 2, 2 and 1 tokens
    scores = 2 * 2 * 2 * pairs * 3  # 2 FLOPs, 2 sequences, 2 groups
    mix = 2 * 2 * 4 * pairs * 4  # 4 heads of 4
    states = 2 * 2 * 5 * 4 * 4 * 3  # per token: update of its chunk's state; reading the state costs the same
    assert cost.matmul_flops == scores + mix + 2 * states


def test_the_reference_code_pads_chunks_and_passes_states_by_gemms() -> None:
    """transformers.models.mamba2: einsums over 3 chunks of 2, B and C repeated for each of 4 heads."""
    ops = count(MAMBA2, "forward", "eager")
    flops = {name: ops[f"ssm.{name}"].cost.matmul_flops for name in ("scores", "mix", "states", "passing", "read_out")}
    assert flops == {
        "scores": 2 * 2 * 3 * 2 * 2 * 4 * 3,  # 2 FLOPs, b, c, l, s, h, n
        "mix": 2 * 2 * 3 * 2 * 2 * 4 * 4,  # b, c, l, s, h, p
        "states": 2 * 2 * 3 * 2 * 4 * 3 * 4,  # b, c, l, h, n, p
        "passing": 2 * 2 * 4 * 4 * 4 * 4 * 3,  # b, z, c, h, p, n: 3 chunks and the initial state
        "read_out": 2 * 2 * 3 * 2 * 4 * 3 * 4,
    }


@pytest.mark.parametrize(
    ("phase", "context", "positions"),
    [
        ("forward", None, 5 + 3),  # 3 zeros at either end
        ("prefill", None, 5 + 3),
        ("prefill", 7, 4 + 5 + 3),  # after the 4 cached tokens
        ("decode", 7, 2),  # 4 cached tokens and the new one, no zeros: two positions, of which the last is used
    ],
)
def test_the_reference_code_computes_padded_positions_of_a_convolution(
    phase: str, context: Any, positions: int
) -> None:
    tokens = 1 if phase == "decode" else 5
    assert count(MAMBA, phase, "eager", context)["ssm.filter"].cost.matmul_flops == 2 * 2 * 16 * positions * 4
    assert count(MAMBA, phase, "flash", context)["ssm.filter"].cost.matmul_flops == 2 * 2 * 16 * tokens * 4


@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("phase", ["forward", "decode", "train"])
def test_g_is_the_groups_of_a_state_space_model(phase: str, attention: str) -> None:
    work = Workload((phase,), 2, 5, attention=attention)  # type: ignore[arg-type]
    found = phase_operators(architecture(MAMBA2, "x", "x"), work.steps()[0])
    meanings = {op.meaning("g") for op in found for line in op.lines if "[g " in line.text or " g " in line.text}
    assert meanings == {"groups of heads of a state-space model: each group shares B and C"}


def test_a_decay_and_a_product_weigh_each_score_of_each_head() -> None:
    """The reference code: 3 chunks of 2 tokens with all 4 pairs. Difference of two sums 1, exp 1, times the score 1."""
    assert count(MAMBA2, "forward", "eager")["ssm.weigh"].vector_flops == 3 * 2 * 4 * (3 * 2 * 2)
