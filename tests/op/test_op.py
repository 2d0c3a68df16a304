"""One operation on a device (`roof op`)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import RoofError, WorkloadError
from roofmodel.measure.operations import OPERATIONS
from roofmodel.models import hub
from roofmodel.op.op import PARTS_OF_LAYERS
from roofmodel.steps.estimate import estimate
from tests.command_line import Roof, run

H100 = Device.load("h100")
SIZES: dict[str, Any] = {
    "m": 16, "n": 4096, "k": 4096, "batch": 2, "heads": 32, "kv_heads": 8, "head_dim": 128, "seq": 64, "kv_len": 64,
    "tokens": 64, "hidden": 4096, "inter": 1024, "topk": 2, "experts": 8, "part": "mla_gen_pre", "num_gpus": 8,
    "collective": "all_reduce", "elements": 2**20, "inter_per_gpu": 128, "tp": 1, "phase": "context", "d_conv": 4,
    "kernel": "causal_conv1d_fn", "k_heads": 2, "k_dim": 128, "v_heads": 4, "v_dim": 128, "groups": 1, "d_state": 128,
}  # fmt: skip


@pytest.fixture
def roof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Roof:
    """Runs the command line with these arguments."""
    return lambda *arguments: run(arguments, monkeypatch, capsys)


def test_a_gemm_is_counted_by_hand_and_bounded_by_the_longer_of_compute_and_memory() -> None:
    """2 × 512 × 1024 × 2048 FLOPs; 2 bytes for each element of A, B and C."""
    found = roofmodel.op("gemm", "h100", m=512, n=1024, k=2048).to_dict()
    flops, data = 2 * 512 * 1024 * 2048, 2 * (512 * 2048 + 1024 * 2048 + 512 * 1024)
    assert (found["flops"], found["bytes"]) == (flops, data)
    assert found["intensity"] == pytest.approx(flops / data)
    assert found["bound_seconds"] == pytest.approx(max(flops / 989.4e12, data / 3.35e12))
    assert found["bound"] == "memory"
    assert found["expected_low_seconds"] < found["expected_seconds"] < found["expected_high_seconds"]
    assert found["expected_from"] == "measured"


@pytest.mark.parametrize("kind", sorted(OPERATIONS.keys() - PARTS_OF_LAYERS))
def test_every_operation_of_the_tables_has_a_bound(kind: str) -> None:
    operation = OPERATIONS[kind]
    needed = {size: SIZES[size] for size in (*operation.columns, *operation.required_texts)}
    found = roofmodel.op(kind, "b200", **needed)
    assert 0 < found.bound_seconds < 1
    assert found.expected_seconds is None or found.bound_seconds <= found.expected_seconds < 1


def test_an_operation_takes_the_time_of_the_same_operator_in_a_model() -> None:
    """The MLP's first GEMM of Llama 3.1 8B, which PyTorch runs on its own: m = 8 × 64 tokens."""
    phase = estimate(hub.load("llama-3.1-8b"), H100, phase="prefill", batch=8, seq=64, engine="torch").phases[0]
    (down,) = (each for each in phase.placed if each.operator.name == "mlp.down")
    one = roofmodel.op("gemm", "h100", m=512, n=4096, k=14336, engine="torch")
    assert down.run.expected is not None
    assert one.expected_seconds == pytest.approx(float(down.run.expected.value))


def test_attention_with_one_query_per_sequence_is_a_decode() -> None:
    sizes = {"batch": 4, "heads": 32, "kv_heads": 8, "head_dim": 128}
    assert roofmodel.op("attention", "a100", kv_len=1024, **sizes).to_dict()["op"] == "attn_generation"
    prompt = roofmodel.op("attention", "a100", seq=1024, **sizes).to_dict()
    assert (prompt["op"], prompt["sizes"]["kv_len"]) == ("attn_context", 1024)
    # the pairs below and on the diagonal, 2 FLOPs for each of Q·K and P·V
    assert prompt["flops"] >= 4 * 4 * 32 * 128 * 1024 * 1025 / 2


@pytest.mark.parametrize(
    ("kind", "share"), [("all-reduce", 2 * 7 / 8), ("all-gather", 7 / 8), ("reduce-scatter", 7 / 8)]
)
def test_a_collective_sends_what_its_algorithm_needs(kind: str, share: float) -> None:
    found = roofmodel.op(kind, "h100", num_gpus=8, elements=2**20).to_dict()
    assert found["link_bytes"] == pytest.approx(share * 2 * 2**20)
    assert found["bound"] == "communication"


def test_a_convolution_is_counted_as_torch_counts_it() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    layer = torch.nn.Conv2d(64, 128, 3, stride=2, padding=1, bias=False, device="meta")
    with FlopCounterMode(display=False) as counter:
        layer(torch.empty(8, 64, 56, 56, device="meta"))
    found = roofmodel.op("conv", "v100", batch=8, channels=64, filters=128, filter=3, image=56, stride=2).to_dict()
    assert found["flops"] == counter.get_total_flops()


@given(st.sampled_from(["fp16", "fp32", "fp8"]), st.integers(64, 20000), st.integers(64, 20000))
def test_compute_limits_from_the_stated_size_on(dtype: str, n: int, k: int) -> None:
    found = roofmodel.op("gemm", "h100", m=1, n=n, k=k, dtype=dtype).to_dict()["compute_bound_from"]
    if found is None:
        assert roofmodel.op("gemm", "h100", m=2**24, n=n, k=k, dtype=dtype).to_dict()["bound"] == "memory"
        return
    m = found["m"]
    assert roofmodel.op("gemm", "h100", m=m, n=n, k=k, dtype=dtype).to_dict()["bound"] == "compute"
    assert m == 1 or roofmodel.op("gemm", "h100", m=m - 1, n=n, k=k, dtype=dtype).to_dict()["bound"] == "memory"


def test_the_terms_add_up_to_the_expected_time() -> None:
    """latency + √(compute² + memory²), with the fitted latency of the kernel; no split, nothing to quantize."""
    found = roofmodel.op("gemm", "h100", m=4096, n=4096, k=4096)
    terms = found.to_dict()["terms"]
    assert found.operation.run.formula is not None
    latency = found.operation.run.formula.parameters.latency
    assert terms["splits"] == 1
    assert latency + (terms["compute"] ** 2 + terms["memory"] ** 2) ** 0.5 == pytest.approx(found.expected_seconds)
    assert terms["waves"] == -(-terms["tiles"] // 132)


def test_a_measured_time_is_set_against_bound_and_expected_time(roof: Roof) -> None:
    result = roof("op", "gemm", "--hw", "h100", "--m", "4096", "--n", "4096", "--k", "4096", "--measured", "100us")
    printed = " ".join(result.out.split())  # 2 × 4096³ FLOPs take 139 µs at 989.4 TFLOP/s
    assert "100 µs, below the bound of 139 µs: faster than physically possible; check the sizes, --dtype" in printed


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ("137.5us", "1% faster than the bound: the clock was above the rated boost clock"),
        ("127us", "9.4% faster than the bound: the clock was above the rated boost clock"),
        ("126us", "faster than physically possible"),
    ],
)
def test_a_clock_above_the_rated_one_explains_up_to_10_percent(seconds: str, text: str, roof: Roof) -> None:
    """2 × 4096³ FLOPs take 138.9 µs at 989.4 TFLOP/s: 1.1 times the clock, 126.3 µs."""
    sizes = ("--m", "4096", "--n", "4096", "--k", "4096")
    assert text in " ".join(roof("op", "gemm", "--hw", "h100", *sizes, "--measured", seconds).out.split())


def test_fp16_accumulation_explains_a_gemm_of_a_geforce_above_its_fp32_ceiling(roof: Roof) -> None:
    """2 × 8192³ FLOPs in 4.4 ms are 250 TFLOP/s on an RTX 4090: 165.2 with fp32 accumulation, 330.3 with fp16."""
    sizes = ("--m", "8192", "--n", "8192", "--k", "8192", "--dtype", "fp16")
    explained = "above the ceiling with fp32 accumulation; with fp16 accumulation it is 330 TFLOP/s"
    for hardware, seconds, expected in (
        ("rtx4090", "4.4ms", True), ("rtx4090", "3.3ms", False), ("h100", "1ms", False),
    ):  # fmt: skip
        result = roof("op", "gemm", "--hw", hardware, *sizes, "--measured", seconds)
        assert (explained in " ".join(result.out.split())) == expected


def test_the_command_prints_the_document(roof: Roof) -> None:
    result = roof("op", "softmax", "--hw", "a100", "--m", "128", "--n", "1024", "--format", "json")
    assert json.loads(result.out)["schema"] == "roofmodel.op/1"


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        ("gem", {}, "did you mean 'gemm'"),
        ("gemm", {"m": 4}, "gemm needs n, k"),
        ("gemm", {"m": 4, "n": 4, "k": 4, "heads": 2}, "heads is no size of gemm; it has m, n, k"),
        ("gemm", {"m": 0, "n": 4, "k": 4}, "m is 0; give a whole number from 1"),
        ("attention", {"heads": 6, "kv_heads": 4, "head_dim": 64, "kv_len": 8}, "heads=6 is no multiple of kv_heads=4"),
        ("moe", {"tokens": 1, "hidden": 8, "inter": 8, "topk": 4, "experts": 2}, "topk=4 is more than experts=2"),
        ("gemm", {"m": 4, "n": 4, "k": 4, "dtype": "fp17"}, "dtype: unknown format 'fp17'"),
        ("gemm", {"m": 4, "n": 4, "k": 4, "measured": "140"}, "measured"),
        (
            "conv",
            {"batch": 1, "channels": 3, "filters": 8, "filter": 9, "image": 3, "stride": 1, "groups": 2},
            "groups",
        ),
    ],
)
def test_an_invalid_operation_is_an_error_that_says_what_works(kind: str, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises((WorkloadError, RoofError), match=message):
        roofmodel.op(kind, "h100", **sizes)


@pytest.mark.parametrize("gpus", [3, 6, 1000])
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
def test_a_collective_over_any_number_of_gpus_is_a_document(kind: str, gpus: int, roof: Roof) -> None:
    """(n - 1) / n of a tensor is no whole number of bytes."""
    result = roof("op", kind, "--hw", "h100", "--num-gpus", str(gpus), "--elements", "1000000", "--format", "json")
    assert json.loads(result.out)["link_bytes"] > 0


def test_fewer_value_heads_than_key_heads_are_an_error() -> None:
    sizes = {"batch": 1, "seq": 8, "d_conv": 4, "k_heads": 32, "k_dim": 128, "v_heads": 16, "v_dim": 128}
    with pytest.raises(WorkloadError, match="v_heads=16 is no multiple of k_heads=32"):
        roofmodel.op("gdn", "a100", phase="context", kernel="chunk_gated_delta_rule", **sizes)


def test_a_time_between_arithmetic_and_dram_traffic_is_that_of_data_in_the_l2_cache(roof: Roof) -> None:
    """34.6 MB take 10.3 µs at 3.35 TB/s and fit in 50 MiB; 2.15 GFLOP take 2.2 µs."""
    sizes = ("--hw", "h100", "--m", "64", "--n", "4096", "--k", "4096", "--measured")
    lines = [
        next(line for line in roof("op", "gemm", *sizes, seconds).out.splitlines() if line.startswith("measured"))
        for seconds in ("1us", "9us", "12us")
    ]
    assert ["physically" in line for line in lines] == [True, False, False]
    assert ["faster than DRAM allows" in line for line in lines] == [False, True, False]
    assert "the data come from the L2 cache" in lines[1]


@pytest.mark.parametrize("kind", sorted(OPERATIONS.keys() - PARTS_OF_LAYERS))
def test_each_name_in_a_formula_has_its_own_row(kind: str) -> None:
    needed = {size: SIZES[size] for size in (*OPERATIONS[kind].columns, *OPERATIONS[kind].required_texts)}
    operation = roofmodel.op(kind, "h100", **needed).operation
    rows = {step.name for step in operation.steps} | {each.name for each in operation.inputs}
    names = {name for step in operation.steps for name in re.findall(r"[a-z_][\w.]*", step.formula)}
    assert names or operation.run.formula is None
    assert names - {"max", "expm1"} <= rows
    assert ("gemms.2.rows" in rows) == (kind == "moe")


def test_the_inputs_of_a_formula_have_their_units(roof: Roof) -> None:
    """1 × 64 × 4096 and 4096 × 4096 read and 64 × 4096 written, in 2 bytes: 34.6 MB."""
    lines = roof("op", "gemm", "--hw", "h100", "--m", "64", "--n", "4096", "--k", "4096").out.splitlines()
    shown = {line.split()[0]: line.split()[1:3] for line in lines if line.strip()}
    assert shown["bytes"] == ["34.6", "MB"]
    assert (shown["chip.peak"], shown["chip.bandwidth"]) == (["989", "TFLOP/s"], ["3.35", "TB/s"])
    assert shown["timing.latency"][1] == "µs"
    assert shown["a"] == ["2", "bytes"]  # the meaning follows: bytes per element of A
