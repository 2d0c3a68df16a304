"""What a workload that does not fit needs: the smallest change of one option."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.study.estimate.alternatives import MAX_GPUS
from roofmodel.study.estimate.estimate import estimate
from roofmodel.study.estimate.parallelism import possible_tp


def warning(model: str, hw: str, **options: Any) -> str:
    found = estimate(hub.load(model), Device.load(hw), **options)
    return "".join(str(note) for note in found.notes if "the workload does not fit" in str(note))


@pytest.mark.parametrize(
    ("model", "hw", "options"), [("llama-3.1-70b", "a100", {}), ("deepseek-v3", "h100", {"tp": 8, "phase": "decode"})]
)
def test_the_named_parallel_sizes_and_format_fit_and_smaller_ones_do_not(
    model: str, hw: str, options: dict[str, Any]
) -> None:
    arch, device, text = hub.load(model), Device.load(hw), warning(model, hw, **options)
    fits = {
        name: [value for value in values if estimate(arch, device, **{**options, name: value}).fits][:1]
        for name, values in {
            "tp": [n for n in possible_tp(arch) if options.get("tp", 1) < n <= 16],
            "pp": [2, 4],
            "weights": ["fp8", "int4"],
        }.items()
    }
    assert all(fits.values())
    for name, (value,) in fits.items():
        assert f'{name}="{value}"' in text or f"{name}={value}" in text


def test_a_workload_that_fits_has_no_such_note() -> None:
    assert warning("gpt2", "a100") == ""


def test_a_batch_that_no_layout_fits_is_named_as_such() -> None:
    assert f"up to {MAX_GPUS} or narrower weights" in warning("gpt2-xl", "a100", batch=10**6)
