"""What a serving engine reports when it starts, against logs (engine_memory.csv) and arithmetic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine_memory import LIMITS, Start, starts
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import RoofError
from roofmodel.models.hub import load
from roofmodel.steps.capacity import StartMemory, fewest_requests, server_starts
from roofmodel.steps.estimate import estimate
from roofmodel.steps.options import workload
from tests.profiles.samples import measured

GIB = 2**30


def start(model: str = "llama-3.1-8b", hw: str = "h100", **options: Any) -> StartMemory:
    arch, device = load(model), Device.load(hw)
    found = fewest_requests(server_starts(arch, device, workload(arch, device, dtype="bf16", **options)[0]))
    assert found is not None
    return found


def test_vllm_divides_the_memory_as_its_code_does() -> None:
    """0.92 × 79.19 GiB, less 8.03 G weights of 2 bytes, 0.25 GiB outside PyTorch, 32 layers × 25 MiB of graphs, and the
    sampler: 1024 × 128256 logits of 2 + 13 bytes, beside hidden states of 8192 × 4096 × 2 bytes."""
    sampler = 1024 * 128256 * (2 + 13) + 8192 * 4096 * 2
    left = 0.92 * 79.19 * GIB - 8_030_261_248 * 2 - 0.25 * GIB - 32 * 25 * 2**20 - sampler
    found = start(max_len=8192)
    assert found.kv_cache == pytest.approx(left, rel=1e-6)
    cached = 2 * 32 * 8 * 128 * 2  # bytes of a token: keys and values, 32 layers, 8 heads of 128, bf16
    assert found.kv_tokens == pytest.approx(left / cached, abs=16)
    assert found.max_concurrency == pytest.approx(left / cached / 8192)


def test_the_layer_decides_where_few_sequences_are_sampled() -> None:
    """With 16 sequences the sampler needs little: gate, up and their product of 14336, 4 hidden states of 4096."""
    assert start(max_seqs=16).activation_peak == pytest.approx(8192 * 2 * (3 * 14336 + 4 * 4096), rel=0.01)
    assert start(max_seqs=16, token_budget=2048).activation_peak == pytest.approx(
        start(max_seqs=16).activation_peak / 4, rel=0.01
    )


def test_sglang_reserves_by_tokens_and_graphs() -> None:
    """(512 + 1.5 × 8192 + 2 × 512 + 128 × 8) MiB of 139.8 GiB are reserved: 0.896 of the free memory is used."""
    found = start("llama-3.3-70b-instruct", "h200", engine="sglang", tp=8)
    reserved = (512 + 1.5 * 8192 + 2 * 512 + 128 * 8) * 2**20
    assert found.utilization == pytest.approx(1 - reserved / (139.8 * GIB))
    assert found.kv_cache == pytest.approx(found.utilization * (139.8 - 2) * GIB - found.weights)


def test_trtllm_takes_a_share_of_what_is_left() -> None:
    half, whole = (start(engine="trtllm", memory_utilization=share).kv_cache for share in (0.5, 1.0))
    assert 2 * half == pytest.approx(whole)


def test_vllm_0_6_refuses_a_length_that_a_step_cannot_profile() -> None:
    """An 8B on a 3090 with 29,000 tokens (vllm-project/vllm#10517); with 20,000 it started."""
    arch, device = load("llama-3.1-8b"), Device.load("rtx3090")
    fits = [estimate(arch, device, seq=seq, dtype="bf16", engine="vllm@0.6").fits for seq in (20_000, 29_000)]
    assert fits == [True, False]


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    arch, device = load("llama-3.1-8b"), Device.load("h100")
    most = estimate(arch, device, seq=2048).largest_batch
    assert most
    assert [estimate(arch, device, seq=2048, batch=most + more).fits for more in (0, 1)] == [True, False]


@pytest.mark.parametrize(("tp", "pp", "dp"), [(2, 1, 1), (1, 2, 1), (1, 1, 2)])
def test_more_gpus_take_more_requests(tp: int, pp: int, dp: int) -> None:
    several, one = start(tp=tp, pp=pp, dp=dp, batch=dp), start()
    assert several.max_concurrency >= one.max_concurrency
    assert (several.max_concurrency > one.max_concurrency) is (dp == 1)  # of one replica


def test_a_narrower_cache_takes_twice_the_requests() -> None:
    assert start(kv="fp8").max_concurrency == pytest.approx(2 * start().max_concurrency)


def test_a_window_saves_no_memory_before_the_length_exceeds_it_by_a_step() -> None:
    """A windowed layer is charged window - 1 + token budget: Gemma 3's 1,024 and 8,192 tokens."""
    short, long = (start("gemma-3-12b-pt", max_len=length) for length in (8192, 65536))
    assert short.request * 8 > 2 * long.request
    assert start("gemma-3-12b-pt", max_len=9214).request == pytest.approx(9214 / 8192 * short.request)


def test_options_of_a_server_do_not_apply_to_other_engines() -> None:
    found = estimate(load("gpt2"), Device.load("a100"), engine="torch", max_seqs=8)
    assert found.start is None
    assert any("max_seqs" in str(note) for note in found.notes)


@pytest.mark.parametrize(
    ("asked", "version"),
    [("vllm@0.24", "0.24"), ("vllm@0.22", "0.24"), ("vllm@0.19.1", "0.19"), ("vllm@0.9", "0.12"), ("vllm@0.2", "0.6")],
)
def test_a_version_has_the_file_of_its_range(asked: str, version: str) -> None:
    assert Engine.load(asked).version == version


@pytest.mark.parametrize("text", ["share_of: half", "share_of: device\n  sampler: 13", "share_of: free\n  block: 0"])
def test_an_invalid_section_is_an_error_with_file_and_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"like: vllm\nmemory:\n  {text}\n", encoding="utf-8")
    with pytest.raises(RoofError, match=r"mine\.yaml:\d"):
        Engine.load(str(path))


def test_nine_of_ten_logs_are_met() -> None:
    """Weights within 2 %, KV tokens within 5 %; and refusals are seen."""
    some = list(starts(measured("whole") / "engine_memory.csv", Counter()))

    def met(quantity: str, group: list[Start]) -> float:
        errors = [abs(each.errors[quantity]) for each in group if quantity in each.errors]
        return sum(error <= LIMITS[quantity] for error in errors) / len(errors)

    vllm = [each for each in some if each.row["version"].startswith(("0.11", "0.15", "0.16", "0.17", "0.18", "0.19"))]
    assert met("KV tokens", vllm) >= 0.9
    assert met("weights", some) >= 0.85
    refused = [each for each in some if each.row["fits"] == "false"]
    assert sum(not each.expected.starts for each in refused) >= len(refused) - 1


@pytest.mark.parametrize("stages", [54, 108])
def test_a_pipeline_stage_without_a_kv_cache_does_not_limit_the_requests(stages: int) -> None:
    """Nemotron 3 Ultra has 108 layers, of which 12 cache keys and values; other stages of the pipeline have none."""
    found = start("nemotron-3-ultra", "b300", seq=8, pp=stages, weights="fp8")
    assert 0 < found.max_concurrency < float("inf")
