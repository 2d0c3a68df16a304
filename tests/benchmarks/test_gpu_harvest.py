"""What the GPU kit measured on an H100 (tests/data/gpu): bounds, counts, memory, traces and the order of events."""

from __future__ import annotations

import csv
import gzip
import json
import re
from datetime import datetime
from itertools import pairwise
from math import ceil
from pathlib import Path

import pytest

import roofmodel
from benchmarks.collect import predicted, whole_models
from benchmarks.collect.workloads import Work
from roofmodel.plot.measured import kernels
from roofmodel.profiles.kernel import Kernel

GPU = Path(__file__).parents[1] / "data" / "gpu" / "h100"
MODELS = ("gpt2-xl", "llama", "mixture")


def measured_rows() -> list[dict[str, str]]:
    return [row for name in ("model", "compiled") for row in predicted.rows(GPU, name)]


def estimate(row: dict[str, str], **options: object) -> dict:
    numbers = {name: int(row[name]) for name in ("batch", "seq", "context") if row[name]}
    config = GPU / "configs" / f"{row['model']}.json"
    return roofmodel.estimate(
        str(config), "h100", phase=row["phase"], dtype=row["dtype"], **numbers, **options
    ).to_dict()


@pytest.mark.parametrize("row", [row for row in measured_rows() if row["phase"] != "train"], ids=str)
def test_no_step_is_faster_than_its_bound(row: dict[str, str]) -> None:
    """Without training, for which `estimate` counts an optimizer with fp32 state and the kit ran one with 16 bits."""
    (phase,) = estimate(row)["phases"]
    assert phase["totals"]["bound_seconds"] < float(row["seconds_min"])


def test_predictions_were_written_before_the_steps_ran() -> None:
    """Each model's predictions come in the order of its steps, at least as far apart as the steps before took."""
    for model in MODELS:
        with (GPU / f"predicted-{model}.csv").open(newline="") as file:
            written = {tuple(row[key] for key in predicted.KEY): row["written"] for row in csv.DictReader(file)}
        times = [datetime.fromisoformat(text).timestamp() for text in written.values()]
        took = dict.fromkeys(written, 0.0)
        for row in predicted.rows(GPU, "model"):
            if row["model"] == model:
                took[tuple(row[key] for key in predicted.KEY)] += int(row["repeats"]) * float(row["seconds_min"])
        for step, (before, after) in zip(written, pairwise(times), strict=False):
            assert after - before > took[step], (model, step)


def test_the_bounds_of_that_day_are_still_computed() -> None:
    """Expected times may improve, bounds may not change: they follow from counts and the data sheet."""
    for row in predicted.rows(GPU, "predicted"):
        if row["runtime"] == "eager":
            (phase,) = estimate(row)["phases"]
            assert phase["totals"]["bound_seconds"] == pytest.approx(float(row["bound_seconds"]), rel=1e-12)


def test_the_table_compares_with_the_prediction_made_before() -> None:
    table = predicted.table(GPU)
    row = next(line for line in table.splitlines() if "gpt2-xl | decode 1 ×" in line)
    assert "3.16 ms | 4.19 ms (-25%)" in row  # 3.157 / 4.186 − 1
    assert table in (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text()


def test_a_decode_needs_the_memory_that_is_counted() -> None:
    """Weights and the static cache of 1024 positions; activations, workspaces and rounding of the allocator take up to
    3 % and 512 MiB more (observed: 4.6 % of 23 GiB, 4.1 % of 3.2 GiB)."""
    for row in predicted.rows(GPU, "model"):
        if row["phase"] == "decode" and row["runtime"] == "graph":
            memory = estimate({**row, "context": "1023"})["memory"]
            counted = memory["weights"] + memory["kv_cache"]
            assert counted < int(row["peak_bytes"]) < 1.03 * counted + 2**29, row


# --- Nsight Compute --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prefill() -> list[Kernel]:
    """Two layers of GPT-2 XL: 1024 tokens, width 1600, 25 heads of 64."""
    return kernels([str(GPU / "ncu-gpt2-xl-prefill.raw-base.csv.gz")], "h100-sxm", []).kernels


def tensor_flops(found: list[Kernel], module: str) -> list[int]:
    return [k.flops.tensor_fp16 for k in found if k.nvtx and k.nvtx[-1].endswith(module) and k.flops.tensor_fp16]


def test_hardware_counters_equal_the_counted_flops_of_gemms_without_partial_tiles(prefill: list[Kernel]) -> None:
    tokens, width = 1024, 1600
    assert tensor_flops(prefill, "attn.c_attn") == 2 * [2 * tokens * width * 3 * width]
    assert tensor_flops(prefill, "mlp.c_fc") == 2 * [2 * tokens * width * 4 * width]
    counted = roofmodel.estimate(str(GPU / "configs" / "gpt2-xl-2-layers.json"), "h100", phase="prefill").to_dict()
    by_name = {op["name"]: op["matmul_flops"] for op in counted["phases"][0]["ops"]}
    assert tensor_flops(prefill, "attn.c_attn")[0] == by_name["attention.qkv"]
    assert tensor_flops(prefill, "mlp.c_fc")[0] == by_name["mlp.up"]


def test_hardware_counters_show_the_tiles_that_padding_fills(prefill: list[Kernel]) -> None:
    """1600 columns in tiles of 128, in clusters of two: 14 tiles; causal attention: tiles of 128 × 128 up to the
    diagonal."""
    tokens, width, heads, size, tile = 1024, 1600, 25, 64, 128
    tiles = 2 * ceil(ceil(width / tile) / 2)
    assert tensor_flops(prefill, "attn.c_proj") == 2 * [2 * tokens * width * tiles * tile]
    assert tensor_flops(prefill, "mlp.c_proj") == 2 * [2 * tokens * 4 * width * tiles * tile]
    blocks = tokens // tile
    pairs = blocks * (blocks + 1) // 2 * tile**2
    assert tensor_flops(prefill, "attention") == 2 * [2 * 2 * heads * size * pairs]


def test_a_gemm_reads_at_least_its_weights(prefill: list[Kernel]) -> None:
    for kernel in prefill:
        if kernel.nvtx and kernel.nvtx[-1].endswith("mlp.c_fc"):
            assert kernel.bytes.dram is not None
            assert kernel.bytes.dram > 2 * 1600 * 6400  # the weights in 16 bits


# --- Traces ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gpt2-xl", "llama"])
def test_the_kernels_of_a_trace_take_the_time_of_the_graph(model: str) -> None:
    """The graph has the same kernels and short gaps between them."""
    found = kernels([str(GPU / f"trace-{model}-decode.json.gz")], "h100-sxm", []).kernels
    graph = next(
        row for row in predicted.rows(GPU, "model")
        if (row["model"], row["phase"], row["runtime"], row["batch"]) == (model, "decode", "graph", "1")
    )  # fmt: skip
    assert 0.9 < sum(k.seconds or 0 for k in found) / float(graph["seconds"]) < 1


def test_steps_of_a_gpu_that_lags_behind_are_windows_of_its_work() -> None:
    """The CPU launches the six GEMMs and the copy of a step in 0.3 ms; they take 8.5 ms."""
    report = roofmodel.trace(str(GPU / "trace-two-streams.json.gz")).to_dict()
    assert [step["seconds"] for step in report["steps"]] == pytest.approx([8.47e-3] * 3, rel=2e-3)
    assert report["ranks"][0]["kernels"] == 18
    (copy,) = [each for each in report["ranks"][0]["copies"] if each["kind"] == "HtoD"]
    assert (copy["count"], copy["bytes"]) == (3, 3 * 2**28)
    assert copy["bytes_per_second"] == pytest.approx(55e9, rel=0.01)  # PCIe 5.0 x16: 63 GB/s


@pytest.mark.parametrize(
    ("workers", "advice"),
    [(0, "DataLoader(num_workers=9)"), (4, "1.7 times as many workers (num_workers=2 instead of 1) would hide it")],
)
def test_advice_on_a_slow_loader_depends_on_its_workers(workers: int, advice: str) -> None:
    """With workers, the wait is not the time of a batch: four workers do not suffice, so one cannot."""
    findings = roofmodel.trace(str(GPU / f"trace-loader-{workers}.json.gz")).to_dict()["findings"]
    assert findings[0]["kind"] == "input_bound"
    assert advice in findings[0]["text"]


def test_training_and_mixtures_are_compared_with_the_model() -> None:
    options = dict(hw="h100", batch=1, seq=1024)
    train = roofmodel.compare(
        str(GPU / "configs" / "gpt2-xl.json"),
        str(GPU / "trace-gpt2-xl-train.json.gz"),
        phase="train",
        dtype="fp16",
        **options,
    ).to_dict()
    kernels_of = {row["group"]: row["kernels"] for row in train["rows"]}
    assert [kernels_of[f"mlp.up{part}"] for part in ("", ".grad_input", ".grad_weight")] == [48, 48, 48]
    assert kernels_of["attention.flash.grad"] == 3 * 48  # cuDNN's compute_dot_do_o, bprop and convert_dq_to_16bits
    mixture = roofmodel.compare(
        str(GPU / "configs" / "mixture.json"),
        str(GPU / "trace-mixture-prefill.json.gz"),
        phase="prefill",
        dtype="bf16",
        **options,
    ).to_dict()
    assert not any("layers follow an embedding lookup" in str(each) for each in mixture["findings"])


def test_no_file_names_a_person_or_a_machine() -> None:
    """Traces name a temporary file, and ncu the address of the host on itself; UUIDs of GPUs are replaced."""
    named = re.compile(rb"/(?:home|root|work|opt|mnt|scratch)/|GPU-[0-9a-f]{8}|@[a-z]+\.[a-z]")
    for path in (path for path in GPU.rglob("*") if path.is_file()):
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        assert not (found := named.search(text)), f"{path.name}: {found}"
    assert "host" not in json.loads((GPU / "environment.json").read_text())


# --- The prediction itself ----------------------------------------------------------------------------------


def test_a_device_with_a_file_is_predicted_and_one_without_is_a_row_with_the_reason() -> None:
    config, work = GPU / "configs" / "llama.json", Work("decode", 1, None, 960)
    found = {row["runtime"]: row for row in whole_models.predicted(config, "bf16", work, "h100-sxm")}
    before = next(
        row for row in predicted.rows(GPU, "predicted") if row["model"] == "llama" and row["phase"] == "decode"
    )
    assert {row["status"] for row in found.values()} == {"done"}
    assert found["eager"]["bound_seconds"] == pytest.approx(float(before["bound_seconds"]))
    for row in found.values():
        assert row["expected_low_seconds"] < row["expected_seconds"] < row["expected_high_seconds"]
    unknown = whole_models.predicted(config, "bf16", work, None)
    assert {row["status"] for row in unknown} == {"no file in hardware/ describes this device"}


def test_a_table_without_predictions_has_the_measured_times(tmp_path: Path) -> None:
    (tmp_path / "model-llama.csv").write_text((GPU / "model-llama.csv").read_text())
    row = next(line for line in predicted.table(tmp_path).splitlines() if "decode 1 ×" in line)
    assert row == "| llama | decode 1 × 1 after 960 |  |  | 36.1 ms |  | 10.2 ms |  |  |"
