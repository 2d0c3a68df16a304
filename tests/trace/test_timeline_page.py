"""The timeline page, opened in headless Chromium with no network: its events, search, zoom, hover and speed."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.trace import timeline_page
from roofmodel.trace.trace import trace
from tests.browser import opened, run, until
from tests.profiles.samples import measured
from tests.trace.runs import Event, event, launched, written

EXAMPLE = Path(__file__).parents[2] / "examples" / "training_by_hand.json"
HOSTILE = '</script><script>alert("1")</script> gemm<float, &x>'
MANY = 100_000  # events of the page whose speed is measured
MAX_FRAME = 0.1  # seconds per frame in the median, with software rendering on a busy machine
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of 2 ms: a kernel, 1 ms in the data loader, a copy, and kernels that a thread launches."""
    folder = tmp_path_factory.mktemp("of-somebody")
    path = written(
        folder,
        event("user_annotation", "ProfilerStep#3", 0, 2000),
        launched(HOSTILE, 100, 200, 50),
        event("user_annotation", LOADER, 190, 1190),
        launched("Memcpy HtoD (Pinned -> Device)", 1300, 1400, 1250, category="gpu_memcpy", bytes=2_000_000),
        *(launched(f"small_gemm_{i % 5}", 1400 + 2 * i, 1401 + 2 * i, 1260 + i, stream=20) for i in range(200)),
        event("cpu_op", "fetch", 0, 500, thread=77),
    )
    page = folder / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        assert run("trace", path, "--hw", "a100", "-o", str(page), monkeypatch=patch) == 0
    return page


@pytest.fixture
def page(chromium: Any, made: Path) -> Iterator[Any]:
    with opened(chromium, made.as_uri()):
        yield chromium


def state(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.execute_script("return roof.state()")
    return found


def events(page: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.execute_script(
        "return Array.from({length: roof.count}, (_, n) => roof.event(n))"
    )
    return found


def press(page: Any, *keys: str) -> None:
    page.find_element("id", "canvas").send_keys(*keys)


def color_at(page: Any, x: float, y: float) -> list[int]:
    script = """const [x, y] = arguments, scale = devicePixelRatio;
    roof.draw();
    const canvas = document.getElementById("canvas"), copy = new OffscreenCanvas(canvas.width, canvas.height);
    const pen = copy.getContext("2d", { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    return [...pen.getImageData(Math.round(x * scale), Math.round(y * scale), 1, 1).data].slice(0, 3);"""
    found: list[int] = page.execute_script(script, x, y)
    return found


def middle(page: Any, number: int) -> tuple[float, float]:
    box = page.execute_script("return roof.box(arguments[0])", number)
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def move_to(page: Any, x: float, y: float) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    canvas = page.find_element("id", "canvas")
    size = canvas.size
    ActionChains(page).move_to_element_with_offset(canvas, x - size["width"] / 2, y - size["height"] / 2).perform()


# --- Content ----------------------------------------------------------------------------------------


def test_the_page_has_the_findings_in_words_and_the_parts_of_the_wall_time(page: Any) -> None:
    (finding,) = page.find_elements("css selector", "#findings li")
    assert "the input pipeline limits the run: the GPU idles 990 µs" in finding.text
    cells = [cell.text for cell in page.find_elements("css selector", "tbody tr > *")]
    assert cells[0] == "0: GPU 0, process 42"
    assert "data loader 990 µs" in cells[-1]
    assert "idle: data loader, 990 µs" in page.find_element("id", "legend").text


def test_the_page_has_each_event_with_its_times(page: Any) -> None:
    found = {each["name"]: each for each in events(page) if each["row"].startswith(("stream", "copies"))}
    # times in ns from the start of the first kernel
    first, copy = found[HOSTILE], found["Memcpy HtoD (Pinned -> Device)"]
    assert (first["start"], first["end"], first["delay"]) == (0, 100_000, 50_000)
    assert (copy["start"], copy["bytes"], copy["row"]) == (1_200_000, 2_000_000, "copies host to GPU")
    assert len([each for each in events(page) if each["name"].startswith("small_gemm")]) == 200
    assert found["small_gemm_4"]["row"] == "stream 20"
    launch = page.execute_script("return roof.event(arguments[0])", first["partner"])
    assert (launch["name"], launch["start"]) == ("cudaLaunchKernel", -50_000)


def test_the_times_of_a_real_run_are_read_exactly() -> None:
    """The columns of the page, unpacked by the test, equal those of the file."""
    found = trace([str(measured("traces/nsys/two_ranks_training_h100.sqlite"))])
    rows = timeline_page.timeline_rows(found)
    data = gzip.decompress(base64.b64decode(timeline_page.packed(rows)))
    size = int.from_bytes(data[:4], "little")
    header, at = json.loads(data[4 : 4 + size]), 4 + size
    count = sum(many for row in header["rows"] for many in row["lanes"])
    columns: dict[str, list[int | None]] = {}
    for name, (low, planes) in header["columns"].items():
        part = [data[at + i * count : at + (i + 1) * count] for i in range(planes)]
        stored = [sum(plane[n] << 8 * i for i, plane in enumerate(part)) for n in range(count)]
        columns[name] = [None if value == 0 else value - 1 + low for value in stored]
        at += planes * count
    assert at == len(data)
    durations = [int(n) for row in rows.rows for n in row.events.end - row.events.start]
    assert columns["duration"] == durations
    kernels = sum(int((r.rank.ends - r.rank.starts).sum()) for r in found.ranks)
    of_gpu = [row["kind"] in ("stream", "copies") for row in header["rows"] for _ in range(sum(row["lanes"]))]
    assert sum(d for d, gpu in zip(durations, of_gpu, strict=True) if gpu) == kernels


def test_rows_are_labeled_and_threads_that_launch_nothing_are_optional(page: Any) -> None:
    def labels() -> list[str]:
        return [each.text for each in page.find_elements("css selector", "#labels .row, #labels .section")]

    assert labels() == [
        "rank 0: GPU 0, process 42", "steps", "idle, by cause", "stream 7", "stream 20", "copies host to GPU",
        "CPU, process 42", "thread 42",
    ]  # fmt: skip
    page.find_element("id", "all").click()
    assert labels()[-1] == "thread 77"


# --- Drawing ----------------------------------------------------------------------------------------


def test_kernels_copies_and_idle_stretches_are_drawn_in_their_colors(page: Any) -> None:
    numbers = {each["name"]: n for n, each in enumerate(events(page))}
    x, y = middle(page, numbers["Memcpy HtoD (Pinned -> Device)"])
    assert color_at(page, x, y + 5) == [0xCC, 0x79, 0xA7]
    x, y = middle(page, numbers[HOSTILE])
    assert color_at(page, x, y + 6) == [0xE6, 0x9F, 0x00]  # GEMM
    idle = next(n for n, each in enumerate(events(page)) if each["name"] == "input")
    x, y = middle(page, idle)
    hatched = {tuple(color_at(page, x + 60 + n, y + 7)) for n in range(8)}
    assert len(hatched) > 1  # hatched, so neighboring pixels differ


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_color_scheme(chromium: Any, made: Path, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    with opened(chromium, made.as_uri()):
        background = color_at(chromium, state(chromium)["width"] - 3, 60)
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert (sum(background) / 3 > 128) is (scheme == "light")


# --- Zoom, search, selection ------------------------------------------------------------------------


def test_the_wheel_zooms_at_the_pointer_and_shift_moves(page: Any) -> None:
    before = state(page)
    script = """const [x, delta, shift] = arguments, canvas = document.getElementById("canvas");
    const { left, top } = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: delta, shiftKey: shift, clientX: left + x, clientY: top + 90,
      cancelable: true }));"""
    x = before["width"] / 4
    page.execute_script(script, x, -240, False)
    after = state(page)
    assert after["to"] - after["from"] == pytest.approx((before["to"] - before["from"]) / 2)
    at_pointer = [each["from"] + (each["to"] - each["from"]) / 4 for each in (before, after)]
    assert at_pointer[0] == pytest.approx(at_pointer[1], abs=2e-3 * (after["to"] - after["from"]))
    page.execute_script(script, x, 100, True)
    moved = state(page)
    assert moved["from"] > after["from"]
    assert moved["to"] - moved["from"] == pytest.approx(after["to"] - after["from"])


def test_keys_zoom_move_and_show_the_whole_run(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    whole = state(page)
    press(page, "+")
    near = state(page)
    assert near["to"] - near["from"] == pytest.approx((whole["to"] - whole["from"]) / 1.5)
    press(page, Keys.ARROW_RIGHT)
    assert state(page)["from"] > near["from"]
    press(page, "0")
    shown = state(page)
    low, high = shown["whole"]
    assert shown["from"] < low
    assert shown["to"] > high
    for _ in range(60):
        press(page, "+")
    assert state(page)["to"] - state(page)["from"] == pytest.approx(20)  # nanoseconds


def test_search_counts_marks_and_visits_the_matches(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    search = page.find_element("id", "search")
    search.send_keys("SMALL_gemm_3")
    assert state(page)["matches"] == 40
    assert page.find_element("id", "matches").text == "40 matches"
    numbers = {each["name"]: n for n, each in enumerate(events(page))}
    x, y = middle(page, numbers["Memcpy HtoD (Pinned -> Device)"])
    assert color_at(page, x, y + 5) != [0xCC, 0x79, 0xA7]  # others are pale
    search.send_keys(Keys.ENTER)
    assert page.find_element("id", "matches").text == "1 of 40"
    first = state(page)["selected"]
    search.send_keys(Keys.ENTER)
    second = state(page)
    assert page.execute_script("return roof.event(arguments[0]).name", second["selected"]) == "small_gemm_3"
    assert second["selected"] != first
    chosen = page.execute_script("return roof.event(arguments[0])", second["selected"])
    assert second["from"] <= chosen["start"] <= chosen["end"] <= second["to"]
    search.send_keys(Keys.SHIFT + Keys.ENTER)
    assert state(page)["selected"] == first
    search.clear()
    search.send_keys("no such kernel")
    assert page.find_element("id", "matches").text == "no match"


def test_the_pointer_shows_name_duration_start_launch_and_bytes(page: Any) -> None:
    numbers = {each["name"]: n for n, each in enumerate(events(page))}
    move_to(page, *middle(page, numbers["Memcpy HtoD (Pinned -> Device)"]))
    until(lambda: page.find_element("id", "tooltip").is_displayed())
    text = page.find_element("id", "tooltip").text
    for part in ("Memcpy HtoD (Pinned -> Device)", "100 µs", "1200 µs", "50 µs", "2 MB", "20 GB/s", "stream"):
        assert part in text
    move_to(page, *middle(page, next(n for n, each in enumerate(events(page)) if each["name"] == "input")))
    until(lambda: "GPU idle: data loader" in page.find_element("id", "tooltip").text)


def test_a_selected_kernel_leads_to_its_launch(page: Any) -> None:
    numbers = {each["name"]: n for n, each in enumerate(events(page))}
    kernel = numbers[HOSTILE]
    page.execute_script("roof.select(arguments[0])", kernel)
    details = page.find_element("css selector", "#details")
    assert HOSTILE in details.text  # as text: the page's policy would report a script
    details.find_element("css selector", "button").click()
    launch = page.execute_script("return roof.event(arguments[0])", state(page)["selected"])
    assert (launch["name"], launch["partner"]) == ("cudaLaunchKernel", kernel)


def test_keys_select_events_and_rows(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    press(page, "n")
    first = state(page)["selected"]
    assert page.execute_script("return roof.event(arguments[0]).row", first) == "stream 7"
    press(page, Keys.ARROW_DOWN)
    assert page.execute_script("return roof.event(arguments[0]).row", state(page)["selected"]) == "stream 20"
    press(page, "n", "n", "p")
    press(page, Keys.ESCAPE)
    assert state(page)["selected"] == -1
    assert not page.find_element("css selector", "section#details").is_displayed()


# --- Size -------------------------------------------------------------------------------------------


def large_run(count: int) -> list[Event | list[Event]]:
    """About `count` events: kernels of 5 to 9 us, each with its operator and its launch."""
    found: list[Event | list[Event]] = []
    for i in range(count // 3):
        at = 10.0 * i
        found.append(event("cpu_op", f"aten::op{i % 7}", at, at + 9))
        found.append(launched(f"gemm_{i % 50}", at + 20, at + 25 + i % 5, at + 2, stream=7 + i % 2))
    return found


FRAMES = """const pen = document.getElementById("canvas").getContext("2d"), times = [];
let marks = 0;
for (let i = 0; i < 60; i++) {
  roof.zoom(i < 30 ? 1.3 : 1 / 1.3);
  const start = performance.now();
  marks = Math.max(marks, roof.draw());
  pen.getImageData(0, 0, 1, 1); // waits until the frame is drawn
  times.push(performance.now() - start);
}
times.sort((a, b) => a - b);
return { median: times[30] / 1000, marks };"""


def test_a_hundred_thousand_events_open_and_zoom_without_delay(chromium: Any, tmp_path: Path) -> None:
    page = tmp_path / "large.html"
    text, notes = timeline_page.html(trace([written(tmp_path, *large_run(MANY))]))
    assert not notes
    page.write_text(text, encoding="utf-8")
    assert page.stat().st_size < 10 * MANY
    with opened(chromium, page.as_uri()):
        assert chromium.execute_script("return roof.count") >= MANY
        measured_frames = chromium.execute_script(FRAMES)
        assert measured_frames["median"] < MAX_FRAME
        # events narrower than a pixel are merged: no more marks than pixels of the lanes
        assert measured_frames["marks"] < 8 * state(chromium)["width"]
        assert all("willReadFrequently" in entry["message"] for entry in chromium.get_log("browser"))  # by this test


def test_a_run_of_too_many_events_says_what_its_page_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timeline_page, "MAX_EVENTS", 30)
    page = tmp_path / "page.html"
    assert run("trace", str(EXAMPLE), "-o", str(page), monkeypatch=monkeypatch) == 0
    note = "the timeline leaves out the 55 shortest events"
    assert note in capsys.readouterr().err
    assert note in page.read_text(encoding="utf-8")


def test_the_page_of_a_run_without_gpu_work_opens(chromium: Any, tmp_path: Path) -> None:
    page = roofmodel.trace(written(tmp_path, event("cpu_op", "aten::mm", 0, 100))).save(tmp_path / "page.html")
    with opened(chromium, page.as_uri()):
        press(chromium, "n", "+", "0")
        assert chromium.execute_script("return roof.count") == 0
