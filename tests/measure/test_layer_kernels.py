"""Measured kernels of encoders, latent attention, linear attention and state spaces: costs and expected times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.engines.engine import benchmark_of
from roofmodel.errors import ProfileError
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.measure.table import RowGroup, groups, least_seconds, read
from roofmodel.measure.validate import validate
from roofmodel.timing import parameter_sets
from roofmodel.timing.timing import formula, place

H100 = Device.load("h100")


def counted(op: str, kv: str | None = None, **columns: Any) -> Operator:
    texts = {"op": op, "benchmark": benchmark_of("sglang"), "phase": "context", "kernel": "", "part": ""}
    return OPERATIONS[op].operator(texts | columns, widths(PRECISIONS["bfloat16"], kv))


def test_latent_attention_of_a_prefill_reads_keys_and_values_of_each_head() -> None:
    cost = counted("mla_context", "fp8", batch=2, heads=16, seq=100, kv_len=300).cost
    pairs = 100 * 200 + 100 * 101 // 2  # with all cached tokens, and with new tokens up to itself
    assert cost.matmul_flops == 2 * 2 * 16 * pairs * (128 + 64 + 128)  # keys of 192 elements, values of 128
    queries, keys_and_values, rotary_keys = 2 * 100 * 16 * 192 * 2, 2 * 300 * 16 * 256 * 2, 2 * 300 * 64  # fp8
    assert cost.bytes == queries + keys_and_values + rotary_keys + 2 * 100 * 16 * 128 * 2


@pytest.mark.parametrize(("kv", "width"), [(None, 2), ("fp8", 1)])
def test_latent_attention_of_a_decode_reads_each_latent_once(kv: str | None, width: int) -> None:
    cost = counted("mla_generation", kv, batch=3, heads=8, seq=1, kv_len=1000).cost
    assert cost.matmul_flops == 2 * 3 * 8 * 1000 * (576 + 512)
    assert cost.bytes == 3 * 1000 * 576 * width + 3 * 8 * (576 + 512) * 2


def test_batched_gemms_of_latent_attention_multiply_each_head_by_its_weights() -> None:
    for part in ("mla_gen_pre", "mla_gen_post"):
        operator = counted("mla_bmm", tokens=10, heads=4, part=part)
        assert operator.cost.matmul_flops == 2 * 10 * 4 * 128 * 512
        assert operator.cost.bytes == 2 * 4 * (10 * 128 + 128 * 512 + 10 * 512)


def test_the_flops_of_attention_equal_those_that_torch_counts() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    def flops(queries: int, keys: int, size: int, value: int, heads: int) -> int:
        q, k = torch.empty(heads, queries, size, device="meta"), torch.empty(heads, keys, size, device="meta")
        with FlopCounterMode(display=False) as counter:
            (q @ k.mT) @ torch.empty(heads, keys, value, device="meta")
        return int(counter.get_total_flops())

    encoder = counted("attn_encoder", batch=2, heads=6, head_dim=72, seq=50)
    assert encoder.cost.matmul_flops == flops(50, 50, 72, 72, 2 * 6)
    decode = counted("mla_generation", batch=2, heads=6, seq=1, kv_len=50)
    assert decode.cost.matmul_flops == flops(1, 50, 576, 512, 2 * 6)
    one_token = counted("mla_context", batch=2, heads=6, seq=1, kv_len=1)
    assert one_token.cost.matmul_flops == flops(1, 1, 192, 128, 2 * 6)


DELTA = {"batch": 4, "seq": 1, "d_conv": 4, "k_heads": 2, "k_dim": 128, "v_heads": 6, "v_dim": 128}


def test_a_decode_of_the_delta_rule_reads_and_writes_a_state_of_32_bits() -> None:
    kernel = "fused_recurrent_gated_delta_rule_packed_decode"
    cost = counted("gdn", **DELTA, phase="generation", kernel=kernel).cost
    state = 4 * 6 * 128 * 128 * 4
    vectors = 4 * (2 * 2 * 128 + 2 * 6 * 128 + 2 * 6) * 2  # queries, keys, values, outputs, decays and write strengths
    parameters = 2 * 6 * 2
    assert cost.bytes == 2 * state + vectors + parameters
    trtllm = counted("gdn", **DELTA, phase="generation", kernel=kernel, benchmark=benchmark_of("trtllm")).cost
    assert trtllm.bytes == state + vectors + parameters


def test_a_prefill_of_the_delta_rule_writes_its_state_except_for_tensorrt_llm() -> None:
    columns = DELTA | {"seq": 100}
    cost = counted("gdn", **columns, kernel="chunk_gated_delta_rule").cost
    stateless = counted("gdn", **columns, kernel="chunk_gated_delta_rule", benchmark=benchmark_of("trtllm")).cost
    assert cost.bytes - stateless.bytes == 4 * 6 * 128 * 128 * 4
    assert cost.matmul_flops == stateless.matmul_flops


def test_causal_filters_read_and_write_each_channel() -> None:
    columns = DELTA | {"seq": 100}
    channels = 2 * 2 * 128 + 6 * 128  # queries, keys, values
    cost = counted("gdn", **columns, kernel="causal_conv1d_fn").cost
    cached = 4 * channels * 4 * 2  # the last 4 tokens
    assert cost.bytes == 4 * 100 * channels * 2 * 2 + channels * 4 * 2 + cached
    trtllm = counted("gdn", **columns, kernel="causal_conv1d_fn", benchmark=benchmark_of("trtllm")).cost
    assert trtllm.bytes == cost.bytes * (2 * 128) / channels
    update = counted("gdn", **columns, kernel="causal_conv1d_update", phase="generation").cost
    assert update.bytes == 4 * channels * (2 + 2) + channels * 4 * 2 + 2 * cached


def test_a_verification_writes_the_state_after_each_draft_token() -> None:
    columns = DELTA | {"seq": 5, "phase": "verify", "kernel": "fused_recurrent_kda"}
    state = 4 * 6 * 128 * 128 * 4
    assert counted("kda", **columns).cost.bytes >= state + 5 * state  # read once, written after each token


def test_kimi_delta_attention_reads_a_decay_for_each_element_of_a_key() -> None:
    columns = DELTA | {"seq": 64, "k_heads": 6, "kernel": "chunk_kda"}
    more = counted("kda", **columns).cost.bytes - counted("gdn", **columns).cost.bytes
    assert more == 4 * 64 * 6 * (128 - 1) * 2 + 6 * (128 - 1) * 2  # decays of the tokens; bias of the time step


def table(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_table_of_delta_rules_needs_no_dtype(tmp_path: Path) -> None:
    header = "op,phase,batch,seq,d_conv,k_heads,k_dim,v_heads,v_dim,latency_us,kernel,framework"
    row = "gdn,context,1,512,4,16,128,32,128,70,chunk_gated_delta_rule,sglang 0.5.14"
    found, notes = groups(read(table(tmp_path / "t.csv", f"{header}\n{row}\n")))
    assert [group.kernel for group in found] == ["sglang chunk_gated_delta_rule"]
    assert not notes[0]
    with pytest.raises(ProfileError, match="missing columns: dtype"):
        read(table(tmp_path / "t.csv", f"{header}\n{row.replace('gdn', 'gemm')}\n"))


def test_a_repeated_header_does_not_require_a_dtype(tmp_path: Path) -> None:
    header = "op,phase,batch,seq,d_conv,k_heads,k_dim,v_heads,v_dim,latency_us"
    row = "gdn,context,1,512,4,16,128,32,128,70"  # without a kernel: the scan
    found, notes = groups(read(table(tmp_path / "t.csv", f"{header}\n{row}\n{header}\n{row}\n")))
    assert [group.operator.name for group in found] == ["linear.scan"]
    assert notes.tolist() == ["", "the row repeats the header", ""]


@pytest.mark.parametrize(
    ("op", "columns", "lacks"),
    [
        ("gdn", "batch,seq,d_conv,k_heads,k_dim,v_heads,v_dim,kernel", "'phase'"),
        ("kda", "batch,seq,d_conv,k_heads,k_dim,v_heads,v_dim,kernel", "'phase'"),
        ("mamba2", "batch,seq,heads,head_dim,groups,d_state,d_conv,phase", "'kernel'"),
        ("mamba2", "batch,seq,heads,head_dim,groups,d_state,d_conv", "'phase', 'kernel'"),
        ("mla_bmm", "tokens,heads", "'part'"),
        ("nccl", "num_gpus,elements", "'collective'"),
        ("custom_allreduce", "num_gpus,elements", "'collective'"),
    ],
)
def test_a_missing_text_column_is_named(op: str, columns: str, lacks: str, tmp_path: Path) -> None:
    cells = ",".join("4" for _ in columns.split(","))
    text = f"op,dtype,latency_us,{columns}\n{op},bfloat16,9,{cells}\n"
    found, notes = groups(read(table(tmp_path / "t.csv", text)))
    assert not found
    assert notes.tolist() == [f"{op}: the table lacks the column {lacks}"]


def test_an_empty_phase_or_kernel_is_named(tmp_path: Path) -> None:
    delta = "op,phase,batch,seq,d_conv,k_heads,k_dim,v_heads,v_dim,latency_us\ngdn,,1,512,4,16,128,32,128,70\n"
    mamba = "op,phase,kernel,batch,seq,heads,head_dim,groups,d_state,d_conv,latency_us\n"
    rows = "mamba2,context,,1,512,64,64,8,128,4,9\nmamba2,,causal_conv1d_fn,1,512,64,64,8,128,4,9\n"
    notes = [groups(read(table(tmp_path / "t.csv", text)))[1].tolist() for text in (delta, mamba + rows)]
    assert notes == [
        ["gdn: phase is empty; known: context, generation, verify"],
        [
            "mamba2: kernel is empty; name the kernel, such as causal_conv1d_fn",
            "mamba2: phase is empty; known: context, generation, verify",
        ],
    ]


def test_the_scan_of_mamba_2_is_skipped_with_its_reason(tmp_path: Path) -> None:
    header = "op,phase,batch,seq,heads,head_dim,groups,d_state,d_conv,latency_us,kernel"
    rows = "mamba2,context,1,512,64,64,8,128,4,{},{}"
    text = "\n".join((header, rows.format(9, "causal_conv1d_fn"), rows.format(90, "mamba_chunk_scan_combined")))
    found = validate(table(tmp_path / "t.csv", f"{text}\n"), H100)
    assert found.skipped == {"mamba2: there is no formula of the scan that measurements could validate; skipped": 1}
    assert found.all_rows.expected is not None


def test_data_that_fit_in_l2_are_not_bound_by_dram() -> None:
    device = Device.load("l40s")
    operator = counted("attn_encoder", batch=np.array([8, 512]), heads=np.array([16, 16]), head_dim=64,
                       seq=np.array([128, 128]))  # fmt: skip
    group = RowGroup("attn_encoder", "bf16", "", "", "", np.arange(2), {}, operator)
    moved = np.array([8, 512]) * 4 * 16 * 64 * 128 * 2  # queries, keys, values and outputs
    flops = np.array([8, 512]) * 4 * 16 * 128 * 128 * 64
    ports = moved / (142 * 2.52e9 * 64)
    missing = moved * np.maximum(1 - 96 * 2**20 / (moved * 3 / 4), 0)
    expected = np.maximum(np.maximum(flops / 362.05e12, ports), missing / 864e9)
    placed = place(operator.cost, device, "bf16")
    assert least_seconds(group, placed, device) == pytest.approx(expected, rel=1e-3)
    cold = group._replace(l2="cold")
    assert least_seconds(cold, placed, device) == pytest.approx(moved / 864e9)


KERNELS = {
    "attn_encoder": {"batch": 2, "heads": 16, "head_dim": 64, "seq": 700},
    "mla_context": {"batch": 2, "heads": 16, "seq": 700, "kv_len": 700},
    "mla_generation": {"batch": 16, "heads": 16, "seq": 1, "kv_len": 3000},
    "mla_bmm": {"tokens": 32, "heads": 16, "part": "mla_gen_pre"},
    "gdn": DELTA | {"seq": 700, "kernel": "chunk_gated_delta_rule"},
    "kda": DELTA | {"seq": 700, "kernel": "flashkda_fwd"},
    "mamba2": {"batch": 2, "seq": 700, "heads": 64, "head_dim": 64, "groups": 8, "d_state": 128, "d_conv": 4,
               "kernel": "causal_conv1d_fn"},
}  # fmt: skip


@pytest.mark.parametrize("hw", ["h100", "h200", "a100", "b200"])
@pytest.mark.parametrize("op", KERNELS)
def test_each_kernel_has_its_own_formula_on_every_device_of_a_similar_design(op: str, hw: str) -> None:
    operator, device = counted(op, **KERNELS[op]), Device.load(hw)
    kind = parameter_sets.kind(operator)
    found = formula(operator, place(operator.cost, device, "bf16"), device, "bf16", "sglang chunk_kda")
    assert kind
    assert found is not None
    assert found.kind == kind
    assert found.seconds > 0


def test_three_filters_of_kimis_delta_attention_take_the_time_of_three_launches() -> None:
    """With few tokens, launches and the tokens of a block take the time."""
    columns = DELTA | {"seq": 8, "k_heads": 6, "batch": 1, "kernel": "causal_conv1d_fn"}
    one, three = (
        formula(operator, place(operator.cost, H100, "bf16"), H100, "bf16", "sglang causal_conv1d_fn")
        for operator in (counted("gdn", **columns), counted("kda", **columns))
    )
    assert one is not None
    assert three is not None
    assert three.implementation == one.implementation == "sglang causal_conv1d_fn"
    assert three.seconds == pytest.approx(3 * one.seconds, rel=0.1)


@pytest.mark.parametrize(
    ("columns", "kinds"),
    [
        ({"seq": 700, "kernel": "chunk_kda"}, ("delta_rule_prefill", "kda_prefill")),
        ({"phase": "generation", "kernel": "fused_kda_decode"}, ("delta_rule_decode", "kda_decode")),
        (
            {"phase": "generation", "kernel": "causal_conv1d_update"},
            ("causal_convolution_update", "kda_convolution_update"),
        ),
    ],
)
def test_kernels_of_kimis_delta_attention_have_parameters_of_their_own(
    columns: dict[str, Any], kinds: tuple[str, str]
) -> None:
    assert tuple(parameter_sets.kind(counted(op, **DELTA | columns)) for op in ("gdn", "kda")) == kinds


@pytest.mark.parametrize(("engine", "windows"), [("vllm", 1), ("sglang", 5)])
def test_the_filter_of_a_verification_reads_its_window_once(engine: str, windows: int) -> None:
    columns = DELTA | {"seq": 5, "phase": "verify", "kernel": "causal_conv1d_update"}
    channels = 2 * 2 * 128 + 6 * 128  # queries, keys, values
    moved = 2 * 5 + 4 * (1 + windows)  # 5 tokens in and out, a window of 4 tokens read once
    cost = counted("kda", **columns, benchmark=benchmark_of(engine)).cost
    assert cost.bytes == pytest.approx(4 * channels * moved * 2 + channels * 4 * 2)


def test_filters_that_wait_for_the_host_are_skipped_with_their_reason(tmp_path: Path) -> None:
    header = "op,phase,batch,seq,d_conv,k_heads,k_dim,v_heads,v_dim,latency_us,kernel,framework"
    row = "kda,context,1,512,4,12,128,12,128,{},causal_conv1d_fn_qkv3,{}"
    text = "\n".join((header, row.format(420, "vllm 0.24.0"), row.format(30, "sglang 0.5.16")))
    found, notes = groups(read(table(tmp_path / "t.csv", f"{text}\n")))
    assert [group.kernel for group in found] == ["sglang causal_conv1d_fn"]
    assert "without a graph" in notes[0]
