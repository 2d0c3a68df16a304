"""The training step compared with autograd on the real classes, published formulas, and figures by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from roofmodel.counting import blocks, passes, phases
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.training.backward import backward
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture

B, T, L, H, D, V = 2, 5, 3, 2, 8, 11
GPT2 = {"model_type": "gpt2", "n_embd": D, "n_head": H, "n_layer": L, "vocab_size": V, "n_positions": 16}
LLAMA = {
    "model_type": "llama", "hidden_size": D, "num_attention_heads": H, "num_hidden_layers": L, "vocab_size": V,
    "intermediate_size": 7,
}  # fmt: skip
BERT = {
    "model_type": "bert", "hidden_size": D, "num_attention_heads": H, "num_hidden_layers": L, "vocab_size": V,
    "intermediate_size": 4 * D, "max_position_embeddings": 16, "architectures": ["BertModel"],
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
# latent attention with an indexer
GLM = {
    **LLAMA, "model_type": "glm_moe_dsa", "num_key_value_heads": H, "q_lora_rank": 6, "kv_lora_rank": 4,
    "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3, "index_topk": 3, "index_n_heads": 2,
    "index_head_dim": 5, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 5,
    "first_k_dense_replace": 1, "n_shared_experts": 1, "pad_token_id": 1,
}  # fmt: skip
MAMBA = {"model_type": "mamba", "hidden_size": D, "num_hidden_layers": L, "vocab_size": V, "state_size": 4}
BART = {
    "model_type": "bart", "d_model": D, "vocab_size": V, "max_position_embeddings": 16, "architectures": ["BartModel"],
    "encoder_layers": L, "encoder_attention_heads": H, "encoder_ffn_dim": 4 * D,
    "decoder_layers": L, "decoder_attention_heads": H, "decoder_ffn_dim": 3 * D,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "dropout": 0.0,
}  # fmt: skip


def small(config: dict[str, Any]) -> Architecture:
    return architecture(config, "x", "x")


def train(arch: Architecture, **options: Any) -> Workload:
    return Workload(("train",), **{"batch": B, "seq": T, "attention": "eager", **options})


def step(arch: Architecture, **options: Any) -> tuple[Operator, ...]:
    return phases.operators(arch, train(arch, **options).steps()[0])


def cost(operators: tuple[Operator, ...], stage: str) -> Cost:
    return sum((op.total for op in operators if op.stage == stage), Cost())


def test_the_gradients_of_a_contraction_are_contractions_over_the_same_axes() -> None:
    ops = {op.name: op for op in step(small(GPT2))}
    assert ops["mlp.up.grad_input"].spec == "grad.u[b t f] W_up[d f] -> grad.n[b t d]"
    assert ops["mlp.up.grad_weight"].spec == "grad.u[b t f] n[b t d] -> grad.W_up[d f]"
    assert ops["attention.scores.grad_k"].spec == "grad.a[b k g t:s] q[b t k g h] -> grad.k[b s k h]"
    for name in ("mlp.up", "attention.qkv", "attention.scores", "head.logits"):
        gradients = [op for full, op in ops.items() if full.startswith(f"{name}.grad") and op.matmul_flops]
        assert [op.matmul_flops for op in gradients] == [ops[name].matmul_flops] * 2


def test_the_gradient_matrices_have_the_shapes_of_a_gemm() -> None:
    ops = {op.name: op for op in step(small(GPT2))}
    assert ops["attention.qkv.grad_input"].gemm == (1, B * T, D, 3 * D)
    assert ops["attention.qkv.grad_weight"].gemm == (1, 3 * D, D, B * T)
    assert ops["attention.mix.grad_v"].gemm == (B * H, D // H, T, T)


def test_tables_that_are_gathered_take_the_gradient_of_their_rows() -> None:
    ops = {op.name: op for op in step(small(GPT2))}
    scatter = ops["embedding.token.grad_weight"]
    assert scatter.matmul_flops == 0
    assert scatter.cost.bytes == 3 * 2 * B * T * D  # the gradient that arrives, and the rows read and written, fp16


def test_the_gradient_of_softmax_costs_the_operations_of_its_formula() -> None:
    """p = softmax(z / sqrt(h)), so dz = p (dp - sum(p dp)) / sqrt(h), with the sum over each row."""
    ops = {op.name: op for op in step(small(GPT2), attention="eager")}
    scores = B * H * T * T  # eager attention computes all pairs
    operations = "mul add sub mul mul"  # p dp, its sum, dp - sum, times p, times 1 / sqrt(h)
    assert ops["attention.softmax.grad"].vector_flops == len(operations.split()) * scores


def test_the_gradient_of_the_loss_is_an_exponential_and_a_subtraction_per_logit() -> None:
    """d loss / d logits = softmax(logits) - one_hot(target), from the log-softmax that the forward pass stores."""
    ops = {op.name: op for op in step(small(GPT2))}
    assert ops["head.loss.grad"].vector_flops == (1 + 1) * B * T * V


@pytest.mark.parametrize(
    ("optimizer", "operations"),
    [
        # torch.optim.SGD: p = p - lr g
        ("sgd", "mul sub"),
        # torch.optim.SGD with momentum, no dampening: b = mu b + g; p = p - lr b
        ("momentum", "mul add  mul sub"),
        # torch.optim.Adam: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p = p - lr m / (sqrt(v) + eps); lr contains
        # both bias corrections
        ("adam", "mul mul add  mul mul mul add  sqrt add div mul sub"),
    ],
)
def test_the_optimizer_costs_the_operations_of_its_update_for_each_parameter(optimizer: str, operations: str) -> None:
    (update,) = (op for op in step(small(GPT2), optimizer=optimizer) if op.stage == "optimizer")
    # tokens and positions; per layer 2 norms, qkv, output, MLP up and down with biases; the last norm; tied head
    layer = 2 * 2 * D + (D * 3 * D + 3 * D) + (D * D + D) + (D * 4 * D + 4 * D) + (4 * D * D + D)
    parameters = V * D + 16 * D + L * layer + 2 * D
    assert (update.matmul_flops, update.vector_flops) == (0, len(operations.split()) * parameters)


def test_a_residual_sum_costs_nothing_backward_and_what_is_read_twice_adds_its_gradients() -> None:
    ops = step(small(GPT2))
    sums = [op for op in ops if ".grad_sum_" in op.name]
    assert {op.name for op in sums} == {"norm.attention.grad_sum_x", "norm.mlp.grad_sum_x"}
    assert sum(op.total.bytes for op in sums) == 2 * L * 3 * 2 * B * T * D  # two in, one out
    assert not [op for op in ops if op.name.startswith("residual.") and op.stage == "backward"]


def test_flash_attention_recomputes_the_scores() -> None:
    arch = small(GPT2)
    forward, gradient = (
        sum(op.matmul_flops for op in step(arch, attention="flash") if op.name == name)
        for name in ("attention.flash", "attention.flash.grad")
    )
    assert forward == 2 * (2 * B * (T * (T + 1) // 2) * D)  # two products over the pairs that the mask leaves
    assert gradient == forward * 5 // 2
    (flash,) = (op for op in step(arch, attention="flash") if op.name == "attention.flash.grad")
    assert {t.name for t in flash.reads} == {"q", "k", "v", "grad.o"}
    assert {t.name for t in flash.writes} == {"grad.q", "grad.k", "grad.v"}


@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b", "bert-base-uncased", "opt-350m"])
def test_backward_takes_twice_the_matmul_flops_of_forward(model: str) -> None:
    ops = step(hub.load(model), seq=16)
    assert cost(ops, "backward").matmul_flops == 2 * cost(ops, "forward").matmul_flops


@pytest.mark.parametrize(("recompute", "layers", "vocabulary"), [("none", 72, 12), ("full", 96, 16)])
def test_flops_equal_the_published_formulas(recompute: str, layers: int, vocabulary: int) -> None:
    """Korthikanti et al., arXiv 2205.05198, appendix A: 72 B L s h^2 (1 + s / 6h + v / 12hL).

    With full recomputation (Narayanan et al., arXiv 2104.04473, eq. 3): 96 B s l h^2 (1 + s / 6h + V / 16lh).
    """
    b, s, h, n, v = 4, 1024, 1600, 48, 50257
    ops = step(hub.load("gpt2-xl"), batch=b, seq=s, recompute=recompute)
    published = layers * b * n * s * h * h * (1 + Fraction(s, 6 * h) + Fraction(v, vocabulary * h * n))
    assert sum(op.total.matmul_flops for op in ops) == published


def test_the_backward_of_a_scan_recomputes_it_and_keeps_states_on_chip() -> None:
    (scan,) = (op for op in step(small(MAMBA), attention="flash") if op.name == "ssm.scan.grad")
    inputs = {"step", "u", "gate", "enter", "leave", "B_step", "A", "D"}
    assert {t.name for t in scan.reads} == inputs | {"grad.y"}
    assert {t.name for t in scan.writes} == {f"grad.{name}" for name in inputs}


def test_gradients_of_a_rewritten_tensor_are_separate() -> None:
    """Rotary embedding overwrites q, so the gradient of q is overwritten too and not summed."""
    specs = {op.name: op.spec for op in step(small(LLAMA))}
    assert specs["attention.rotary.grad"].endswith("=> grad.q[b t k g h] grad.k[b t k h]")


def test_an_indexer_receives_no_gradient_of_the_models_loss() -> None:
    """The token selection has no gradient; the class runs it without; selective recomputation does not repeat it."""
    for recompute in ("none", "selective"):
        index = [op.stage for op in step(small(GLM), recompute=recompute) if "index" in op.name]
        assert index
        assert set(index) == {"forward"}


def test_a_config_whose_positions_are_constants_gives_them_no_gradient() -> None:
    config = {"model_type": "xglm", "d_model": D, "attention_heads": H, "num_layers": L, "ffn_dim": D, "vocab_size": V}
    assert not [op for op in step(small(config)) if "position" in op.name and op.stage == "backward"]


def test_a_batch_norm_computes_batch_statistics_in_training() -> None:
    """Ioffe and Szegedy, arXiv 1502.03167, alg. 1: mean, difference, square, sum, times rstd, gain, bias."""
    arch = hub.load("resnet-18")
    train_step, forward_step = (Workload((phase,), 2, 0, image=(64, 64)).step(phase) for phase in ("train", "forward"))
    trained, found = (
        next(op for op in blocks.operators(arch, one) if op.kind == "norm") for one in (train_step, forward_step)
    )
    elements = 2 * 64 * 32 * 32  # 64 channels after a stride of 2
    assert (trained.vector_flops, found.vector_flops) == (7 * elements, 2 * elements)
    assert {t.name for t in found.reads} - {t.name for t in trained.reads} == {"mean", "variance"}


def test_active_parameters_include_only_the_routed_experts() -> None:
    """Mixtral, arXiv 2401.04088: "each token has access to 47B parameters, but only uses 13B": 2 of 8 experts."""
    arch = hub.load("Mixtral-8x7B-v0.1")
    ops = blocks.operators(arch, train(arch).step("train"))
    idle = 32 * 6 * 3 * 4096 * 14336  # layers, experts, matrices of d x f
    assert passes.parameters(arch, ops) - passes.active_parameters(arch, ops) == idle
    assert round(passes.active_parameters(arch, ops) / 1e9) == 13


# --- Memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recompute", "attention"), [("none", "eager"), ("selective", "eager"), ("none", "flash")])
def test_activation_memory_equals_korthikanti(recompute: str, attention: str) -> None:
    """Korthikanti et al., arXiv 2205.05198, eq. 1: s b h (34 + 5 a s / h) bytes per layer; 34 s b h without the core.

    Section 4.1, by term. Attention: input 2, queries and keys 4, values 2, input of the output projection 2, dropout
    mask 1; softmax output 2, its dropout mask 1, dropout output 2 for each score. MLP: inputs 2 and 8, input of GeLU 8,
    dropout mask 1. Two norms: 2 each. Section 4.3, outside the layers: the dropout mask of the embedding, the inputs of
    the final norm and of the logits; `logits` has the log-softmax.
    """
    arch = hub.load("gpt2-xl")
    s, b, h, a = 1024, 4, 1600, 25
    work = train(arch, batch=b, seq=s, recompute=recompute, attention=attention)
    attends, mlp, norms = 2 + 4 + 2 + 2 + 1, 2 + 8 + 8 + 1, 2 + 2
    core = (2 + 1 + 2) * a * s * s * b if (recompute, attention) == ("none", "eager") else 0
    outside = (1 + 2 + 2) * s * b * h
    assert phases.peak_memory(arch, work).kept == 48 * ((attends + mlp + norms) * s * b * h + core) + outside


def test_full_recomputation_keeps_the_input_of_each_layer() -> None:
    arch = hub.load("gpt2-xl")
    s, b, h = 1024, 4, 1600
    work = train(arch, batch=b, seq=s, recompute="full")
    outside = (1 + 2 + 2) * s * b * h  # the mask of the embedding, and as above
    assert phases.peak_memory(arch, work).kept == 48 * 2 * s * b * h + outside


def test_the_encoder_output_is_stored_once_for_all_layers_that_read_it() -> None:
    """BartModel, six layers each way, recomputed: the inputs of each layer and of the first norms, and the source.

    And the dropout masks of both embeddings, 1 byte per element.
    """
    source, decoder, hidden = 1000, 10, 768
    work = Workload(("train",), B, source, decoder_seq=decoder, attention="eager", recompute="full")
    kept = phases.peak_memory(hub.load("bart-base"), work).kept
    assert kept == B * hidden * (2 * (source * (6 + 1 + 1) + decoder * (6 + 1)) + source + decoder)


def test_full_recomputation_adds_one_forward_pass_of_the_layers() -> None:
    ops = step(small(GPT2), recompute="full")
    assert cost(ops, "recomputation") == sum((op.total for op in ops if op.stage == "forward" and op.layers), Cost())


def test_selective_recomputation_repeats_the_core_of_attention() -> None:
    ops = step(small(GPT2), recompute="selective")
    assert [op.name for op in ops if op.stage == "recomputation"] == [
        "attention.scores", "attention.softmax", "attention.mix",
    ]  # fmt: skip
    assert cost(ops, "recomputation").matmul_flops == L * 2 * 2 * B * T * T * D
    assert not [op for op in step(small(GPT2), recompute="selective", attention="flash") if op.stage == "recomputation"]


@pytest.mark.parametrize(
    ("optimizer", "dtype", "bytes_each"),
    [
        ("adam", "bf16", 16), ("momentum", "bf16", 12), ("sgd", "bf16", 8),  # 2 + 2 + masters 4 + states
        ("adam", "fp32", 16), ("momentum", "fp32", 12), ("sgd", "fp32", 8),  # 4 + 4 + states
    ],
)  # fmt: skip
def test_bytes_per_parameter(optimizer: str, dtype: str, bytes_each: int) -> None:
    arch = hub.load("gpt2")
    need = phases.peak_memory(arch, train(arch, optimizer=optimizer, dtype=dtype))
    assert need.weights + need.gradients + need.optimizer == bytes_each * 124_439_808


@pytest.mark.parametrize(
    ("options", "dtype", "per_block"),
    [
        ({"states": "bf16"}, "bf16", 256 * (4 + 2 + 2)),  # master, m and v
        ({"states": "int8"}, "bf16", 256 * (4 + 1 + 1) + 2 * 4),  # an fp32 scale per block of m and of v
        ({"optimizer": "adam8bit"}, "bf16", 256 * (1 + 1) + 2 * 4),  # no master
        ({"optimizer": "adam8bit"}, "fp32", 256 * (1 + 1) + 2 * 4),
        ({"optimizer": "momentum", "states": "bf16"}, "fp32", 256 * 2),
        ({"optimizer": "sgd", "states": "bf16"}, "bf16", 256 * 4),
    ],
)
def test_narrow_states_change_the_moments_only(options: dict[str, Any], dtype: str, per_block: int) -> None:
    arch, blocks = hub.load("gpt2"), 124_439_808 // 256  # whole blocks
    need = phases.peak_memory(arch, train(arch, dtype=dtype, **options))
    assert need.optimizer == blocks * per_block
    (update,) = (op for op in step(arch, dtype=dtype, **options) if op.stage == "optimizer")
    width = {"bf16": 2, "fp32": 4}[dtype]
    weight_read = 0 if "optimizer" not in options and dtype == "bf16" else width  # else the master copy is read
    if options.get("optimizer") == "sgd":
        weight_read = 0
    assert update.cost.bytes_read == blocks * (256 * (width + weight_read) + per_block)  # with the gradient
    assert update.cost.bytes_written == blocks * (256 * width + per_block)


def test_moments_in_int8_are_scaled_and_quantized_at_each_step() -> None:
    """Times the scale of the block; magnitude, largest of the block, division by it: for m and v."""
    flops = {
        name: next(op.vector_flops for op in step(hub.load("gpt2"), optimizer=name) if op.stage == "optimizer")
        for name in ("adam", "adam8bit")
    }
    assert flops["adam8bit"] - flops["adam"] == 2 * (1 + 3) * 124_439_808


@pytest.mark.parametrize(
    ("optimizer", "dtype", "read", "written"),
    [("adam", "fp16", 14, 14), ("sgd", "fp16", 2 + 4, 2 + 4), ("adam", "fp32", 4 + 12, 12), ("sgd", "fp32", 8, 4)],
)
def test_the_optimizer_reads_and_writes_each_state_once(optimizer: str, dtype: str, read: int, written: int) -> None:
    (update,) = (op for op in step(hub.load("gpt2"), optimizer=optimizer, dtype=dtype) if op.stage == "optimizer")
    assert (update.cost.bytes_read, update.cost.bytes_written) == (read * 124_439_808, written * 124_439_808)


@pytest.mark.parametrize("replicas", [4, 64])
def test_zero_shards_the_optimizer_state_only(replicas: int) -> None:
    """Rajbhandari et al., arXiv 1910.02054, section 5.1: 2 + 2 + 12 / replicas bytes per parameter."""
    arch, parameters = hub.load("gpt2"), 124_439_808  # divisible by 64
    work = train(arch, batch=replicas, parallel=Parallel(dp=replicas, zero=1))
    need = phases.peak_memory(arch, work)
    assert (need.weights, need.gradients) == (2 * parameters, 2 * parameters)
    assert need.optimizer == 12 * parameters // replicas
    assert need.activations == phases.peak_memory(arch, train(arch, batch=1)).activations


def test_zero_sends_as_many_bytes_as_an_all_reduce_and_updates_a_shard() -> None:
    """Section 7.2.1: a reduce-scatter of the gradients, then an all-gather of the updated weights."""
    arch, dp, size = hub.load("gpt2"), 4, 2 * 124_439_808

    def once_per_step(zero: int) -> dict[str, Operator]:
        found = step(arch, batch=dp, parallel=Parallel(dp=dp, zero=zero))
        return {op.name: op for op in found if op.runs_once_per_step}

    plain, sharded = once_per_step(0), once_per_step(1)
    assert list(plain) == ["gradients.all_reduce", "optimizer.step"]
    assert list(sharded) == ["gradients.reduce_scatter", "optimizer.step", "weights.all_gather"]
    for name in ("gradients.reduce_scatter", "weights.all_gather"):
        assert sharded[name].cost.link_bytes == size * (dp - 1) // dp
    assert sum(op.cost.link_bytes for op in sharded.values()) == plain["gradients.all_reduce"].cost.link_bytes
    for cost in ("bytes_read", "bytes_written", "vector_flops"):
        assert dp * getattr(sharded["optimizer.step"].cost, cost) == getattr(plain["optimizer.step"].cost, cost)


def test_experts_that_replicas_share_are_sharded_over_their_copies() -> None:
    """Mixtral's 8 experts on 4 of 8 replicas: each expert is on two GPUs, all other parameters are on eight."""
    arch = hub.load("Mixtral-8x7B-v0.1")
    parallel = Parallel(dp=8, ep=4, experts_span_replicas=True, zero=1)
    found = {op.name: op for op in step(arch, batch=8, parallel=parallel) if op.runs_once_per_step}
    experts = 32 * 2 * 3 * 4096 * 14336  # layers, experts on a GPU, matrices
    others = 46_702_792_704 - 4 * experts
    for name, gpus, elements in (("", 8, others), ("expert_", 2, experts)):
        for operator in (f"gradients.{name}reduce_scatter", f"weights.{name}all_gather"):
            assert found[operator].collective.gpus == gpus  # type: ignore[union-attr]
            assert found[operator].exchanged_bytes == 2 * elements
    need = phases.peak_memory(arch, train(arch, batch=8, parallel=parallel))
    assert need.optimizer == 12 * (others // 8 + experts // 2)


# --- Against autograd -------------------------------------------------------------------------------


def saved(config: dict[str, Any], **inputs: Any) -> int:
    """Bytes of what autograd saves in a forward pass of the real class, parameters aside."""
    torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    from tests import oracle

    model = oracle.build(config)
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        if tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in parameters:
            storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = {name: torch.full((B, tokens), 3) for name, tokens in inputs.items()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(**ids, **({"use_cache": False} if len(inputs) > 1 else {}))  # the graph keeps what it saved
    assert output is not None
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


def kept(config: dict[str, Any], **options: Any) -> int:
    arch = small(config)
    return int(phases.peak_memory(arch, train(arch, dtype="fp32", **options)).kept)


def test_stored_activations_equal_what_autograd_saves() -> None:
    """BERT's kernels match the lines. It also saves mean and deviation of each norm, 4 bytes each per token."""
    three, four = ({**BERT, "num_hidden_layers": layers} for layers in (3, 4))
    statistics = 2 * 2 * 4 * B * T
    assert saved(four, input_ids=T) - saved(three, input_ids=T) == kept(four) - kept(three) + statistics


def test_activations_of_an_encoder_decoder_equal_what_autograd_saves() -> None:
    """As BERT; mean and deviation of two norms per encoder layer and of three per decoder layer."""
    source = 7

    def more(layers: str) -> tuple[int, int]:
        """What one layer more of a stack saves, and what we count."""
        deeper = BART | {layers: L + 1}
        real = [saved(config, input_ids=source, decoder_input_ids=T) for config in (BART, deeper)]
        ours = [kept(config, seq=source, decoder_seq=T) for config in (BART, deeper)]
        return real[1] - real[0], ours[1] - ours[0]

    real, ours = more("encoder_layers")
    assert real == ours + 2 * 2 * 4 * B * source
    real, ours = more("decoder_layers")
    assert real == ours + 3 * 2 * 4 * B * T


@pytest.mark.parametrize(
    ("config", "name"), [(GPT2, "GPT2LMHeadModel"), (LLAMA, "LlamaForCausalLM"), (GLM, "GlmMoeDsaForCausalLM")]
)
def test_full_recomputation_is_gradient_checkpointing(config: dict[str, Any], name: str) -> None:
    pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    from tests import oracle

    config = {**config, "architectures": [name]}
    model = oracle.build(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    counted = sum(op.total.matmul_flops for op in step(small(config), recompute="full"))
    assert counted == oracle.training_flops(model, B, T)


def test_an_operator_without_inputs_has_no_backward() -> None:
    arch = small(GPT2)
    gather = [op for op in blocks.operators(arch, train(arch).steps()[0]) if op.name == "embedding.token"]
    assert [op.name for op in backward(gather)] == ["embedding.token.grad_weight"]
