"""The largest batch and context that fit: exact, and equal to a search from one upward."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.counting import passes, phases
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.steps.capacity import MemoryFormula, largest
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
            assert (phases.peak_memory(report.architecture, work).total <= capacity) is fits


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
    """671 GB in fp8 on 8 × 80 GiB: 79.3 of 80 GiB are weights, of which 72 GiB may be used."""
    asked = {"phase": "decode", "tp": 8, "seq": 1024}
    found = estimate(hub.load("deepseek-v3"), Device.load("h100"), **asked)
    assert found.workload.weights == "fp8_block"
    assert found.fits is False
    assert found.largest_batch == 0
    assert found.usable_memory == pytest.approx(72 * 2**30)
    assert any("memory_utilization" in str(note) for note in found.notes)
    assert estimate(hub.load("deepseek-v3"), Device.load("h100"), memory_utilization=1, **asked).fits is True


@pytest.mark.parametrize("model", ["gpt2", "gpt-oss-20b", "t5-large", "qwen3-next-80b-a3b-instruct", "gemma-3-1b-pt"])
@pytest.mark.parametrize("new_tokens", [1, 9, 3000])
def test_the_formula_equals_the_operators_of_the_last_decode(model: str, new_tokens: int) -> None:
    arch = hub.load(model)
    work, _ = workload(arch, phase="generate", batch=3, seq=300, new_tokens=77)
    step = work._replace(new_tokens=new_tokens).steps()[0]
    found = MemoryFormula(arch, work, 1).decode_operators(new_tokens)
    assert found == passes.one_pass(arch, phases.last_decode_step(step))
