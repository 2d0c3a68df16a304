"""Traffic of operators that transformers runs as several kernels, compared with that of torch's kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.models.architecture import SOFTMAX_IN_SCORE_DTYPE
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate
from roofmodel.timing.extra_kernels import COMPOSED, Width, composed, is_composed
from tests.timing.test_casting import Autocast, KernelTraffic

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import activations  # noqa: E402
from transformers.models.auto.configuration_auto import model_type_to_module_name  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb  # noqa: E402

A100 = Device.load("a100")
BATCH, SEQ = 2, 128
HEADS, KV_HEADS, HEAD, MLP = 32, 8, 64, 8192  # Llama 3.2 1B
ROWS = BATCH * SEQ
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Case(NamedTuple):
    """An operator of a model, and its function in transformers with the shapes of the inputs."""

    model: str
    operator: str
    shapes: tuple[tuple[int, ...], ...]
    code: Callable[..., Any]


def gated_activation(gate: Any, up: Any) -> Any:
    return torch.nn.functional.silu(gate) * up


def rotary_embedding(queries: Any, keys: Any) -> Any:
    table = torch.empty(BATCH, SEQ, HEAD, dtype=queries.dtype)
    return apply_rotary_pos_emb(queries, keys, table, table)


def rms_norm(rows: Any) -> Any:
    return LlamaRMSNorm(rows.shape[-1]).to(rows.dtype)(rows)


CASES = {
    "rmsnorm": Case("llama-3.2-1b", "norm.mlp", ((BATCH, SEQ, HEADS * HEAD),), rms_norm),
    "rotary": Case(
        "llama-3.2-1b", "attention.rotary", ((BATCH, HEADS, SEQ, HEAD), (BATCH, KV_HEADS, SEQ, HEAD)), rotary_embedding
    ),
    "gate": Case("llama-3.2-1b", "mlp.activation", ((BATCH, SEQ, MLP), (BATCH, SEQ, MLP)), gated_activation),
    "gelu_new": Case("gpt2", "mlp.activation", ((BATCH, SEQ, 3072),), activations.NewGELUActivation()),
    "gelu_fast": Case("fast", "mlp.activation", ((BATCH, SEQ, 3072),), activations.FastGELUActivation()),
    "gelu_quick": Case("quick", "mlp.activation", ((BATCH, SEQ, 3072),), activations.QuickGELUActivation()),
    "relu2": Case("squared", "mlp.activation", ((BATCH, SEQ, 3072),), activations.ReLUSquaredActivation()),
}
ACTIVATIONS = {"fast": "gelu_fast", "quick": "quick_gelu", "squared": "relu2"}


def torch_traffic(case: Case, dtype: str, autocast: bool = False) -> tuple[int, int]:
    """Bytes that torch's kernels move in the forward and in the backward pass."""
    with torch.device("meta"):
        inputs = [torch.empty(shape, dtype=DTYPES[dtype], requires_grad=True) for shape in case.shapes]
        with KernelTraffic() as forward:
            if autocast:
                with Autocast():
                    outputs = case.code(*inputs)
            else:
                outputs = case.code(*inputs)
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        gradients = [torch.empty_like(result) for result in results]
        with KernelTraffic() as backward:
            torch.autograd.backward(results, gradients)
    return sum(forward.bytes.values()), sum(backward.bytes.values())


def operators(case: Case, dtype: str) -> list[Operator]:
    """The forward operator and its gradient."""
    if case.model in ACTIVATIONS:
        config = transformers.GPT2Config(activation_function=ACTIVATIONS[case.model], architectures=["GPT2LMHeadModel"])
        model = architecture(config.to_dict(), "a", "a")
    else:
        model = load(case.model)
    options = {"phase": "train", "batch": BATCH, "seq": SEQ, "dtype": dtype, "attention": "eager"}
    found = {one.operator.name: one.operator for one in estimate(model, A100, **options).phases[0].placed}
    return [found[case.operator], found[f"{case.operator}.grad"]]


def counted_traffic(case: Case, dtype: str) -> tuple[int, int]:
    """Bytes of operator and extra kernels in the forward and in the backward pass, without parameters and tables."""
    forward, backward = operators(case, dtype)
    width: Width = "wide" if dtype == "fp32" else "narrow"
    found = [composed(one, width).bytes + row_bytes(one) for one in (forward, backward)]
    return found[0], found[1]


def row_bytes(operator: Operator) -> int:
    """Counted bytes of an operator, without parameters and tables."""
    tensors = (*operator.reads, *operator.writes)
    stored = [t for t in tensors if t.name.removeprefix("grad.")[0].isupper() or t.name in ("cos", "sin")]
    return operator.cost.bytes - sum(operator.bytes_of(tensor) for tensor in stored)


def number_of_elements(case: Case) -> int:
    return sum(math.prod(shape) for shape in case.shapes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["gate", "gelu_new", "gelu_fast", "gelu_quick", "relu2"])
def test_the_traffic_of_several_kernels_equals_that_of_torch(name: str, dtype: str) -> None:
    assert counted_traffic(CASES[name], dtype) == torch_traffic(CASES[name], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotary_embedding_also_reads_its_tables(dtype: str) -> None:
    """It reads cosine and sine for queries and for keys."""
    tables = 4 * ROWS * HEAD * DTYPES[dtype].itemsize
    forward, backward = counted_traffic(CASES["rotary"], dtype)
    assert torch_traffic(CASES["rotary"], dtype) == (forward + tables, backward + tables)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_traffic_of_a_norm_is_little_more_than_its_rows(dtype: str) -> None:
    """The rest are its gains and a few numbers per row: forward, 24 bytes for the mean and its root."""
    for expected, counted in zip(
        torch_traffic(CASES["rmsnorm"], dtype), counted_traffic(CASES["rmsnorm"], dtype), strict=True
    ):
        assert 0 <= expected - counted < 0.004 * counted


@pytest.mark.parametrize("name", ["rmsnorm", "rotary", "gelu_new"])
def test_rows_of_16_bits_become_fp32_under_autocast(name: str) -> None:
    case, size = CASES[name], number_of_elements(CASES[name])
    forward, backward = operators(case, "bf16")
    if name == "rmsnorm":  # its gains are parameters and stay in fp32
        case = case._replace(code=lambda rows: LlamaRMSNorm(rows.shape[-1])(rows))
    if name == "rotary":
        case = case._replace(code=lambda q, k: apply_rotary_pos_emb(q, k, *(torch.empty(BATCH, SEQ, HEAD),) * 2))
    traffic = torch_traffic(case, "bf16", autocast=True)
    table_bytes = 4 * 4 * ROWS * HEAD if name == "rotary" else 0
    for one, expected in zip((forward, backward), traffic, strict=True):
        counted = composed(one, "mixed").bytes + row_bytes(one)
        assert 0 <= expected - table_bytes - counted < 0.004 * size * (COMPOSED[name]["mixed"].forward[0])


def test_an_operator_that_torch_runs_as_one_kernel_has_no_extra_kernels() -> None:
    for model, name in (
        ("bert-base-uncased", "mlp.activation"),
        ("bert-base-uncased", "norm.mlp"),
        ("gpt2", "norm.mlp"),
    ):
        case = Case(model, name, (), gated_activation)
        assert not any(map(is_composed, operators(case, "bf16")))


def test_sums_of_gradients_are_one_kernel() -> None:
    options = {"phase": "train", "batch": BATCH, "seq": SEQ, "dtype": "bf16", "attention": "eager"}
    placed = estimate(load("llama-3.2-1b"), A100, **options).phases[0].placed
    names = {one.operator.name: [kernel.name for kernel in one.extra_kernels] for one in placed}
    assert names["norm.mlp.grad"] == ["in several kernels"]
    assert names["norm.mlp.grad_sum_x"] == []


def test_megatron_fuses_casts() -> None:
    options = {"phase": "train", "batch": BATCH, "seq": SEQ, "dtype": "bf16"}
    placed = estimate(load("llama-3.2-1b"), A100, engine="megatron", **options).phases[0].placed
    assert not any(kernel.name == "in several kernels" for one in placed for kernel in one.extra_kernels)


TWO_SOFTMAX_TYPES = {"bloom", "gpt_bigcode", "xglm"}  # their files have softmax in both types, or by an option


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - TWO_SOFTMAX_TYPES))
def test_softmax_is_in_fp32_if_it_is_in_transformers(family: str) -> None:
    module = model_type_to_module_name(family)
    source = Path(transformers.__file__).parent / "models" / module / f"modeling_{module}.py"
    text = source.read_text() if source.exists() else ""
    calls = re.findall(r"softmax\((?:attn|attention|combined|\n)[^\n]*", text)
    if not calls:
        pytest.skip("not applicable: this model file has no softmax call")
    assert any(re.search(r"float32|\.float\(", call) for call in calls) == (family not in SOFTMAX_IN_SCORE_DTYPE), calls


def test_softmax_in_fp32_includes_the_traffic_of_its_casts() -> None:
    """Bytes per score: cast 2 + 4, softmax 4 + 4, cast back 4 + 2; the gradient reads two tensors."""
    for dtype, forward, backward in (("bf16", 20, 24), ("fp16", 20, 24)):
        options = {"phase": "train", "batch": BATCH, "seq": SEQ, "dtype": dtype, "attention": "eager"}
        placed = {one.operator.name: one for one in estimate(load("llama-3.2-1b"), A100, **options).phases[0].placed}
        scores = BATCH * HEADS * SEQ * SEQ
        for name, bytes_per_score in (("attention.softmax", forward), ("attention.softmax.grad", backward)):
            (extra,) = (kernel.bytes for kernel in placed[name].extra_kernels if kernel.name == "softmax in fp32")
            assert extra + placed[name].operator.cost.bytes == bytes_per_score * scores
