"""Bytes and vector FLOPs of one small layer of each kind, derived by hand next to each expectation.

torch's counter covers only matmul FLOPs. No other tool checks bytes and vector FLOPs, so the expected values are
computed from the shapes, written as numbers. Everything is in fp16: 2 bytes per element.

    B = 2 sequences, T = 3 new tokens, D = hidden size 8, 2 heads of size 4, F = MLP width 10, V = vocabulary of 11
"""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting import passes, vector_flops
from roofmodel.counting.blocks import operators
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Workload, attended, pairs
from roofmodel.models.config import architecture

X = 2 * 3 * 8  # elements of the residual stream: B T D
PAIRS = 2 * 2 * (3 * 3)  # elements of the scores in eager attention: B heads T T
MLP = 2 * 3 * 10  # B T F


DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11,
    "intermediate_size": 10, "q_lora_rank": 6, "kv_lora_rank": 5, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2,
    "v_head_dim": 3, "hidden_act": "silu",
}  # fmt: skip


def latent(mla: Any, attention: Any = "flash", **more: Any) -> dict[str, Operator]:
    """A decode of 2 sequences after 7 tokens: S = 8."""
    work = Workload(("decode",), 2, 3, context=7, attention=attention, mla=mla)
    return {op.name: op for op in operators(architecture(DEEPSEEK | more, "x", "x"), work.steps()[0])}


def test_absorbed_mla_computes_attention_on_the_cached_latents() -> None:
    ops = latent("absorbed")
    assert ops["attention.absorb_k"].matmul_flops == 2 * 2 * 2 * 4 * 5  # B, 2 heads, 4 x 5
    scores, mix = 2 * 2 * 2 * 8 * (5 + 2), 2 * 2 * 2 * 8 * 5  # B, 2 heads, S, latent + rotary key; latent
    assert ops["attention.flash"].matmul_flops == scores + mix
    assert ops["attention.flash"].cost.cache_bytes == 2 * (
        2 * 8 * (5 + 2)
    )  # latent and rotary key of each token, read once
    assert ops["attention.absorb_v"].matmul_flops == 2 * 2 * 2 * 5 * 3
    assert "attention.kv_up" not in ops


def test_naive_latent_attention_expands_the_whole_cache_in_every_step() -> None:
    ops = latent("naive")
    assert ops["attention.kv_up"].matmul_flops == 2 * (2 * 8) * 5 * (2 * (4 + 3))  # B S, latent 5, k and v of 2 heads
    assert ops["attention.flash"].matmul_flops == 2 * 2 * 2 * 8 * (4 + 2) + 2 * 2 * 2 * 8 * 3
    assert ops["attention.kv_up"].cost.cache_bytes == 2 * (2 * 8 * 5)
    assert "attention.absorb_k" not in ops


def test_absorbed_and_naive_mla_have_the_same_parameters_and_cache() -> None:
    arch = architecture(DEEPSEEK, "x", "x")
    steps = [Workload(("decode",), 2, 3, context=7, mla=mla).steps()[0] for mla in ("absorbed", "naive")]  # type: ignore[arg-type]
    first, second = (passes.parameters(arch, operators(arch, step)) for step in steps)
    assert first == second
    for step in steps:
        assert passes.kv_cache_bytes(arch, step) == 2 * (2 * 8) * (5 + 2)  # B S tokens, latent and rotary key


def test_an_indexer_scores_all_tokens_and_attention_reads_the_selected_ones() -> None:
    index = {"model_type": "deepseek_v32", "index_topk": 3, "index_n_heads": 2, "index_head_dim": 4}
    ops = latent("absorbed", **index)
    assert ops["attention.index_scores"].matmul_flops == 2 * 2 * 2 * 8 * 4 + 2 * 2 * 2 * 8  # q k^T; sum over 2 heads
    assert ops["attention.index_scores"].cost.cache_bytes == 2 * (2 * 8 * 4)
    assert ops["attention.flash"].matmul_flops == 2 * 2 * 2 * 3 * (5 + 2) + 2 * 2 * 2 * 3 * 5  # 3 of 8 tokens
    assert ops["attention.flash"].cost.cache_bytes == 2 * (2 * 3 * (5 + 2))
    # eager attention, as in the reference code, computes all pairs and masks the tokens that were not selected
    assert latent("naive", "eager", **index)["attention.mix"].matmul_flops == 2 * 2 * 2 * 8 * 3


def test_a_fused_prefill_reads_the_selected_latents_and_expands_none() -> None:
    index = {"model_type": "deepseek_v32", "index_topk": 3, "index_n_heads": 2, "index_head_dim": 4}
    arch = architecture(DEEPSEEK | index, "x", "x")

    def prefill(context: int, tokens: int, mla: Any = "absorbed", attention: Any = "flash") -> dict[str, Operator]:
        work = Workload(("prefill",), 2, tokens, context=context, mla=mla, attention=attention)
        return {op.name: op for op in operators(arch, work.steps()[0])}

    for context, tokens, keys in ((100, 2, 2 * 3), (100, 60, 160), (2, 1, 3), (0, 8, 8)):
        resumed = prefill(context, tokens)
        assert "attention.kv_up" not in resumed
        assert resumed["attention.flash"].cost.cache_bytes == 2 * (2 * keys * (5 + 2))  # B, latent and rotary key
        pairs = sum(min(context + token, 3) for token in range(1, tokens + 1))  # 3 of the tokens each
        assert resumed["attention.flash"].matmul_flops == 2 * 2 * 2 * pairs * (5 + 2 + 5)
        assert "attention.kv_up" in prefill(context, tokens, "naive")
    assert "attention.kv_up" in prefill(0, 8, attention="eager")


@pytest.mark.parametrize(
    ("context", "tokens", "expected_pairs"), [(0, 10, 4 * 5 // 2 * 2 + 2 * 3 // 2), (5, 1, 2), (8, 1, 1)]
)
def test_chunked_attention_is_within_a_chunk(context: int, tokens: int, expected_pairs: int) -> None:
    """Chunks of 4 tokens: 10 tokens are two full chunks and 2 tokens; the sixth token is the second of its chunk."""
    step = Workload(("prefill",), 1, tokens, context=context).steps()[0]
    assert pairs(step, 4, True, chunked=True) == expected_pairs
    assert attended(step, 4, chunked=True) == context % 4 + tokens


@pytest.mark.parametrize("context", [0, 3, 5])
def test_a_chunked_generation_is_the_mean_of_its_passes(context: int) -> None:
    decodes = [Workload(("decode",), context=context + i).steps()[0] for i in range(7)]
    all_decodes = decodes[0]._replace(passes=7)
    for measure in (lambda step: pairs(step, 4, True, chunked=True), lambda step: attended(step, 4, chunked=True)):
        assert 7 * measure(all_decodes) == sum(map(measure, decodes))
    forwards = [Workload(("forward",), seq=context + 1 + i).steps()[0] for i in range(7)]
    all_forwards = forwards[3]._replace(passes=7)
    assert 7 * pairs(all_forwards, 4, True, chunked=True) == sum(
        pairs(step, 4, True, chunked=True) for step in forwards
    )


@pytest.mark.parametrize(("gating", "elements"), [(True, 2), ("per-element", 2 * 4)])
def test_an_attention_gate_is_a_gemm_with_one_output_per_head_or_per_element(gating: Any, elements: int) -> None:
    config = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"} | {
        "model_type": "laguna", "num_key_value_heads": 2, "head_dim": 4, "gating": gating, "mlp_layer_types": ["dense"],
    }  # fmt: skip
    ops, gates, heads = count(config), 2 * 3 * elements, 2 * 3 * 8  # B T
    assert ops["attention.gate_projection"].matmul_flops == 2 * (2 * 3) * 8 * elements
    assert ops["attention.gate"].vector_flops == 3 * gates + heads
    assert ops["attention.gate"].cost.bytes == 2 * (heads + gates + heads)


def test_a_short_convolution_has_two_gates_and_caches_its_last_tokens() -> None:
    config = {k: v for k, v in LLAMA.items() if k != "hidden_act"} | {
        "model_type": "lfm3", "layer_types": ["conv"], "conv_L_cache": 3,
    }  # fmt: skip
    arch = architecture(config, "x", "x")
    step = Workload(("decode",), 2, 3, context=7).steps()[0]
    ops = {op.name: op for op in operators(arch, step)}
    assert passes.kv_cache_bytes(arch, step) == 2 * (2 * 8 * 3)  # B, 8 channels, 3 tokens, for any context
    assert ops["convolution.input"].matmul_flops == 2 * 2 * 8 * (3 * 8)
    assert ops["convolution.enter"].vector_flops == ops["convolution.leave"].vector_flops == 2 * 8
    read, written = 2 * 8 * (1 + 3) + 8 * 3, 2 * 8 * (1 + 3)  # the token and the last 3; the filter
    assert ops["convolution.filter"].matmul_flops == 2 * (2 * 8) * 3
    assert ops["convolution.filter"].cost.bytes == 2 * (read + written)


def test_a_learned_activation_has_parameters_in_each_layer() -> None:
    config = {k: v for k, v in LLAMA.items() if k != "hidden_act"} | {"model_type": "apertus", "num_hidden_layers": 3}
    arch = architecture(config, "x", "x")
    parameter_counts = [
        passes.parameters(each, operators(each, Workload(("forward",)).steps()[0]))
        for each in (arch, architecture(config | {"hidden_act": "relu2"}, "x", "x"))
    ]
    assert parameter_counts[0] - parameter_counts[1] == 3 * 2
    assert count(config)["mlp.activation"].cost.bytes == 2 * (MLP + 2 + MLP)


def count(config: dict[str, Any], phase: Any = "prefill", attention: Any = "eager") -> dict[str, Operator]:
    work = Workload((phase,), 2, 3, attention=attention, logits="all")
    return {op.name: op for op in operators(architecture(config, "x", "x"), work.steps()[0])}


GPT2 = {
    "model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": 10, "n_positions": 16, "vocab_size": 11,
    "activation_function": "gelu_new",
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "silu",
    "num_key_value_heads": 1, "intermediate_size": 10, "vocab_size": 11,
}  # fmt: skip
NEOX = {
    "model_type": "gpt_neox", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "gelu",
    "intermediate_size": 10, "vocab_size": 11, "rotary_pct": 0.5, "use_parallel_residual": True,
}  # fmt: skip
BLOOM = {"model_type": "bloom", "hidden_size": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11}
BERT = {
    "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 10,
    "vocab_size": 11, "max_position_embeddings": 16, "hidden_act": "relu",
}  # fmt: skip

# config, operator -> elements read, elements written, vector FLOPs
EXPECTED: list[tuple[str, dict[str, Any], dict[str, tuple[int, int, int]]]] = [
    (
        "gpt2",
        GPT2,
        {
            "embedding.token": (X, X, 0),
            "embedding.position": (3 * 8, 3 * 8, 0),  # once for all sequences
            "embedding.add_position": (X + 3 * 8, X, X),
            "norm.attention": (X + 8 + 8, X, 7 * X),  # gain and bias
            "attention.qkv": (X + 8 * 24 + 24, 3 * X, 3 * X),  # the bias: one addition per output
            "attention.scores": (X + X, PAIRS, 0),
            "attention.softmax": (PAIRS, PAIRS, (1 + 1 + 5) * PAIRS),  # scale, mask, softmax
            "attention.mix": (PAIRS + X, X, 0),
            "attention.output": (X + 8 * 8 + 8, X, X),
            "residual.attention": (2 * X, X, X),
            "norm.mlp": (X + 8 + 8, X, 7 * X),
            "mlp.up": (X + 8 * 10 + 10, MLP, MLP),
            "mlp.activation": (MLP, MLP, 9 * MLP),
            "mlp.down": (MLP + 10 * 8 + 8, X, X),
            "residual.mlp": (2 * X, X, X),
            "norm.final": (X + 8 + 8, X, 7 * X),
            "head.logits": (X + 11 * 8, 2 * 3 * 11, 0),
        },
    ),
    (
        "llama",
        LLAMA,
        {
            "norm.attention": (X + 8, X, 4 * X),  # a gain, no bias
            "attention.q": (X + 8 * 8, X, 0),
            "attention.k": (X + 8 * 4, X // 2, 0),  # one key-value head, two query heads
            "attention.v": (X + 8 * 4, X // 2, 0),
            # reads cos and sin of 3 tokens x 4 elements; 2 multiplications and 1 addition per element of q and k
            "attention.rotary": (X + X // 2 + 2 * 3 * 4, X + X // 2, 3 * (X + X // 2)),
            "attention.scores": (X + X // 2, PAIRS, 0),
            "attention.mix": (PAIRS + X // 2, X, 0),
            "mlp.gate": (X + 8 * 10, MLP, 0),
            "mlp.up": (X + 8 * 10, MLP, 0),
            "mlp.activation": (2 * MLP, MLP, (4 + 1) * MLP),  # silu, and the multiplication by the gate
            "mlp.down": (MLP + 10 * 8, X, 0),
        },
    ),
    (
        "gpt_neox",
        NEOX,
        {
            # rotary embedding of half of each head of 4: cos and sin of 2 elements
            "attention.rotary": (2 * X + 2 * 3 * 2, 2 * X, 3 * (2 * X) // 2),
            "residual.mlp": (3 * X, X, 2 * X),  # one sum of input, attention and MLP
            "mlp.activation": (MLP, MLP, 5 * MLP),
        },
    ),
    (
        "bloom",
        BLOOM,
        {
            "norm.embedding": (X + 8 + 8, X, 7 * X),
            "attention.scores": (X + X + 2 * 2 * 3, PAIRS, PAIRS),  # adds the ALiBi bias: one row per head
        },
    ),
    (
        "bert",
        BERT,
        {
            "embedding.type": (X, X, 0),
            "embedding.add_type": (2 * X, X, X),
            "attention.q": (X + 8 * 8 + 8, X, X),
            "attention.softmax": (PAIRS, PAIRS, (1 + 5) * PAIRS),  # no mask
            "mlp.activation": (MLP, MLP, MLP),
            "head.transform": (X + 8 * 8 + 8, X, X),
            "head.transform_activation": (X, X, X),
            "head.transform_norm": (X + 8 + 8, X, 7 * X),
            "head.logits": (X + 11 * 8 + 11, 2 * 3 * 11, 2 * 3 * 11),
        },
    ),
]
CASES = [
    pytest.param(config, name, *figures, id=f"{family}-{name}")
    for family, config, table in EXPECTED
    for name, figures in table.items()
]


@pytest.mark.parametrize(("config", "name", "read", "written", "flops"), CASES)
def test_bytes_and_vector_flops_of_an_operator_equal_those_derived_by_hand(
    config: dict[str, Any], name: str, read: int, written: int, flops: int
) -> None:
    op = count(config, "forward" if config is BERT else "prefill")[name]
    assert (op.cost.bytes_read, op.cost.bytes_written, op.vector_flops) == (2 * read, 2 * written, flops)


def test_the_gpt2_table_has_every_operator() -> None:
    assert set(count(GPT2)) == set(EXPECTED[0][2])


def test_flash_attention_moves_only_inputs_and_outputs_and_skips_masked_pairs() -> None:
    op = count(GPT2, attention="flash")["attention.flash"]
    assert (op.cost.bytes_read, op.cost.bytes_written) == (2 * 3 * X, 2 * X)
    unmasked = 2 * 2 * (1 + 2 + 3)
    assert op.vector_flops == (1 + 5) * unmasked  # no mask is added: masked tiles are not computed
    assert op.matmul_flops == 2 * 2 * 4 * unmasked  # two GEMMs, 4 multiply-adds per pair each


def test_a_pooler_reads_only_the_first_token_of_each_sequence() -> None:
    op = count(BERT | {"architectures": ["BertModel"]}, "forward")["head.pooler"]
    assert (op.cost.bytes_read, op.cost.bytes_written) == (2 * (2 * 8 + 8 * 8 + 8), 2 * 2 * 8)


MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def test_experts_compute_their_routed_tokens_and_only_experts_with_tokens_are_read() -> None:
    f = MIXTRAL["intermediate_size"]
    op = count(MIXTRAL)["mlp.expert_down"]
    pairs = 2 * 3 * 2  # 2 sequences of 3 tokens, 2 experts each
    assert op.matmul_flops == 2 * pairs * f * 8
    # a token does not choose an expert with probability 1/2, so 4 (1 - 1/2^6) = 3.9375 of 4 experts are read
    assert op.cost.weight_bytes == 2 * 3.9375 * f * 8
    assert op.cost.bytes_written == 2 * pairs * 8
    combine = count(MIXTRAL)["mlp.combine"]
    assert (combine.matmul_flops, combine.vector_flops) == (0, 2 * pairs * 8)  # multiply by the router's weight and add


def test_all_experts_are_read_if_all_are_active() -> None:
    op = count(MIXTRAL | {"num_experts_per_tok": 4})["mlp.expert_gate_up"]
    assert op.cost.weight_bytes == 2 * 4 * 8 * (2 * 10)  # 4 experts, hidden 8, gate and up of width 10


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("relu", "max"),
        ("relu2", "max mul"),
        ("relu6", "max min"),
        ("leaky_relu", "mul max"),
        ("tanh", "tanh"),
        ("sigmoid", "exp add div"),
        ("silu", "exp add div mul"),
        ("gelu", "div erf add mul mul"),
        (
            "gelu_tanh",
            "mul mul mul add mul tanh add mul mul",
        ),  # x^3 (2), * 0.044715, + x, * sqrt(2/pi), tanh, + 1, * x, * 1/2
        ("gelu_new", "mul mul mul add mul tanh add mul mul"),  # the same function
        ("gelu_fast", "mul mul mul add mul tanh add mul mul"),
        ("gelu_quick", "mul exp add div mul"),
        ("situ", "div tanh mul exp add div mul div tanh mul"),  # the last three are of the half without the gate
        ("mish", "exp add log tanh mul"),
        ("xielu", "min expm1 sub mul mul add where"),  # for inputs below 0, which need more operations
        ("linear", ""),
    ],
)
def test_an_activation_costs_the_operations_of_its_formula(name: str, operations: str) -> None:
    assert vector_flops.ACTIVATION[name] == len(operations.split())


def test_every_activation_has_its_formula_checked() -> None:
    checked = test_an_activation_costs_the_operations_of_its_formula.pytestmark[0].args[1]
    assert set(vector_flops.ACTIVATION) == {case[0] for case in checked}


@pytest.mark.parametrize(("context", "tokens"), [(2, 3), (4, 5), (100, 5)])
def test_a_window_limits_the_cache_once_it_is_full(context: int, tokens: int) -> None:
    """A window of 5 tokens; a decode caches one token more."""
    config = {"model_type": "mistral", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 1, "vocab_size": 11, "intermediate_size": 10, "sliding_window": 5}  # fmt: skip
    step = Workload(("decode",), 2, context=context).steps()[0]
    # keys and values of one head of size 4, 2 sequences, fp16
    assert passes.kv_cache_bytes(architecture(config, "x", "x"), step) == 2 * 4 * 2 * tokens * 2
