"""Counters of one run, combined with times of another run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Flops, Kernel, Profile, ReaderWarning
from roofmodel.roofline.times import with_times


def profile(tool: str, *launches: tuple[str, float | None], **more: Any) -> Profile:
    kernels = tuple(
        Kernel(id=str(i), file=tool, name=name, seconds=seconds, flops=Flops(fp32=100), **more)
        for i, (name, seconds) in enumerate(launches)
    )
    return Profile(tool, (tool,), kernels)


def seconds(found: Profile, name: str) -> list[float | None]:
    return [kernel.seconds for kernel in found.kernels if name in kernel.name]


def test_launches_match_in_order_despite_different_template_arguments() -> None:
    counted = profile("ncu", ("void gemm<(int)4>(float *)", 9.0), ("void gemm<(int)8>(float *)", 9.0))
    timed = profile("torch", ("void gemm<4>(float*)", 1.0), ("void gemm<8>(float*)", 2.0))
    found = with_times(counted, timed)
    assert seconds(found, "gemm") == [1.0, 2.0]
    assert [kernel.flops.fp32 for kernel in found.kernels] == [100, 100]
    assert found.warnings == ()
    assert found.files == ("ncu", "torch")


def test_launches_of_one_name_are_distinguished_by_grid_and_block() -> None:
    small, large = ({"grid": (n, 1, 1), "block": (128, 1, 1)} for n in (1, 64))
    counted = Profile(
        "ncu", ("ncu",), (*profile("ncu", ("k", 9.0), **small).kernels, *profile("ncu", ("k", 9.0), **large).kernels)
    )
    timed = Profile(
        "nsys",
        ("nsys",),
        (*profile("nsys", ("k", 5.0), **large).kernels, *profile("nsys", ("k", 1.0), **small).kernels),
    )
    assert [(k.grid, k.seconds) for k in with_times(counted, timed).kernels] == [((1, 1, 1), 1.0), ((64, 1, 1), 5.0)]


def test_unequal_launch_counts_use_the_mean_time_with_a_warning() -> None:
    found = with_times(profile("ncu", ("k", 9.0)), profile("nsys", ("k", 1.0), ("k", 2.0), ("k", 6.0)))
    assert seconds(found, "k") == [3.0]
    assert "1 of 1 launches have the mean time" in found.warnings[0]


def test_a_kernel_without_a_match_keeps_its_time_and_is_counted() -> None:
    found = with_times(profile("ncu", ("a", 9.0), ("b", 8.0)), profile("nsys", ("a", 1.0)))
    assert (seconds(found, "a"), seconds(found, "b")) == ([1.0], [8.0])
    assert "1 of 2 launches have no match in nsys" in found.warnings[0]


def test_times_of_another_program_are_refused() -> None:
    with pytest.raises(ProfileError, match="nsys: no kernel has the name of a kernel in ncu"):
        with_times(profile("ncu", ("a", 9.0)), profile("nsys", ("b", 1.0)))


def test_clocks_are_replaced_together_with_times() -> None:
    counted = profile("ncu", ("a", 9.0), ("b", 8.0), ("c", 7.0), clock=1.1e9)
    found = with_times(counted, profile("nsys", ("a", 1.0), ("b", 1.0), ("b", 1.0)))
    # nsys records no clock, so those of a and b are unknown; c keeps its time and clock
    assert {kernel.name: kernel.clock for kernel in found.kernels} == {"a": None, "b": None, "c": 1.1e9}


def test_warnings_about_replaced_times_and_unused_counters_are_dropped() -> None:
    untimed = ReaderWarning("no duration was collected", "times")
    uncounted = ReaderWarning("no FLOP metrics were collected", "counters")
    of_file, of_other = ReaderWarning("of the file"), ReaderWarning("of the other")
    counted = replace(profile("ncu", ("a", None)), warnings=(untimed, uncounted, of_file))
    timed = replace(profile("nsys", ("a", 1.0)), warnings=(uncounted, of_other))
    assert with_times(counted, timed).warnings == (uncounted, of_file, of_other)
    counted = replace(counted, kernels=(*counted.kernels, *profile("ncu", ("b", None)).kernels))
    assert untimed in with_times(counted, timed).warnings
