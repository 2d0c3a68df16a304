"""Pictures of points and estimates: marks, and labels that overlap neither marks nor other canvas."""

from __future__ import annotations

import math
import re
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.estimate import picture
from roofmodel.report import canvas
from roofmodel.roofline.panel import category_color
from tests.browser import opened, run

EXAMPLES = Path(__file__).parents[2] / "examples"
HALF, NCU = str(EXAMPLES / "half_by_hand.csv"), str(EXAMPLES / "ncu_by_hand.csv")
TWO = (f"{HALF}@a100", f"{NCU}@h100", "--model", "gpt2-xl")


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every figure that is saved."""
    found: list[Any] = []
    figure = pytest.importorskip("matplotlib.figure").Figure
    save = figure.savefig

    def kept(self: Any, *arguments: Any, **options: Any) -> None:
        found.append(self)
        save(self, *arguments, **options)

    monkeypatch.setattr(figure, "savefig", kept)
    return found


def plot(path: Path, *options: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file that `roof plot` writes."""
    assert run("plot", *options, "-o", str(path), monkeypatch=monkeypatch) == 0
    return path.read_text(encoding="utf-8")


# --- Tails ------------------------------------------------------------------------------------------


def test_half_precision_kernels_have_tails_down_to_their_unpacked_flops(
    figures: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = plot(tmp_path / "x.svg", HALF, "--hw", "a100", monkeypatch=monkeypatch)
    # 8388608 packed additions, 16777216 on one half each, 8388608 packed multiply-adds; of 100663296 bytes each
    ends = {(2**23 * lanes * each / 100663296, 2**23 * lanes * each / t) for lanes, each, t in (
        (1, 1, 64e-6), (2, 1, 71e-6), (1, 2, 62e-6),
    )}  # fmt: skip
    tails = [line for line in figures[0].axes[0].lines if line.get_marker() == "_"]
    for tail in tails:
        (x, low), (y, less) = tail.get_data()
        assert (low, less) == pytest.approx((x / 2, y / 2))
    found = sorted((x[1], y[1]) for x, y in (tail.get_data() for tail in tails))
    assert found == [pytest.approx(end) for end in sorted(ends)]
    assert "Tail: " in written


def test_the_legend_explains_only_drawn_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = plot(tmp_path / "x.svg", NCU, "--hw", "a100", monkeypatch=monkeypatch)
    assert "measured (DRAM traffic)" in written
    assert not re.search("Tail: |predicted bound|Arrow: |without a letter", written)
    assert "Tail: " not in plot(tmp_path / "x.html", NCU, "--hw", "a100", monkeypatch=monkeypatch)


def test_the_page_draws_and_explains_intervals(chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plot(tmp_path / "x.html", HALF, "--hw", "a100", monkeypatch=monkeypatch)
    with opened(chromium, (tmp_path / "x.html").as_uri()):
        tails = chromium.execute_script(
            "return plot.data.filter((t) => t.mode === 'lines+markers').map(({ x, y }) => [x, y])"
        )
        assert len(tails) == 3
        assert all((x[1], y[1]) == pytest.approx((x[0] / 2, y[0] / 2)) for x, y in tails)
        hint = chromium.find_element("css selector", ".hint").text
        assert "Tail: down to the position" in hint


def test_the_legend_fits_and_explains_predicted_convolutions(
    figures: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = ("--hw", "a100", "--model", "resnet-18", "--phase", "train")
    plot(tmp_path / "x.svg", NCU, *workload, monkeypatch=monkeypatch)
    (figure,) = figures
    explained = {}
    for legend in figure.legends:
        extent = legend.get_window_extent()
        assert extent.x1 <= figure.bbox.x1
        assert all(text.get_window_extent().y1 < extent.y0 for text in figure.texts if text.get_position()[0] == 0.675)
        texts = [text.get_text() for text in legend.get_texts()]
        explained |= dict(zip(texts, legend.legend_handles, strict=True))
    meanings = figure.axes[0].get_legend()
    hollow = {text.get_text(): mark for text, mark in zip(meanings.get_texts(), meanings.legend_handles, strict=True)}
    assert hollow["predicted bound"].get_markerfacecolor() == "none"
    (color,) = (mark.get_color() for text, mark in explained.items() if "convolution" in text)
    assert color == category_color("convolution")
    assert not any("stage" in text for text in explained)
    listed = [text.get_text() for text in figure.texts]
    assert "optimizer: optimizer.step" in listed  # the longest predicted operator
    assert "gemm_fp16_4096" in listed


# --- Letters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [("--hw", "a100", "--model", "gpt2-xl"), (f"{HALF}@h100",)])
def test_the_picture_has_the_letters_of_the_terminal(
    options: tuple[str, ...], figures: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "200")
    copy = '"9","1","x","127.0.0.1","copy(float *)","1","7","(256, 1, 1)","(32, 1, 1)","0","8.0","100","100","200"'
    table = f"{Path(NCU).read_text(encoding='utf-8').rstrip()}\n{copy}{',0' * 5}\n"
    (tmp_path / "x.csv").write_text(table, encoding="utf-8")
    file = str(tmp_path / "x.csv") + "@a100" * ("--hw" not in options)
    plot(tmp_path / "x.svg", file, *options, monkeypatch=monkeypatch)
    lines = [line for line in capsys.readouterr().out.splitlines() if " dram " in line]
    rows: dict[float, list[str]] = {}
    for text in figures[0].texts:
        if text.get_position()[0] in (0.675, 0.675 + 0.02):
            rows.setdefault(text.get_position()[1], []).append(text.get_text())
    listed = [row for row in rows.values() if len(row) == 2]
    assert ["", "copy"] in listed
    for letter, name in listed:
        start = re.escape(name[:-1]) if name.endswith("…") else rf"{re.escape(name)}[\s(<]"
        assert {line[0] for line in lines if re.match(start, line[2:])} == {letter or " "}, name
    signs = {sign for text in figures[0].axes[0].texts for sign in re.findall(r"(?<!\S)[A-Z](?!\S)", text.get_text())}
    assert signs
    assert signs <= {letter for letter, _ in listed}


# --- Names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(NCU, "--hw", "a100", "--model", "gpt2-xl"), TWO])
def test_names_of_ceilings_cover_no_marks(
    options: tuple[str, ...], figures: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plot(tmp_path / "x.svg", *options, monkeypatch=monkeypatch)
    axes = figures[0].axes[0]
    marks = [
        (axes.transData.transform(center), math.sqrt(size) / 2 * figures[0].dpi / 72)
        for marks in axes.collections
        for center, size in zip(marks.get_offsets(), marks.get_sizes(), strict=True)
    ]
    names = [text for text in axes.texts if re.search(r"\d [A-Z]?(FLOP|B)/s$", text.get_text())]
    assert len(names) >= 4
    for name in names:
        turned = math.radians(name.get_rotation())
        at = axes.transData.transform(name.get_position())
        name.set_rotation(0)
        box = name.get_window_extent()
        for center, radius in marks:
            x, y = center[0] - at[0], center[1] - at[1]  # seen along the name
            x, y = x * math.cos(turned) + y * math.sin(turned), y * math.cos(turned) - x * math.sin(turned)
            aside = max(box.x0 - at[0] - x, 0, x - (box.x1 - at[0])), max(box.y0 - at[1] - y, 0, y - (box.y1 - at[1]))
            assert math.hypot(*aside) > 0.9 * radius, (name.get_text(), center)


def test_names_on_a_page_cover_no_marks(chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plot(tmp_path / "x.html", NCU, "--hw", "a100", "--model", "gpt2-xl", monkeypatch=monkeypatch)
    with opened(chromium, (tmp_path / "x.html").as_uri()):
        names, marks = (
            chromium.execute_script(
                "return [...document.querySelectorAll(arguments[0])].map((shape) => {"
                "const { left, right, top, bottom } = shape.getBoundingClientRect();"
                "return [left, right, top, bottom, shape.textContent]; })",
                selector,
            )
            for selector in (".annotation-text", "#plot .point")
        )
    flat = [name for name in names if "FLOP/s" in name[4]]
    assert len(flat) >= 2
    for name, mark in product(flat, marks):
        across, up = min(name[1], mark[1]) - max(name[0], mark[0]), min(name[3], mark[3]) - max(name[2], mark[2])
        assert min(across, up) < 3, (name, mark)  # pixels: boxes have some air


@pytest.mark.parametrize(
    ("model", "phase", "smallest_share", "rows"),
    [
        ("gpt2-xl", None, 0.02, 17),  # prefill and decode
        ("mamba-130m-hf", "train", 0.02, 20),
        ("qwen3-coder-next", "generate", 0.02, 19),
        ("deepseek-v2-lite", "train", 0, 60),  # a line for each row, however small
        ("whisper-base", "train", 0, 80),
    ],
)
def test_the_legend_of_many_operators_can_be_read(
    model: str, phase: str | None, smallest_share: float, rows: int, figures: list[Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Type of at least 6.5 points, within the picture, and no texts overlap.

    The letters at the marks are not in the legend; placing those of 80 rows takes 15 seconds.
    """
    monkeypatch.setattr(picture, "LISTED", smallest_share)
    monkeypatch.setattr(picture.canvas, "place_labels", lambda *_: None)
    roofmodel.estimate(model, "h100", phase=phase).save(tmp_path / "x.svg")
    figure = figures[-1]
    legend = [text for text in figure.texts if text.get_position()[0] > 0.66 and text.get_text()]
    assert sum(text.get_text().endswith("%") for text in legend) >= rows
    assert min(text.get_fontsize() for text in legend) > 6.49
    heights = sorted({text.get_position()[1] for text in legend}, reverse=True)
    lines = min(a - b for a, b in pairwise(heights)) * figure.get_figheight() * 72
    assert lines > 1.2 * max(text.get_fontsize() for text in legend if text.get_text().endswith("%"))
    boxes = [(text.get_text(), text.get_window_extent()) for text in legend]
    width, height = figure.get_size_inches() * figure.dpi
    for name, box in boxes:
        assert box.x1 <= width, name
        assert 0 <= box.y0 < box.y1 <= height, name
    for (one, box), (other, other_box) in combinations(boxes, 2):
        across, up = (
            min(box.x1, other_box.x1) - max(box.x0, other_box.x0),
            min(box.y1, other_box.y1) - max(box.y0, other_box.y0),
        )
        assert min(across, up) < 1, (one, other)  # pixels


def test_the_key_lists_communication_and_counts_the_rows_that_it_omits(figures: list[Any], tmp_path: Path) -> None:
    estimate = roofmodel.estimate("deepseek-v3", "h100", phase="prefill", tp=8, ep=8)
    estimate.save(tmp_path / "x.svg")
    words = [text.get_text() for text in figures[-1].texts]
    (of_links,) = (i for i, word in enumerate(words) if word.startswith("communication"))
    totals = estimate.to_dict()["phases"][0]["totals"]
    assert words[of_links + 1] == f"{totals['communication_seconds'] / totals['bound_seconds']:.0%}"
    assert sum(word.endswith("rows under 2% (bound and expected)") for word in words) == 1
    shares = [int(word[:-1]) for word in words if re.fullmatch(r"-?[0-9]+%", word)]
    assert abs(sum(shares) - 100) <= len(shares) / 2


def test_the_key_has_every_shape_of_the_picture(figures: list[Any], tmp_path: Path) -> None:
    """Pooling and the head of a ResNet take less than 2 % of the time each, and have shapes of their own."""
    estimate = roofmodel.estimate("resnet-50", "a100")
    estimate.save(tmp_path / "x.svg")
    drawn = {
        marked.style for (table,) in [picture._tables(estimate.estimate)] for marked in table if marked.row.cost.flops
    }
    listed = {(text.get_color(), text.get_text()) for text in figures[-1].texts}
    assert {(style.color, style.glyph) for style in drawn} <= listed
    assert len(drawn) == 4


def test_each_bound_has_its_expected_point_below_it(figures: list[Any], tmp_path: Path) -> None:
    roofmodel.estimate("gpt2", "a100", phase="decode", engine="torch").save(tmp_path / "x.svg")
    figure = figures[-1]
    groups = [group for group in figure.axes[0].collections if len(group.get_offsets()) == 1]
    filled = [tuple(group.get_offsets()[0]) for group in groups if len(group.get_facecolor())]
    hollow = [tuple(group.get_offsets()[0]) for group in groups if not len(group.get_facecolor())]
    assert len(hollow) == len(filled) > 5
    for (x, bound), (other, expected) in zip(filled, hollow, strict=True):
        assert x == other
        assert expected < bound
    (meanings,) = (figure.axes[0].get_legend(),)
    explained = {t.get_text(): mark for t, mark in zip(meanings.get_texts(), meanings.legend_handles, strict=True)}
    assert explained["at its expected time"].get_markerfacecolor() == "none"
    assert explained["at its bound"].get_markerfacecolor() == explained["at its bound"].get_color()


def test_the_key_says_how_long_a_stage_waits(figures: list[Any], tmp_path: Path) -> None:
    """With one microbatch, each of two equal stages idles half of the time; the shares add up to 1."""
    roofmodel.estimate("gpt2-xl", "a100", phase="prefill", pp=2).save(tmp_path / "x.svg")
    words = [text.get_text() for text in figures[-1].texts]
    shares = [word for word in words if re.fullmatch(r"[0-9]+%", word)]
    assert words[words.index("wait for other stages") + 1] == shares[-1]
    assert 45 < int(shares[-1][:-1]) < 55
    assert abs(sum(int(share[:-1]) for share in shares) - 100) <= len(shares) / 2


# --- Signs, and bars with words behind them ---------------------------------------------------------


def test_labels_cover_no_mark_of_a_scatter_plot() -> None:
    """Several marks of one operator share a number."""
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(6, 6), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 100), ylim=(0, 100))
    marks = [(50, 50), (57, 48), (57, 52), (43, 50), (50, 57), (50, 43)]
    axes.scatter(*zip(*marks, strict=True), s=80)
    canvas.place_labels(axes, [("64, seq 512", (50, 50))], figure.dpi)
    (sign,) = axes.texts
    left, low, right, high = sign.get_window_extent().extents
    half = 80**0.5 / 2 * 100 / 72
    for x, y in axes.transData.transform(marks):
        assert x + half <= left or x - half >= right or y + half <= low or y - half >= high


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_achieved_times_are_in_a_column_away_from_all_marks(
    figures: list[Any], batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is of batch 1; with a larger batch the bounds exceed the measured times."""
    asked = ("gpt2", str(EXAMPLES / "gpt2_trace_by_hand.json.gz"), "--hw", "a100", "--phase", "prefill", "--seq", "512")
    path = tmp_path / "x.svg"
    assert run("compare", *asked, "--batch", str(batch), "-o", str(path), monkeypatch=monkeypatch) == 0
    (figure,) = figures
    wide = figure.get_window_extent().width
    axes = figure.axes[0]
    column = [text.get_window_extent() for text in axes.texts]
    assert len(column) == 13  # the heading and 12 bars
    assert all(axes.get_window_extent().x1 + 10 < extent.x0 < extent.x1 <= wide for extent in column)  # pixels
    assert (">faster than the bound<" in path.read_text()) == (batch > 1)
