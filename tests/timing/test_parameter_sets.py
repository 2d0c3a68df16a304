"""The choice of a parameter set by formats, kernel and head size."""

from __future__ import annotations

from roofmodel.devices.calibration import ElementwiseTiming, Fit, Fitted
from roofmodel.timing.parameter_sets import choose_set


def fitted(latency: float, error: float = 0.1) -> Fitted[ElementwiseTiming]:
    return Fitted(ElementwiseTiming(latency, 1, 1), Fit(1, 1, error, 0.9, 1.2, "", ""))


def test_a_parameter_set_is_chosen_by_kernel_then_format_then_order() -> None:
    sets = {"a": {"x": fitted(1), "y": fitted(2)}, "b": {"x": fitted(3)}}
    assert choose_set(sets, "b", "x") == (*fitted(3), "b", "x", False)
    assert choose_set(sets, "b", "y") == (*fitted(2), "a", "y", False)  # the first set with these formats
    assert choose_set(sets, "unknown", "x") == (*fitted(1), "a", "x", False)
    substituted = choose_set(sets, "b", "z")
    assert substituted is not None
    assert substituted.timing == fitted(3).timing
    assert (substituted.fit.low, substituted.fit.high) == (0.9**2, 1.2**2)  # fitted on other formats: a wider interval
    assert choose_set({}, "a", "x") is None


def test_the_parameter_set_of_the_same_kernel_is_preferred_to_the_default() -> None:
    sets = {"a": {"x/x": fitted(1)}, "b": {"x/x": fitted(2), "x/y": fitted(3)}}
    assert choose_set(sets, "", "x/x") == (*fitted(1), "a", "x/x", False)  # no kernel requested
    for name, formats, latency in (("c", "x/x", 1), ("b", "x/x", 2), ("", "x/y", 3), ("a", "x/y", 3)):
        chosen = choose_set(sets, name, formats)
        assert chosen is not None
        assert chosen.timing.latency == latency, (name, formats)


def test_unmeasured_formats_use_the_parameter_set_of_equal_width() -> None:
    sets = {"a": {"fp16/fp16": fitted(1), "fp16/int4": fitted(2)}, "b": {"fp16/int8": fitted(3), "fp8/fp8": fitted(4)}}
    for formats, latency in (("fp16/nf4", 2), ("fp16/mxfp4", 2), ("fp16/fp8", 3), ("fp8/int8", 4), ("tf32/tf32", 1)):
        substituted = choose_set(sets, "a", formats)
        assert substituted is not None
        assert substituted.timing.latency == latency, formats
        assert substituted.fit.high == 1.2**2
        assert substituted.is_substitute
        assert {**sets["a"], **sets["b"]}[substituted.format_key].timing == substituted.timing


def test_of_a_kernel_in_another_compute_format_the_set_with_the_stored_format_is_used() -> None:
    """A KV cache in fp8 that the GEMMs' fp8 makes `fp8/fp8`: attention reads it at the rate of `fp16/fp8`."""
    sets = {"a": {"fp16/fp16": fitted(1), "fp16/fp8": fitted(2)}, "b": {"fp16/fp16": fitted(3)}}
    for name, latency in (("a", 2), ("b", 3)):
        substituted = choose_set(sets, name, "fp8/fp8")
        assert substituted is not None
        assert substituted.timing.latency == latency


def test_a_parameter_set_of_a_distant_format_is_not_substituted() -> None:
    sets = {"a": {"fp16/fp16/512": fitted(1, 0.5)}, "b": {"fp16/fp16/128": fitted(2, 0.1)}}
    assert choose_set(sets, "a", "fp16/fp16/512") == (*fitted(1, 0.5), "a", "fp16/fp16/512", False)
    substituted = choose_set(sets, "a", "fp16/fp16/576")
    assert substituted is not None
    assert substituted.timing.latency == 2
