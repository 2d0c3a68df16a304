"""Tables and charts of kernels and points in terminals of any width."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping

import pytest
from rich.console import Console

from roofmodel.devices.device import Device
from roofmodel.plot import answer
from roofmodel.plot.measured import DeviceProfile, MeasuredKernels
from roofmodel.plot.panels import letters_of
from roofmodel.plot.picture import _undrawn
from roofmodel.profiles.kernel import Flops, Kernel, Profile, SourceLine, Traffic
from roofmodel.report import chart
from roofmodel.report.document import Document
from roofmodel.report.table import shorten
from roofmodel.report.terminal import TerminalDocument
from roofmodel.roofline.panel import Panel
from roofmodel.roofline.points import Point, Reason, group, points
from tests import kernels as make
from tests.printing import printed

A100 = Device.load("a100")  # 312 TFLOP/s tensor fp16, 19.5 fp32, 2039 GB/s
GEMM = "void cutlass::gemm::kernel<float, 128>(float const*)"
KERNELS = (
    make.kernel(
        "0", "f", GEMM, seconds=5e-3, occupancy=0.25, registers=64,
        flops=Flops(fp32=50e9, tensor_fp16=0), bytes=Traffic(1e9, 2e9),
    ),
    make.kernel("1", "f", "copy", seconds=5e-3, flops=Flops(fp32=0), bytes=Traffic(1e9, 2e9)),
)  # fmt: skip
POINTS: list[Point] = points(group(make.table(KERNELS), "name"), A100)


def kernels(*found: Kernel, tool: str = "ncu") -> TerminalDocument:
    return TerminalDocument(
        answer.kernels(MeasuredKernels((DeviceProfile(Profile(tool, ("f",), make.table(found)), None),), ()), ())
    )


def points_view(panel: Panel, letters: Mapping[str, str] | None = None) -> TerminalDocument:
    return TerminalDocument(Document(*answer.device_part(panel, letters or letters_of([panel])), data=dict))


def test_a_table_names_kernels_without_return_type_and_arguments() -> None:
    """The two GEMMs differ in one template argument, which follows."""
    other = make.changed(KERNELS[0], id="2", name=GEMM.replace("128", "256"), seconds=4e-3)
    names = [line.rpartition("  ")[0].split("  ")[0] for line in printed(kernels(*KERNELS, other)).splitlines()[2:5]]
    assert [name.strip() for name in names] == ["cutlass::gemm::kernel 128", "copy", "cutlass::gemm::kernel 256"]


NO_REASON = "no reason found (the file does not state how busy its units were)"


def test_many_launches_are_summed_by_name() -> None:
    """20 launches of 5 ms and 20 of 1 ms: 100 ms and 20 ms."""
    launches = [
        make.changed(KERNELS[0], id=str(i), seconds=5e-3 if i < 20 else 1e-3, name="ab"[i // 20]) for i in range(40)
    ]
    text = printed(kernels(*launches))
    assert [line.split()[:4] for line in text.splitlines()[2:4]] == [["a", "20", "100", "ms"], ["b", "20", "20", "ms"]]
    assert "summed by name; .to_frame() and .to_dict() list every launch" in text


def test_files_without_the_reasons_by_name_do_not_compute_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("judged")

    monkeypatch.setattr(answer, "reasons_by_group", fail)
    measured = MeasuredKernels(2 * (DeviceProfile(Profile("ncu", ("f",), make.table(KERNELS)), None),), ())
    document = answer.kernels(measured, ())
    assert document.table is not None
    assert len(document.table().rows) == len(document.data()["kernels"]) == 2 * len(KERNELS)
    with pytest.raises(RuntimeError, match="judged"):
        list(document.printed())


def test_the_reasons_are_listed_by_their_cost() -> None:
    """The shorter kernel has 13 thread blocks on 132 SMs, the longer one 100: 9/10 of its time against a quarter."""
    short, long = (
        make.changed(
            KERNELS[1],
            name=name,
            seconds=seconds,
            grid=(blocks, 1, 1),
            counters={"launch__sm_count": 132.0, "dram__throughput.avg.pct_of_peak_sustained_elapsed": 0.01},
        )
        for name, seconds, blocks in (("short", 4e-3, 13), ("long", 5e-3, 100))
    )
    lines = printed(kernels(short, long)).partition("Why")[2].splitlines()
    assert [line.split()[2] for line in lines if "few thread blocks" in line] == ["short:", "long:"]


def test_rules_of_the_tool_stand_together_in_a_line() -> None:
    """Two of 50 and 45 us, and our own of 40 us; of our own reasons, only two."""
    costs = {"bank_conflicts": 50e-6, "uncoalesced": 45e-6, "latency": 40e-6}
    of_ncu = [Reason(name, cost, "text", source="ncu") for name, cost in costs.items()]
    assert answer.reason_sentence(of_ncu).count("saves") == 2
    assert answer.reason_sentence([each._replace(source="roof") for each in of_ncu]).count("saves") == 1


def test_idle_time_before_kernels_is_one_line_after_their_own_reasons() -> None:
    """Kernels of 1 ms that start at 0, 3 and 9 ms: 2 + 5 ms idle."""
    starts = zip("abb", (0.0, 3e-3, 9e-3), strict=True)
    launches = [make.kernel(str(i), "f", name, seconds=1e-3, start=start) for i, (name, start) in enumerate(starts)]
    why = printed(kernels(*launches, tool="nsys")).partition("Why")[2]
    assert "GPU idle before kernels: 7 ms in total, 7 ms of it before b; `roofmodel.trace` lists the causes" in why
    assert "idle for" not in why


def test_copies_belong_to_the_answer() -> None:
    """30 copies of 4 KiB in 2 us each, one of 4 MiB in 0.4 ms, and kernels of 0.1 ms: 0.46 of 0.56 ms.

    4096 B / 2 us are 2.05 GB/s, 4 MiB / 0.4 ms are 10.5 GB/s.
    """
    small = {"kind": "copy", "name": "copy", "direction": "HtoD", "file": "f"}
    sizes = [*(30 * [(4096, 2e-6)]), (4 << 20, 4e-4)]
    copies = make.columns(small | {"id": i, "seconds": seconds} for i, (_, seconds) in enumerate(sizes))
    copies.set("bytes", [size for size, _ in sizes])
    profile = Profile("nsys", ("f",), make.table([make.kernel("0", "f", "k", seconds=1e-4)]), copies=copies)
    document = answer.kernels(MeasuredKernels((DeviceProfile(profile, None),), ()), ())
    text = " ".join(printed(TerminalDocument(document)).split())
    assert "memory copies: 460 µs, 82% of the GPU time (31 HtoD 460 µs)" in text
    assert "HtoD: copies of 4.1 kB on average are too small for the link: 2.05 GB/s, large ones reach 10.5 GB/s" in text
    (row,) = document.data()["copies"]
    assert (row["kind"], row["count"], row["bytes"]) == ("HtoD", 31, 30 * 4096 + (4 << 20))


def test_the_lines_that_cost_most_are_under_the_reason() -> None:
    lines = (SourceLine("gemm.cu:42", 0.6, "stall samples"), SourceLine("gemm.cu:7", 0.2, "stall samples"))
    run = DeviceProfile(Profile("ncu", ("f",), make.table([make.changed(KERNELS[1], lines=lines)])), None)
    document = answer.kernels(MeasuredKernels((run,), ()), (), source=True)
    text = " ".join(printed(TerminalDocument(document)).split())
    assert "lines by stall samples: gemm.cu:42 60%, gemm.cu:7 20%" in text
    assert document.data()["kernels"][0]["lines"][0] == lines[0]._asdict()
    assert "lines" not in answer.kernels(MeasuredKernels((run,), ()), ()).data()["kernels"][0]


def test_the_largest_kernels_are_listed_without_a_reason_but_no_collective() -> None:
    """By time a collective, then a, b and c: of the first three, a and b are listed."""
    names = ("ncclDevKernel_AllReduce_Sum_f16_RING_LL", "a", "b", "c")
    launches = [make.kernel(str(i), "f", name, seconds=(9 - i) * 1e-3) for i, name in enumerate(names)]
    why = printed(kernels(*launches, tool="nsys")).partition("Why")[2].splitlines()
    said = [line.strip().partition(": ") for line in why if "no reason" in line]
    assert said == [(name, ": ", NO_REASON) for name in "ab"]
    counted = make.changed(KERNELS[1], counters={"launch__sm_count": 132.0, "sm__cycles_active.avg": 1e6})
    assert "copy: no reason found in its counters" in printed(kernels(counted))


def test_the_kernel_with_the_most_time_in_all_launches_comes_first() -> None:
    """Five launches of 2 ms of a, and one of 3 ms of each other kernel: 10 ms are the largest."""
    launches = [make.kernel(str(i), "f", "a", seconds=2e-3) for i in range(5)]
    launches += [make.kernel(name=name, seconds=3e-3) for name in "bcde"]
    why = printed(kernels(*launches, tool="nsys")).partition("Why")[2].splitlines()
    assert [line.split(":")[0].strip() for line in why if "no reason" in line] == ["a", "b", "c"]


def test_a_narrow_terminal_drops_the_least_important_columns_first() -> None:
    # 50 GFLOP in 5 ms: 10 of the 19.5 TFLOP/s that fp32 allows, at 50 FLOP/B of DRAM, half of the time
    table = points_view(Panel(A100, "given", POINTS))
    row = {width: next(line for line in printed(table, width).splitlines() if line[0] == "A") for width in (41, 60, 80)}
    assert row[80].split()[-7:] == ["dram", "50", "10", "T", "51%", "compute", "50%"]
    assert row[60].split()[-4:] == ["50", "51%", "compute", "50%"]
    assert row[41].split()[-3:] == ["dram", "51%", "50%"]


def test_the_legend_explains_the_headings_and_marks_of_the_table() -> None:
    partly = (*KERNELS, make.changed(KERNELS[1], flops=Flops(fp32=1e6)))
    both, whole = (" ".join(printed(kernels(*found), 100).splitlines()) for found in (partly, KERNELS))
    assert "≥ lower bound" in both
    assert "≥" not in whole
    assert "occ.: achieved occupancy" in whole
    assert "regs: registers per thread" in whole
    assert "occ." not in " ".join(printed(kernels(KERNELS[1]), 100).splitlines())
    of_lecture = printed(
        points_view(Panel(A100, "given", points(group(make.table(KERNELS), "lecture"), A100), by="lecture")), 100
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
    short = make.changed(KERNELS[1], seconds=0.5e-3)
    for found in ((KERNELS[0], short), (KERNELS[0], make.changed(short, seconds=None)), ()):
        assert Panel(A100, "given", points(group(make.table(found), "name"), A100)).drawn_share is None


def test_an_anonymous_namespace_is_removed_like_others() -> None:
    assert shorten("void (anonymous namespace)::softmax<float>(int)", 16) == "softmax<float>(…"


# --- The chart ------------------------------------------------------------------------------------


def kernel(name: str, seconds: float, flops: float, dram: float) -> Kernel:
    return make.kernel(
        "0", "f", name, seconds=seconds, flops=Flops(fp32=flops, tensor_fp16=0), bytes=Traffic(dram, 2 * dram)
    )


FOUND: list[Point] = points(
    group(
        make.table(
            [
                kernel("void gemm<float, 128>(float const*)", 5e-3, 50e9, 1e9),  # 10 TFLOP/s at 50 FLOP/B
                kernel("slow", 3e-3, 3e3, 3e3),  # 1 MFLOP/s at 1 FLOP/B: far below the ceilings
                kernel("no_flops", 1e-3, 0, 1e9),
                kernel("no_time", 1e-6, 1e6, 1e6),
            ]
        ),
        "name",
    ),
    A100,
)


def render(width: int, **options: object) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, **options)  # type: ignore[arg-type]
    panel = Panel(A100, "given", FOUND)
    console.print(points_view(panel))
    return out.getvalue().splitlines()


def test_predicted_operators_have_a_separate_table_without_percentages() -> None:
    out = io.StringIO()
    both = Panel(A100, "given", [FOUND[0], FOUND[0]._replace(name="op", predicted=True)], "", "gpt2, fp16, batch 1")
    Console(file=out, width=100).print(points_view(both))
    lines = out.getvalue().splitlines()
    apart = lines.index("predicted operators at their bounds: gpt2, fp16, batch 1")
    kernel_line = next(i for i, line in enumerate(lines) if "gemm" in line)
    (op_line,) = (i for i, line in enumerate(lines) if line.startswith("B op"))
    assert kernel_line < apart < op_line
    assert "bound" in lines[op_line]
    assert "%" in lines[kernel_line]


def test_the_ceiling_of_the_pipe_in_use_is_drawn_below_the_highest() -> None:
    unknown = [p._replace(incomplete=True, bound=None) for p in FOUND]
    out = io.StringIO()
    panel = Panel(A100, "given", unknown)
    Console(file=out, width=100).print(points_view(panel))
    assert "tensor_fp16, fp32 (╌) 19.5 TFLOP/s" in out.getvalue()
    assert "╌╌╌╌" in out.getvalue().partition("FLOP/s ┤")[2]
    assert "╌" not in "".join(render(100, color_system=None))  # all points use fp32, the highest ceiling drawn


@pytest.mark.parametrize(
    ("names", "pipe"),
    [
        (["sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc", "void implicit_convolve_sgemm<float>"], "tf32"),
        (["cutlass_tensorop_s1688wgrad_tf32_64x64", "ampere_fp16_s16816gemm_fp16_128x128"], "fp16"),
        (["ampere_sgemm_128x64_tn"], "fp16"),  # no evidence of tensor cores
        (["cutlass_tensorop_s1688wgrad_tf32_64x64", "gemm_kernel"], "fp16"),
        (["elementwise_kernel"], "fp16"),
    ],
)
def test_the_ceiling_of_uncounted_flops_follows_from_kernel_names(names: list[str], pipe: str) -> None:
    found = [FOUND[0]._replace(name=name, incomplete=True, bound=None) for name in names]
    assert Panel(A100, "given", found).pipes[0].name == f"tensor_{pipe}"


def test_drawn_points_have_letters_longest_first() -> None:
    found = letters_of([Panel(A100, "given", FOUND)])
    assert [(name[:9], letter) for name, letter in found.items()] == [("void gemm", "A"), ("slow", "B")]


def test_kernels_at_one_place_have_letters_of_their_own_at_most_eight() -> None:
    same = [FOUND[0]._replace(name=f"gemm_{number}", share=0.1) for number in range(10)]
    assert letters_of([Panel(A100, "given", same)]) == dict(zip((p.name for p in same), "ABCDEFGH", strict=False))


def test_one_kernel_has_one_letter_on_all_devices() -> None:
    longest_last = [p._replace(share=1 - p.share if p.share else None) for p in FOUND]
    panels = [Panel(A100, "given", FOUND), Panel(A100, "given", longest_last)]
    letters = letters_of(panels)
    lines = [line for panel in panels for line in printed(points_view(panel, letters)).splitlines()]
    rows = [line for line in lines if line[2:6] == "slow" and " dram " in line]
    assert {line[0] for line in rows} == {letters["slow"]}
    assert len(rows) == 2


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_letters_are_at_their_heights(width: int) -> None:
    lines = render(width, color_system=None)
    drawn = lines[-chart.HEIGHT - 2 : -2]
    heights = {sign: y for y, line in enumerate(drawn) for sign in line[chart.MARGIN + 1 :] if sign.isalpha()}
    top, bottom = math.log10(19.5e12), math.log10(1e6)  # fp32's ceiling; the slow kernel
    for sign, flops_per_second in (("A", 10e12), ("B", 1e6)):
        exact = (top - math.log10(flops_per_second)) / (top - bottom) * (chart.HEIGHT - 1)
        assert abs(heights[sign] - exact) <= 0.5
    assert [line for line in lines if line.startswith("A ")]
