"""The table of points and their roofline in a terminal, at any width."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from roofmodel.devices.device import Device
from roofmodel.plot.chart import letters_of
from roofmodel.plot.tables import device_table
from roofmodel.profiles.kernel import Flops, Kernel, Traffic
from roofmodel.report import chart
from roofmodel.roofline.panel import Panel
from roofmodel.roofline.points import Point, group, points
from tests.printing import printed

A100 = Device.load("a100")  # 312 TFLOP/s tensor fp16, 19.5 fp32, 2039 GB/s


def kernel(name: str, seconds: float, flops: float, dram: float) -> Kernel:
    return Kernel(
        "0", "f", name, seconds=seconds, flops=Flops(fp32=flops, tensor_fp16=0), bytes=Traffic(dram, 2 * dram)
    )


FOUND: list[Point] = points(
    group(
        [
            kernel("void gemm<float, 128>(float const*)", 5e-3, 50e9, 1e9),  # 10 TFLOP/s at 50 FLOP/B
            kernel("slow", 3e-3, 3e3, 3e3),  # 1 MFLOP/s at 1 FLOP/B: far below the ceilings
            kernel("no_flops", 1e-3, 0, 1e9),
            kernel("no_time", 1e-6, 1e6, 1e6),
        ],
        "name",
    ),
    A100,
)


def render(width: int, **options: object) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, **options)  # type: ignore[arg-type]
    panel = Panel(A100, "given", FOUND)
    console.print(device_table(panel, letters_of([panel])))
    return out.getvalue().splitlines()


def test_predicted_operators_have_a_separate_table_without_percentages() -> None:
    out = io.StringIO()
    both = Panel(A100, "given", [FOUND[0], FOUND[0]._replace(name="op", predicted=True)], "", "gpt2, fp16, batch 1")
    Console(file=out, width=100).print(device_table(both, letters_of([both])))
    lines = out.getvalue().splitlines()
    apart = lines.index("predicted operators at their bounds: gpt2, fp16, batch 1")
    kernel_line = next(i for i, line in enumerate(lines) if "gemm" in line)
    (op_line,) = (i for i, line in enumerate(lines) if line.startswith("A op"))  # at the same place
    assert kernel_line < apart < op_line
    assert "bound" in lines[op_line]
    assert "%" in lines[kernel_line]


def test_the_ceiling_of_the_pipe_in_use_is_drawn_below_the_highest() -> None:
    unknown = [p._replace(incomplete=True, bound=None) for p in FOUND]
    out = io.StringIO()
    panel = Panel(A100, "given", unknown)
    Console(file=out, width=100).print(device_table(panel, letters_of([panel])))
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


def test_one_kernel_has_one_letter_on_all_devices() -> None:
    longest_last = [p._replace(share=1 - p.share if p.share else None) for p in FOUND]
    panels = [Panel(A100, "given", FOUND), Panel(A100, "given", longest_last)]
    letters = letters_of(panels)
    lines = [line for panel in panels for line in printed(device_table(panel, letters)).splitlines()]
    rows = [line for line in lines if line[2:6] == "slow" and " dram " in line]
    assert {line[0] for line in rows} == {letters["slow"]}
    assert len(rows) == 2


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_lines_fit_the_terminal_and_letters_are_at_their_heights(width: int) -> None:
    lines = render(width, color_system=None)
    assert all(len(line) <= width for line in lines)
    drawn = lines[-chart.HEIGHT - 2 : -2]
    heights = {sign: y for y, line in enumerate(drawn) for sign in line[chart.MARGIN + 1 :] if sign.isalpha()}
    top, bottom = math.log10(19.5e12), math.log10(1e6)  # fp32's ceiling; the slow kernel
    for sign, flops_per_second in (("A", 10e12), ("B", 1e6)):
        exact = (top - math.log10(flops_per_second)) / (top - bottom) * (chart.HEIGHT - 1)
        assert abs(heights[sign] - exact) <= 0.5
    assert [line for line in lines if line.startswith("A ")]


def test_no_color_disables_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("\x1b[1;38" in line for line in render(80, force_terminal=True, color_system="truecolor"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("38;2" in line for line in render(80, force_terminal=True, color_system="truecolor"))
