"""Terminal output of an estimate: golden outputs, and properties at any width."""

from __future__ import annotations

import contextlib
import io
import math
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from roofmodel.devices.device import Device
from roofmodel.errors import option_spelling
from roofmodel.estimate.answer import document, summary
from roofmodel.estimate.tables import group_rows, rows, with_letters
from roofmodel.models import hub
from roofmodel.numbers import units
from roofmodel.report import chart
from roofmodel.report.printing import flag
from roofmodel.report.terminal import TerminalDocument
from roofmodel.steps.estimate import estimate
from roofmodel.steps.placed import total_seconds

GOLDEN = Path(__file__).parent / "golden"


def render(model: str, hw: str, width: int, shown: Sequence[str] = (), **options: Any) -> str:
    """The view as the command line prints it; `shown` are `ops`, `roofline`, `more`."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    found = estimate(hub.load(model), Device.load(hw), **options)
    with option_spelling(flag):
        options = dict.fromkeys(set(shown) - {"more"}, True)
        console.print(TerminalDocument(document(found, **options), more="more" in shown))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(
    ("name", "width", "shown", "model", "hw", "options"),
    [
        ("gpt2-xl-a100", 100, ["more"], "gpt2-xl", "a100", {}),
        ("gpt2-xl-a100-ops", 80, ["ops", "roofline", "more"], "gpt2-xl", "a100", {}),
        (
            "gpt2-xl-train",
            80,
            [],
            "gpt2-xl",
            "a100",
            {"phase": "train", "batch": 8, "attention": "eager", "recompute": "selective"},
        ),
        ("llama-generate", 100, [], "llama-3.2-1b", "h100", {"phase": "generate", "new_tokens": 256}),
        ("llama-h100-int4", 80, ["roofline"], "llama-3.1-8b", "h100", {"batch": 8, "weights": "int4", "kv": "fp8"}),
        ("bert-v100-eager", 80, ["ops"], "bert-base-uncased", "v100", {"attention": "eager"}),
    ],
)
def test_the_output_equals_the_reviewed_one(
    name: str, width: int, shown: list[str], model: str, hw: str, options: dict[str, Any]
) -> None:
    """Golden outputs: to change one on purpose, delete the file, run the test twice, and review the new file."""
    path = GOLDEN / f"{name}.txt"
    text = render(model, hw, width, shown, **options)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path.name} was missing; written for a look")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, "72.8 GiB usable (92 % of 79.1)"),
        ({"tp": 5}, "72.8 GiB usable (92 % of 79.1) per GPU"),
        ({"engine": "torch"}, "72 GiB usable (90 % of 80)"),
    ],
)
def test_the_memory_of_several_gpus_is_stated_per_gpu(options: dict[str, Any], size: str) -> None:
    """gpt2-xl has 2.9 GiB of weights, nearly all of which tensor parallelism divides by five."""
    (line,) = [
        text
        for label, text in summary(estimate(hub.load("gpt2-xl"), Device.load("a100"), **options))
        if label == "memory"
    ]
    assert f" of {size}: fits" in line


@pytest.mark.parametrize(
    ("options", "has_hfu", "counts"),
    [
        ({"phase": "prefill"}, False, " with masked pairs) · MBU"),
        ({"phase": "prefill", "attention": "eager"}, True, " with masked pairs) · HFU"),
        ({"phase": "decode"}, False, "% · MBU"),
        ({"phase": "train", "recompute": "full"}, True, " with masked pairs) · HFU"),
    ],
)
def test_the_utilization_line_has_both_counts_of_pairs_and_hfu_where_more_is_executed(
    options: dict[str, Any], has_hfu: bool, counts: str
) -> None:
    (line,) = [
        text
        for label, text in summary(estimate(hub.load("gpt2"), Device.load("a100"), **options))
        if label == "utilization"
    ]
    assert ("HFU" in line) == has_hfu
    assert counts in line


def test_one_screen_of_41_lines_at_100_columns_shows_two_phases_with_the_warnings() -> None:
    """The output at 100 columns: header, answers, tables, warnings and notes, each line within the width."""
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (50, 100))
    command = [sys.executable, "-m", "roofmodel", "estimate", "gpt2-xl", "--hw", "a100", "--seq", "1025"]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")} | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        written = b""
        with contextlib.suppress(OSError):  # EIO: the process has ended
            while piece := os.read(screen, 65536):
                written += piece
    os.close(screen)
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", written.decode()).splitlines()
    labels = [line.split()[0] for line in lines[1:] if line[:1].strip()]
    assert labels[:6] == ["TTFT", "TPOT", "tokens/s", "limited", "memory", "max"]
    assert any(line.startswith("warning: ") for line in lines)
    assert any(line.startswith("note: ") for line in lines)
    assert len(lines) <= 41
    assert max(map(cell_len, lines)) <= 100


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({}, ["TTFT", "TPOT", "tokens/s", "limited by", "memory", "max batch"]),
        ({"phase": "generate"}, ["TTFT", "TPOT", "tokens/s", "limited by", "memory", "max batch"]),
        ({"phase": "decode"}, ["TPOT", "tokens/s", "utilization", "limited by", "memory", "max batch"]),
        ({"phase": "forward"}, ["latency", "tokens/s", "utilization", "limited by", "memory", "max batch"]),
        ({"phase": "train"}, ["step time", "tokens/s", "utilization", "limited by", "memory", "max batch"]),
    ],
)
def test_six_answers_come_first_whatever_the_phase(options: dict[str, Any], labels: list[str]) -> None:
    answers = summary(estimate(hub.load("gpt2"), Device.load("a100"), seq=512, **options))
    assert [label for label, _ in answers] == labels
    text = dict(answers)
    assert "bound" in text[labels[0]]
    assert "expected (" in text[labels[0]]
    assert "fits" in text["memory"]


def test_ttft_and_tpot_of_generation_add_up_to_its_bound() -> None:
    found = estimate(hub.load("gpt2"), Device.load("a100"), phase="generate", new_tokens=33)
    (phase,) = found.phases
    prefill, decodes = (total_seconds(phase.of_stage(part)) for part in ("prefill", "decodes"))
    text = dict(summary(found))
    assert text["TTFT"].startswith(f"{units.seconds(prefill)} bound ")
    assert text["TPOT"].startswith(f"{units.seconds(decodes / 33)} bound ")
    assert prefill + decodes == pytest.approx(phase.bound_seconds)


def test_without_calibration_no_expected_time_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("name: Toy\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 10 GB/s}\n")
    text = dict(summary(estimate(hub.load("gpt2"), Device.load(str(file)))))
    assert text["TTFT"].endswith("no expected time")
    assert "expected" not in text["tokens/s"]


def test_groups_add_up_to_their_operators() -> None:
    (phase, _) = estimate(hub.load("gpt2-xl"), Device.load("a100")).phases
    groups = {row.label: row for row in group_rows(phase)}
    assert list(groups) == ["embedding", "attention", "MLP", "norms", "residual adds", "LM head"]
    attention = [row for row in rows(phase) if row.group == "attention"]
    assert groups["attention"].times == 3 * 48  # projection, attention core, output projection of each layer
    assert groups["attention"].cost.flops == sum(row.cost.flops for row in attention)
    assert groups["attention"].seconds == pytest.approx(sum(row.seconds for row in attention))


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("model", ["gpt2-xl", "llama-3.1-405b", "opt-350m"])
@pytest.mark.parametrize("shown", [["more"], ["ops", "roofline"]])
def test_nothing_is_cut_from_80_columns_on(model: str, width: int, shown: list[str]) -> None:
    text = render(model, "a100", width, shown, batch=64, seq=4096)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 60, 72])
def test_a_narrow_terminal_loses_columns_and_never_digits(width: int) -> None:
    text = render("bert-base-uncased", "a100", width, ["ops", "roofline"], seq=384)
    assert "…" not in text
    assert "Q projection" in text
    assert all(len(line) <= width for line in text.splitlines())
    for line in text.splitlines():
        if line.startswith("F ") or " Q projection" in line:
            assert re.search(r"\d+ µs +\d+%( +[\d.]+ µs)?$", line)


@pytest.mark.parametrize(
    ("model", "attention"), [("gpt2-xl", "flash"), ("opt-350m", "eager"), ("llama-3.1-8b", "eager")]
)
def test_every_operator_with_flops_is_in_the_roofline_at_its_height(model: str, attention: str) -> None:
    report = estimate(hub.load(model), Device.load("a100"), attention=attention)
    marks = [
        chart.Mark(sign, "", row.kernels.intensity, row.flops_per_second)
        for table in with_letters([rows(phase) for phase in report.phases])
        for sign, row in table
        if row.has_mark
    ]
    first = {mark.sign: mark for mark in reversed(marks) if mark.sign}
    lines = [line.plain for line in chart.roofline(marks, 312e12, 2039e9, 64)]
    heights = {
        sign: y for y, line in enumerate(lines[: chart.HEIGHT]) for sign in line[chart.MARGIN + 1 :] if sign.isalpha()
    }
    assert heights.keys() == first.keys()
    bottom = min(mark.intensity for mark in marks)
    low = math.log10(2039e9) + math.floor(math.log10(min(bottom, 312e12 / 2039e9 / 100)))
    for mark in first.values():
        exact = (math.log10(312e12) - math.log10(mark.flops_per_second)) / (math.log10(312e12) - low)
        assert abs(heights[mark.sign] - exact * (chart.HEIGHT - 1)) <= 0.5


def test_a_device_without_stated_memory_says_so(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("name: Toy\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 10 GB/s}\n")
    assert "memory is not stated" in render("gpt2", str(file), 80)


def test_the_links_that_gpus_exchange_over_are_all_named() -> None:
    """An all-reduce of 16 GPUs uses NVLink within a node, too: over InfiniBand alone, the time would be nine times as
    long, as a calculation by hand shows."""
    text = " ".join(render("gpt2", "h100", 120, tp=12, phase="decode").split())
    assert "links, each direction: 450 GB/s nvlink and 50 GB/s infiniband" in text
    text = " ".join(render("gpt2", "l40s", 120, tp=6, phase="decode").split())
    assert "links, each direction: 32 GB/s sockets (over PCIe, between CPU sockets)" in text


@pytest.mark.parametrize("width", [70, 80, 100, 110, 120])
def test_no_line_ends_within_a_number_of_parameters(width: int) -> None:
    lines = render("mixtral-8x7b-v0.1", "h100", width, phase="decode").splitlines()
    assert any("46 702 792 704 parameters, 12 879 925 248 of them active" in line for line in lines)


@pytest.mark.parametrize("phase", ["generate", "train"])
def test_the_line_of_a_stage_has_the_expected_time_of_its_rows(phase: str) -> None:
    lines = render("gpt2", "a100", 100, phase=phase, seq=512).splitlines()
    found = estimate(hub.load("gpt2"), Device.load("a100"), phase=phase, seq=512).phases[0]  # type: ignore[arg-type]
    for stage in found.stages:
        (line,) = (line for line in lines if re.match(rf"{stage} ", line))
        expected = sum(row.expected for row in group_rows(found) if row.stage == stage and row.expected)
        assert line.endswith(f" {units.seconds(expected)}")


def test_bars_are_left_out_before_columns() -> None:
    text = render("llama-3.1-8b", "h100", 100, ["ops"], tp=8, phase="train", batch=8)
    assert "bound by" in text
    assert "█" not in text


def test_columns_that_do_not_fit_are_named_and_the_limit_stays() -> None:
    text = render("llama-3.1-8b", "h100", 76, ["ops"], tp=8, phase="prefill")
    (hidden,) = (line for line in text.splitlines() if line.startswith("not shown at 76 columns: "))
    (head,) = (line for line in text.splitlines() if line.startswith("operator "))
    assert "FLOP/B" in hidden
    assert "FLOP/B" not in head
    assert "bound by" in head
    assert "not shown" not in render("gpt2", "a100", 100)
