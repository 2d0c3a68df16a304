"""Low-rank adapters compared with autograd on the real classes, and with figures by hand."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting import phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Adapters, Parallel, Workload
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture

B, T, L, D, F, V, RANK = 2, 5, 3, 8, 14, 11, 3
LLAMA = {
    "model_type": "llama", "hidden_size": D, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "num_hidden_layers": L, "vocab_size": V, "intermediate_size": F, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "n_embd": D, "n_head": 2, "n_layer": L, "vocab_size": V, "n_positions": 16,
    "architectures": ["GPT2LMHeadModel"],
}  # fmt: skip
TARGETS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def train(arch: Architecture, *targets: str, **options: Any) -> Workload:
    shape = {"batch": B, "seq": T, "attention": "eager", **options}
    return Workload(("train",), adapters=Adapters(RANK, targets), **shape)


def step(arch: Architecture, *targets: str, **options: Any) -> tuple[Operator, ...]:
    return phases.operators(arch, train(arch, *targets, **options).steps()[0])


def adapted(config: dict[str, Any], is_target: Any) -> Any:
    """The real class with frozen parameters, and with LoRA (arXiv 2106.09685, section 4.1) beside its linear layers."""
    torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    from tests import oracle

    class Adapted(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, base: Any, inputs: int, outputs: int) -> None:
            super().__init__()
            self.base = base
            self.a, self.b = torch.nn.Linear(inputs, RANK, bias=False), torch.nn.Linear(RANK, outputs, bias=False)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.b(self.a(x))

    model = oracle.build(config)
    model.requires_grad_(False)
    for path, module in list(model.named_modules()):
        parent, _, name = path.rpartition(".")
        if is_target(name) and hasattr(module, "weight"):
            rows, columns = module.weight.shape
            inputs, outputs = (columns, rows) if isinstance(module, torch.nn.Linear) else (rows, columns)  # or Conv1D
            setattr(model.get_submodule(parent), name, Adapted(module, inputs, outputs))
    return model


@pytest.mark.parametrize(
    ("config", "ours", "theirs"),
    [
        (LLAMA, (), TARGETS),
        (LLAMA, ("q_proj", "v_proj"), {"q_proj", "v_proj"}),
        (LLAMA, ("down_proj",), {"down_proj"}),
        (GPT2, (), {"c_attn", "c_proj", "c_fc"}),
        (GPT2, ("qkv_proj",), {"c_attn"}),
    ],
)
def test_flops_and_trained_parameters_equal_those_of_autograd(
    config: dict[str, Any], ours: tuple[str, ...], theirs: set[str]
) -> None:
    """The first layer included, whose input has no gradient, and frozen weights, which have none."""
    model = adapted(config, theirs.__contains__)
    from tests import oracle

    arch = architecture(config, "x", "x")
    ops = step(arch, *ours)
    assert sum(op.total.matmul_flops for op in ops) == oracle.training_flops(model, B, T)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    (update,) = (op for op in ops if op.stage == "optimizer")
    assert update.sizes["W"] == trained
    assert not [op.name for op in ops if op.name.endswith(".grad_weight") and ".lora_" not in op.name]


def test_an_adapter_is_two_gemms_and_a_sum() -> None:
    ops = {op.name: op for op in step(architecture(LLAMA, "x", "x"), "q_proj", "v_proj")}
    assert ops["attention.q.lora_a"].spec == "n[b t d] LoraA_q[d rl] -> low_q[b t rl]"
    assert ops["attention.q.lora_b"].spec == "low_q[b t rl] LoraB_q[rl k g h] -> delta_q[b t k g h]"
    assert ops["attention.q.lora_add"].spec == "q[b t k g h] + delta_q[b t k g h] -> q[b t k g h]"
    assert ops["attention.q.lora_a"].gemm == (1, B * T, RANK, D)
    assert "attention.k.lora_a" not in ops


def test_memory_of_an_8b_under_qlora() -> None:
    """Llama 3.1 8B in NF4: matrices of the layers 4 bits and an fp32 scale per 64, tables and norms 16 bits.

    Adapters of rank 16: bf16, a bf16 gradient, an fp32 master and two fp32 moments.
    """
    arch, d, f, kv, v = hub.load("llama-3.1-8b"), 4096, 14336, 1024, 128256
    need = phases.peak_memory(
        arch, train(arch, dtype="bf16", weights="nf4", attention="flash")._replace(adapters=Adapters(16))
    )
    shapes = [(d, d), (d, kv), (d, kv), (d, d), (d, f), (d, f), (f, d)]
    matrices, adapters = (32 * sum(each) for each in ([a * b for a, b in shapes], [16 * (a + b) for a, b in shapes]))
    assert need.weights == matrices // 2 + matrices // 64 * 4 + 2 * (2 * v * d + (2 * 32 + 1) * d) + 2 * adapters
    assert (need.gradients, need.optimizer) == (2 * adapters, 12 * adapters)


def test_replicas_exchange_the_gradients_of_adapters_only() -> None:
    arch = hub.load("gpt2")
    (exchange,) = (
        op
        for op in step(arch, batch=4, parallel=Parallel(dp=4), weights="nf4", dtype="bf16")
        if op.name == "gradients.all_reduce"
    )
    d = 768
    adapters = 12 * RANK * ((d + 3 * d) + (d + d) + 2 * (d + 4 * d))
    assert exchange.exchanged_bytes == 2 * adapters


def test_frozen_gemms_do_not_keep_their_inputs() -> None:
    """With an adapter on the queries only, the MLP and the output projection keep no inputs.

    All adapters keep the results of their first matrices, too, of which the queries' is one. In the first layer, whose
    keys have no gradient then, attention does not keep the queries. Each element has 16 bits.
    """
    arch = architecture(LLAMA, "x", "x")
    every, few = (phases.peak_memory(arch, train(arch, *names)).kept for names in ((), ("q_proj",)))
    down_input, mlp_input, output_input, ranks, first_queries = F, D, D, 6 * RANK, D
    assert every - few == 2 * B * T * (L * (down_input + mlp_input + output_input + ranks) + first_queries)
