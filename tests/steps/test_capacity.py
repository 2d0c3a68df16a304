"""The largest batch and context that fit: exact, and equal to a search from one upward."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.counting import passes, phases
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.steps.capacity import MemoryFormula, largest, needed_bytes
from roofmodel.steps.estimate import estimate
from roofmodel.steps.options import workload


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=4),
    st.integers(0, 3000),
    st.integers(1, 400),
    st.booleans(),
    st.integers(1, 500),
)
def test_the_largest_size_fits_and_the_next_one_does_not(
    lines: list[tuple[int, int]], capacity: int, limit: int, convex: bool, start: int
) -> None:
    """Memory is piecewise linear in the size: convex (activations) or concave (cache of a sliding window)."""

    def need(n: int) -> int:
        return (max if convex else min)(a + b * n for a, b in lines) + n

    fitting = max((n for n in range(1, limit + 1) if need(n) <= capacity), default=0)
    assert largest(need, capacity, limit, start) == (None if fitting == limit else fitting)


def test_memory_that_does_not_grow_has_no_largest_size() -> None:
    assert largest(lambda n: 7, 10, 10**9) is None
    assert largest(lambda n: 7, 5, 10**9) == 0
    windowed = estimate(hub.load("mistral-7b-v0.1"), Device.load("a100"), phase="decode", context=10)
    assert windowed.largest_context is None  # its cache has at most 4096 tokens


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gpt2-xl", {}),
        ("gpt2-xl", {"attention": "eager", "phase": "prefill"}),
        ("llama-3.1-8b", {"phase": "decode", "context": 100_000, "kv": "int4"}),
        ("llama-3.1-8b", {"phase": "generate", "new_tokens": 1000}),
        ("bert-base-uncased", {}),
    ],
)
def test_the_largest_batch_and_context_fit_and_one_more_does_not(model: str, options: dict[str, Any]) -> None:
    report = estimate(hub.load(model), Device.load("a100"), **options)
    capacity, varied = report.usable_memory, "context" if "context" in options else "seq"
    for name, most in (("batch", report.largest_batch), (varied, report.largest_context)):
        assert capacity is not None
        assert most
        for more, fits in ((0, True), (1, False)):
            work = report.workload._replace(**{name: most + more})
            memory = phases.peak_memory(report.architecture, work)
            assert (needed_bytes(report.starts, memory) <= capacity) is fits


def test_no_batch_fits_if_the_weights_do_not_fit() -> None:
    report = estimate(hub.load("llama-3.1-70b"), Device.load("a100"))
    assert (report.fits, report.largest_batch, report.largest_context) == (False, 0, 0)


@pytest.mark.parametrize("dp", [4, 8])
def test_an_estimate_with_the_largest_batch_fits(dp: int) -> None:
    options: dict[str, Any] = {"phase": "train", "dp": dp}
    most = estimate(hub.load("gpt2-xl"), Device.load("a100"), batch=dp, **options).largest_batch
    assert most
    assert estimate(hub.load("gpt2-xl"), Device.load("a100"), batch=most, **options).memory.total <= 0.9 * 80 * 2**30
    assert (
        estimate(hub.load("gpt2-xl"), Device.load("a100"), batch=most + dp, **options).memory.total > 0.9 * 80 * 2**30
    )


def test_deepseek_v3_in_fp8_does_not_fit_on_eight_h100_at_the_default_share() -> None:
    """671 GB in fp8 on 8 × 80 GiB: 79.3 GiB are weights, and vLLM may use 0.92 of the 79.19 that the driver states."""
    asked = {"phase": "decode", "tp": 8, "seq": 1024}
    found = estimate(hub.load("deepseek-v3"), Device.load("h100"), **asked)
    assert found.workload.weights == "fp8_block"
    assert found.fits is False
    assert found.largest_batch == 0
    assert found.usable_memory == pytest.approx(0.92 * 79.19 * 2**30)
    assert estimate(hub.load("deepseek-v3"), Device.load("h100"), memory_utilization=1, **asked).fits is False


def test_a_larger_share_of_the_memory_is_advised_where_the_server_would_start_with_it() -> None:
    """Qwen3-32B: 61.0 GiB of weights and 15.7 GiB of KV cache for 64 sequences of 1,025 tokens exceed 72.9 of 79.2 GiB
    with the activations; 16 sequences do not, but for a share of 0.85."""
    asked: dict[str, Any] = {"phase": "decode", "seq": 1024, "batch": 16, "dtype": "bf16"}
    device, model = Device.load("h100"), hub.load("qwen3-32b")
    refused = estimate(model, device, **asked, memory_utilization=0.85)
    (note,) = (note for note in map(str, refused.notes) if "memory_utilization" in note)
    share = float(note.partition("=")[2].strip('"'))
    assert refused.fits is False
    assert estimate(model, device, **asked, memory_utilization=share).fits is True
    assert estimate(model, device, **asked, memory_utilization=share - 0.002).fits is False


@pytest.mark.parametrize("model", ["gpt2", "gpt-oss-20b", "t5-large", "qwen3-next-80b-a3b-instruct", "gemma-3-1b-pt"])
@pytest.mark.parametrize("new_tokens", [1, 9, 3000])
def test_the_formula_equals_the_operators_of_the_last_decode(model: str, new_tokens: int) -> None:
    arch = hub.load(model)
    work, _ = workload(arch, phase="generate", batch=3, seq=300, new_tokens=77)
    step = work._replace(new_tokens=new_tokens).steps()[0]
    found = MemoryFormula(arch, work, 1).decode_operators(new_tokens)
    assert found == passes.one_pass(arch, phases.last_decode_step(step))
