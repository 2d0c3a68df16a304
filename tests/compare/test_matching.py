"""Matching of kernels with operators, in synthetic traces of many programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roofmodel.compare import kernel_groups, matching, sequence
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.profiles import reading
from roofmodel.steps.estimate import estimate
from tests import kernels as make
from tests.compare import traces
from tests.compare.traces import Launch

GPT2, LLAMA, MIXTRAL = "gpt2", "meta-llama/Llama-3.2-1B", "mistralai/Mixtral-8x7B-v0.1"
DEEPSEEK, MAMBA, QWEN = "deepseek-ai/DeepSeek-V2-Lite", "state-spaces/mamba-130m-hf", "Qwen/Qwen3.5-9B"


class Matched(NamedTuple):
    """Detected phases, and mismatches."""

    phases: tuple[str, ...]  # one per detected pass
    wrong: Counter[tuple[str, str, str]]  # kernel name, true operator, matched operator


def matched(folder: Path, launches: Iterable[Launch], model: str, **workload: Any) -> Matched:
    """Match the launches; operators of one slot (Q, K and V) count as equal."""
    truth = list(launches)
    profile = reading.read([traces.write(folder / "trace.json", truth)])
    device = Device.load("a100")
    phases = estimate(hub.load(model), device, **workload).phases
    names = [phase.step.phase for phase in phases]
    orders = sequence.orders(phases)
    fused = any(occurrence.anchor == "attention" for each in orders[0] for occurrence in each)
    groups = kernel_groups.group_kernels(list(profile.kernels), device, fused)
    matchings = [(matching.match(groups, sequences, names), sequences) for sequences in orders]
    found, sequences = min(matchings, key=lambda matching_: matching_[0].cost)
    slots = {o.placed.operator.name: " ".join(o.operators) for each in sequences for o in each}
    operators_of = {
        kernel.id: " ".join(sequences[unit.phase][place].placed.operator.name for place in unit.operators)
        for unit in found.units
        for kernel in unit.kernel_group.kernels
    }

    def slot_names(operators: str) -> set[str]:
        return {name for operator in operators.split() for name in slots.get(operator, operator).split()}

    wrong: Counter[tuple[str, str, str]] = Counter()
    for i, launch in enumerate(truth):
        if slot_names(operators_of.get(str(i), "")) != slot_names(launch.truth):
            wrong[launch.name[:60], launch.truth, operators_of.get(str(i), "")] += 1
    return Matched(tuple(names[phase] for phase in found.phases), wrong)


def repeat(n: int, launches: Iterable[Launch]) -> list[Launch]:
    return n * list(launches)


PROGRAMS: dict[str, tuple[list[Launch], str, dict[str, Any], tuple[str, ...]]] = {
    "eager GPT-2": (repeat(3, traces.gpt2_eager(12)), GPT2, {"phase": "prefill"}, ("prefill",) * 3),
    "eager attention": (
        repeat(2, traces.eager_attention(12, 40)), GPT2, {"phase": "prefill", "attention": "eager"}, ("prefill",) * 2,
    ),
    "compiled": (repeat(3, traces.compiled_gpt2(12, 40)), GPT2, {"phase": "prefill"}, ("prefill",) * 3),
    "a file that begins and ends inside a pass": (
        repeat(3, traces.gpt2_eager(12))[37:-20], GPT2, {"phase": "prefill"}, ("prefill",) * 3,
    ),
    "a prefill and four decodes": (
        [
            *traces.llama_eager(16, traces.GEMM, [traces.FLASH], 120),
            *repeat(4, traces.llama_eager(16, traces.GEMV, [traces.FLASH_SPLIT, traces.FLASH_COMBINE], 14)),
        ],
        LLAMA, {}, ("prefill", *["decode"] * 4),
    ),
    "vLLM": (repeat(5, traces.vllm_decode(16, 10)), LLAMA, {"phase": "decode"}, ("decode",) * 5),
    "TensorRT-LLM": (repeat(6, traces.tensorrt_llm_decode(16, 10)), LLAMA, {"phase": "decode"}, ("decode",) * 6),
    "MoE in vLLM": (
        repeat(3, traces.mixtral_vllm(32, 40)), MIXTRAL, {"phase": "decode", "batch": 32}, ("decode",) * 3,
    ),
    "training with separate projections": (
        repeat(2, traces.llama_training(16, 60, fused=False)), LLAMA, {"phase": "train"}, ("train",) * 2,
    ),
    "training with fused projections": (
        repeat(2, traces.llama_training(16, 60, fused=True)), LLAMA, {"phase": "train"}, ("train",) * 2,
    ),
    "compiled Llama": (repeat(3, traces.compiled_llama(16, 60)), LLAMA, {"phase": "prefill"}, ("prefill",) * 3),
    "a state-space model": (repeat(3, traces.mamba(24, 40)), MAMBA, {"phase": "prefill"}, ("prefill",) * 3),
    "linear attention": (repeat(3, traces.linear_attention(32, 100)), QWEN, {"phase": "prefill"}, ("prefill",) * 3),
    "latent attention, shared experts last": (
        repeat(3, traces.deepseek_vllm(27, 10, shared_first=False)), DEEPSEEK, {"phase": "decode", "batch": 4},
        ("decode",) * 3,
    ),
    "latent attention, shared experts first": (
        repeat(3, traces.deepseek_vllm(27, 10, shared_first=True)), DEEPSEEK, {"phase": "decode", "batch": 4},
        ("decode",) * 3,
    ),
    "training": (repeat(3, traces.gpt2_training(12, 40)), GPT2, {"phase": "train"}, ("train",) * 3),
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_kernel_is_matched_with_its_operator(tmp_path: Path, program: str) -> None:
    launches, model, workload, phases = PROGRAMS[program]
    found = matched(tmp_path, launches, model, **workload)
    assert found.phases == phases
    assert not found.wrong


def test_a_wrong_sequence_length_does_not_change_the_matches(tmp_path: Path) -> None:
    """With a wrong length, all times differ from the expected ones by a similar factor: order and kind decide."""
    launches = repeat(3, traces.gpt2_eager(12, microseconds=0.4))
    assert not matched(tmp_path, launches, GPT2, phase="prefill", seq=1024).wrong


def test_each_microbatch_is_a_pass(tmp_path: Path) -> None:
    """Two steps of four microbatches. Only optimizer kernels and one scatter for the gradients of two tables differ."""
    found = matched(tmp_path, repeat(2, traces.megatron(12, 4, 90)), GPT2, phase="train", dtype="bf16", batch=4)
    assert len(found.phases) == 8
    assert sum(found.wrong.values()) <= 8


def test_a_loop_over_experts_matches_one_grouped_gemm(tmp_path: Path) -> None:
    """The names of the elementwise kernels do not separate the activation from the combination."""
    found = matched(tmp_path, repeat(2, traces.hf_experts(32, 8, 40)), MIXTRAL, phase="prefill")
    assert found.phases == ("prefill",) * 2
    assert {truth for _, truth, _ in found.wrong} <= {"mlp.combine", "mlp.expert_activation"}


def test_gemms_of_eager_attention_match_predicted_flash_attention(tmp_path: Path) -> None:
    found = matched(tmp_path, repeat(2, traces.eager_attention(12, 40)), GPT2, phase="prefill", attention="flash")
    assert found.phases == ("prefill",) * 2
    parts = {"attention.scores", "attention.softmax", "attention.mix"}
    assert {(truth in parts, operators_of) for _, truth, operators_of in found.wrong} == {(True, "attention.flash")}


def test_ranges_identify_kernels_with_uninformative_names(tmp_path: Path) -> None:
    launches = [
        launch._replace(name="kernel" if "norm" in launch.truth or "residual" in launch.truth else traces.GEMM)
        for launch in traces.marked(repeat(2, traces.gpt2_eager(12)), 12)
        if not launch.truth.startswith("embedding")
    ]
    found = matched(tmp_path, launches, GPT2, phase="prefill")
    named = {"attention.qkv", "attention.output", "mlp.up", "mlp.down", "head.logits"}
    assert not {truth for _, truth, _ in found.wrong} & named


def test_kernels_of_a_cuda_graph_are_not_grouped_into_one_call(tmp_path: Path) -> None:
    """All kernels of a CUDA graph have the id of the call that launched the graph."""
    launches = [launch._replace(call=("graph_launch", ())) for launch in traces.vllm_decode(16, 10)]
    file = traces.write(tmp_path / "trace.json", launches, one_call=True)
    (profile,) = [reading.read([file])]
    found = kernel_groups.group_kernels(list(profile.kernels), Device.load("a100"))
    assert len(found) == sum(1 for launch in launches if launch.name not in (traces.SPLIT_K, traces.FLASH_COMBINE))


def test_nvtx_ranges_of_pytorch_give_calls_and_shapes() -> None:
    label = "aten::addmm, seq = 12, op_id = 33, sizes = [[768], [141, 768], [768, 2304]]"
    kernel = make.kernel("0", "f", traces.GEMM, nvtx=("step", label))
    assert kernel_groups.recorded_gemm(kernel) == (1, 141, 2304, 768)
    assert kernel_groups.recorded_gemm(make.changed(kernel, nvtx=("aten::addmm, seq = 12",))) is None


def test_recorded_shapes_separate_q_from_k_and_v_with_grouped_heads(tmp_path: Path) -> None:
    """One kernel for Q and one for K and V: equal names and times, but different matrices."""
    hidden, keys = 2048, 512  # Llama 3.2 1B: 32 query heads, 8 KV heads, head size 64

    def gemm(truth: str, n: int) -> Launch:
        return Launch(traces.GEMM, 30, truth, call=("aten::mm", ((128, hidden), (hidden, n))))

    launches = []
    for launch in traces.vllm_decode(16, 10):
        if launch.truth == "attention.q attention.k attention.v":
            launches += [gemm("attention.q", hidden), gemm("attention.k attention.v", 2 * keys)]
        else:
            launches.append(launch)
    assert not matched(tmp_path, launches, LLAMA, phase="prefill", seq=128).wrong
