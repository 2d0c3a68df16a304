"""Kernels of many programs are recognised as the operators that they truly are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roofmodel.devices import library
from roofmodel.models import hub
from roofmodel.profiles import reading
from roofmodel.profiles.kernel import Kernel
from roofmodel.study.compare import kernel_groups, matching, sequence
from roofmodel.study.estimate.estimate import estimate
from tests.study.compare import traces
from tests.study.compare.traces import Launch

GPT2, LLAMA, MIXTRAL = "gpt2", "meta-llama/Llama-3.2-1B", "mistralai/Mixtral-8x7B-v0.1"
DEEPSEEK, MAMBA, QWEN = "deepseek-ai/DeepSeek-V2-Lite", "state-spaces/mamba-130m-hf", "Qwen/Qwen3.5-9B"


class Found(NamedTuple):
    phases: tuple[str, ...]  # of the passes that were found
    wrong: Counter[tuple[str, str, str]]  # kernel, truth, what was said


def matched(folder: Path, launches: Iterable[Launch], model: str, **workload: Any) -> Found:
    """What matching says of the launches, operators that run together (queries, keys and values) counted as one."""
    truth = list(launches)
    profile = reading.read([traces.write(folder / "trace.json", truth)])
    device = library.load("a100")
    phases = estimate(hub.load(model), device, **workload).phases
    names = [phase.step.phase for phase in phases]
    orders = sequence.orders(phases)
    fused = any(occurrence.anchor == "attention" for each in orders[0] for occurrence in each)
    whole = kernel_groups.group_kernels(list(profile.kernels), device, fused)
    ways = [(matching.match(whole, sequences, names), sequences) for sequences in orders]
    found, sequences = min(ways, key=lambda way: way[0].cost)
    slots = {o.placed.operator.name: " ".join(o.operators) for each in sequences for o in each}
    said = {
        kernel.id: " ".join(sequences[unit.phase][place].placed.operator.name for place in unit.operators)
        for unit in found.units
        for kernel in unit.kernel_group.kernels
    }

    def together(operators: str) -> set[str]:
        return {name for operator in operators.split() for name in slots.get(operator, operator).split()}

    wrong: Counter[tuple[str, str, str]] = Counter()
    for i, launch in enumerate(truth):
        if together(said.get(str(i), "")) != together(launch.truth):
            wrong[launch.name[:60], launch.truth, said.get(str(i), "")] += 1
    return Found(tuple(names[phase] for phase in found.phases), wrong)


def times(n: int, launches: Iterable[Launch]) -> list[Launch]:
    return n * list(launches)


PROGRAMS: dict[str, tuple[list[Launch], str, dict[str, Any], tuple[str, ...]]] = {
    "eager GPT-2": (times(3, traces.gpt2_eager(12)), GPT2, {"phase": "prefill"}, ("prefill",) * 3),
    "eager attention": (
        times(2, traces.eager_attention(12, 40)), GPT2, {"phase": "prefill", "attention": "eager"}, ("prefill",) * 2,
    ),
    "compiled": (times(3, traces.compiled_gpt2(12, 40)), GPT2, {"phase": "prefill"}, ("prefill",) * 3),
    "a file that begins and ends within a pass": (
        times(3, traces.gpt2_eager(12))[37:-20], GPT2, {"phase": "prefill"}, ("prefill",) * 3,
    ),
    "a prompt and four tokens": (
        [
            *traces.llama_eager(16, traces.GEMM, [traces.FLASH], 120),
            *times(4, traces.llama_eager(16, traces.GEMV, [traces.FLASH_SPLIT, traces.FLASH_COMBINE], 14)),
        ],
        LLAMA, {}, ("prefill", *["decode"] * 4),
    ),
    "vLLM": (times(5, traces.vllm_decode(16, 10)), LLAMA, {"phase": "decode"}, ("decode",) * 5),
    "TensorRT-LLM": (times(6, traces.tensorrt_llm_decode(16, 10)), LLAMA, {"phase": "decode"}, ("decode",) * 6),
    "experts of vLLM": (
        times(3, traces.mixtral_vllm(32, 40)), MIXTRAL, {"phase": "decode", "batch": 32}, ("decode",) * 3,
    ),
    "training with projections apart": (
        times(2, traces.llama_training(16, 60, fused=False)), LLAMA, {"phase": "train"}, ("train",) * 2,
    ),
    "training with fused projections": (
        times(2, traces.llama_training(16, 60, fused=True)), LLAMA, {"phase": "train"}, ("train",) * 2,
    ),
    "compiled Llama": (times(3, traces.compiled_llama(16, 60)), LLAMA, {"phase": "prefill"}, ("prefill",) * 3),
    "a state space": (times(3, traces.mamba(24, 40)), MAMBA, {"phase": "prefill"}, ("prefill",) * 3),
    "linear attention": (times(3, traces.linear_attention(32, 100)), QWEN, {"phase": "prefill"}, ("prefill",) * 3),
    "latent attention, shared experts behind the others": (
        times(3, traces.deepseek_vllm(27, 10, shared_first=False)), DEEPSEEK, {"phase": "decode", "batch": 4},
        ("decode",) * 3,
    ),
    "latent attention, shared experts first": (
        times(3, traces.deepseek_vllm(27, 10, shared_first=True)), DEEPSEEK, {"phase": "decode", "batch": 4},
        ("decode",) * 3,
    ),
    "training": (times(3, traces.gpt2_training(12, 40)), GPT2, {"phase": "train"}, ("train",) * 3),
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_kernel_is_the_operator_that_it_truly_is(tmp_path: Path, program: str) -> None:
    launches, model, workload, phases = PROGRAMS[program]
    found = matched(tmp_path, launches, model, **workload)
    assert found.phases == phases
    assert not found.wrong


def test_a_workload_of_another_length_does_not_lead_astray(tmp_path: Path) -> None:
    """Times are then far from what is expected, all by as much: order and kinds must carry."""
    launches = times(3, traces.gpt2_eager(12, microseconds=0.4))
    assert not matched(tmp_path, launches, GPT2, phase="prefill", seq=1024).wrong


def test_micro_batches_are_passes_of_their_own(tmp_path: Path) -> None:
    """Two steps of four: the optimizer, and one scatter where two tables take gradients, are all that is open."""
    found = matched(tmp_path, times(2, traces.megatron(12, 4, 90)), GPT2, phase="train", dtype="bf16", batch=4)
    assert len(found.phases) == 8
    assert sum(found.wrong.values()) <= 8


def test_a_loop_over_experts_is_one_operator(tmp_path: Path) -> None:
    """Which elementwise kernel in the loop combines, and which activates, their names do not tell."""
    found = matched(tmp_path, times(2, traces.hf_experts(32, 8, 40)), MIXTRAL, phase="prefill")
    assert found.phases == ("prefill",) * 2
    assert {truth for _, truth, _ in found.wrong} <= {"mlp.combine", "mlp.expert_activation"}


def test_attention_that_runs_as_products_is_attention_where_it_was_predicted_as_one_kernel(tmp_path: Path) -> None:
    found = matched(tmp_path, times(2, traces.eager_attention(12, 40)), GPT2, phase="prefill", attention="flash")
    assert found.phases == ("prefill",) * 2
    parts = {"attention.scores", "attention.softmax", "attention.mix"}
    assert {(truth in parts, said) for _, truth, said in found.wrong} == {(True, "attention.flash")}


def test_ranges_place_kernels_whose_names_say_nothing(tmp_path: Path) -> None:
    launches = [
        launch._replace(name="kernel" if "norm" in launch.truth or "residual" in launch.truth else traces.GEMM)
        for launch in traces.marked(times(2, traces.gpt2_eager(12)), 12)
        if not launch.truth.startswith("embedding")
    ]
    found = matched(tmp_path, launches, GPT2, phase="prefill")
    named = {"attention.qkv", "attention.output", "mlp.up", "mlp.down", "head.logits"}
    assert not {truth for _, truth, _ in found.wrong} & named


def test_a_graph_of_many_kernels_is_not_one_operator(tmp_path: Path) -> None:
    """Kernels of a CUDA graph all carry the id of the call that launched the graph."""
    launches = [launch._replace(call=("graph_launch", ())) for launch in traces.vllm_decode(16, 10)]
    file = traces.write(tmp_path / "trace.json", launches, one_call=True)
    (profile,) = [reading.read([file])]
    found = kernel_groups.group_kernels(list(profile.kernels), library.load("a100"))
    assert len(found) == sum(1 for launch in launches if launch.name not in (traces.SPLIT_K, traces.FLASH_COMBINE))


def test_ranges_of_pytorch_tell_calls_and_shapes() -> None:
    label = "aten::addmm, seq = 12, op_id = 33, sizes = [[768], [141, 768], [768, 2304]]"
    kernel = Kernel("0", "f", traces.GEMM, nvtx=("step", label))
    assert kernel_groups.recorded_gemm(kernel) == (1, 141, 2304, 768)
    assert kernel_groups.recorded_gemm(replace(kernel, nvtx=("aten::addmm, seq = 12",))) is None


def test_shapes_tell_queries_from_values_of_fewer_heads(tmp_path: Path) -> None:
    """A kernel for each of q, k and v, or one for k and v: equal names and times, but other matrices."""
    hidden, keys = 2048, 512  # Llama 3.2 1B: 32 heads and 8 of keys, of 64

    def product(truth: str, n: int) -> Launch:
        return Launch(traces.GEMM, 30, truth, call=("aten::mm", ((128, hidden), (hidden, n))))

    launches = []
    for launch in traces.vllm_decode(16, 10):
        if launch.truth == "attention.q attention.k attention.v":
            launches += [product("attention.q", hidden), product("attention.k attention.v", 2 * keys)]
        else:
            launches.append(launch)
    assert not matched(tmp_path, launches, LLAMA, phase="prefill", seq=128).wrong
