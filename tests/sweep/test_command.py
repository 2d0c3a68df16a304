"""A sweep as files, as a table, as pictures: the same rows everywhere."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from pyarrow import parquet

import roofmodel
from roofmodel import WorkloadError
from roofmodel.sweep import picture as sweep_picture
from roofmodel.sweep.case import COLUMNS, COUNTS
from tests.printing import printed
from tests.test_cli import Roof, roof

__all__ = ["roof"]  # a fixture

SMALL: dict[str, Any] = {"models": "gpt2", "hw": ["a100", "v100"], "dtype": "fp16,bf16", "batch": [1, 4], "seq": [1, 8]}


def small(**others: Any) -> roofmodel.SweepReport:
    return roofmodel.sweep(**SMALL | others)


def test_all_formats_have_the_same_rows(tmp_path: Path) -> None:
    report = small(price=2.0)
    for suffix in ("csv", "json", "parquet"):
        report.save(tmp_path / f"grid.{suffix}")
    document = json.loads((tmp_path / "grid.json").read_text())
    assert document == report.to_dict()
    assert document["schema"] == "roofmodel.sweep/1"
    rows = document["rows"]
    assert len(rows) == document["points"] == 2 * 2 * 2 * 2 * 2  # phases, devices, types, batches, lengths

    def words(value: object) -> str:
        return "" if value is None else str(value)

    with (tmp_path / "grid.csv").open(newline="") as lines:
        assert list(csv.DictReader(lines)) == [{name: words(row[name]) for name in COLUMNS} for row in rows]
    assert parquet.read_table(tmp_path / "grid.parquet").to_pylist() == rows
    frame = report.to_frame()
    assert list(frame) == list(COLUMNS)
    assert [{k: None if pandas.isna(v) else v for k, v in row.items()} for row in frame.to_dict("records")] == rows


def test_a_page_and_markdown_have_more_rows_than_the_terminal(tmp_path: Path) -> None:
    """120 rows, of which a terminal shows 40, and 1000 of 1200; `save` is given the kind of the picture."""
    report = roofmodel.sweep("gpt2", "a100", phase="decode", batch="1:120")
    assert "and 80 more; save() to .csv, .json or .parquet writes all of them" in printed(report, 100)
    page = report.save(tmp_path / "grid.html", "roofs").read_text()
    assert page.count("<tr>") == 1 + 120  # with the head
    assert " more; " not in page
    assert ": the ceiling that limits each point" in page
    assert "Limiting ceiling" in page
    longer = roofmodel.sweep("gpt2", "a100", phase="decode", batch="1:1200").text("markdown")
    assert longer.count("\n| ") == 1 + 1000
    assert "and 200 more; " in longer
    empty = roofmodel.sweep("gpt2", "a100", phase="decode", where="tpot<1ns")
    assert "<figure" not in empty.save(tmp_path / "empty.html").read_text()


def test_a_page_of_a_grid_that_exceeds_memory_has_its_first_rows(tmp_path: Path) -> None:
    large = roofmodel.sweep("gpt2", "a100", phase="decode", batch="1:10000", context="1:10000")
    page = large.save(tmp_path / "grid.html").read_text()
    assert "and 99999000 more;" in page
    assert "<figure" not in page


def test_the_table_marks_points_beyond_the_usable_memory(roof: Roof) -> None:
    """75 GiB and 3 GiB of vLLM, of 79.19 GiB."""
    asked = ("sweep", "llama-3.1-8b", "--hw", "h100", "--phase", "decode", "--batch", "240", "--seq", "2048")
    marked, unmarked = (" ".join(roof(*asked, *more).out.split()) for more in ((), ("--memory-utilization", "1")))
    assert "75 GiB !" in marked
    assert "! does not fit in the usable memory (--memory-utilization)" in marked
    assert "!" not in unmarked


def test_keys_are_those_of_an_estimates_totals() -> None:
    totals = (
        roofmodel.estimate("resnet-50", "a100").totals["forward"] | roofmodel.estimate("gpt2", "a100").totals["decode"]
    )
    assert set(totals) <= set(COLUMNS)


def test_parquet_refuses_counts_above_64_bits_and_other_formats_write_them(tmp_path: Path) -> None:
    report = roofmodel.sweep("gpt2-xl", "a100", phase="train", batch=10**9, seq=10**6)
    with pytest.raises(roofmodel.OutputError, match="64 bits"):
        report.save(tmp_path / "grid.parquet")
    assert not list(tmp_path.iterdir())
    report.save(tmp_path / "grid.csv")
    (row,) = csv.DictReader((tmp_path / "grid.csv").read_text().splitlines())
    assert int(row["matmul_flops"]) == report.to_dict()["rows"][0]["matmul_flops"] > 2**63


def test_the_table_has_varying_columns_and_a_heading_with_fixed_values() -> None:
    text = printed(roofmodel.sweep("gpt2", "a100", batch="1:4:*2", phase="decode"))
    first, titles, *rows = text.splitlines()
    assert first.split(" · ") == [
        "openai-community/gpt2", "a100-sxm-80gb", "decode", "fp16", "flash attention", "vllm", "3 points",
    ]  # fmt: skip
    assert titles.split()[0] == "batch"
    assert [row.split()[0] for row in rows[:3]] == ["1", "2", "4"]


def test_the_table_marks_points_that_do_not_fit_exceed_positions_or_are_invalid() -> None:
    text = printed(small(batch=[1, 10**6], seq=[8, 2000]))
    assert "! does not fit" in text
    assert "† beyond the model's maximum positions" in text
    assert "no pipe for 'bf16'" in " ".join(text.split())
    assert max(map(len, printed(small(), width=60).splitlines())) <= 60


def test_a_table_with_invalid_points_shows_the_others() -> None:
    text = printed(roofmodel.sweep("mixtral-8x7b-v0.1", "h100", tp=[2, 8], ep=[1, 4], phase="decode"))
    assert "ep=4 needs 4 GPUs" in text
    _, _, *rows = text.splitlines()
    assert [row.split()[:2] for row in rows[:4]] == [["2", "1"], ["2", "4"], ["8", "1"], ["8", "4"]]
    assert [len(row.split()) > 3 for row in rows[:4]] == [True, False, True, True]  # of two GPUs experts want 1 or 2


def test_the_table_of_a_selection_has_the_columns_of_its_conditions(roof: Roof) -> None:
    """Llama 3.1 70B has 8 KV heads; on 2 GPUs, a GPU reads 66 GiB of weights per token: 21 ms at 3.35 TB/s."""
    shown = roof(
        "sweep", "llama-3.1-70b", "--hw", "h100", "--phase", "decode", "--tp", "2,4,8",
        "--where", "tpot<20ms", "--sort", "-mbu",
    ).out.split("\n")  # fmt: skip
    assert "2 of 3 points with tpot<20ms, sorted by -mbu" in " ".join(shown[:3])
    title = next(line for line in shown if line.startswith("tp"))
    assert title.split()[-4:] == ["tokens/s/GPU", "TPOT", "mbu", "memory"]
    assert [line.split()[0] for line in shown[shown.index(title) + 1 :][:2]] == ["4", "8"]


def test_the_table_states_the_parallel_layout() -> None:
    asked: dict[str, Any] = {"phase": "train", "tp": 8, "pp": 4, "batch": 8}
    several = printed(roofmodel.sweep("llama-2-70b-hf", "h100", micro_batch=[1, 2], **asked)).splitlines()
    assert "tp 8 · pp 4 · 2 points" in " ".join(" ".join(several[:2]).split())
    assert [row.split()[0] for row in several[2:5]] == ["micro-batch", "1", "2"]
    one = printed(roofmodel.sweep("llama-2-70b-hf", "h100", sequence_parallel="on", **asked))
    assert "tp 8 · pp 4 · micro-batch 1 · sequence-parallel on" in " ".join(one.split())


def test_a_shortened_table_names_the_command_for_all_rows() -> None:
    assert "and 960 more; save() to .csv" in printed(roofmodel.sweep("gpt2", "a100", batch="1:500"))


@pytest.mark.parametrize("asked", [
    {},
    {"batch": 1, "seq": 8},
    {"models": ["gpt2", "bert-base-uncased"], "seq": [8, 16, 32], "batch": [1, 10**6]},
    {"models": "resnet-50", "seq": None, "dtype": "fp16", "image": [224, 384]},
    {"hw": "mi300x", "dtype": "fp16", "context": [0, 5], "seq": [4, 8]},
    {"hw": "a100", "dtype": "fp16", "phase": "generate", "new_tokens": [1, 4]},
])  # fmt: skip
def test_every_picture_is_drawn(asked: dict[str, Any], tmp_path: Path) -> None:
    report = small(**asked, price=3)
    for picture in (kind for kind in sweep_picture.KINDS if kind not in ("scaling", "power", "front")):
        file = tmp_path / f"{picture}.svg"
        if picture == "costs" and asked.get("models") == "resnet-50":
            with pytest.raises(WorkloadError, match="no model of the sweep has tokens"):
                report.save(file, picture)
        else:
            report.save(file, picture)
            assert "</svg>" in file.read_text()


def test_each_cell_has_the_color_of_its_limiting_ceiling_in_the_legend(tmp_path: Path) -> None:
    """Eight GeForces over PCIe: a prefill of 64 x 1024 tokens is communication-bound."""
    report = roofmodel.sweep(
        "llama-2-70b-hf", "rtx4090", tp=[2, 8], phase="prefill", batch=[1, 64], seq=[16, 1024], engine="torch"
    )
    assert set(report.to_frame()["bound"]) == {"memory", "compute", "communication", "overhead"}
    drawn: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Axes, "imshow", lambda self, image, **how: drawn.append(image))
        report.save(tmp_path / "grid.svg", "roofs")
    assert len(drawn) == 2
    assert all((image < 1).any(axis=-1).all() for image in drawn)  # no cell is white
    text = (tmp_path / "grid.svg").read_text()
    assert all(f">{roof}<" in text for roof in ("memory", "compute", "communication", "launches"))
    assert text.index(">tp 2<") < text.index(">tp 8<")


def test_the_legend_of_costs_names_what_is_drawn(tmp_path: Path) -> None:
    """70 billion parameters of 16 bits do not fit on one H100."""
    asked: dict[str, Any] = {"phase": "decode", "tp": [1, 8], "price": 3}
    roofmodel.sweep("llama-3.1-70b", "h100", **asked).save(tmp_path / "grid.svg", "costs")
    text = (tmp_path / "grid.svg").read_text()
    assert ">tp 8<" in text
    assert ">tp 1<" not in text


def test_series_in_the_legend_differ_in_color_or_shape(tmp_path: Path) -> None:
    report = roofmodel.sweep("gpt2", "a100", tp="1,2,3,4,6,12", dtype="fp16,bf16,tf32", phase="decode", batch=12)
    report.save(tmp_path / "grid.svg")
    text = (tmp_path / "grid.svg").read_text()
    found = re.findall(r'style="[^"]*fill: (#[0-9a-f]{6})"[^>]*>([●■▲◆▼✚✖★])<', text)
    series = [style for style in found if style[0] != "#595959"]  # the gray of remarks
    assert len(series) == len(set(series)) == 18


def test_a_picture_of_a_million_points_has_few_marks(tmp_path: Path) -> None:
    roofmodel.sweep("gpt2", "a100", phase="decode", batch="1:200", context="1:200").save(tmp_path / "grid.svg")
    assert (tmp_path / "grid.svg").stat().st_size < 2_000_000


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=20))
def test_a_pareto_front_has_the_points_that_no_other_dominates(points: list[tuple[int, int]]) -> None:
    latency, rate = numpy.array(points, dtype=float).T
    kept = {points[place] for place in sweep_picture.front(latency, rate)}
    beaten = {
        (x, y) for x, y in points if any(a <= x and b >= y and (a, b) != (x, y) for a, b in points)
    }  # fmt: skip
    assert kept == set(points) - beaten


# --- The command line -------------------------------------------------------------------------------


def test_the_command_writes_the_requested_formats(roof: Roof, tmp_path: Path) -> None:
    out = [tmp_path / f"grid.{suffix}" for suffix in ("csv", "parquet", "png")]
    done = roof(
        "sweep", "gpt2", "bert-base-uncased", "--hw", "a100,v100", "--batch", "1:8:*2", "--seq", "8,16",
        *(word for path in out for word in ("-o", str(path))), "--format", "json",
    )  # fmt: skip
    assert done.status == 0, done.err
    document = json.loads(done.out)
    assert document["points"] == len(document["rows"]) == 2 * (2 + 1) * 4 * 2  # devices, phases, batches, lengths
    assert all(path.stat().st_size > 1000 for path in out)
    assert done.err.count("wrote") == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["gpt2", "--hw", "a100", "--batch", "1:x"], "'x' is not a whole number; try --batch 1,8,64 or 1:64"),
        (["gpt2", "--hw", "a100", "--dtype", "fp61"], "did you mean"),
        (["gpt2", "--hw", "a100,h1o0"], "h1o0"),
        (["gpt2"], "--hw is missing"),
        (["gtp2", "--hw", "a100"], "did you mean"),
        (["gpt2", "--hw", "a100", "--picture", "costs"], "--price"),
        (["gpt2", "--hw", "a100", "--picture", "roof"], "did you mean 'roofs'"),
        (["gpt2", "--hw", "a100", "-o", "grid.xlsx"], "unknown suffix '.xlsx'"),
        (["gpt2", "--hw", "a100", "--price", "a100=x"], "'x' is not a valid price"),
        (["gpt2", "--hw", "a100", "--price", "0"], "'0' is not a valid price"),
        (["gpt2", "--hw", "a100", "--cluster", "nowhere", "--format", "json"], "--cluster nowhere"),
        (["gpt2", "--hw", "a100", "--cluster", "nowhere", "--format", "csv"], "--cluster nowhere"),
        (["gpt2", "--hw", "a100", "--cluster", "nowhere"], "--cluster nowhere"),
        (["gpt2", "--hw", "a100", "--format", "xml"], "unknown format 'xml'"),
        (["gpt2", "--hw", "a100", "--where", "tpot<20"], "--where: 'tpot<20': '20' has no unit"),
        (["gpt2", "--hw", "a100", "--sort", "tpt"], "--sort: unknown column 'tpt'; did you mean 'tpot'"),
    ],
)
def test_errors_name_what_would_work(roof: Roof, arguments: list[str], expected: str) -> None:
    done = roof("sweep", *arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert expected in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--picture", "roofs"], "note: --picture is ignored: no -o FILE .png"),
        (["--price", "a100=2"], "note: --price is missing for h100-sxm"),
    ],
)
def test_options_that_do_not_apply_give_a_note(roof: Roof, arguments: list[str], expected: str, tmp_path: Path) -> None:
    done = roof("sweep", "gpt2", "--hw", "a100,h100", *arguments, "--format", "json")
    assert done.status == 0
    assert expected in done.err
    assert (
        "is ignored"
        not in roof("sweep", "gpt2", "--hw", "a100", "--picture", "roofs", "-o", str(tmp_path / "r.svg")).err
    )


def test_a_price_without_tokens_leaves_only_the_rates(tmp_path: Path) -> None:
    roofmodel.sweep("resnet-18", "a100", price=2).save(tmp_path / "grid.svg")
    assert "Rate against latency" in (tmp_path / "grid.svg").read_text()


def test_panels_without_space_are_counted(tmp_path: Path) -> None:
    small(dtype=["fp16", "fp32", "fp64"], hw=["a100", "h100"], phase="decode").save(tmp_path / "all.svg", "roofs")
    small(dtype=["fp16", "fp32", "fp64"], hw=["a100", "h100"]).save(tmp_path / "some.svg", "roofs")  # times phases
    assert "more panels: sweep fewer values" not in (tmp_path / "all.svg").read_text()
    assert "and 6 more panels: sweep fewer values" in (tmp_path / "some.svg").read_text()


@pytest.mark.parametrize(("batch", "sign"), [([1], None), ([1, 10**6], "×"), ([*range(1, 2002), 10**6], "outlined")])
def test_the_legend_shows_the_mark_for_points_that_do_not_fit(
    batch: list[int], sign: str | None, tmp_path: Path
) -> None:
    small(hw="a100", dtype="fp16", batch=batch, seq=8, phase="decode").save(tmp_path / "grid.svg", "roofs")
    marks = re.findall(">([^<]*): does not fit in memory<", (tmp_path / "grid.svg").read_text())
    assert marks == ([sign] if sign else [])


def test_a_picture_marks_launch_bound_points(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"batch": "1:64:*4", "seq": [512, 1000], "phase": "decode"}
    report = roofmodel.sweep("gpt2", ["a100", "h100"], **asked, engine="torch")
    report.save(tmp_path / "eager.svg")
    text = (tmp_path / "eager.svg").read_text()
    assert "dotted: launch time of the host" in text
    assert ">seq 512: batch 64<" in text
    assert ">seq 1000: batch 64<" in text  # though they stand at one place
    assert any(note.startswith("decode is launch-bound at small sizes") for note in report.to_dict()["notes"])
    graph = roofmodel.sweep("gpt2", ["a100", "h100"], **asked, engine="vllm")
    graph.save(tmp_path / "graph.svg")
    assert "dotted" not in (tmp_path / "graph.svg").read_text()
    assert not any("host" in note for note in graph.to_dict()["notes"])


def test_a_convolutional_network_has_no_attention() -> None:
    report = roofmodel.sweep("resnet-18", "a100", batch="1:2")
    assert "attention" not in printed(report).splitlines()[0]
    assert {row["attention"] for row in report.to_dict()["rows"]} == {None}


def test_python_messages_name_arguments_in_python_spelling() -> None:
    with pytest.raises(WorkloadError, match="new_tokens is 0"):
        roofmodel.sweep("gpt2", "a100", new_tokens=0)


def test_the_report_has_a_notebook_repr() -> None:
    report = small()
    assert repr(report) == "<SweepReport of 32 points>"
    assert "gpt2" in report._repr_mimebundle_()["text/html"]
    assert all(count in COLUMNS for count in COUNTS)
