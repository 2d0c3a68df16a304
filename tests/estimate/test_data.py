"""The JSON document of an estimate."""

from __future__ import annotations

import csv
import io
import json

import pytest

from roofmodel.devices.device import Device
from roofmodel.estimate.answer import describe_memory
from roofmodel.estimate.command import Report
from roofmodel.estimate.data import to_dict
from roofmodel.estimate.tables import OPERATORS
from roofmodel.models import hub
from roofmodel.models.config import architecture
from roofmodel.numbers import units
from roofmodel.steps.estimate import estimate
from tests.estimates import run


def test_the_document_has_the_keys_of_the_contract() -> None:
    document = to_dict(run("gpt2"))
    assert document["schema"] == "roofmodel.estimate/1"
    assert {"name", "model_type", "head", "parameters"} <= set(document["model"])
    assert {"name", "calibrated"} <= set(document["hardware"])
    assert {"batch", "seq", "context", "dtype"} <= set(document["workload"])
    assert set(document["memory"]) >= {"weights", "kv_cache", "activations", "gradients", "optimizer", "total", "fits"}
    for phase in document["phases"]:
        assert {"phase", "ops", "totals"} <= set(phase)
        assert {
            "matmul_flops", "vector_flops", "bytes", "weight_bytes", "kv_cache_bytes", "bound_seconds",
            "expected_seconds", "expected_low_seconds", "expected_high_seconds", "bound_tokens_per_second",
            "tokens_per_second", "mfu", "mbu",
        } <= set(phase["totals"])  # fmt: skip
        for op in phase["ops"]:
            assert {
                "name", "layers", "count", "kind", "spec", "matmul_flops", "vector_flops", "bytes_read",
                "bytes_written", "intensity", "bound", "bound_seconds", "expected_seconds",
            } <= set(op)  # fmt: skip
            assert op["count"] == (1 if op["layers"] is None else len(op["layers"]))


def test_the_needed_memory_is_what_the_printed_line_has() -> None:
    """vLLM starts with weights, memory outside torch, activations and CUDA graphs, and has the KV cache of the
    workload. Other engines state no division of the memory: all roles count."""
    for engine in ("vllm", "torch"):
        report = estimate(hub.load("llama-3.1-8b"), Device.load("h100"), phase="decode", batch=4, engine=engine)
        memory = to_dict(report)["memory"]
        started = sum(
            memory[key] or 0
            for key in ("weights", "kv_cache", "non_torch_bytes", "activation_peak_bytes", "graph_bytes")
        )
        assert memory["needed"] == (memory["total"] if engine == "torch" else started)
        assert f"{units.binary(memory['needed'])} of ".replace(" GiB", "") in describe_memory(report)


def test_different_layers_are_listed_separately() -> None:
    arch = hub.packaged("qwen2.5-0.5b")
    assert arch is not None
    config = arch.config | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 20}
    ops = to_dict(estimate(architecture(config, "x", "x"), Device.load("v100"), seq=64))["phases"][0]["ops"]
    flash = [op["layers"] for op in ops if op["name"] == "attention.flash"]
    assert flash == [list(range(20)), list(range(20, 24))]


def test_a_convolutional_network_has_images_instead_of_tokens() -> None:
    document = to_dict(run("resnet-50", batch=32))
    totals = document["phases"][0]["totals"]
    assert document["workload"]["image"] == [224, 224]
    assert document["workload"]["seq"] is None
    assert totals["bound_tokens_per_second"] is None
    assert totals["bound_images_per_second"] == 32 / totals["bound_seconds"]
    text = Report(run("resnet-50", batch=32)).text("markdown")
    assert "forward: 32 images of 224 × 224 pixels" in text
    assert "images/s" in text
    assert "token" not in text.partition("\n- ")[0]
    patches = to_dict(run("vit-base-patch16-224", image=384))
    assert patches["workload"]["seq"] == 577  # (384 / 16)², and the class token


@pytest.mark.parametrize(
    ("model", "operator", "side"),
    [
        ("gpt2", "attention.scores", "n"),
        ("gpt2", "attention.mix", "k"),
        ("t5-large", "attention.scores", "n"),
        ("llama-3.1-8b", "attention.scores", "n"),
        ("deepseek-v3", "attention.kv_up", "m"),
    ],
)
def test_gemm_sizes_of_generation_are_numbers_in_json_and_csv(model: str, operator: str, side: str) -> None:
    found = run(model, phase="generate", attention="eager", mla="naive", seq=512, new_tokens=128)
    mean = 512 + 129 / 2  # 512 keys from the prompt, and 1 to 128 new ones: 64.5 on average
    ops = {(op["stage"], op["name"]): op for op in json.loads(Report(found).text("json"))["phases"][0]["ops"]}
    assert ops["decodes", operator]["gemm"][side] == mean
    lines = {(line["stage"], line["name"]): line for line in csv.DictReader(io.StringIO(Report(found).text("csv")))}
    assert float(lines["decodes", operator][f"gemm_{side}"]) == mean
    for line in lines.values():
        assert all(line[f"gemm_{key}"] == "" or float(line[f"gemm_{key}"]) > 0 for key in ("batch", "m", "n", "k"))


def test_every_column_of_the_operators_has_a_meaning_for_the_reference() -> None:
    assert [column.key for column in OPERATORS.columns if column.shown("json") and not column.meaning] == []
