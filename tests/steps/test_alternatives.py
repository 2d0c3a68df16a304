"""Suggestions for a workload that does not fit: the smallest change of one option."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting import passes, phases
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.steps.alternatives import MAX_GPUS, PeakMemory
from roofmodel.steps.capacity import needed_bytes, server_starts
from roofmodel.steps.estimate import estimate
from roofmodel.steps.options import workload
from roofmodel.steps.parallelism import possible_tp


def warning(model: str, hw: str, **options: Any) -> str:
    found = estimate(hub.load(model), Device.load(hw), **options)
    return "".join(str(note) for note in found.notes if "the workload does not fit" in str(note))


@pytest.mark.parametrize(
    ("model", "hw", "options"), [("llama-3.1-70b", "a100", {}), ("deepseek-v3", "h100", {"tp": 8, "phase": "decode"})]
)
def test_the_suggested_values_fit_and_smaller_ones_do_not(model: str, hw: str, options: dict[str, Any]) -> None:
    arch, device, text = hub.load(model), Device.load(hw), warning(model, hw, **options)
    fits = {
        name: [value for value in values if estimate(arch, device, **{**options, name: value}).fits][:1]
        for name, values in {
            "tp": [n for n in possible_tp(arch) if options.get("tp", 1) < n <= 8],  # of a node
            "pp": [2, 4],
            "weights": ["fp8", "int4"],
        }.items()
    }
    assert sum(map(bool, fits.values())) >= 2
    for name, value in ((name, value) for name, values in fits.items() for value in values):
        assert f'{name}="{value}"' in text or f"{name}={value}" in text


@pytest.mark.parametrize(
    ("hw", "options", "advised"),
    [
        ("h200", {"dp": 8, "batch": 8}, {"zero": 1}),
        ("h100", {"dp": 64, "batch": 128, "zero": 1, "micro_batch": 2}, {"recompute": "full"}),
        ("h100", {"dp": 64, "batch": 128, "micro_batch": 2}, {"zero": 1, "recompute": "full"}),
        ("h100", {"dp": 64, "batch": 2048, "zero": 1, "micro_batch": 32, "recompute": "full"}, {"micro_batch": 4}),
    ],
)
def test_training_that_does_not_fit_is_advised_the_cheapest_change_that_needs_no_more_gpus(
    hw: str, options: dict[str, Any], advised: dict[str, Any]
) -> None:
    """Sharded optimizer, recomputation, microbatch, in this order; each alone before several together."""
    arch, device = hub.load("llama-3.1-8b"), Device.load(hw)
    options = {"phase": "train", "seq": 4096, "engine": "megatron", "dtype": "bf16", **options}
    text = warning("llama-3.1-8b", hw, **options)
    named = " ".join(
        f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in advised.items()
    )
    assert text.endswith(f"it fits with {named}")
    assert estimate(arch, device, **{**options, **advised}).fits
    if len(advised) > 1:
        assert not any(estimate(arch, device, **{**options, name: value}).fits for name, value in advised.items())


def test_tensor_parallelism_is_not_advised_beyond_a_node() -> None:
    """Nodes of eight GPUs; 70 B parameters with 18 bytes each need 16 GPUs or more."""
    text = warning("llama-3.1-70b", "h100", phase="train", batch=4)
    assert text.endswith("fits with pp=32")


def test_a_workload_that_fits_has_no_suggestion() -> None:
    assert warning("gpt2", "a100") == ""


def test_a_batch_that_fits_in_no_layout_is_reported() -> None:
    assert f"up to {MAX_GPUS} or narrower weights" in warning("gpt2-xl", "a100", batch=10**6)
    options: dict[str, Any] = {"phase": "train", "dtype": "bf16", "batch": 64, "seq": 4096, "micro_batch": 1}
    assert warning("llama-3.1-70b", "h100", **options).endswith("`roof plan --train` combines them")


@pytest.mark.parametrize("model", ["gpt-oss-20b", "deepseek-v2-lite", "t5-large", "qwen3-next-80b-a3b-instruct"])
@pytest.mark.parametrize("options", [{}, {"phase": "generate"}, {"phase": "train"}, {"ep": 2, "dp": 2, "batch": 2}])
def test_the_memory_after_a_change_equals_that_of_a_separate_traversal(model: str, options: dict[str, Any]) -> None:
    """The formula for all tensor-parallel sizes and the shared traversals of stages and formats give equal bytes."""
    arch, device = hub.load(model), Device.load("h100")
    memory = PeakMemory(arch, device, workload(arch, device, **options)[0], passes.CachedWalks())
    changes: list[dict[str, Any]] = [{"tp": 2}, {"tp": 4}]
    changes += [] if arch.encoder else [{"pp": 2}, {"pp": 4}]
    changes += [] if options.get("phase") == "train" else [{"weights": "fp8"}, {"weights": "int4"}]
    for change in changes:
        work, _ = workload(arch, device, **options, **change)
        needed = needed_bytes(server_starts(arch, device, work), phases.peak_memory(arch, work))
        assert memory.needed(work) == pytest.approx(needed, rel=1e-12), change
