"""TTFT and TPOT of generation, and the totals of the stages of generation and of a training step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import roofmodel

GENERATION: list[dict[str, Any]] = [
    {"seq": 512, "engine": "torch"},
    {"seq": 512, "engine": "vllm"},
    {"seq": 900, "batch": 32, "engine": "torch"},  # a kernel-bound prefill, launch-bound decodes
    {"seq": 512, "batch": 8, "tp": 2, "pp": 2},
    {"seq": 512, "batch": 8, "pp": 2, "micro_batch": 2, "engine": "vllm"},
]
TRAINING: list[dict[str, Any]] = [
    {"seq": 512, "batch": 16},
    {"seq": 512, "batch": 16, "engine": "torch", "engine_option": "launch=graph", "recompute": "full"},
    {"seq": 512, "batch": 16, "pp": 2, "dp": 2, "engine": "torch", "engine_option": "launch=graph"},
]
COUNTS = ("matmul_flops", "vector_flops", "bytes", "weight_bytes", "kv_cache_bytes", "link_bytes", "kernels")


def phase_of(phase: str, **options: Any) -> dict[str, Any]:
    (found,) = roofmodel.estimate("gpt2", "a100", phase=phase, **options).to_dict()["phases"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("options", GENERATION)
@pytest.mark.parametrize("new_tokens", [1, 100])
def test_ttft_and_the_tpot_of_each_decode_add_up_to_generation(options: dict[str, Any], new_tokens: int) -> None:
    totals = phase_of("generate", new_tokens=new_tokens, **options)["totals"]
    for kind in ("bound_", ""):  # the prefill gives the first token: TPOT = (latency - TTFT) / decodes
        latency = totals["bound_seconds" if kind else "expected_seconds"]
        assert totals[f"{kind}ttft_seconds"] + new_tokens * totals[f"{kind}tpot_seconds"] == pytest.approx(latency)


@pytest.mark.parametrize("options", GENERATION)
def test_ttft_is_the_time_of_a_prefill_and_tpot_that_of_a_decode(options: dict[str, Any]) -> None:
    totals = phase_of("generate", new_tokens=1, **options)["totals"]
    prefill, decode = (phase_of(phase, **options)["totals"] for phase in ("prefill", "decode"))
    assert totals["ttft_seconds"] == pytest.approx(prefill["expected_seconds"])
    assert totals["tpot_seconds"] == pytest.approx(decode["expected_seconds"])
    assert totals["bound_ttft_seconds"] == pytest.approx(prefill["bound_seconds"])
    assert totals["bound_tpot_seconds"] == pytest.approx(decode["bound_seconds"])


@pytest.mark.parametrize(
    ("phase", "options", "names"),
    [
        *(("generate", options, ["prefill", "decodes"]) for options in GENERATION),
        *(("train", options, ["forward", "backward", "optimizer"]) for options in TRAINING),
    ],
)
def test_the_stages_of_a_phase_add_up_to_its_totals(phase: str, options: dict[str, Any], names: list[str]) -> None:
    found = phase_of(phase, **options)
    totals, stages = found["totals"], found["stages"]
    assert [name for name in stages if name != "recomputation"] == names
    for key in COUNTS:
        assert sum(stage[key] for stage in stages.values()) == totals[key]
    waits = totals["bubble_seconds"] if phase == "train" else 0  # of the whole training step, not of a stage
    waits -= totals["communication_seconds"] - totals["communication_exposed_seconds"]  # overlapped gradient exchange
    assert sum(stage["bound_seconds"] for stage in stages.values()) + waits == pytest.approx(totals["bound_seconds"])
    if phase == "generate" or "engine_option" in options:
        waits = totals["expected_bubble_seconds"] if phase == "train" else 0
        if totals["expected_communication_seconds"]:
            waits -= totals["expected_communication_seconds"] - totals["expected_communication_exposed_seconds"]
        waits += totals["expected_replica_seconds"]
        for key in ("expected_seconds", "expected_low_seconds", "expected_high_seconds"):
            if key == "expected_seconds" or not waits:
                assert sum(stage[key] for stage in stages.values()) + waits == pytest.approx(totals[key])


def test_each_stage_takes_at_least_its_kernels_and_its_launches() -> None:
    """A step may take less than the sum of its stages: the host launches while the GPU is in an earlier stage."""
    found = phase_of("train", seq=128)
    totals, stages = found["totals"], found["stages"]
    assert stages["forward"]["host_bound"]
    assert stages["forward"]["expected_seconds"] == pytest.approx(40e-6 * stages["forward"]["kernels"])
    assert not stages["optimizer"]["host_bound"]  # one kernel, which updates 124 million parameters
    (update,) = (op for op in found["ops"] if op["stage"] == "optimizer")
    assert stages["optimizer"]["expected_seconds"] == pytest.approx(update["expected_seconds"])
    for stage in stages.values():
        assert stage["expected_seconds"] >= stage["bound_seconds"]
        assert stage["expected_low_seconds"] <= stage["expected_seconds"] <= stage["expected_high_seconds"]
    assert sum(stage["expected_seconds"] for stage in stages.values()) >= totals["expected_seconds"]


def test_decodes_can_be_launch_bound_after_a_prefill_that_is_not() -> None:
    report = roofmodel.estimate("gpt2", "a100", phase="generate", seq=900, batch=32, new_tokens=2, engine="torch")
    totals = report.totals["generate"]
    stages = report.to_dict()["phases"][0]["stages"]
    assert [stage["host_bound"] for stage in stages.values()] == [False, True]
    assert totals["host_bound"]
    launches = 40e-6 * stages["decodes"]["kernels"]
    assert totals["expected_seconds"] == pytest.approx(stages["prefill"]["expected_seconds"] + launches)
    (note,) = (note for note in report.notes if "launch-bound" in note)
    assert note.startswith(f"decodes are launch-bound: {stages['decodes']['kernels']} operator launches at 40 µs")


def test_only_phases_with_stages_have_them_in_the_document() -> None:
    for phase in ("prefill", "decode", "forward"):
        found = phase_of(phase, seq=64)
        assert "stages" not in found
        assert "ttft_seconds" not in found["totals"]


def test_without_calibration_ttft_and_stages_have_no_expected_time(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("name: Toy\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 10 GB/s}\n")
    (found,) = roofmodel.estimate("gpt2", str(file), phase="generate", seq=64).to_dict()["phases"]
    assert found["totals"]["ttft_seconds"] is found["totals"]["tpot_seconds"] is None
    assert found["totals"]["bound_ttft_seconds"] > 0
    for stage in found["stages"].values():
        assert stage["expected_seconds"] is stage["expected_low_seconds"] is stage["host_bound"] is None


@pytest.mark.parametrize("options", [{}, {"engine": "vllm", "batch": 8}, {"tp": 2, "pp": 2, "batch": 4}])
def test_tpot_lies_between_the_first_and_the_last_decode(options: dict[str, Any]) -> None:
    """The decodes have the times of estimates with these contexts. The users share the tokens of all GPUs."""

    def phase_of(phase: str, **more: Any) -> dict[str, Any]:
        (found,) = roofmodel.estimate("llama-3.2-1b", "h100", phase=phase, **options, **more).to_dict()["phases"]
        return found

    phase = phase_of("generate", seq=512, new_tokens=1024)
    totals = phase["totals"]
    for kind in ("", "bound_"):
        first, mean, last = (totals[f"{kind}tpot{which}_seconds"] for which in ("_first", "", "_last"))
        assert first <= 1.000001 * mean <= 1.000002 * last
        assert kind == "" or first < mean < last  # expected decodes may be launch-bound
        for which, context in (("first", 512), ("last", 512 + 1023)):
            decode_seconds = phase_of("decode", context=context)["totals"][f"{kind or 'expected_'}seconds"]
            assert totals[f"{kind}tpot_{which}_seconds"] == pytest.approx(decode_seconds)
        assert totals[f"{kind}e2e_seconds"] == totals[f"{kind or 'expected_'}seconds"]
        gpus = options.get("tp", 1) * options.get("pp", 1)
        rate = totals[f"{kind}tokens_per_second"]
        assert totals[f"{kind}tokens_per_second_per_gpu"] == pytest.approx(rate / gpus)
        assert totals[f"{kind}tokens_per_second_per_user"] == pytest.approx(1 / mean)
