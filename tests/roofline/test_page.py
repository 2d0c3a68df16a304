"""The page of points, opened and clicked in headless Chromium with no network."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import OutputError
from roofmodel.numbers import units
from roofmodel.report import marks
from roofmodel.roofline.panel import category_color
from tests.browser import opened, run, until
from tests.plot.test_place import CELLS, COLUMNS, UNITS

HOSTILE = '</script><script>alert("1")</script> gemm<float, &x, 3>(T const*, <unnamed>)'
# name, launches' DRAM MB, L2 MB, time in µs, FFMA instructions
KERNELS = (
    ("saxpy", "12", "14", "10", "1000000"),
    (HOSTILE, "2", "40", "100", "400000000"),
    ("beats_the_memory", "40", "41", "10", "2000000"),
    ("copy_without_flops", "8", "8", "5", "0"),
)


def profile() -> str:
    columns = (*COLUMNS[:12], "lts__t_bytes.sum", *COLUMNS[12:], "launch__registers_per_thread")
    rows = [columns, (*UNITS[:12], "Mbyte", *UNITS[12:], "register/thread")]
    for i, (name, dram, l2, time, fma) in enumerate(KERNELS):
        rows.append((str(i), *CELLS[1:4], name, *CELLS[5:], dram, l2, time, "0", "0", fma, "32"))
    return "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A page, and the document of `roof plot --format json` for the same points."""
    folder = tmp_path_factory.mktemp("of-somebody")
    (folder / "ncu.csv").write_text(profile(), encoding="utf-8")
    page, data = folder / "page.html", folder / "points.json"
    with pytest.MonkeyPatch.context() as patch:
        for out in (page, data):
            options = ["--hw", "a100", "--model", "gpt2", "--phase", "decode", "-o", str(out)]
            assert run("plot", str(folder / "ncu.csv"), *options, monkeypatch=patch) == 0
    return page, json.loads(data.read_text(encoding="utf-8"))


@pytest.fixture
def page(chromium: Any, made: tuple[Path, dict[str, Any]]) -> Iterator[Any]:
    with opened(chromium, made[0].as_uri()):
        yield chromium


def shown(page: Any) -> list[int]:
    """The points of the visible rows, from top to bottom."""
    rows = "[...document.querySelectorAll('#points tbody tr')].filter(row => row.offsetHeight)"
    return list(page.execute_script(f"return {rows}.map(row => Number(row.dataset.point))"))


def drawn(page: Any) -> list[int]:
    """The points that have a mark in the picture."""
    return list(page.execute_script("return document.getElementById('plot').data.at(-2).customdata"))


def click(page: Any, selector: str) -> None:
    page.find_element("css selector", selector).click()


def test_the_largest_marks_carry_their_names(made: tuple[Path, dict[str, Any]]) -> None:
    _, _, rest = made[0].read_text(encoding="utf-8").partition('id="data">')
    points = json.loads(rest.partition("</script>")[0])["points"]
    signs = {(p["name"], p["hollow"]): p["sign"] for p in points if p["tokens"][1:2] == ["level:dram"]}
    assert signs["saxpy", False].startswith("saxpy ≥")
    assert signs["saxpy", False].endswith("%")
    predicted = [sign for (_, hollow), sign in signs.items() if hollow and sign]
    assert len(predicted) == 6
    assert all(sign.startswith("decode: ") for sign in predicted)


def test_every_figure_in_the_table_is_in_the_json_document(page: Any, made: tuple[Path, dict[str, Any]]) -> None:
    points = made[1]["points"]
    fields = {"kernel": "name", "launches": "invocations", "time": "seconds", "share": "share", "memory": "level",
              "intensity": "intensity", "performance": "flops_per_second", "attainable": "attainable",
              "bandwidth": "bytes_per_second",
              "share of the ceiling": "fraction", "bound by": "bound", "pipe": "pipe", "work": "category",
              "registers": "registers", "why": "reasons"}  # fmt: skip
    heads = [cell.text for cell in page.find_elements("css selector", "#points thead th")]
    assert set(heads) == set(fields)
    rows = page.find_elements("css selector", "#points tbody tr")
    assert len(rows) == len(points) == len(KERNELS) * 2 + sum(point["predicted"] for point in points)
    for row in rows[:12]:
        point = points[int(row.get_attribute("data-point"))]
        for head, cell in zip(heads, row.find_elements("css selector", "th, td"), strict=True):
            value, raw, text = point[fields[head]], cell.get_attribute("data-value"), cell.text
            if head == "why":
                assert (raw == text == value[0]["evidence"]) if value else raw == text == ""
                continue
            if value is None:
                assert (raw, text) == ("", "?" if head == "bound by" and point["incomplete"] else "")
            elif isinstance(value, str):
                assert raw == value
                assert value.lower() in text.lower()
            elif head == "share of the ceiling" and point["predicted"]:
                assert text == "at its bound"
            else:
                assert float(raw) == value
                written = text.removeprefix("≥ ")
                if written.endswith("%"):
                    assert float(written[:-1]) / 100 == pytest.approx(value, abs=0.0005)
                elif written.endswith(("FLOP/s", "B/s")):
                    unit = "FLOP/s" if written.endswith("FLOP/s") else "B/s"
                    assert units.parse(written, unit) == pytest.approx(value, rel=0.005)
                elif written.endswith("s"):
                    number, unit = written.split()
                    second = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
                    assert float(number) * second == pytest.approx(value, rel=0.005)
                else:
                    assert float(written.removesuffix(" FLOP/B")) == pytest.approx(value, rel=0.005)


def test_marks_have_the_positions_of_the_document_and_the_shapes_of_pictures(
    page: Any, made: tuple[Path, dict[str, Any]]
) -> None:
    points = made[1]["points"]
    assert sorted(drawn(page)) == [i for i, p in enumerate(points) if p["intensity"] and p["flops_per_second"]]
    trace = page.execute_script("const { x, y, marker } = plot.data.at(-2); return { x, y, symbol: marker.symbol }")
    for i, x, y, symbol in zip(drawn(page), trace["x"], trace["y"], trace["symbol"], strict=True):
        assert (x, y) == (points[i]["intensity"], points[i]["flops_per_second"])
        if points[i]["level"] == "l2":
            assert symbol == "line-ns-open"  # a vertical line, as `|` in matplotlib
        else:
            plotly = {"s": "square", "o": "circle", "^": "triangle-up", "P": "cross", "D": "diamond", "X": "x"}
            shape = marks.SHAPES[category_color(points[i]["category"])]
            assert symbol == plotly[shape] + "-open" * points[i]["predicted"]
    lines = page.execute_script("return plot.data.filter(trace => trace.mode === 'lines').map(({ x, y }) => [x, y])")
    for point in (p for p in points if p["level"] == "dram" and not p["predicted"] and p["intensity"]):
        l2 = next(p for p in points if p["name"] == point["name"] and p["level"] == "l2")
        across = sorted([l2["intensity"], point["intensity"]])
        assert [across, [point["flops_per_second"]] * 2] in lines  # between the levels of a kernel


def test_hovering_shows_and_clicking_selects(page: Any, made: tuple[Path, dict[str, Any]]) -> None:
    from selenium.webdriver import ActionChains

    number = next(i for i, p in enumerate(made[1]["points"]) if p["name"] == HOSTILE and p["level"] == "l2")
    mark = page.find_elements("css selector", ".scatterlayer .trace .point")[drawn(page).index(number)]
    ActionChains(page).move_to_element(mark).perform()
    hovered = "return document.querySelector('.hoverlayer').textContent"
    until(lambda: page.execute_script(hovered))
    text = page.execute_script(hovered)
    # 800 MFLOP in 100 µs; 40 MB of L2; 19.5 TFLOP/s of fp32 is the ceiling at 20 FLOP/B
    for figure in ("8 TFLOP/s", "20 FLOP/B", "100 µs", "<unnamed>", "</script><script>alert"):
        assert figure in text
    ActionChains(page).click().perform()
    until(lambda: page.find_elements("css selector", "tr[aria-current]"))
    assert page.execute_script("return document.querySelector('tr[aria-current]').dataset.point") == str(number)
    assert HOSTILE in page.find_element("id", "details").text
    click(page, "tr[data-point='0']")
    assert page.execute_script("return plot.data.at(-1).x") == [made[1]["points"][0]["intensity"]]  # the ring


def test_a_level_and_a_pipe_hides_its_ceiling_and_points(page: Any, made: tuple[Path, dict[str, Any]]) -> None:
    points = made[1]["points"]
    labels = "return plot.layout.annotations.map(label => label.text)"
    assert any(text.startswith("L2 ") for text in page.execute_script(labels))
    click(page, "input[value='level:l2']")
    assert {points[i]["level"] for i in shown(page)} == {points[i]["level"] for i in drawn(page)} == {"dram"}
    assert not any(text.startswith("L2 ") for text in page.execute_script(labels))
    click(page, "input[value='pipe:fp32']")
    assert all(points[i]["pipe"] != "fp32" for i in (*shown(page), *drawn(page)))
    assert not any(text.startswith("fp32 ") for text in page.execute_script(labels))
    click(page, "input[value='kind:predicted']")
    assert not any(points[i]["predicted"] for i in shown(page))


def test_the_table_sorts_by_any_column_either_way(page: Any, made: tuple[Path, dict[str, Any]]) -> None:
    points = made[1]["points"]
    headers = page.find_elements("css selector", "#points thead th")
    for title, field in (("time", "seconds"), ("share of the ceiling", "fraction"), ("kernel", "name")):
        header = next(cell for cell in headers if cell.text == title)
        for order in ("ascending", "descending") if field == "name" else ("descending", "ascending"):
            header.find_element("tag name", "button").click()
            assert header.get_attribute("aria-sort") == order
            values = [points[i][field] for i in shown(page)]
            if field == "name":  # as people sort, which is not by code point
                assert (values.index("beats_the_memory") < values.index("saxpy")) == (order == "ascending")
            else:
                assert values == sorted(values, reverse=order == "descending")


def test_keys_do_what_the_mouse_does(page: Any) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    second = shown(page)[1]
    page.execute_script("document.querySelector('#points tbody button').focus()")
    ActionChains(page).send_keys(Keys.ARROW_DOWN, Keys.ENTER).perform()
    assert page.execute_script("return document.querySelector('tr[aria-current]').dataset.point") == str(second)
    before = page.execute_script("plot.focus(); return plot.layout.xaxis.range")
    ActionChains(page).send_keys("+").perform()
    after = page.execute_script("return plot.layout.xaxis.range")
    assert before[0] < after[0] < after[1] < before[1]
    ActionChains(page).send_keys("0").perform()
    assert page.execute_script("return plot.layout.xaxis.range") == before


def test_the_dark_page_is_dark_and_prints_on_white(page: Any) -> None:
    ground = "return [getComputedStyle(document.body).backgroundColor, plot.layout.paper_bgcolor]"
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    light = page.execute_script(ground)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    assert page.execute_script(ground) != light
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert page.execute_script(ground) == light
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_names_are_never_interpreted_as_markup(page: Any) -> None:
    assert page.execute_script("return document.scripts.length") == 3  # the data, Plotly, ours
    name = page.execute_script("return [...document.querySelectorAll('tbody th')].map(cell => cell.dataset.value)")
    assert HOSTILE in name
    assert "above the ceiling" in page.find_element("id", "points").text


def test_a_page_names_the_file_and_the_device_but_no_folder(made: tuple[Path, dict[str, Any]]) -> None:
    text = made[0].read_text(encoding="utf-8")
    assert "ncu.csv" in text
    assert "a100-sxm-80gb as given" in text
    assert "of-somebody" not in text
    assert len(text) < 6e6  # bytes, of which Plotly has 4.8
    for warning in made[1]["warnings"]:
        assert warning.removeprefix("warning: ").partition("<")[0][:40] in text


def test_the_reasons_are_a_table_above_that_of_the_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GEMM takes 100 us; the peak in tf32 is 156 TFLOP/s, in fp32 19.5: an eighth of the time."""
    (tmp_path / "ncu.csv").write_text(profile(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run("plot", "ncu.csv", "--hw", "a100", "-o", "x.html", monkeypatch=monkeypatch) == 0
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    table, rest = text.partition('<table id="why">')[2].split("</table>", 1)
    assert '<table id="points">' in rest
    rows = [re.findall("<td>(.*?)</td>", row) for row in table.splitlines() if row.startswith("<tr>")]
    first, *_, last = rows
    assert (first[0], first[1], first[3]) == ("alert gemm", "no tensor cores", "87.5 µs")
    assert first[2].startswith("800 MFLOP on the CUDA cores in fp32")
    assert last == ["beats_the_memory", "no reason found (the file does not state how busy its units were)", "", ""]


def test_several_devices_are_distinguished_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ncu.csv").write_text(profile(), encoding="utf-8")
    (tmp_path / "other.csv").write_text(profile(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run("plot", "ncu.csv@a100", "other.csv@h100", "-o", "x.html", monkeypatch=monkeypatch) == 0
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    for device in ("a100-sxm-80gb", "h100-sxm"):
        assert text.count(f'<td class="word" data-value="{device}">') == 2 * len(KERNELS)
    swatches = re.findall(r'<span class="swatch" style="color:(.*?)">(.)</span> NVIDIA', text)
    assert swatches == [(marks.BLUE, "●"), (marks.ORANGE, "■")]


def test_an_estimate_can_be_written_as_a_page_with_expected_times_below_1_mb(tmp_path: Path) -> None:
    report = roofmodel.estimate("gpt2", "a100")
    report.save(tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    assert "openai-community/gpt2 on NVIDIA A100" in text
    for totals in report.totals.values():
        assert f">{units.seconds(totals['expected_seconds'])}<" in text
    assert "<svg" in text


def test_without_plotly_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(OutputError, match="pip install plotly"):
        roofmodel.plot(model="gpt2", hw="v100").save(tmp_path / "x.html")
    assert list(tmp_path.iterdir()) == []
