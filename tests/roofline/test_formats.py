"""Number formats of kernels, from their names and counters, and the pipes whose ceilings a plot has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roofmodel.compare import picture
from roofmodel.compare.answer import finding_texts
from roofmodel.compare.compare import compare
from roofmodel.compare.diagnosis import reasons
from roofmodel.counting.tensors import FORMATS, Widths
from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Flops, Traffic
from roofmodel.roofline.formats import format_mismatch, gemm_format, pipes_in_use
from roofmodel.roofline.points import group, points
from tests import kernels as make
from tests.compare import traces
from tests.profiles.samples import measured

NAMES = {
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn": "fp16",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn": "bf16",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x128x32": "fp16",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "bf16",
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw": "tf32",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688tf32gemm_128x128_16x4_nn_align4>": "tf32",
    "volta_sgemm_128x64_tn": "fp32",
    "volta_h884gemm_128x64_ldg8_nn": "fp16",
    "volta_dgemm_64x64_nt": "fp64",
    "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1>": "fp32",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80": "bf16",
    "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n": "fp8",
    "paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>": "bf16",
    "_ZN4vllm25paged_attention_v1_kernelI13__nv_bfloat16S1_Li128ELNS_18Fp8KVCacheDataTypeE0ELb0EEE": "bf16",
    "_ZN4vllm25paged_attention_v1_kernelItLi128ELN4vllm18Fp8KVCacheDataTypeE1ELb0EEE": None,
    "void vllm::paged_attention_v1_kernel<unsigned short, uint8_t, 64, (vllm::Fp8KVCacheDataType)1, false>": None,
    "some_matmul_kernel": None,
    "vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>": None,  # not a GEMM
}


def widths(dtype: str, weights: str | None = None) -> Widths:
    return Widths(FORMATS[dtype], FORMATS[weights or dtype], FORMATS[dtype])


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_gemm_gives_its_format(name: str) -> None:
    assert gemm_format(make.kernel("1", "f", name)) == NAMES[name]


def test_counters_take_precedence_over_names() -> None:
    flops = Flops(tensor_tf32=1e9, tensor_fp16=0.0)
    assert gemm_format(make.kernel("1", "f", "sgemm", flops=flops)) == "tf32"


def test_the_format_with_the_longest_time_is_compared() -> None:
    tf32, fp16 = (make.kernel("1", "f", name, seconds=s) for name, s in (("gemm_tf32f32", 3.0), ("gemm_fp16", 2.0)))
    found = format_mismatch([tf32, fp16], widths("fp16"))
    assert found is not None
    assert (found.measured, found.given, found.width_ratio) == ("tf32", "fp16", 2)
    assert str(found.message).startswith(
        "the kernels multiply in tf32 (by the kernel name gemm_tf32f32), but dtype is fp16"
    )
    assert str(found.message).endswith('use dtype="tf32"')
    assert format_mismatch([tf32, fp16, fp16], widths("fp16")) is None
    assert format_mismatch([fp16], widths("bf16")) is None  # the same width and speed
    assert format_mismatch([make.kernel("1", "f", "gemm_fp8", seconds=1.0)], widths("bf16", "fp8_block")) is None
    assert format_mismatch([], widths("fp16")) is None


def test_a_kv_cache_format_in_a_name_is_not_the_format_of_gemms() -> None:
    """vLLM's attention kernels have the enumeration Fp8KVCacheDataType among their template arguments."""
    file = str(measured("traces/torch/sglang_Qwen3-8B_decode.json.gz"))
    found = compare("Qwen/Qwen3-8B", [file], None, workload={"phase": "decode", "batch": 32, "dtype": "bf16"})
    assert found.format_mismatch is None


def test_a_wider_format_is_the_first_reason_for_more_bytes() -> None:
    file = str(measured("ncu/a100_40_resnet18_raw_wide.csv"))
    found = compare("resnet-18", [file], None, workload={"phase": "train", "batch": 5})
    assert any(note.endswith('use dtype="tf32"') for note in map(str, found.notes))
    rows = {row.operators[0]: row for row in found.rows}
    row = next(row for row in rows.values() if row.measured_bytes and 1.7 < row.measured_bytes / row.cost.bytes < 2)
    assert (
        f"DRAM traffic is {float(row.measured_bytes / row.cost.bytes):.3g} × the count: tf32 is 2 × as wide as fp16"
        in reasons(row, found)
    )
    right_dtype = compare("resnet-18", [file], None, workload={"phase": "train", "batch": 5, "dtype": "tf32"})
    assert right_dtype.format_mismatch is None


@pytest.mark.parametrize(
    ("hw", "line"), [("a100", "the dashed line marks the expected time"), ("mi300x", "no expected times")]
)
def test_the_picture_has_a_legend_and_all_findings(hw: str, line: str, tmp_path: Path) -> None:
    traces.write(tmp_path / "trace.json", traces.gpt2_eager(12))
    found = compare("gpt2", [str(tmp_path / "trace.json")], hw, workload={"phase": "prefill", "batch": 1})
    picture.draw(found, finding_texts(found), tmp_path / "a.svg", "svg")
    shown = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert line in shown
    words = re.findall(r">([^<>]+)</", shown)
    assert finding_texts(found)[-1].replace("<", "&lt;") in " ".join(words)


@pytest.mark.parametrize(
    ("name", "pipes"),
    [
        ("void copy_kernel(float*)", ["fp32"]),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", ["tensor_fp16"]),
    ],
)
def test_kernels_without_flops_have_the_ceiling_of_the_format_in_their_names(name: str, pipes: list[str]) -> None:
    """Not the highest one of the device, which is int8 on T4."""
    device = Device.load("t4")
    kernel = make.kernel(
        id="0", file="f", name=name, seconds=1e-3, flops=Flops(fp32=0, tensor_fp16=0), bytes=Traffic(dram=1e6)
    )
    assert [pipe.name for pipe in pipes_in_use(points(group(make.table([kernel]), "name"), device), device)] == pipes


def test_without_kernels_all_pipes_are_shown() -> None:
    device = Device.load("t4")
    assert len(pipes_in_use([], device)) == len(device.pipes)
