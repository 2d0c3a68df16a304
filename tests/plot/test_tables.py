"""Tables of kernels and points in terminals of any width."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import RenderableType

from roofmodel.devices.device import Device
from roofmodel.plot.chart import letters_of
from roofmodel.plot.picture import _undrawn
from roofmodel.plot.place import DeviceProfile, MeasuredKernels
from roofmodel.plot.tables import device_table, kernels_table
from roofmodel.profiles.kernel import Flops, Kernel, Profile, Traffic
from roofmodel.report.columns import shorten
from roofmodel.report.table import MIN_NAME_WIDTH
from roofmodel.roofline.panel import Panel
from roofmodel.roofline.points import Point, group, points
from tests.printing import printed

A100 = Device.load("a100")  # 312 TFLOP/s tensor fp16, 19.5 fp32, 2039 GB/s
GEMM = "void cutlass::gemm::kernel<float, 128>(float const*)"
KERNELS = (
    Kernel(
        "0", "f", GEMM, seconds=5e-3, occupancy=0.25, registers=64,
        flops=Flops(fp32=50e9, tensor_fp16=0), bytes=Traffic(1e9, 2e9),
    ),
    Kernel("1", "f", "copy", seconds=5e-3, flops=Flops(fp32=0), bytes=Traffic(1e9, 2e9)),
)  # fmt: skip
POINTS: list[Point] = points(group(KERNELS, "name"), A100)


def kernels(*found: Kernel) -> RenderableType:
    return kernels_table(MeasuredKernels((DeviceProfile(Profile("ncu", ("f",), found), None),), ()))


def points_view(panel: Panel) -> RenderableType:
    return device_table(panel, letters_of([panel]))


@pytest.mark.parametrize("width", [40, 55, 70, 100, 160])
def test_names_keep_a_minimum_width_and_numbers_are_never_cut(width: int) -> None:
    for table in (kernels(*KERNELS), points_view(Panel(A100, "given", POINTS))):
        lines = printed(table, width).splitlines()
        assert all(len(line) <= width for line in lines)
        rows = [line for line in lines if "gemm::kernel" in line]
        assert rows
        for row in rows:
            name, _, figures = row.partition("…") if "…" in row else row.partition("::kernel ")
            assert len(name) >= (MIN_NAME_WIDTH - 1 if "…" in row else len("gemm"))
            assert "…" not in figures


def test_a_table_names_kernels_without_return_type_and_arguments() -> None:
    """The two GEMMs differ in one template argument, which follows."""
    other = replace(KERNELS[0], id="2", name=GEMM.replace("128", "256"), seconds=4e-3)
    names = [line.rpartition("  ")[0].split("  ")[0] for line in printed(kernels(*KERNELS, other)).splitlines()[2:5]]
    assert [name.strip() for name in names] == ["cutlass::gemm::kernel 128", "copy", "cutlass::gemm::kernel 256"]


def test_many_launches_are_summed_by_name() -> None:
    """20 launches of 5 ms and 20 of 1 ms: 100 ms and 20 ms."""
    launches = [replace(KERNELS[0], id=str(i), seconds=5e-3 if i < 20 else 1e-3, name="ab"[i // 20]) for i in range(40)]
    text = printed(kernels(*launches))
    assert [line.split()[:4] for line in text.splitlines()[2:4]] == [["a", "20", "100", "ms"], ["b", "20", "20", "ms"]]
    assert "summed by name; .to_frame() and .to_dict() list every launch" in text


def test_the_reasons_are_listed_by_their_cost() -> None:
    """The shorter kernel has 13 thread blocks on 132 SMs, the longer one 100: 9/10 of its time against a quarter."""
    short, long = (
        replace(KERNELS[1], name=name, seconds=seconds, grid=(blocks, 1, 1), counters={"launch__sm_count": 132.0})
        for name, seconds, blocks in (("short", 4e-3, 13), ("long", 5e-3, 100))
    )
    lines = printed(kernels(short, long)).partition("Why")[2].splitlines()
    assert [line.split()[2] for line in lines if "few thread blocks" in line] == ["short:", "long:"]


def timeline(*found: Kernel) -> RenderableType:
    return kernels_table(MeasuredKernels((DeviceProfile(Profile("nsys", ("f",), found), None),), ()))


def test_idle_time_before_kernels_is_one_line_after_their_own_reasons() -> None:
    """Kernels of 1 ms that start at 0, 3 and 9 ms: 2 + 5 ms idle."""
    starts = zip("abb", (0.0, 3e-3, 9e-3), strict=True)
    launches = [Kernel(str(i), "f", name, seconds=1e-3, start=start) for i, (name, start) in enumerate(starts)]
    why = printed(timeline(*launches)).partition("Why")[2]
    assert "GPU idle before kernels: 7 ms in total, 7 ms of it before b; `roofmodel.trace` lists the causes" in why
    assert "idle for" not in why


def test_the_largest_kernels_are_listed_without_a_reason_but_no_collective() -> None:
    """By time a collective, then a, b and c: of the first three, a and b are listed."""
    names = ("ncclDevKernel_AllReduce_Sum_f16_RING_LL", "a", "b", "c")
    launches = [Kernel(str(i), "f", name, seconds=(9 - i) * 1e-3) for i, name in enumerate(names)]
    why = printed(timeline(*launches)).partition("Why")[2].splitlines()
    said = [line.strip().partition(": ") for line in why if "no reason" in line]
    assert said == [(name, ": ", "no reason found (the file has no counters)") for name in "ab"]
    counted = replace(KERNELS[1], counters={"launch__sm_count": 132.0, "sm__cycles_active.avg": 1e6})
    assert "copy: no reason found in its counters" in printed(kernels(counted))


def test_the_kernel_with_the_most_time_in_all_launches_comes_first() -> None:
    """Five launches of 2 ms of a, and one of 3 ms of each other kernel: 10 ms are the largest."""
    launches = [Kernel(str(i), "f", "a", seconds=2e-3) for i in range(5)]
    launches += [Kernel(name, "f", name, seconds=3e-3) for name in "bcde"]
    why = printed(timeline(*launches)).partition("Why")[2].splitlines()
    assert [line.split(":")[0].strip() for line in why if "no reason" in line] == ["a", "b", "c"]


def test_a_narrow_terminal_drops_the_least_important_columns_first() -> None:
    # 50 GFLOP in 5 ms: 10 of the 19.5 TFLOP/s that fp32 allows, at 50 FLOP/B of DRAM, half of the time
    table = points_view(Panel(A100, "given", POINTS))
    row = {width: next(line for line in printed(table, width).splitlines() if line[0] == "A") for width in (41, 60, 80)}
    assert row[80].split()[-7:] == ["dram", "50", "10", "T", "51%", "compute", "50%"]
    assert row[60].split()[-4:] == ["50", "51%", "compute", "50%"]
    assert row[41].split()[-3:] == ["dram", "51%", "50%"]


def test_the_legend_explains_the_headings_and_marks_of_the_table() -> None:
    both, whole = (" ".join(printed(kernels(*found), 100).splitlines()) for found in (KERNELS, KERNELS[:1]))
    assert "≥ lower bound" in both
    assert "≥" not in whole
    assert "occ.: achieved occupancy" in whole
    assert "regs: registers per thread" in whole
    assert "occ." not in " ".join(printed(kernels(KERNELS[1]), 100).splitlines())
    of_lecture = printed(
        points_view(Panel(A100, "given", points(group(KERNELS, "lecture"), A100), by="lecture")), 100
    ).splitlines()
    assert of_lecture[2].split()[0] == "group"
    assert "groups of the profiling lecture" in " ".join(of_lecture)


@pytest.mark.parametrize(
    ("room", "name"),
    [
        (52, GEMM),
        (30, "void cutlass::gemm::kernel<flo…"[:29] + "…"),
        (24, "cutlass::gemm::kernel<f…"),
        (20, "gemm::kernel<float,…"),
        (8, "kernel<…"),
        (3, "ke…"),
    ],
)
def test_a_name_is_shortened_by_arguments_then_namespaces_then_letters(room: int, name: str) -> None:
    assert len(name) == room
    assert shorten(GEMM, room) == name


def test_the_table_and_the_picture_first_tell_how_little_of_the_time_is_drawn() -> None:
    """One of two kernels of 5 ms is a copy without FLOPs; of 5 ms and 0.5 ms, 9% is not worth a line."""
    panel = Panel(A100, "given", POINTS)
    assert printed(points_view(panel), 100).splitlines()[1].startswith("50% of the kernel time is drawn; ")
    assert [*_undrawn([panel])] == ["Not drawn: 50% of the time (no counted FLOPs or bytes)."]
    short = replace(KERNELS[1], seconds=0.5e-3)
    for found in ((KERNELS[0], short), (KERNELS[0], replace(short, seconds=None)), ()):
        assert Panel(A100, "given", points(group(found, "name"), A100)).drawn_share is None


def test_an_anonymous_namespace_is_removed_like_others() -> None:
    assert shorten("void (anonymous namespace)::softmax<float>(int)", 16) == "softmax<float>(…"
