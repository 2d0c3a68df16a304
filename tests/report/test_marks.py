"""The rules of all pictures: letters, shapes, hatches, whole numbers on axes of counts, legends beside the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from roofmodel.report import canvas, marks
from tests.browser import run

ROOT = Path(__file__).parents[2]
EXAMPLES, H100 = ROOT / "examples", ROOT / "tests/data/gpu/h100"
HALF, NCU = str(EXAMPLES / "half_by_hand.csv"), str(EXAMPLES / "ncu_by_hand.csv")

Drawn = Callable[..., Figure]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Drawn]:
    """The figure that a command saves."""
    found: list[Figure] = []
    save = Figure.savefig

    def kept(self: Figure, *arguments: Any, **options: Any) -> None:
        found.append(self)
        save(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", kept)

    def draw(*command: str) -> Figure:
        assert run(*command, "-o", str(tmp_path / "x.png"), monkeypatch=monkeypatch) == 0
        return found[-1]

    return draw


def box(text: Text) -> Bbox:
    return text.get_window_extent()


def overlap(one: Bbox, other: Bbox) -> float:
    """The smaller side of the common area, in pixels."""
    return float(min(min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0)))


def letters(axes: Axes) -> list[Text]:
    return [text for text in axes.texts if re.fullmatch("[A-Z]+", text.get_text())]


# --- Letters ----------------------------------------------------------------------------------------

ROOFLINES = {
    "gpt2-xl": ("estimate", "gpt2-xl", "--hw", "a100"),
    "tensor parallel": ("estimate", "llama-3.1-70b", "--hw", "h100", "--tp", "8"),
    "mixture": ("estimate", "deepseek-v3", "--hw", "h200", "--tp", "8", "--ep", "8"),
    "convolutions": ("estimate", "resnet-50", "--hw", "a100"),
    "training": ("estimate", "whisper-base", "--hw", "a100", "--phase", "train"),
    "generate": ("estimate", "qwen3-coder-next", "--hw", "h100", "--phase", "generate", "--tp", "8"),
    "ncu": ("plot", str(H100 / "ncu-gpt2-xl-prefill.raw-base.csv.gz"), "--hw", "h100-sxm"),
    "with a model": ("plot", NCU, "--hw", "a100", "--model", "gpt2-xl"),
    "two devices": ("plot", f"{HALF}@a100", f"{NCU}@h100", "--model", "gpt2-xl"),
}


@pytest.mark.parametrize("name", ROOFLINES)
def test_a_roofline_has_at_most_eight_letters_that_cover_no_other_text(name: str, drawn: Drawn) -> None:
    figure = drawn(*ROOFLINES[name])
    axes = figure.axes[0]
    found = letters(axes)
    assert 2 <= len(found) <= 8
    assert all(len(text.get_text()) == 1 for text in found)
    level = [text for text in axes.texts if not text.get_rotation()]
    for one, other in combinations(level, 2):
        if one in found or other in found:
            assert overlap(box(one), box(other)) < 1, (one.get_text(), other.get_text())
    legend = axes.get_legend()
    assert legend is not None
    assert all(overlap(box(text), legend.get_window_extent()) < 1 for text in found)
    listed = {text.get_text() for text in figure.texts}
    assert {text.get_text() for text in found} <= listed


@pytest.mark.parametrize("name", ROOFLINES)
def test_marks_without_a_letter_are_smaller_and_the_picture_says_so(name: str, drawn: Drawn) -> None:
    axes = drawn(*ROOFLINES[name]).axes[0]
    legend = axes.get_legend()
    assert legend is not None
    meanings = {text.get_text() for text in legend.get_texts()}
    sizes = [float(size) for group in axes.collections for size in group.get_sizes()]  # type: ignore[attr-defined]
    assert ("without a letter" in meanings) == (marks.SMALL in sizes)
    assert min(size for size in sizes if size != marks.SMALL) >= 2 * marks.SMALL


places = st.tuples(st.floats(1e-3, 1e5), st.floats(1e6, 1e15))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(places, st.floats(0, 1)), max_size=40))
def test_eight_places_have_letters_and_far_marks_never_share_one(found: list[tuple[marks.Place, float]]) -> None:
    named = marks.letters([({0: place}, weight) for place, weight in found])
    assert len(set(named) - {""}) <= 8
    first = list(dict.fromkeys(letter for letter in named if letter))
    assert first == sorted(first)  # in the order of the marks
    assert first == list("ABCDEFGH"[: len(first)])
    for (one, (at, _)), (other, (there, _)) in combinations(zip(named, found, strict=True), 2):
        if one and one == other:
            assert max(a / b if a > b else b / a for a, b in zip(at, there, strict=True)) <= 1.3**2 * (1 + 1e-9)


def test_the_heaviest_places_have_the_letters() -> None:
    """Nine places a decade apart: the lightest one has none. Two marks at one place weigh together."""
    weights = [0.05, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.04]
    spread = [({0: (10.0**i, 1e9)}, weight) for i, weight in enumerate(weights)]
    assert marks.letters(spread) == [*"ABCDEFGH", ""]
    assert marks.letters([*spread, ({0: (1.1e8, 1e9)}, 0.02)]) == ["", *"ABCDEFGHH"]  # 0.04 + 0.02 > 0.05


# --- Groups -----------------------------------------------------------------------------------------


def test_colors_have_shapes_and_hatches_of_their_own() -> None:
    palette = {*marks.SERIES, marks.YELLOW}
    assert palette == marks.SHAPES.keys() == marks.HATCHES.keys()
    assert len(set(marks.SHAPES.values())) == len(set(marks.HATCHES.values())) == len(palette)
    assert set(marks.SHAPES.values()) == marks.GLYPHS.keys()


def test_series_differ_in_shape_and_beyond_the_palette_in_color_and_shape() -> None:
    styles = [marks.series_style(i) for i in range(56)]
    assert len({style.shape for style in styles[: len(marks.SERIES)]}) == len(marks.SERIES)
    assert len(set(styles)) == 56


@pytest.mark.parametrize(
    ("command", "count"),
    [
        (("sweep", "gpt2-xl", "--hw", "a100", "--phase", "decode", "--batch", "1,2"), 1),
        (("sweep", "gpt2-xl", "--hw", "a100,h100", "--phase", "decode", "--batch", "1,2"), 2),
        (("sweep", "gpt2", "--hw", "a100,h100,v100", "--weights", "fp16,int4", "--phase", "decode"), 6),
        (("sweep", "gpt2", "--hw", "a100,h100", "--seq", "64,128", "--phase", "decode", "--price", "1"), 4),
        (
            (
                "sweep", "resnet-50", "--hw", "v100,a100", "--phase", "train", "--batch", "64,128", "--gpus", "1,2,4,8",
                "--scaling", "strong",
            ),
            4,
        ),
    ],
)  # fmt: skip
def test_curves_differ_in_shape(command: tuple[str, ...], count: int, drawn: Drawn) -> None:
    axes = drawn(*command).axes[0]
    shapes = {str(line.get_marker()) for line in axes.lines} - {"None", "none", ""}
    if not shapes:  # a scatter plot
        shapes = {str(group.get_paths()[0].vertices) for group in axes.collections if len(group.get_offsets())}
    assert len(shapes) == count


def test_the_parts_of_bars_differ_in_hatch(drawn: Drawn) -> None:
    axes = drawn("trace", str(H100 / "trace-loader-0.json.gz"), "--hw", "h100-sxm").axes[0]
    found = {(patch.get_facecolor(), patch.get_hatch()) for patch in axes.patches if patch.get_width()}  # type: ignore[attr-defined]
    assert len(found) >= 3
    assert len({hatch for _, hatch in found}) == len(found)


# --- Counts -----------------------------------------------------------------------------------------


@given(st.sets(st.integers(1, 4096), min_size=1, max_size=30), st.booleans())
@settings(max_examples=60, deadline=None)
def test_axes_of_counts_have_whole_numbers(counts: set[int], logarithmic: bool) -> None:
    axes = Figure().add_subplot()
    axes.plot(sorted(counts), sorted(counts))
    if logarithmic:
        axes.set_xscale("log")
    canvas.count_axis(axes.xaxis, counts)
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert 1 <= len(ticks) <= 12
    assert all(tick == round(tick) for tick in ticks)
    assert len(axes.get_xticks(minor=True)) == 0


def test_gpus_and_batches_have_a_tick_each(drawn: Drawn) -> None:
    scaling = ("--phase", "train", "--batch", "64", "--gpus", "1,2,4,8", "--scaling", "strong")
    for axes in drawn("sweep", "resnet-50", "--hw", "v100", *scaling).axes:
        assert list(axes.get_xticks()) == [1, 2, 4, 8]
    costs = drawn("sweep", "gpt2", "--hw", "a100", "--batch", "1,2,3,4", "--price", "1")
    assert [list(axes.get_xticks()) for axes in costs.axes] == [[1, 2, 3, 4]] * 2


# --- Legends ----------------------------------------------------------------------------------------

PICTURES = {
    **{name: ROOFLINES[name] for name in ("gpt2-xl", "convolutions", "ncu", "two devices")},
    "compare": (
        "compare", "gpt2", str(EXAMPLES / "gpt2_trace_by_hand.json.gz"), "--hw", "a100", "--phase", "prefill",
        "--seq", "512",
    ),
    "rates": ("sweep", "gpt2-xl", "--hw", "a100,h100", "--batch", "1:256:*2"),
    "roofs": ("sweep", "gpt2-xl", "--hw", "a100", "--batch", "1,64", "--seq", "64,512", "--picture", "roofs"),
    "costs": ("sweep", "gpt2-xl", "--hw", "a100,h100", "--batch", "1:64:*2", "--price", "1"),
    "plan": ("plan", "llama-3.1-8b", "--hw", "h100", "--gpus", "2", "--isl", "1024", "--osl", "256"),
    "trace": ("trace", str(H100 / "trace-loader-0.json.gz"), "--hw", "h100-sxm"),
    "jitter": ("jitter", str(EXAMPLES / "four_ranks_by_hand.csv")),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_no_legend_covers_data(name: str, drawn: Drawn) -> None:
    figure = drawn(*PICTURES[name])
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    assert legends or name in ("rates", "costs", "plan")  # these have text at the right
    for axes in figure.axes:
        inside = axes.get_window_extent()
        for legend in legends:
            assert legend is not None
            assert overlap(legend.get_window_extent(), inside) < 3, name
        for text in figure.texts:
            if text.get_text():
                assert overlap(box(text), inside) < 3, text.get_text()


def test_the_meaning_of_filled_and_hollow_is_in_the_picture(drawn: Drawn) -> None:
    axes = drawn(*ROOFLINES["gpt2-xl"]).axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} >= {"at its bound", "at its expected time"}
    rates = drawn("sweep", "gpt2-xl", "--hw", "a100", "--phase", "decode", "--batch", "1,1024")
    words = [text.get_text() for text in rates.texts]
    assert words[words.index("○") + 1] == "does not fit"
    hollow = [
        group for group in rates.axes[0].collections if len(group.get_offsets()) and not len(group.get_facecolor())
    ]
    assert len(hollow) == 1


def test_a_picture_of_one_phase_tells_kinds_of_operators_apart(drawn: Drawn) -> None:
    """With one phase, marks have the shape of their kind: GEMMs of attention, MLP, norms and LM head."""
    axes = drawn("estimate", "gpt2-xl", "--hw", "a100", "--phase", "prefill").axes[0]
    looks = {
        (tuple(np.round(group.get_edgecolor()[0], 3)), str(group.get_paths()[0].vertices))
        for group in axes.collections
        if not len(group.get_facecolor())
    }
    assert len(looks) >= 4
    assert len({shape for _, shape in looks}) == len({color for color, _ in looks}) == len(looks)
