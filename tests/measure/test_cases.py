"""Cases of `roof measure`: balanced sweeps within limits, and operators of a model as rows of tables."""

from __future__ import annotations

from collections import Counter

import pytest

from roofmodel.counting import phases
from roofmodel.errors import WorkloadError
from roofmodel.measure.cases import DTYPES, KERNELS, BenchmarkCase, Limits, model_cases, operator_case, sweep
from roofmodel.measure.operations import OPERATIONS
from roofmodel.models import hub
from roofmodel.steps.options import workload

SMALL = Limits(5e8, 2.0**26)


def test_a_sweep_has_each_operation_in_each_of_its_formats_without_repeats() -> None:
    cases = sweep(KERNELS, DTYPES, Limits(4e12, 2.0**31))
    assert len(cases) == len(set(cases))
    kinds = {(case.op, case.dtype) for case in cases}
    assert kinds == {(op, dtype) for op, (dtypes, _) in KERNELS.items() for dtype in dtypes}
    for case in cases:
        assert set(case.sizes) == {*OPERATIONS[case.op].columns, *OPERATIONS[case.op].optional}
    assert all(case.sizes["n"] % 16 == case.sizes["k"] % 16 == 0 for case in cases if case.dtype == "fp8")


def test_the_first_part_of_a_sweep_is_a_balanced_sample() -> None:
    cases = sweep(KERNELS, ("fp32", "bf16"), SMALL)
    first = Counter(case.kind for case in cases[:220])
    assert set(first) == {case.kind for case in cases}
    gemm_counts = {kind: first.pop(kind) for kind in [*first] if kind[0] == "gemm"}  # three GEMMs per other case
    assert max(first.values()) - min(first.values()) <= 1
    assert 3 * min(first.values()) <= min(gemm_counts.values()) <= max(gemm_counts.values()) <= 3 * max(first.values())
    gemms = [case.sizes["m"] for case in cases if case.op == "gemm"]
    assert min(gemms[:40]) < 16 < 512 < max(gemms[:40])


def test_a_sweep_stays_within_its_limits_and_depends_only_on_its_seed() -> None:
    cases = sweep(["gemm", "softmax"], ("fp32",), SMALL, seed=7)
    assert cases == sweep(["gemm", "softmax"], ("fp32",), SMALL, seed=7)
    assert cases != sweep(["gemm", "softmax"], ("fp32",), SMALL, seed=8)
    for case in cases:
        if case.op == "gemm":
            m, n, k = (case.sizes[name] for name in "mnk")
            assert 2 * m * n * k <= 5e8
            assert 4 * (m * n + n * k + m * k) <= 2**26


def test_the_cases_of_gpt2_xl_are_those_derived_by_hand() -> None:
    """Width 1600, 25 heads of size 64, vocabulary 50257; two sequences of 512 tokens, logits of the last token only."""
    cases, others = model_cases(hub.load("gpt2-xl"), ("fp16",), batch=2, seq=512, phase="prefill")
    assert [(c.op, tuple(c.sizes.values())) for c in cases if c.kernel in ("torch_linear", "torch_flash")] == [
        ("gemm", (1024, 4800, 1600)),
        ("attn_context", (2, 25, 25, 64, 512, 512, 0)),
        ("gemm", (1024, 1600, 1600)),
        ("gemm", (1024, 6400, 1600)),
        ("gemm", (1024, 1600, 6400)),
        ("gemm", (2, 50257, 1600)),
    ]
    rest = {c.op: tuple(c.sizes.values()) for c in cases if not c.op.startswith(("gemm", "attn"))}
    # the position embeddings are broadcast over both sequences, unlike the operands of `add` in tables
    assert rest == {"emb": (512, 1600), "layernorm": (1024, 1600), "gelu": (1024, 6400), "add": (1024, 1600)}
    assert others == ("embedding.add_position",)


@pytest.mark.parametrize("name", ["gpt2-xl", "llama-3.1-8b", "mistral-7b-v0.1", "bert-large-uncased", "gemma-2-9b"])
@pytest.mark.parametrize("seq", [64, 8192])
def test_a_measured_operation_has_the_counts_of_the_models_operator(name: str, seq: int) -> None:
    """Equal matmul FLOPs; equal bytes except for biases and gains of norms."""
    arch = hub.load(name)
    found = 0
    for step in workload(arch, batch=3, seq=seq)[0].steps():
        for operator in phases.operators(arch, step):
            if named := operator_case(operator):
                same = OPERATIONS[named[0]].operator(named[1], operator.widths)
                assert same.matmul_flops == operator.matmul_flops, operator.name
                parameters = sum(operator.bytes_of(tensor) for tensor in operator.parameters)
                assert abs(same.cost.bytes - operator.cost.bytes) <= parameters, operator.name
                found += 1
    assert found > 6


def test_attention_that_tables_cannot_describe_has_no_case() -> None:
    """BERT's attention is bidirectional; Mistral's sliding window matters for prompts longer than 4096 tokens."""
    assert "attention.flash" in model_cases(hub.load("bert-large-uncased"), ("fp16",))[1]
    assert "attention.flash" in model_cases(hub.load("mistral-7b-v0.1"), ("fp16",), seq=8192)[1]
    assert "attention.flash" not in model_cases(hub.load("mistral-7b-v0.1"), ("fp16",), seq=4096)[1]


def test_other_activations_are_not_measured_as_gelu() -> None:
    assert "mlp.activation" in model_cases(hub.load("opt-1.3b"), ("fp16",))[1]  # a ReLU


@pytest.mark.parametrize(
    ("name", "norm"),
    # LayerNorms (OLMo's without gain and bias, Command R's without bias) and RMSNorms
    [
        ("gpt2", "layernorm"),
        ("OLMo-1B-hf", "layernorm"),
        ("c4ai-command-r-v01", "layernorm"),
        ("gemma-2-9b", "input_layernorm"),
    ],
)
def test_norms_are_measured_as_layernorm_or_rmsnorm(name: str, norm: str) -> None:
    arch = hub.load(name)
    (step,) = workload(arch, batch=1, seq=16, phase="prefill")[0].steps()
    found = [operator_case(operator) for operator in phases.operators(arch, step) if operator.kind == "norm"]
    assert {each[0] for each in found if each} == {norm}


@pytest.mark.parametrize(("name", "options"), [("gpt2", {"seq": 32}), ("llama-3.1-8b", {"seq": 32}), ("resnet-18", {})])
def test_only_gemms_and_additions_of_a_backward_pass_are_measured(name: str, options: dict[str, int]) -> None:
    arch = hub.load(name)
    (step,) = workload(arch, batch=2, phase="train", **options)[0].steps()
    named = {operator.name: operator_case(operator) for operator in phases.operators(arch, step)}
    cases = {part: [found for name, found in named.items() if name.endswith(part)] for part in (".grad", "grad_sum_x")}
    assert set(cases[".grad"]) == {None}
    assert {found and found[0] for found in cases["grad_sum_x"]} == {"add"}
    others = model_cases(arch, ("fp16",), batch=2, phase="train", **options)[1]
    assert {name for name in named if name.endswith(".grad")} <= set(others)


def test_a_case_prints_its_operation_format_kernel_and_shape() -> None:
    assert (
        str(BenchmarkCase("softmax", "fp16", "torch_softmax", (("m", 3), ("n", 4))))
        == "softmax fp16 torch_softmax m=3 n=4"
    )


def test_a_model_with_an_invalid_workload_is_refused() -> None:
    with pytest.raises(WorkloadError, match="batch"):
        model_cases(hub.load("gpt2"), ("fp16",), batch=0)
    with pytest.raises(WorkloadError, match='one phase at a time; try phase="decode"'):
        model_cases(hub.load("gpt2"), ("fp16",), phase="generate", seq=4, new_tokens=2)
